/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RESTORE: what makes a machine that came out of a snapshot one of its own,
 * before anybody uses it: wall clock, random seed, boot id, host name,
 * addresses, then the programs of /etc/mote/restore.d one after another.
 *
 * All but the programs is done at once, and a failure of it refuses the
 * request; a program that fails is told by a NOTE of the OK. One RESTORE at a
 * time. If its client is gone (because the machine was saved meanwhile and is
 * now restored itself), the next one takes over and all programs run again.
 */
#ifndef GUEST_AGENT_RESTORE_H
#define GUEST_AGENT_RESTORE_H

#include <sys/types.h>

#include "guest/agent/conn.h"

#define RESTORE_HOOKS "/etc/mote/restore.d"

void restore_begin(struct conn *conn, const uint8_t *data, size_t length);

/* The connection is going: nobody waits for the answer any more. */
void restore_gone(struct conn *conn);

/* Whether this connection waits for a RESTORE. */
bool restore_waits(const struct conn *conn);

/* A child has ended; true if it was one of ours. */
bool restore_reaped(struct agent *agent, pid_t pid, int wait_status);

#endif
