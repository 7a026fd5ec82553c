/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_I8042_H
#define DEVICES_I8042_H

/*
 * As much of a PC's keyboard controller as it takes to reset the machine
 * through it and for a driver to find it sound and without a keyboard.
 *
 * Threads: any vCPU, under a lock of its own.
 */

#include "vmm/bus.h"
#include "vmm/stop.h"

#define I8042_NUM_PORTS 5u /* data at 0, status and command at 4 */

struct i8042;

extern const struct bus_ops i8042_bus_ops; /* dev = struct i8042 */

/* 0 or -ENOMEM. */
int i8042_new(const struct stop_hook *stop, struct i8042 **out_kbc) MUST_CHECK;
void i8042_free(struct i8042 *kbc); /* NULL is fine */

#endif
