/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_MACHINE_METRICS_H
#define VMM_MACHINE_METRICS_H

/*
 * What a machine's devices and vCPUs have counted, as groups of a metrics
 * line; metrics.md explains every key. Threads: io.
 */

#include "vmm/machine.h"

#include <jansson.h>

/* What the last line said; starts zeroed. */
struct machine_told;

/*
 * Adds the groups of `m`; NULL: of no machine, all 0. The keys are the same but
 * for those that a device's id is part of. *told is made when it is first
 * needed; free() it with the machine. Without memory the groups are left out.
 */
void machine_gather(struct machine *m, struct machine_told **told,
                    json_t *line);

#endif
