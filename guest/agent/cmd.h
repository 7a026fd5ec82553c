/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running commands: one struct cmd from START until its process was reaped
 * and both its output pipes are closed.
 *
 *  - EXIT goes out when the process has ended and what it had written until
 *    then is delivered, whoever else still holds the pipes. What background
 *    processes write later is read and thrown away, so that they live on.
 *  - Backpressure: output is not read while the connection is full, the
 *    connection is not read while the queue of standard input is.
 *  - A host that goes away before EXIT ends the tree, unless detached. A
 *    connection that was reset because the machine was restored ends nothing:
 *    the command runs on without a client, what it writes is thrown away, its
 *    input and its terminal stay open and bring nothing.
 */
#ifndef GUEST_AGENT_CMD_H
#define GUEST_AGENT_CMD_H

#include <sys/resource.h>

#include "guest/agent/agent.h"
#include "guest/agent/conn.h"
#include "guest/agent/spawn.h"
#include "guest/agent/tree.h"

struct cmd_out {
    struct loop_source source;
    struct cmd *cmd;
    uint8_t type; /* STDOUT or STDERR */
    size_t left;  /* once it ended: bytes still to be delivered, at most */
};

struct cmd_in {
    struct loop_source source;
    struct cmd *cmd;
    uint8_t *queue;
    size_t at, length, capacity;
    bool eof; /* to be closed when the queue is empty */
};

struct cmd {
    struct agent *agent;
    struct conn *conn; /* NULL once nobody listens */
    struct cmd *next;
    struct tree tree;
    struct spawn *spawn; /* until the exec is done */
    struct cmd_status {
        struct loop_source source;
        struct cmd *cmd;
    } status;
    struct cmd_out out[2];
    struct cmd_in in;
    struct cmd_clock {
        struct loop_timer timer;
        struct cmd *cmd;
    } clock;
    bool terminal, detached, failed, ending, timed_out, dead;
    uint32_t grace_ms;
    int wait_status;
    struct rusage usage;
    uint64_t start_us;
    char tag[MOTE_TAG_MAX + 1];
};

/* Handles START on an idle connection. */
void cmd_start(struct conn *conn, const uint8_t *data, size_t length);

/* Ties a cmd whose process was just cloned to the connection that asked. */
void cmd_attach(struct cmd *cmd, struct conn *conn);

/* Frames and events of a connection in CONN_COMMAND. */
size_t cmd_room(const struct conn *conn);
void cmd_data(struct conn *conn, const uint8_t *data, size_t length);
void cmd_stdin_eof(struct cmd *cmd);
void cmd_signal(struct cmd *cmd, int signo, uint8_t scope);
void cmd_resize(struct cmd *cmd, const struct mote_pty_size *size);
void cmd_gone(struct conn *conn);
void cmd_drained(struct conn *conn);

/* A child of that number has ended. */
void cmd_reaped(struct agent *agent, pid_t pid, int wait_status,
                const struct rusage *usage);

/* The running command with this process, or NULL. */
struct cmd *cmd_find(struct agent *agent, pid_t pid);

/* After a batch: frees what ended. */
void cmd_free_dead(struct agent *agent);

#endif
