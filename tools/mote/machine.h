/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_MACHINE_H
#define TOOLS_MOTE_MACHINE_H

/*
 * A machine of ours that is ready, to its end; `run` and `snapshot load`.
 * `writable`: it has disks whose content has to be written back.
 */

#include "tools/mote/session.h"

/* The value of --jail, or NULL: that of $MOTE_JAIL. -EINVAL with `err`. */
int machine_jail(const char *option, enum mote_jail *out, struct mote_err *err);
/* A line if there is no jail where one would have been liked. */
void machine_tell_jail(const struct mote_vm *vm);

/* Runs the command; the exit code of mote. */
int machine_command(struct mote_vm *vm, const struct mote_exec_params *exec,
                    bool writable, int signal_fd, struct session_result *out);

/* Until it ends or we are told to; the exit code of mote. */
int machine_stay(struct mote_vm *vm, bool writable, int signal_fd);

/* Many machines take many descriptors; the hard limit is the user's word. */
void machine_raise_nofile(void);

#endif
