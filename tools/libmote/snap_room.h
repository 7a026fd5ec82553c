/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_SNAP_ROOM_H
#define TOOLS_LIBMOTE_SNAP_ROOM_H

/*
 * In a jail a snapshot goes to a directory in memory first, which counts for
 * the monitor's control group (root's machines have one): the machine must not
 * be ended by that. -ENOMEM with `err` if it could be. Threads: any.
 */

#include "tools/libmote/mote.h"
#include "vmm/util.h"

int lm_save_room(const struct mote_vm_info *vm,
                 struct mote_err *err) MUST_CHECK;

#endif
