/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/loop.h"

#include <errno.h>
#include <limits.h>
#include <time.h>
#include <unistd.h>

int loop_init(struct loop *loop)
{
    loop->fd = epoll_create1(EPOLL_CLOEXEC);
    return loop->fd < 0 ? -errno : 0;
}

int loop_watch(struct loop *loop, struct loop_source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    int op = EPOLL_CTL_MOD;

    if (source->events == events)
        return 0;
    if (events == 0)
        op = EPOLL_CTL_DEL;
    else if (source->events == 0)
        op = EPOLL_CTL_ADD;
    if (epoll_ctl(loop->fd, op, source->fd, &event) < 0)
        return -errno;
    source->events = events;
    return 0;
}

void loop_forget(struct loop *loop, struct loop_source *source)
{
    /* Deleting what is watched cannot fail. */
    (void)loop_watch(loop, source, 0);
    for (int i = 0; i < loop->count; i++) {
        if (loop->events[i].data.ptr == source)
            loop->events[i].data.ptr = NULL;
    }
}

void loop_close(struct loop *loop, struct loop_source *source)
{
    if (source->fd < 0)
        return;
    /*
     * Not left to close(): a child that was just cloned may still have a
     * copy of the descriptor, and then epoll would go on reporting it.
     */
    loop_forget(loop, source);
    close(source->fd);
    source->fd = -1;
}

uint64_t loop_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

void loop_arm(struct loop *loop, struct loop_timer *timer, uint64_t after_ms)
{
    struct loop_timer **at = &loop->timers;
    uint64_t now_ms = loop_now_us() / 1000u;

    loop_disarm(loop, timer);
    timer->at_ms =
        after_ms > UINT64_MAX - now_ms ? UINT64_MAX : now_ms + after_ms;
    while (*at && (*at)->at_ms <= timer->at_ms)
        at = &(*at)->next;
    timer->next = *at;
    timer->armed = true;
    *at = timer;
}

void loop_disarm(struct loop *loop, struct loop_timer *timer)
{
    struct loop_timer **at = &loop->timers;

    if (!timer->armed)
        return;
    while (*at != timer)
        at = &(*at)->next;
    *at = timer->next;
    timer->armed = false;
}

/* Milliseconds until the first timer, for epoll_wait. */
static int loop_timeout(const struct loop *loop)
{
    uint64_t now_ms, at_ms;

    if (!loop->timers)
        return -1;
    now_ms = loop_now_us() / 1000u;
    at_ms = loop->timers->at_ms;
    if (at_ms <= now_ms)
        return 0;
    /* One more: now_ms was rounded down, and early means another round. */
    at_ms = at_ms - now_ms + 1;
    return at_ms > INT_MAX ? INT_MAX : (int)at_ms;
}

static void loop_fire_due(struct loop *loop)
{
    uint64_t now_ms;

    if (!loop->timers)
        return;
    now_ms = loop_now_us() / 1000u;
    while (loop->timers && loop->timers->at_ms <= now_ms) {
        struct loop_timer *timer = loop->timers;

        loop_disarm(loop, timer);
        timer->fire(timer);
    }
}

void loop_run(struct loop *loop, void (*after)(void *arg), void *arg)
{
    while (!loop->stop) {
        int count =
            epoll_wait(loop->fd, loop->events, LOOP_BATCH, loop_timeout(loop));

        loop->count = count < 0 ? 0 : count;
        for (int i = 0; i < loop->count; i++) {
            struct loop_source *source = loop->events[i].data.ptr;

            if (source)
                source->ready(source, loop->events[i].events);
        }
        loop->count = 0;
        loop_fire_due(loop);
        after(arg);
    }
}
