/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one agent of a process and what its parts share. Single threaded: no
 * locks, and no handler may wait for anything that a command controls.
 */
#ifndef GUEST_AGENT_AGENT_H
#define GUEST_AGENT_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "guest/agent/codec.h"
#include "guest/agent/loop.h"
#include "guest/agent/pool.h"

/* Bytes moved at a time; a pipe of Linux holds as many. */
#define AGENT_CHUNK (64u << 10)
/* Points of the boot that READY tells, at most. */
#define AGENT_MARKS_MAX 8

struct cmd;
struct conn;
struct restore;

struct agent_mark {
    uint32_t id;
    uint64_t ns;
};

struct agent {
    struct loop loop;
    struct pool pool;
    bool is_init; /* PID 1 of a machine: may mount, power off, set clocks */
    bool may_net; /* may change network interfaces */
    bool reset_is_restore; /* tests: ECONNRESET on any socket is one */
    const char *hook_dir;  /* what RESTORE runs; NULL: it is refused */
    bool closed_some;      /* descriptors became free in this batch */
    int port_fd;   /* /dev/port, to tell the monitor boot marks, or -1 */
    int null_fd;   /* /dev/null, for commands without standard input */
    int cgroup_fd; /* directory for the commands' cgroups, or -1 */
    uint32_t next_cgroup;
    uint32_t *left_cgroups; /* of ended commands, still with processes */
    size_t left_cgroup_count, left_cgroup_capacity;
    struct loop_source listener;
    struct loop_source sigchld; /* a signalfd */
    struct conn *conns;
    struct conn *dirty; /* have something to flush */
    struct conn *dead;  /* closed, to be freed after the batch */
    struct cmd *cmds;
    struct cmd *dead_cmds;
    struct restore *restore; /* the one that runs, or NULL */
    struct loop_timer power_timer;
    uint8_t power_kind;
    unsigned int mark_count;
    struct agent_mark marks[AGENT_MARKS_MAX];
    /* Two, because what came in may make output move while it is read. */
    uint8_t input[AGENT_CHUNK];
    uint8_t scratch[CODEC_HEADER + AGENT_CHUNK];
};

#endif
