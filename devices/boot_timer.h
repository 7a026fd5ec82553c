/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_BOOT_TIMER_H
#define DEVICES_BOOT_TIMER_H

/*
 * A register to which a guest writes 123 when it has booted: a log line then
 * tells how long that took. Guests made for Firecracker's --boot-timer do it.
 * Reads give 0. Threads: any vCPU, under a lock of its own.
 */

#include "vmm/bus.h"
#include "vmm/log.h"

#define BOOT_TIMER_BYTES 0x100u
#define BOOT_TIMER_VALUE 123u

struct boot_timer;

struct boot_timer_args {
    struct log *log;    /* borrowed */
    uint64_t start_ns;  /* CLOCK_MONOTONIC that the time counts from */
    int64_t cpu_offset; /* us: to be added to the CPU time of this process */
};

extern const struct bus_ops boot_timer_bus_ops; /* dev = struct boot_timer */

/* 0 or -ENOMEM. */
int boot_timer_new(const struct boot_timer_args *args,
                   struct boot_timer **out_timer) MUST_CHECK;
void boot_timer_free(struct boot_timer *t); /* NULL is fine */

#endif
