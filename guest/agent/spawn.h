/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a program.
 *
 * The child is a clone that shares the agent's memory until its exec (no page
 * tables are copied), and unlike after vfork the agent runs on meanwhile: an
 * exec from a file system that does not answer holds up nobody else. So the
 * child uses bare system calls, and only the memory of its struct spawn, which
 * must live until the status pipe reports: end of file when the exec was
 * done, a struct spawn_failure when it was not.
 */
#ifndef GUEST_AGENT_SPAWN_H
#define GUEST_AGENT_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest/agent/pool.h"
#include "guest/agent/start.h"
#include "guest/agent/user.h"

#define SPAWN_STACK (16u << 10)

enum spawn_stage {
    SPAWN_TERMINAL = 1,
    SPAWN_LIMITS,
    SPAWN_USER,
    SPAWN_CWD,
    SPAWN_EXEC,
    SPAWN_INTERPRETER, /* the file is there, what it needs to run is not */
};

struct spawn_failure {
    int32_t stage;
    int32_t error; /* errno value */
};

struct spawn {
    /* for the child; set by the caller of spawn_run */
    int fds[3];    /* its standard descriptors, all above 2 */
    int status_fd; /* where it reports; close-on-exec */
    bool terminal; /* fds[1] is to be its controlling terminal */
    /* the rest is filled by spawn_new */
    bool set_user, has_umask;
    uint32_t umask;
    uid_t uid;
    gid_t gid;
    size_t group_count, limit_count;
    gid_t groups[USER_GROUPS_MAX];
    struct mote_rlimit limits[START_LIMITS_MAX];
    char **argv, **envp;
    const char *program;
    const char *cwd;    /* NULL: stay in "/" */
    const char *search; /* PATH to look in, or NULL: program is a path */
    char *candidate;    /* room for a directory of it and the program */
    size_t tail_bytes;  /* used behind this struct: vectors, strings */
    _Alignas(16) uint8_t stack[SPAWN_STACK];
};

/* Everything in one block. NULL: out of memory. */
struct spawn *spawn_new(struct pool *pool, const struct start *start,
                        const struct user *user, bool set_user);
/* Wipes the strings, which may be secrets. NULL is fine. */
void spawn_free(struct pool *pool, struct spawn *spawn);

/* Clones the child, into the cgroup of that directory unless it is -1.
 * The process id or a negative errno. */
pid_t spawn_run(struct spawn *spawn, int cgroup_fd);

/* What went wrong, in words. */
void spawn_explain(const struct spawn *spawn,
                   const struct spawn_failure *failure, struct refusal *r);

#endif
