/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JAIL_KEEPER_H
#define JAIL_KEEPER_H

/*
 * The process that builds the jail, starts the monitor, waits for its end and
 * takes the jail down. It lives in a session of its own, so that whatever
 * kills the caller's terminal, process group or child leaves it alive to do so.
 */

#include "tools/jail/jail.h"

#define KEEPER_STARTED 'S'
#define KEEPER_ENDED   'E'

struct keeper_word {
    int what;
    int status; /* of KEEPER_ENDED, as from waitpid() */
};

/*
 * `life_fd`: end of file there means that the caller's child is gone, and the
 * monitor is killed; a byte means that it need not stay. `tell_fd` gets the
 * words. All signals are blocked. Does not return.
 */
_Noreturn void keeper_run(struct jail *j, int life_fd, int tell_fd);

/* Takes down what is left when the keeper itself was killed. */
void keeper_rescue(struct jail *j);

#endif
