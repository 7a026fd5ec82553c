/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/loop_run.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define LOOP_STEP_NS  1000000u
#define LOOP_GUARD_NS 20000000000ull

struct loop_wait {
    struct evloop *loop;
    struct ev_timer timer;
    bool (*cond)(void *arg);
    void *arg;
    uint64_t end_ns;
    bool held;
};

static void loop_must(int rc)
{
    if (rc)
        abort();
}

static void loop_on_step(struct ev_timer *t)
{
    struct loop_wait *w = t->arg;
    uint64_t now = util_now_ns();

    w->held = w->cond && w->cond(w->arg);
    if (w->held || now >= w->end_ns)
        evloop_stop(w->loop);
    else
        loop_must(evloop_timer_arm(w->loop, &w->timer, now + LOOP_STEP_NS,
                                   loop_on_step, w));
}

static bool loop_wait(struct evloop *loop, bool (*cond)(void *arg), void *arg,
                      uint64_t ns)
{
    struct loop_wait w = {
        .loop = loop,
        .cond = cond,
        .arg = arg,
        .end_ns = util_now_ns() + ns,
    };

    loop_must(evloop_timer_arm(loop, &w.timer, 0, loop_on_step, &w));
    loop_must(evloop_run(loop));
    evloop_timer_cancel(loop, &w.timer);
    return w.held;
}

bool loop_run_until(struct evloop *loop, bool (*cond)(void *arg), void *arg)
{
    return loop_wait(loop, cond, arg, LOOP_GUARD_NS);
}

void loop_run_for(struct evloop *loop, uint64_t ms)
{
    (void)loop_wait(loop, NULL, NULL, ms * 1000000u);
}

static uint64_t loop_cpu_ns(void)
{
    struct timespec ts;

    loop_must(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts));
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

bool loop_run_is_idle(struct evloop *loop)
{
    uint64_t start = loop_cpu_ns();

    loop_run_for(loop, 300);
    return loop_cpu_ns() - start < 150000000u;
}

struct loop_thread {
    struct evloop *loop;
    pthread_t thread;
};

static void *loop_thread_main(void *arg)
{
    struct loop_thread *t = arg;

    loop_must(evloop_run(t->loop));
    return NULL;
}

struct loop_thread *loop_thread_start(struct evloop *loop)
{
    struct loop_thread *t = calloc(1, sizeof(*t));

    loop_must(!t);
    t->loop = loop;
    loop_must(pthread_create(&t->thread, NULL, loop_thread_main, t));
    return t;
}

void loop_thread_stop(struct loop_thread *t)
{
    evloop_stop(t->loop);
    loop_must(pthread_join(t->thread, NULL));
    free(t);
}
