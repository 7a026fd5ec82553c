/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_MACHINE_H
#define VMM_MACHINE_H

/*
 * The one owner of a VM's parts: builds them in order, runs them, takes them
 * down in the opposite order.
 *
 * Threads: created, run and freed on one thread, which becomes the loop's.
 * machine_stop_hook() may be used from any.
 * Errors: -errno with a line in `err`; what happens once the VM runs is told
 * by the result.
 */

#include "vmm/config.h"
#include "vmm/evloop.h"
#include "vmm/log.h"
#include "vmm/stop.h"

struct machine;

struct machine_options {
    struct log *log;
    int console_in_fd;   /* -1: none; borrowed */
    int console_out_fd;  /* -1: none; borrowed */
    uint64_t start_ns;   /* CLOCK_MONOTONIC that timings count from */
    bool emulated_ring0; /* what the probe said */
    bool test_exit;      /* test programs may end the VM with a result */
};

#define MACHINE_MAX_MARKS 32

struct machine_result {
    enum stop_reason reason;
    uint32_t detail;
    uint64_t first_run_ns; /* since start_ns; 0: it never ran */
    size_t num_marks;
    struct {
        uint8_t mark;
        uint64_t at_ns; /* since start_ns */
    } marks[MACHINE_MAX_MARKS];
};

int machine_new(const struct vm_config *config,
                const struct machine_options *options,
                struct machine **out_machine, struct errmsg *err) MUST_CHECK;
/* Starts the vCPUs and returns when the VM has ended. 0 or -errno. */
int machine_run(struct machine *m, struct machine_result *out,
                struct errmsg *err) MUST_CHECK;
void machine_free(struct machine *m); /* NULL is fine */

struct evloop *machine_loop(struct machine *m); /* borrowed */
struct stop_hook machine_stop_hook(struct machine *m);

#endif
