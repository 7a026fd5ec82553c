/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_FAKE_KERNEL_H
#define TESTS_HARNESS_FAKE_KERNEL_H

/*
 * Small kernel files, built in memory: ELFs with chosen segments, notes and
 * sections, bzImages around a packed payload, and files to hand to a loader
 * by path. Everything here aborts on its own errors.
 *
 * Ownership: a buffer belongs to the caller, fake_buf_free(). Threads: any.
 */

#include "vmm/util.h"

struct fake_buf {
    uint8_t *bytes;
    size_t len;
};

struct fake_segment {
    uint64_t paddr;
    uint64_t vaddr;
    uint64_t file_bytes;
    uint64_t mem_bytes;
    uint64_t offset; /* in the file; 0: the next page after what is there */
    uint8_t fill;    /* the value of its bytes */
};

struct fake_elf {
    uint64_t entry;
    const struct fake_segment *segments;
    size_t num_segments;
    const char *rodata; /* text at the end of segment 0, as .rodata; or NULL */
    bool sections;      /* write a section table that names .rodata */
    bool note_pvh;
    bool note_linux;
};

void fake_elf_build(const struct fake_elf *spec, struct fake_buf *out);

/* A vmlinux as Linux builds it, small: text, data with bss, entry at 16 MiB. */
void fake_vmlinux(bool with_dt, struct fake_buf *out);

enum fake_pack { FAKE_GZIP, FAKE_ZSTD, FAKE_LZ4, FAKE_XZ };

/* A whole payload, the trailing size word included. False: not built in. */
bool fake_payload(enum fake_pack how, const struct fake_buf *elf,
                  struct fake_buf *out);

/* A 64-bit bzImage of protocol 2.15 around the payload. */
void fake_bzimage(const struct fake_buf *payload, struct fake_buf *out);

void fake_buf_free(struct fake_buf *buf);

/* A file with these bytes that vanishes when the fd is closed; by path. */
int fake_file(const struct fake_buf *buf, char path[64]);

#endif
