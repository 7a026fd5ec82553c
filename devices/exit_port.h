/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_EXIT_PORT_H
#define DEVICES_EXIT_PORT_H

/*
 * Ports by which the guest says why it ends, a test program its result, and a
 * booting guest how far it has come. One byte each; reads give 0.
 *
 * The numbers are those of the guest's side as well and never change.
 * Threads: any vCPU, under a lock of its own.
 */

#include "vmm/bus.h"
#include "vmm/stop.h"

#define EXIT_PORT_BASE      0x500u
#define EXIT_PORT_NUM_PORTS 8u

#define EXIT_PORT_REASON 0u /* enum exit_port_reason: the VM ends */
#define EXIT_PORT_TEST   1u /* a test's result byte: the VM ends */
#define EXIT_PORT_MARK   4u /* a boot mark: noted with the time */

enum exit_port_reason {
    EXIT_PORT_POWEROFF = 1,
    EXIT_PORT_REBOOT = 2,
    EXIT_PORT_HALT = 3,
    EXIT_PORT_PANIC = 4,
};

#define EXIT_PORT_MAX_MARKS 64u

struct exit_port_mark {
    uint64_t at_ns; /* since exit_port_args.start_ns */
    uint8_t mark;
};

struct exit_port;

struct exit_port_args {
    struct stop_hook stop;
    bool test_enabled; /* else port EXIT_PORT_TEST does nothing */
    uint64_t start_ns; /* CLOCK_MONOTONIC that marks count from */
    /* Told of each noted mark on the vCPU's thread; may be NULL. */
    void (*mark)(void *arg, uint8_t mark);
    void *mark_arg;
};

extern const struct bus_ops exit_port_bus_ops; /* dev = struct exit_port */

/* 0 or -ENOMEM. */
int exit_port_new(const struct exit_port_args *args,
                  struct exit_port **out_port) MUST_CHECK;
void exit_port_free(struct exit_port *port); /* NULL is fine */

/*
 * Copies the marks noted so far (at most `max`, the first ones of the boot);
 * returns the count. Thread: any.
 */
size_t exit_port_marks(struct exit_port *port, struct exit_port_mark *out,
                       size_t max);

#endif
