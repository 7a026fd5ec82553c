/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections and what their requests mean.
 */
#ifndef GUEST_AGENT_SERVER_H
#define GUEST_AGENT_SERVER_H

#include "guest/agent/agent.h"

/* Listens on vsock, or on the Unix socket `path` if it is not NULL. */
int server_listen(struct agent *agent, const char *path);

/* Connects to the host (or the Unix socket `path`) and says READY. Nobody
 * there: no harm. */
void server_ready(struct agent *agent, const char *path);

/* Tells the host that the guest could not get ready, and waits a moment for
 * it to take notice. */
void server_not_ready(const char *line);

/* Runs until the machine is to end. */
void server_run(struct agent *agent);

#endif
