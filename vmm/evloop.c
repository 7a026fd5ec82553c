/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/evloop.h"

#include "vmm/cleanup.h"
#include "vmm/evloop_int.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>

#define EVLOOP_CHUNK      64u
#define EVLOOP_MAX_CHUNKS 1024u /* 65536 watches */

struct evloop {
    const struct evloop_ops *ops;
    void *priv;
    int fallback_errno;
    bool started;
    pthread_t thread; /* valid once started */

    /* Slots in chunks that never move: the kernel writes into them. */
    struct ev_slot *chunks[EVLOOP_MAX_CHUNKS];
    uint32_t num_chunks;
    uint32_t free_head;

    struct ev_timer **heap; /* heap[1..num_timers], earliest first */
    uint32_t num_timers;
    uint32_t heap_room;
    uint64_t timers_ns; /* up to here timers have had their turn */

    struct ev_later *later_head;
    struct ev_later **later_tail;
    uint32_t num_later;
    struct ev_signal *signal_head;
    struct ev_signal **signal_tail;

    atomic_bool stop;
    int wake_fd;
    struct ev_counter wake;
    pthread_mutex_t post_lock;
    struct ev_call *post_head; /* guarded by post_lock */
    struct ev_call **post_tail;
};

/* --- slots --------------------------------------------------------------- */

void *evloop_priv(struct evloop *loop)
{
    return loop->priv;
}

uint32_t evloop_slot_limit(const struct evloop *loop)
{
    return loop->num_chunks * EVLOOP_CHUNK;
}

struct ev_slot *evloop_slot(struct evloop *loop, uint32_t index)
{
    return &loop->chunks[index / EVLOOP_CHUNK][index % EVLOOP_CHUNK];
}

static int evloop_grow_slots(struct evloop *loop)
{
    struct ev_slot *chunk;
    uint32_t base = loop->num_chunks * EVLOOP_CHUNK;

    if (loop->num_chunks == EVLOOP_MAX_CHUNKS)
        return -ENOSPC;
    chunk = calloc(EVLOOP_CHUNK, sizeof(*chunk));
    if (!chunk)
        return -ENOMEM;
    loop->chunks[loop->num_chunks++] = chunk;
    for (uint32_t i = EVLOOP_CHUNK; i-- > 0;) {
        chunk[i].index = base + i;
        if (base + i == 0)
            continue; /* index 0 means "not added" */
        chunk[i].next_free = loop->free_head;
        loop->free_head = base + i;
    }
    return 0;
}

static int evloop_slot_take(struct evloop *loop, struct ev_slot **out)
{
    struct ev_slot *s;

    if (loop->free_head == 0) {
        int rc = evloop_grow_slots(loop);

        if (rc)
            return rc;
    }
    s = evloop_slot(loop, loop->free_head);
    loop->free_head = s->next_free;
    s->in_flight = false;
    s->cancelling = false;
    s->stale = false;
    s->always_ready = false;
    *out = s;
    return 0;
}

void evloop_slot_release(struct evloop *loop, struct ev_slot *s)
{
    s->kind = EV_SLOT_FREE;
    s->generation++;
    s->next_free = loop->free_head;
    loop->free_head = s->index;
}

/* --- readiness and counters ---------------------------------------------- */

int evloop_fd_add(struct evloop *loop, struct ev_fd *w, int fd, uint32_t events,
                  ev_fd_fn fn, void *arg)
{
    struct ev_slot *s = NULL;
    int rc = evloop_slot_take(loop, &s);

    if (rc)
        return rc;
    w->fd = fd;
    w->events = events;
    w->fn = fn;
    w->arg = arg;
    s->kind = EV_SLOT_FD;
    s->owner.w = w;
    rc = loop->ops->arm(loop, s);
    if (rc) {
        evloop_slot_release(loop, s);
        return rc;
    }
    w->slot_ = s->index;
    return 0;
}

int evloop_fd_mod(struct evloop *loop, struct ev_fd *w, uint32_t events)
{
    if (w->slot_ == 0)
        return -EINVAL;
    if (w->events == events)
        return 0;
    w->events = events;
    return loop->ops->rearm(loop, evloop_slot(loop, w->slot_));
}

static void evloop_slot_drop(struct evloop *loop, uint32_t index, int fd)
{
    struct ev_slot *s = evloop_slot(loop, index);

    s->kind = EV_SLOT_ZOMBIE;
    s->owner.w = NULL;
    loop->ops->disarm(loop, s, fd);
}

void evloop_fd_del(struct evloop *loop, struct ev_fd *w)
{
    uint32_t index = w->slot_;

    if (index == 0)
        return;
    w->slot_ = 0;
    evloop_slot_drop(loop, index, w->fd);
}

int evloop_counter_add(struct evloop *loop, struct ev_counter *c, int fd,
                       ev_counter_fn fn, void *arg)
{
    struct ev_slot *s = NULL;
    int flags = fcntl(fd, F_GETFL);
    int rc;

    /* io_uring answers EAGAIN at once on a non-blocking file instead of
     * waiting for it to become readable. */
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
        return neg_errno();
    rc = evloop_slot_take(loop, &s);
    if (rc)
        return rc;
    c->fd = fd;
    c->fn = fn;
    c->arg = arg;
    s->kind = EV_SLOT_COUNTER;
    s->owner.c = c;
    rc = loop->ops->arm(loop, s);
    if (rc) {
        evloop_slot_release(loop, s);
        return rc;
    }
    c->slot_ = s->index;
    return 0;
}

void evloop_counter_del(struct evloop *loop, struct ev_counter *c)
{
    uint32_t index = c->slot_;

    if (index == 0)
        return;
    c->slot_ = 0;
    evloop_slot_drop(loop, index, c->fd);
}

/* --- timers: a binary heap ----------------------------------------------- */

static void evloop_heap_put(struct evloop *loop, uint32_t i, struct ev_timer *t)
{
    loop->heap[i] = t;
    t->heap_index_ = i;
}

static void evloop_heap_fix(struct evloop *loop, uint32_t i)
{
    struct ev_timer *t = loop->heap[i];

    for (; i > 1 && loop->heap[i / 2]->due_ns_ > t->due_ns_; i /= 2)
        evloop_heap_put(loop, i, loop->heap[i / 2]);
    for (;;) {
        uint32_t kid = 2 * i;

        if (kid > loop->num_timers)
            break;
        if (kid < loop->num_timers &&
            loop->heap[kid + 1]->due_ns_ < loop->heap[kid]->due_ns_)
            kid++;
        if (loop->heap[kid]->due_ns_ >= t->due_ns_)
            break;
        evloop_heap_put(loop, i, loop->heap[kid]);
        i = kid;
    }
    evloop_heap_put(loop, i, t);
}

int evloop_timer_arm(struct evloop *loop, struct ev_timer *t,
                     uint64_t deadline_ns, ev_timer_fn fn, void *arg)
{
    if (t->heap_index_ == 0 && loop->num_timers + 2 > loop->heap_room) {
        uint32_t room = loop->heap_room ? 2 * loop->heap_room : 16;
        struct ev_timer **heap =
            reallocarray(loop->heap, room, sizeof(struct ev_timer *));

        if (!heap)
            return -ENOMEM;
        loop->heap = heap;
        loop->heap_room = room;
    }
    t->deadline_ns = deadline_ns;
    t->due_ns_ =
        deadline_ns > loop->timers_ns ? deadline_ns : loop->timers_ns + 1;
    t->fn = fn;
    t->arg = arg;
    if (t->heap_index_ == 0)
        evloop_heap_put(loop, ++loop->num_timers, t);
    evloop_heap_fix(loop, t->heap_index_);
    return 0;
}

void evloop_timer_cancel(struct evloop *loop, struct ev_timer *t)
{
    uint32_t i = t->heap_index_;
    struct ev_timer *last;

    if (i == 0)
        return;
    t->heap_index_ = 0;
    last = loop->heap[loop->num_timers--];
    if (last == t)
        return;
    evloop_heap_put(loop, i, last);
    evloop_heap_fix(loop, i);
}

/* Timers that a callback arms for "now" wait for the next turn. */
static void evloop_run_timers(struct evloop *loop)
{
    uint64_t now;

    if (loop->num_timers == 0)
        return;
    now = util_now_ns();
    loop->timers_ns = now;
    for (uint32_t left = loop->num_timers; left > 0; left--) {
        struct ev_timer *t;

        if (loop->num_timers == 0 || loop->heap[1]->due_ns_ > now)
            return;
        t = loop->heap[1];
        evloop_timer_cancel(loop, t);
        t->fn(t);
    }
}

/* --- the end of a turn --------------------------------------------------- */

void evloop_later(struct evloop *loop, struct ev_later *l, ev_later_fn fn,
                  void *arg)
{
    if (l->queued_)
        return;
    l->fn = fn;
    l->arg = arg;
    l->queued_ = true;
    l->next_ = NULL;
    l->link_ = loop->later_tail;
    *loop->later_tail = l;
    loop->later_tail = &l->next_;
    loop->num_later++;
}

void evloop_later_cancel(struct evloop *loop, struct ev_later *l)
{
    if (!l->queued_)
        return;
    l->queued_ = false;
    *l->link_ = l->next_;
    if (l->next_)
        l->next_->link_ = l->link_;
    else
        loop->later_tail = l->link_;
    loop->num_later--;
}

/* What these ask for again waits for the end of the next turn. */
static void evloop_run_later(struct evloop *loop)
{
    for (uint32_t left = loop->num_later; left > 0 && loop->later_head;
         left--) {
        struct ev_later *l = loop->later_head;

        evloop_later_cancel(loop, l);
        l->fn(l);
    }
}

void evloop_signal(struct evloop *loop, struct ev_signal *s)
{
    if (s->queued_)
        return;
    s->queued_ = true;
    s->next_ = NULL;
    s->link_ = loop->signal_tail;
    *loop->signal_tail = s;
    loop->signal_tail = &s->next_;
}

void evloop_signal_cancel(struct evloop *loop, struct ev_signal *s)
{
    if (!s->queued_)
        return;
    s->queued_ = false;
    *s->link_ = s->next_;
    if (s->next_)
        s->next_->link_ = s->link_;
    else
        loop->signal_tail = s->link_;
}

int evloop_take_signal(struct evloop *loop)
{
    struct ev_signal *s = loop->signal_head;

    if (!s)
        return -1;
    evloop_signal_cancel(loop, s);
    return s->fd;
}

void evloop_write_signal(int fd)
{
    /* Fails only at a counter's maximum, where it is raised already. */
    (void)eventfd_write(fd, 1);
}

static void evloop_flush_signals(struct evloop *loop)
{
    int fd;

    while ((fd = evloop_take_signal(loop)) >= 0)
        evloop_write_signal(fd);
}

/* --- calls --------------------------------------------------------------- */

void evloop_post(struct evloop *loop, struct ev_call *c)
{
    bool was_empty;
    const uint64_t one = 1;

    c->next_ = NULL;
    (void)pthread_mutex_lock(&loop->post_lock); /* fails only on misuse */
    was_empty = loop->post_head == NULL;
    *loop->post_tail = c;
    loop->post_tail = &c->next_;
    (void)pthread_mutex_unlock(&loop->post_lock);
    /* A full counter (EAGAIN cannot happen here) would wake as well. */
    if (was_empty && write(loop->wake_fd, &one, sizeof(one)) < 0)
        return;
}

static struct ev_call *evloop_take_posts(struct evloop *loop)
{
    struct ev_call *list;

    (void)pthread_mutex_lock(&loop->post_lock);
    list = loop->post_head;
    loop->post_head = NULL;
    loop->post_tail = &loop->post_head;
    (void)pthread_mutex_unlock(&loop->post_lock);
    return list;
}

static void evloop_on_wake(struct ev_counter *c, uint64_t count)
{
    struct ev_call *call = evloop_take_posts(c->arg);

    (void)count;
    while (call) {
        struct ev_call *next = call->next_; /* fn may post it again */

        call->fn(call);
        call = next;
    }
}

/* --- life ---------------------------------------------------------------- */

static int evloop_pick_backend(struct evloop *loop, enum evloop_backend want)
{
    int rc = -ENOSYS;

    if (want != EVLOOP_EPOLL) {
        rc = evloop_uring_init(loop, &loop->priv);
        if (rc == 0) {
            loop->ops = &evloop_uring_ops;
            return 0;
        }
        if (want == EVLOOP_URING)
            return rc;
        loop->fallback_errno = -rc;
    }
    rc = evloop_epoll_init(loop, &loop->priv);
    if (rc == 0)
        loop->ops = &evloop_epoll_ops;
    return rc;
}

int evloop_new(enum evloop_backend want, struct evloop **out_loop)
{
    struct evloop *loop = calloc(1, sizeof(*loop));
    int rc;

    if (!loop)
        return -ENOMEM;
    loop->post_tail = &loop->post_head;
    loop->later_tail = &loop->later_head;
    loop->signal_tail = &loop->signal_head;
    (void)pthread_mutex_init(&loop->post_lock, NULL); /* cannot fail on Linux */
    loop->wake_fd = eventfd(0, EFD_CLOEXEC);
    rc = loop->wake_fd < 0 ? neg_errno() : evloop_pick_backend(loop, want);
    if (rc == 0)
        rc = evloop_counter_add(loop, &loop->wake, loop->wake_fd,
                                evloop_on_wake, loop);
    if (rc) {
        evloop_free(loop);
        return rc;
    }
    *out_loop = loop;
    return 0;
}

void evloop_free(struct evloop *loop)
{
    if (!loop)
        return;
    if (loop->ops)
        loop->ops->fini(loop);
    drop_fd(&loop->wake_fd);
    for (uint32_t i = 0; i < loop->num_chunks; i++)
        free(loop->chunks[i]);
    free(loop->heap);
    (void)pthread_mutex_destroy(&loop->post_lock);
    free(loop);
}

enum evloop_backend evloop_backend(const struct evloop *loop)
{
    return loop->ops->backend;
}

int evloop_fallback_errno(const struct evloop *loop)
{
    return loop->fallback_errno;
}

static uint64_t evloop_timeout_ns(const struct evloop *loop)
{
    uint64_t now;

    if (atomic_load_explicit(&loop->stop, memory_order_acquire) ||
        loop->num_later > 0)
        return 0;
    if (loop->num_timers == 0)
        return UINT64_MAX;
    now = util_now_ns();
    return loop->heap[1]->due_ns_ > now ? loop->heap[1]->due_ns_ - now : 0;
}

int evloop_run(struct evloop *loop)
{
    int rc;

    if (!loop->started) {
        rc = loop->ops->start(loop);
        if (rc)
            return rc;
        loop->started = true;
    }
    /* pairs with: evloop_stop() */
    while (!atomic_load_explicit(&loop->stop, memory_order_acquire)) {
        rc = loop->ops->turn(loop, evloop_timeout_ns(loop));
        if (rc)
            return rc;
        evloop_run_timers(loop);
        evloop_run_later(loop);
    }
    evloop_flush_signals(loop);
    atomic_store_explicit(&loop->stop, false, memory_order_release);
    return 0;
}

void evloop_stop(struct evloop *loop)
{
    const uint64_t one = 1;

    /* pairs with: evloop_run() */
    atomic_store_explicit(&loop->stop, true, memory_order_release);
    if (write(loop->wake_fd, &one, sizeof(one)) < 0)
        return; /* only a counter at its maximum, which wakes as well */
}

void evloop_io_submit(struct evloop *loop, struct ev_io *io)
{
    loop->ops->submit(loop, io);
}
