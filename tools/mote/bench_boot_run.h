/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_BENCH_BOOT_RUN_H
#define TOOLS_MOTE_BENCH_BOOT_RUN_H

/*
 * One boot of one monitor, from its exec to the first output of a command, and
 * when it passed which point. mote-vmm and Firecracker are asked by vsock and
 * exit file, QEMU's guest writes its marks to a debug port that leads here,
 * kvmtool's says a word on its console.
 *
 * Ownership: structs are the caller's; boot_result_fini(). Threads: one.
 * Errors: -errno with a line; -ECANCELED: a signal came.
 */

#include "tools/libmote/err.h"

#include <jansson.h>

/* Points of a boot, in their order. */
enum boot_point {
    BOOT_CONFIGURED, /* the monitor has built everything */
    BOOT_KVM_RUN,    /* first entry of the guest */
    BOOT_KERNEL,     /* mark of the kernel's entry, where it writes one */
    BOOT_CLOCK,      /* the kernel's clock starts, that of its first line */
    BOOT_INIT,       /* /init runs */
    BOOT_ROOT,       /* the root file system is in place */
    BOOT_READY,      /* the agent is ready */
    BOOT_OUTPUT,     /* first output of the first command */
    BOOT_POINTS,
};
extern const char *const boot_point_names[BOOT_POINTS]; /* for people */
extern const char *const boot_point_keys[BOOT_POINTS];  /* for JSON */

enum boot_kind { BOOT_MOTE, BOOT_FIRECRACKER, BOOT_QEMU, BOOT_KVMTOOL };

struct boot_monitor {
    enum boot_kind kind;
    char name[16]; /* "mote", "qemu", ... */
    char program[MOTE_PATH_CAP];
};

/* What all monitors boot. */
struct boot_guest {
    char kernel[MOTE_PATH_CAP];
    char initrd[MOTE_PATH_CAP];
    char root[MOTE_PATH_CAP];
    uint64_t mem_bytes;
    unsigned cpus;
    int timeout_ms;
    int signal_fd;            /* of signals_open() */
    const char *const *extra; /* further words for mote-vmm, NULL: none */
};

struct boot_result {
    double at_ms[BOOT_POINTS]; /* since exec; below 0: not known */
    json_t *report;            /* mote's exit file; NULL: none */
};

/* Kernel "tiny", "sandbox" or a file; `initrd` NULL: mote's own. */
int boot_guest_find(struct boot_guest *g, const char *kernel,
                    const char *initrd, struct mote_err *err) MUST_CHECK;
/* Of "qemu", "kvmtool[=PATH]", "firecracker[=PATH]" or "mote"; -ENOENT with
 * the remedy if it is not installed. */
int boot_monitor_find(struct boot_monitor *m, const char *spec,
                      struct mote_err *err) MUST_CHECK;

int boot_once(const struct boot_monitor *m, const struct boot_guest *g,
              struct boot_result *out, struct mote_err *err) MUST_CHECK;
void boot_result_fini(struct boot_result *r); /* idempotent */

/* The command line of a peer as it is run, in `dir`; for people. */
void boot_command_text(const struct boot_monitor *m, const struct boot_guest *g,
                       char *out, size_t cap);

#endif
