/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_BENCH_BOOT_OPTS_H
#define TOOLS_MOTE_BENCH_BOOT_OPTS_H

/* The options that all benches of a boot share. Threads: one. */

#include "tools/libmote/opts.h"
#include "tools/mote/bench_boot_run.h"

#define BOOT_MEM_LO (32 * MIB)
#define BOOT_MEM_HI (1024 * GIB)

struct boot_opts {
    const char *kernel;
    const char *initrd;
    uint64_t mem_bytes;
    uint64_t cpus;
    uint64_t timeout_ms;
    bool json;
};

#define BOOT_OPTS_DEFAULT                                                      \
    {                                                                          \
        .kernel = "tiny", .mem_bytes = 128 * MIB, .cpus = 1,                   \
        .timeout_ms = 120000                                                   \
    }

/* Rows of an option table for a struct boot_opts at offset `at`. */
#define BOOT_OPTS_ROWS(at)                                                     \
    {"kernel", 'k',                                                            \
     OPT_TEXT, (at) + offsetof(struct boot_opts, kernel),                      \
     "KERNEL", "guest kernel: tiny, sandbox or a file",                        \
     "tiny",   0,                                                              \
     0},                                                                       \
        {"initrd",                                                             \
         0,                                                                    \
         OPT_TEXT,                                                             \
         (at) + offsetof(struct boot_opts, initrd),                            \
         "FILE",                                                               \
         "initial ramdisk with the agent",                                     \
         "mote's own",                                                         \
         0,                                                                    \
         0},                                                                   \
        {"mem",      'm',                                                      \
         OPT_SIZE,   (at) + offsetof(struct boot_opts, mem_bytes),             \
         "SIZE",     "memory of the guest",                                    \
         "128M",     BOOT_MEM_LO,                                              \
         BOOT_MEM_HI},                                                         \
        {"cpus",     'c',                                                      \
         OPT_NUMBER, (at) + offsetof(struct boot_opts, cpus),                  \
         "N",        "virtual CPUs",                                           \
         "1",        1,                                                        \
         32},                                                                  \
        {"timeout",    0,                                                      \
         OPT_DURATION, (at) + offsetof(struct boot_opts, timeout_ms),          \
         "TIME",       "the longest that one boot may take",                   \
         "120s",       1000,                                                   \
         3600000},                                                             \
    {                                                                          \
        "json", 0, OPT_FLAG, (at) + offsetof(struct boot_opts, json), NULL,    \
            "print one JSON document", NULL, 0, 0                              \
    }

/* Fills all but `extra`; the descriptor of signals is the caller's to close. */
int boot_opts_guest(const struct boot_opts *o, struct boot_guest *g,
                    struct mote_err *err) MUST_CHECK;

/* One boot of mote itself, for the benches that look at its report. */
int boot_mote_once(const struct boot_guest *g, struct boot_result *out,
                   struct mote_err *err) MUST_CHECK;

/*
 * Parses argv of `c` into `dst`; true: go on. Else *code is the exit code.
 * These benches take no operands.
 */
struct command;
bool bench_parse(const struct command *c, int argc, char **argv, void *dst,
                 int *code);

/* A failure: one line, or a document; the exit code. 130 after a signal. */
int bench_failed(const struct mote_err *err, bool json);

/* A line on standard error that the next one replaces; only on a terminal. */
void bench_progress(const char *fmt, ...) PRINTF_LIKE(1, 2);
void bench_progress_end(void);

#endif
