/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_I8042_H
#define DEVICES_I8042_H

/*
 * As much of a PC's keyboard controller as it takes to reset the machine
 * through it, for a driver to find it sound, and for three keys to be pressed
 * by the host. No keyboard answers commands: a Linux guest has to be told so
 * (i8042.dumbkbd).
 *
 * Threads: any vCPU, under a lock of its own.
 */

#include "vmm/bus.h"
#include "vmm/counter.h"
#include "vmm/state.h"
#include "vmm/stop.h"

#define I8042_NUM_PORTS 5u /* data at 0, status and command at 4 */

struct i8042;

extern const struct bus_ops i8042_bus_ops; /* dev = struct i8042 */

/* 0 or -ENOMEM. */
int i8042_new(const struct stop_hook *stop, struct i8042 **out_kbc) MUST_CHECK;
/*
 * The line that says that a key's byte is there, an eventfd; -1 (as at the
 * start): no keys. Borrowed. Before the vCPUs run.
 */
void i8042_set_irq(struct i8042 *kbc, int irq_fd);
/*
 * Presses Ctrl, Alt and Delete and lets them go again. False: there is no
 * line, or bytes of the last time are still there. Thread: any.
 */
bool i8042_press_ctrl_alt_del(struct i8042 *kbc);
struct i8042_stats {
    uint64_t reads; /* of registers */
    uint64_t writes;
    uint64_t missed_reads; /* of nobody's port, or of more than a byte */
    uint64_t missed_writes;
    uint64_t resets; /* of the machine, by the guest */
};
/* Thread: any. */
void i8042_get_stats(const struct i8042 *kbc, struct i8042_stats *out);

/*
 * All of a section; the vCPUs stopped. -EBADMSG: nothing was taken over. Load
 * raises the interrupt for keys that wait, so it comes after the interrupt
 * controller's own state.
 */
#define I8042_STATE_VERSION 1u
void i8042_save(struct i8042 *kbc, struct state_out *out);
int i8042_load(struct i8042 *kbc, struct state_in *in) MUST_CHECK;

void i8042_free(struct i8042 *kbc); /* NULL is fine */

#endif
