/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_BENCH_GUEST_H
#define TOOLS_MOTE_BENCH_GUEST_H

/*
 * The machine that `bench restore` and `bench fork` measure, and what they ask
 * of it and of the host.
 * Ownership: embedded; bench_guest_end() ends the machine. Threads: one.
 * Errors: -errno with a line.
 */

#include "tools/libmote/err.h"

/* A hang guard: a boot takes half a minute where ring 0 is emulated. */
#define BENCH_GUARD_MS 300000

struct bench_guest {
    const char *kernel; /* "tiny", "sandbox" or a file; NULL: as fits */
    uint64_t mem_bytes;
    char flavour[MOTE_PATH_CAP]; /* which it was */
    char kernel_path[MOTE_PATH_CAP];
    char initrd[MOTE_PATH_CAP];
    char root[MOTE_PATH_CAP];
    struct mote_vm *vm;
    struct mote_vm_info info;
    int console_fd; /* what it writes to its serial port; -1: not asked for */
};

/* Boots it and waits until it is ready. `console`: open console_fd. */
int bench_guest_start(struct bench_guest *g, bool console,
                      struct mote_err *err) MUST_CHECK;
void bench_guest_end(struct bench_guest *g); /* idempotent */

/* `script` by the guest's shell, to its end, which has to be good. */
int bench_guest_sh(const char *vsock_path, const char *script,
                   struct mote_err *err) MUST_CHECK;
/* The time when the first output of `echo` came. */
int bench_guest_echo(const char *vsock_path, uint64_t *out_ns,
                     struct mote_err *err) MUST_CHECK;

#endif
