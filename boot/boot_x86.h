/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_BOOT_X86_H
#define BOOT_BOOT_X86_H

/*
 * The one entry to this folder: puts a kernel, its initrd and everything that
 * the 64-bit Linux boot protocol asks for into guest memory, and says in which
 * state the first vCPU has to start. spec: x86-boot 2.15 (64-bit protocol).
 *
 * Ownership: borrows all of the config for the call; the result holds no
 * pointers. Files are opened and closed inside; mapped kernels keep their
 * pages through the mapping alone.
 * Threads: any, before the first vCPU runs. syscalls: openat, fstat, pread64,
 * mmap, munmap, close.
 * Errors: -errno, with the line for the user in `err`. Guest memory may be
 * half written after a failure.
 */

#include "boot/boot_machine.h"
#include "vmm/errmsg.h"

enum boot_desc {
    BOOT_DESC_AUTO,   /* the device tree if the kernel can read it */
    BOOT_DESC_DT,     /* device tree */
    BOOT_DESC_MPTABLE /* MP table and virtio_mmio.device= words */
};

struct boot_config {
    const char *kernel_path;
    const char *initrd_path;  /* NULL: none */
    const char *user_cmdline; /* NULL: empty */
    const char *extra_words;  /* the monitor's, before the user's; or NULL */
    struct boot_machine machine;
    const uint8_t *seed; /* for the guest's random pool; NULL: none */
    size_t seed_len;     /* bytes, at most BOOT_MAX_SEED */
    enum boot_desc desc;
    bool ram_is_fresh; /* nothing was ever written: the bss is zero already */
};

#define BOOT_MAX_SEED  512u
#define BOOT_MAX_NOTES 4u

/* GDT selectors of the 64-bit protocol: __BOOT_CS and __BOOT_DS. */
#define BOOT_SEL_CS 0x10u
#define BOOT_SEL_DS 0x18u

struct boot_result {
    uint64_t entry_rip;
    gpa_t boot_params; /* goes into RSI */
    gpa_t page_tables; /* goes into CR3; maps the first 4 GiB one to one */
    gpa_t gdt_base;
    uint16_t gdt_limit;   /* last valid byte, as GDTR wants it */
    gpa_t kernel_start;   /* lowest and, exclusive, highest byte */
    gpa_t kernel_end;     /* of the kernel including its bss */
    gpa_t initrd_base;    /* 0 without an initrd */
    uint64_t initrd_size; /* bytes */
    enum boot_desc desc;  /* what was chosen; never BOOT_DESC_AUTO */
    char cmdline[LAYOUT_CMDLINE_MAX];
    size_t num_notes; /* one line each, for the log */
    char notes[BOOT_MAX_NOTES][128];
};

/* thread: any, before the first vCPU runs */
int boot_load(struct guest_mem *gm, const struct boot_config *cfg,
              struct boot_result *out, struct errmsg *err) MUST_CHECK;

/*
 * Checks a user's command line before a machine exists: control characters
 * and length. 0 or -EINVAL / -E2BIG with a line for the user.
 */
int boot_check_cmdline(const char *user_cmdline, struct errmsg *err) MUST_CHECK;

/*
 * Checks by content that a file is a kernel that boot_load() accepts. The
 * file is opened, its header read, and closed again.
 */
int boot_check_kernel(const char *path, struct errmsg *err) MUST_CHECK;

#endif
