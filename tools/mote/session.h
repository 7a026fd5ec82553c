/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_SESSION_H
#define TOOLS_MOTE_SESSION_H

/*
 * One command in a guest with our own standard streams: bytes in both
 * directions, signals, the terminal. Used by `run` and `exec`.
 *
 * The streams keep their blocking mode, which other processes may share: at
 * most PIPE_BUF bytes are written to a pipe or terminal that poll() calls
 * writable, which never blocks. While our output is not taken, nothing is
 * received, so the command in the guest is held back too.
 *
 * Threads: one. Ownership: all that is passed in stays the caller's.
 */

#include "tools/libmote/mote.h"
#include "tools/mote/term.h"

enum session_end {
    SESSION_EXITED = 1, /* exit_code, signal, timed_out */
    SESSION_REFUSED,    /* error, err: not run, or lost in the guest */
    SESSION_LOST,       /* err: the connection or the machine went away */
    SESSION_SIGNALLED,  /* signal: we were told to end */
    SESSION_LATE,       /* the guest did not keep the time limit */
    SESSION_NO_READER,  /* our output was closed by its reader */
    SESSION_OUTPUT,     /* err: our output cannot be written */
    SESSION_ESCAPED,    /* the user typed the way out of a terminal session */
};

struct session_params {
    const char *vsock_path;
    struct mote_exec_params exec;
    int signal_fd;  /* of signals_open() */
    int machine_fd; /* readable once the machine has ended */
};

struct session_result {
    enum session_end end;
    int exit_code; /* or -1 */
    int signal;
    bool timed_out;
    uint32_t error;    /* MOTE_ERR_* */
    uint64_t wall_us;  /* by the guest's clock */
    double command_ms; /* from START to the end, as seen here */
    struct mote_err err;
};

/* Runs the command to its end. The terminal is restored on return. */
void session_run(const struct session_params *p, struct session_result *out);

/*
 * The exit code of `mote run` and `mote exec` for this result; prints the
 * line that explains it where the command itself cannot have done so.
 */
int session_exit_code(const struct session_result *r, const char *program);

#endif
