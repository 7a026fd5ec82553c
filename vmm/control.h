/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_CONTROL_H
#define VMM_CONTROL_H

/*
 * The life of the process: with a configuration file the machine starts at
 * once; with a control socket clients may describe and start it, and drive it
 * while it runs. The process ends with its machine.
 *
 * Threads: main, which becomes the loop's. Errors are logged here; the result
 * is the exit code.
 */

#include "vmm/log.h"
#include "vmm/options.h"

/* `start_ns`: CLOCK_MONOTONIC at the process's start. `log` may end on another
 * descriptor than it came with. */
int control_run(const struct vmm_options *o, struct log *log,
                uint64_t start_ns);

#endif
