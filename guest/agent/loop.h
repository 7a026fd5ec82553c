/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's only wait: level triggered epoll and a list of timers.
 *
 * Sources and timers are embedded in their owners, who keep them in place
 * while they are watched. A handler may forget any source, its own too: events
 * of a forgotten source that were already fetched are not delivered.
 * After each batch of events `after` runs: what handlers put off (frees,
 * flushes) belongs there.
 */
#ifndef GUEST_AGENT_LOOP_H
#define GUEST_AGENT_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#define LOOP_BATCH 16

struct loop_source {
    int fd;          /* the owner's; -1 when there is none */
    uint32_t events; /* what is watched now; 0 = not watched */
    void (*ready)(struct loop_source *source, uint32_t events);
};

struct loop_timer {
    uint64_t at_ms;
    void (*fire)(struct loop_timer *timer);
    struct loop_timer *next;
    bool armed;
};

struct loop {
    int fd;
    int count; /* events of the batch at hand */
    bool stop;
    struct loop_timer *timers; /* soonest first */
    struct epoll_event events[LOOP_BATCH];
};

int loop_init(struct loop *loop);

/* Watch for exactly these EPOLL* events; 0 ends it. EPOLLHUP and EPOLLERR come
 * with any. On failure the source is as it was. */
int loop_watch(struct loop *loop, struct loop_source *source, uint32_t events);

/* Stop watching, and drop events already fetched. Does not close. */
void loop_forget(struct loop *loop, struct loop_source *source);

/* Also forget and close; fd becomes -1. */
void loop_close(struct loop *loop, struct loop_source *source);

/* Monotonic clock, which costs no system call where the vDSO has it. */
uint64_t loop_now_us(void);

void loop_arm(struct loop *loop, struct loop_timer *timer, uint64_t after_ms);
void loop_disarm(struct loop *loop, struct loop_timer *timer);

/* Runs until `stop` is set. */
void loop_run(struct loop *loop, void (*after)(void *arg), void *arg);

#endif
