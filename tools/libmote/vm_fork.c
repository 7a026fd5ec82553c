/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a machine that runs: waiting monitors, the request, RESTORE. */
#include "tools/libmote/fork_plan.h"
#include "tools/libmote/restore.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

/*
 * So many children are made ready at once, for each CPU of the host: the rest
 * stand still. Guests that wake up take a CPU each, and where there are far
 * more of them than CPUs their timers leave nothing for anything else.
 */
#define FORK_PER_CPU     2u
#define FORK_MAX_THREADS 64u

struct forking;

struct fork_one {
    struct forking *f;
    struct mote_fork_child *out;
    struct mote_net_params net;
    int cancel_fd; /* an eventfd: its restore is to give up; -1: none yet */
};

struct forking {
    const struct mote_fork_params *params;
    struct fork_plan plan;
    struct fork_one *ones;
    int watch_fd; /* new files in the slots */
    int done_fd;  /* eventfd: a thread has ended */
    uint64_t from_ns;
    atomic_size_t next; /* the first child that no thread has taken */
    pthread_t threads[FORK_MAX_THREADS];
    size_t num_threads;
    pthread_mutex_t lock; /* of notes */
};

static bool fork_lives(const struct forking *f, size_t i)
{
    return f->ones[i].out->vm != NULL;
}

/* A child that will not be: nothing of it stays. */
static void fork_drop(struct fork_one *one)
{
    if (one->out->vm)
        fork_plan_unlend(&one->f->plan, one->out->vm);
    mote_vm_free(one->out->vm);
    one->out->vm = NULL;
}

/* --- waiting monitors -------------------------------------------------------
 */

static int fork_launch(struct forking *f, struct fork_one *one,
                       struct mote_err *err)
{
    const struct mote_vm_params params = {
        .net = one->net,
        .vcpus = f->plan.vcpus,
        .mem_bytes = f->plan.mem_bytes,
        .console_fd = -1,
        .log_fd = f->params->log_fd,
        .log_level = f->params->log_level,
        .jail = MOTE_JAIL_OFF,
    };
    struct lm_vm_start s = {.params = &params, .waits = true};

    return lm_vm_start(one->out->vm, &s, err);
}

static int fork_start_child(struct forking *f, size_t i)
{
    const struct mote_fork_params *p = f->params;
    struct fork_one *one = &f->ones[i];
    struct mote_err *err = &one->out->err;
    struct mote_vm *vm = NULL;
    int rc =
        fork_plan_net(&f->plan, p->nets ? &p->nets[i] : NULL, &one->net, err);

    if (rc == 0)
        rc = lm_vm_new(p->names ? p->names[i] : NULL, &vm, err);
    if (rc)
        return rc;
    one->out->vm = vm;
    vm->shared_owner = true;
    one->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (one->cancel_fd < 0 || inotify_add_watch(f->watch_fd, vm->slot.path,
                                                IN_CREATE | IN_MOVED_TO) < 0) {
        rc = neg_errno();
        return lm_err(err, rc, "%s: cannot be watched: %s", vm->slot.path,
                      err_reason(rc));
    }
    return fork_launch(f, one, err);
}

/* Until there is something new in a slot, or its monitor has ended. */
static int fork_wait_more(struct forking *f, struct mote_vm *vm,
                          uint64_t deadline_ns, struct mote_err *err)
{
    struct pollfd p[] = {{.fd = f->watch_fd, .events = POLLIN},
                         {.fd = vm->pidfd, .events = POLLIN},
                         {.fd = f->params->cancel_fd, .events = POLLIN}};
    int n = poll(p, ARRAY_SIZE(p), lm_poll_timeout(deadline_ns));
    char events[4096];

    if (n > 0 && p[2].revents)
        return lm_err(err, -ECANCELED, "fork: the wait was cancelled");
    if (n > 0 && p[1].revents)
        return lm_vm_ended_early(vm, err);
    if (n == 0)
        return lm_err(err, -ETIMEDOUT,
                      "mote-vmm: does not wait for a machine; the host may be "
                      "very busy");
    while (read(f->watch_fd, events, sizeof(events)) > 0)
        ;
    return 0;
}

/*
 * The socket's file is there a moment before somebody listens. The control
 * socket is older, and its first answer comes from the loop that also takes
 * forks.
 */
static int fork_wait_child(struct forking *f, size_t i, uint64_t deadline_ns)
{
    struct fork_one *one = &f->ones[i];
    struct mote_vm *vm = one->out->vm;
    char api[MOTE_PATH_CAP];
    int rc = 0;

    while (rc == 0 && faccessat(vm->slot.dir_fd, LM_FORK_FILE, F_OK, 0) < 0)
        rc = fork_wait_more(f, vm, deadline_ns, &one->out->err);
    (void)snprintf(api, sizeof(api), "%s/" LM_API_FILE, vm->slot.path);
    if (rc == 0)
        rc = lm_api_call(api, "GET", "/", NULL, NULL, &one->out->err);
    return rc ? rc : fork_plan_lend(&f->plan, vm, &one->out->err);
}

/* How many wait; or what ends all of it. */
static int fork_start_all(struct forking *f, size_t *out_count,
                          struct mote_err *err)
{
    uint64_t deadline_ns = lm_deadline(f->params->timeout_ms);
    int rc = 0;

    *out_count = 0;
    for (size_t i = 0; i < f->params->count; i++) {
        if (fork_start_child(f, i))
            fork_drop(&f->ones[i]);
    }
    for (size_t i = 0; i < f->params->count && rc != -ECANCELED; i++) {
        rc = fork_lives(f, i) ? fork_wait_child(f, i, deadline_ns) : -1;
        if (rc && fork_lives(f, i))
            fork_drop(&f->ones[i]);
        *out_count += rc == 0;
    }
    return rc == -ECANCELED
               ? lm_err(err, rc, "fork: it was cancelled before it began")
               : 0;
}

/* --- ready ------------------------------------------------------------------
 */

static void fork_on_note(void *arg, const char *line)
{
    struct fork_one *one = arg;
    struct forking *f = one->f;

    if (!f->params->note)
        return;
    (void)pthread_mutex_lock(&f->lock); /* a plain one: cannot fail */
    f->params->note(f->params->note_arg, (size_t)(one - f->ones), line);
    (void)pthread_mutex_unlock(&f->lock);
}

/* The child begins to run. */
static int fork_resume(struct mote_vm *vm, struct mote_err *err)
{
    char api[MOTE_PATH_CAP];
    json_t *body = json_pack("{s:s}", "state", "Resumed");
    int rc;

    (void)snprintf(api, sizeof(api), "%s/" LM_API_FILE, vm->slot.path);
    rc = body ? lm_api_call(api, "PATCH", "/vm", body, NULL, err)
              : lm_err_nomem(err);
    json_decref(body);
    return rc;
}

static void fork_restore(struct forking *f, size_t i)
{
    struct fork_one *one = &f->ones[i];
    const struct lm_restore r = {
        .hostname = f->params->names ? f->params->names[i] : NULL,
        .net = &one->net,
        .old_mac = f->plan.has_mac ? f->plan.old_mac : NULL,
        .note = fork_on_note,
        .note_arg = one};
    struct mote_err err = {0};

    if (fork_resume(one->out->vm, &err) == 0 &&
        lm_restore(one->out->vm, &r, f->params->timeout_ms, one->cancel_fd,
                   &err) == 0) {
        one->out->ready_ms = (double)(util_now_ns() - f->from_ns) / 1e6;
        return;
    }
    one->out->err = err;
    one->out->ready_ms = -1;
}

static void *fork_thread(void *arg)
{
    struct forking *f = arg;
    const uint64_t one = 1;
    size_t i;

    while ((i = atomic_fetch_add(&f->next, 1)) < f->params->count) {
        if (fork_lives(f, i))
            fork_restore(f, i);
    }
    /* An eventfd takes it whole: it is far from full. */
    (void)!write(f->done_fd, &one, sizeof(one));
    return NULL;
}

static int fork_start_threads(struct forking *f, struct mote_err *err)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t want = min_u64(f->params->count,
                          min_u64(FORK_PER_CPU * (cpus > 0 ? (size_t)cpus : 1),
                                  FORK_MAX_THREADS));
    int rc = 0;

    while (f->num_threads < want && rc == 0) {
        rc = -pthread_create(&f->threads[f->num_threads], NULL, fork_thread, f);
        f->num_threads += rc == 0;
    }
    /* Fewer do it too. */
    return f->num_threads > 0
               ? 0
               : lm_err(err, rc, "fork: a thread: %s", err_reason(rc));
}

static void fork_give_up_all(struct forking *f)
{
    const uint64_t bell = 1;

    for (size_t i = 0; i < f->params->count; i++) {
        if (fork_lives(f, i))
            (void)!write(f->ones[i].cancel_fd, &bell, sizeof(bell));
    }
}

/* All threads have ended; if the caller loses patience, all waits do. */
static void fork_join(struct forking *f)
{
    int cancel_fd = f->params->cancel_fd;
    uint64_t ended = 0;

    while (ended < f->num_threads) {
        struct pollfd p[] = {{.fd = f->done_fd, .events = POLLIN},
                             {.fd = cancel_fd, .events = POLLIN}};
        uint64_t more = 0;

        if (poll(p, ARRAY_SIZE(p), -1) < 0)
            continue;
        if (p[1].revents) {
            fork_give_up_all(f);
            cancel_fd = -1;
        }
        if (p[0].revents &&
            read(f->done_fd, &more, sizeof(more)) == (ssize_t)sizeof(more))
            ended += more;
    }
    for (size_t i = 0; i < f->num_threads; i++)
        (void)pthread_join(f->threads[i], NULL); /* it ends by itself */
    f->num_threads = 0;
}

/* --- the request ------------------------------------------------------------
 */

static json_t *fork_request(struct forking *f)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < f->params->count; i++) {
        const struct fork_one *one = &f->ones[i];

        if (fork_lives(f, i) &&
            json_array_append_new(
                list, fork_plan_child(&f->plan, one->out->vm, &one->net,
                                      f->params->track_writes))) {
            json_decref(list);
            list = NULL;
        }
    }
    return json_pack("{s:o}", "children", list);
}

/* What the source says of each; those that failed are no more. */
static void fork_read_results(struct forking *f, json_t *answer)
{
    json_t *list = json_object_get(answer, "children");
    size_t at = 0;

    for (size_t i = 0; i < f->params->count; i++) {
        json_t *one;
        const char *why;

        if (!fork_lives(f, i))
            continue;
        one = json_array_get(list, at++);
        why = json_string_value(json_object_get(one, "error"));
        if (json_is_true(json_object_get(one, "ok")))
            continue;
        (void)lm_err(&f->ones[i].out->err, -EREMOTEIO, "%s",
                     why ? why : "mote-vmm: it told nothing of this child");
        fork_drop(&f->ones[i]);
    }
}

static int fork_ask(struct forking *f, struct mote_fork_times *times,
                    struct mote_err *err)
{
    json_t *body = fork_request(f);
    json_t *answer = NULL;
    int rc = body ? 0 : lm_err_nomem(err);

    if (rc == 0)
        rc = lm_api_call(f->plan.api, "PUT", "/mote/fork", body, &answer, err);
    times->request_ms = (double)(util_now_ns() - f->from_ns) / 1e6;
    if (rc == 0) {
        fork_read_results(f, answer);
        times->stopped_ms =
            (double)json_integer_value(json_object_get(answer, "stopped_us")) /
            1e3;
        times->copied_bytes = (uint64_t)json_integer_value(
            json_object_get(answer, "copied_bytes"));
    }
    json_decref(body);
    json_decref(answer);
    return rc;
}

/* --- the whole --------------------------------------------------------------
 */

/* Its figures, or its end. */
static void fork_settle(struct forking *f, size_t i,
                        struct mote_fork_times *times)
{
    const struct mote_fork_child *one = f->ones[i].out;
    double answered_ms;

    if (!one->vm)
        return;
    fork_plan_unlend(&f->plan, one->vm);
    if (one->ready_ms < 0) {
        fork_drop(&f->ones[i]);
        return;
    }
    answered_ms = (double)(one->vm->answered_ns - f->from_ns) / 1e6;
    if (answered_ms > times->answers_ms)
        times->answers_ms = answered_ms;
    if (one->ready_ms > times->ready_ms)
        times->ready_ms = one->ready_ms;
}

static int fork_run(struct forking *f, struct mote_fork_times *times,
                    struct mote_err *err)
{
    uint64_t began_ns = util_now_ns();
    size_t waiting = 0;
    int rc = fork_start_all(f, &waiting, err);

    times->waiting_ms = (double)(util_now_ns() - began_ns) / 1e6;
    if (rc || waiting == 0)
        return rc;
    f->from_ns = util_now_ns();
    rc = fork_ask(f, times, err);
    if (rc == 0)
        rc = fork_start_threads(f, err);
    if (rc)
        return rc;
    fork_join(f);
    for (size_t i = 0; i < f->params->count; i++)
        fork_settle(f, i, times);
    return rc;
}

static int fork_prepare(struct forking *f, const struct mote_vm_info *source,
                        struct mote_fork_child *children, struct mote_err *err)
{
    size_t n = f->params->count;
    int rc;

    if (n < 1 || n > MOTE_FORK_MAX)
        return lm_err(err, -EINVAL, "fork: %zu copies; use 1 to %d", n,
                      MOTE_FORK_MAX);
    memset(children, 0, n * sizeof(*children));
    f->ones = calloc(n, sizeof(*f->ones));
    if (!f->ones)
        return lm_err_nomem(err);
    for (size_t i = 0; i < n; i++) {
        f->ones[i].f = f;
        f->ones[i].out = &children[i];
        f->ones[i].cancel_fd = -1;
    }
    f->watch_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    f->done_fd = eventfd(0, EFD_CLOEXEC);
    if (f->watch_fd < 0 || f->done_fd < 0) {
        rc = neg_errno();
        return lm_err(err, rc, "fork: a descriptor: %s", err_reason(rc));
    }
    return fork_plan_read(&f->plan, source, err);
}

static void fork_fini(struct forking *f)
{
    for (size_t i = 0; f->ones && i < f->params->count; i++)
        drop_fd(&f->ones[i].cancel_fd);
    free(f->ones);
    drop_fd(&f->watch_fd);
    drop_fd(&f->done_fd);
    fork_plan_fini(&f->plan);
    (void)pthread_mutex_destroy(&f->lock);
}

int mote_vm_fork(const struct mote_vm_info *source,
                 const struct mote_fork_params *params,
                 struct mote_fork_child *children,
                 struct mote_fork_times *times, struct mote_err *err)
{
    struct forking f = {.params = params,
                        .watch_fd = -1,
                        .done_fd = -1,
                        .lock = PTHREAD_MUTEX_INITIALIZER};
    int rc = fork_prepare(&f, source, children, err);

    memset(times, 0, sizeof(*times));
    if (rc == 0 && f.ones) /* always: for the analyser */
        rc = fork_run(&f, times, err);
    for (size_t i = 0; rc && f.ones && i < params->count; i++)
        fork_drop(&f.ones[i]);
    fork_fini(&f);
    return rc;
}
