/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The io_uring back end. Everything that the loop asks of the kernel in one
 * turn goes in with one io_uring_enter, which also waits.
 *
 * io_uring bypasses a seccomp filter on system calls, so the ring is created
 * disabled and restricted to the few operations below before it is enabled.
 * syscalls: io_uring_setup io_uring_register io_uring_enter
 */
#include "vmm/evloop_int.h"

#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define URING_ENTRIES 256u

struct uring {
    struct io_uring ring; /* first: a test reaches it by evloop_priv() */
    /* What the next turn has to put into the submission queue. */
    uint32_t pending_head; /* slots, by index; 0 ends the list */
    struct ev_io *io_head;
    struct ev_io **io_tail;
    /* Streams that only plain system calls can do without waiting. */
    struct ev_io *plain_head;
    struct ev_io **plain_tail;
    bool can_skip; /* completions of what succeeds can be left out (5.17) */
};

static const uint8_t uring_allowed[] = {
    IORING_OP_POLL_ADD,  IORING_OP_ASYNC_CANCEL, IORING_OP_READ,
    IORING_OP_READV,     IORING_OP_WRITEV,       IORING_OP_FSYNC,
    IORING_OP_FALLOCATE, IORING_OP_WRITE,
};

static const uint64_t uring_one = 1;

/* user_data: a slot's index (odd after shifting), or an aligned ev_io. */
#define URING_SLOT_BIT 1u
#define URING_NO_OWNER 0u

static uint64_t uring_slot_data(const struct ev_slot *s)
{
    return ((uint64_t)s->index << 1) | URING_SLOT_BIT;
}

static int uring_restrict(struct io_uring *ring)
{
    struct io_uring_restriction res[ARRAY_SIZE(uring_allowed) + 2];
    struct io_uring_restriction *extra = res + ARRAY_SIZE(uring_allowed);
    int rc;

    memset(res, 0, sizeof(res));
    for (size_t i = 0; i < ARRAY_SIZE(uring_allowed); i++) {
        res[i].opcode = IORING_RESTRICTION_SQE_OP;
        res[i].sqe_op = uring_allowed[i];
    }
    extra[0].opcode = IORING_RESTRICTION_REGISTER_OP;
    extra[0].register_op = IORING_REGISTER_ENABLE_RINGS;
    extra[1].opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED;
    if (ring->features & IORING_FEAT_CQE_SKIP)
        extra[1].sqe_flags = IOSQE_CQE_SKIP_SUCCESS;
    rc = io_uring_register_restrictions(ring, res, ARRAY_SIZE(res));
    return rc < 0 ? rc : 0;
}

int evloop_uring_init(struct evloop *loop, void **out_priv)
{
    /* Best first: completions only when this thread asks for them (6.1),
     * then what every kernel with restrictions (5.10) can do. */
    static const unsigned flags[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, 0};
    struct uring *u = calloc(1, sizeof(*u));
    int rc = -EINVAL;

    (void)loop;
    if (!u)
        return -ENOMEM;
    for (size_t i = 0; i < ARRAY_SIZE(flags) && rc == -EINVAL; i++)
        rc = io_uring_queue_init(URING_ENTRIES, &u->ring,
                                 flags[i] | IORING_SETUP_R_DISABLED);
    if (rc < 0) {
        free(u);
        return rc;
    }
    rc = uring_restrict(&u->ring);
    if (rc == 0 && !(u->ring.features & IORING_FEAT_EXT_ARG))
        rc = -ENOSYS; /* waits with a time limit need kernel 5.11 */
    if (rc < 0) {
        io_uring_queue_exit(&u->ring);
        free(u);
        return rc;
    }
    u->can_skip = u->ring.features & IORING_FEAT_CQE_SKIP;
    u->io_tail = &u->io_head;
    u->plain_tail = &u->plain_head;
    *out_priv = u;
    return 0;
}

static int uring_start(struct evloop *loop)
{
    struct uring *u = evloop_priv(loop);
    int rc = io_uring_enable_rings(&u->ring);

    return rc < 0 ? rc : 0;
}

static void uring_fini(struct evloop *loop)
{
    struct uring *u = evloop_priv(loop);

    io_uring_queue_exit(&u->ring);
    free(u);
}

static void uring_touch(struct evloop *loop, struct ev_slot *s)
{
    struct uring *u = evloop_priv(loop);

    if (s->pending)
        return;
    s->pending = true;
    s->next_pending = u->pending_head;
    u->pending_head = s->index;
}

static int uring_arm(struct evloop *loop, struct ev_slot *s)
{
    s->quiet = false;
    uring_touch(loop, s);
    return 0;
}

static int uring_rearm(struct evloop *loop, struct ev_slot *s)
{
    s->stale = s->in_flight;
    s->quiet = false;
    uring_touch(loop, s);
    return 0;
}

static void uring_disarm(struct evloop *loop, struct ev_slot *s, int fd)
{
    (void)fd;
    if (s->in_flight || s->pending)
        uring_touch(loop, s);
    else
        evloop_slot_release(loop, s);
}

static bool uring_is_stream(const struct ev_io *io)
{
    return io->offset_bytes == EV_IO_STREAM &&
           (io->op == EV_IO_READV || io->op == EV_IO_WRITEV);
}

static void uring_submit(struct evloop *loop, struct ev_io *io)
{
    struct uring *u = evloop_priv(loop);

    io->next_ = NULL;
    if (uring_is_stream(io) && io->plain && *io->plain) {
        *u->plain_tail = io;
        u->plain_tail = &io->next_;
        return;
    }
    *u->io_tail = io;
    u->io_tail = &io->next_;
}

/* Those there are now; what their callbacks submit waits for the next turn. */
static void uring_run_plain(struct uring *u)
{
    struct ev_io *io = u->plain_head;

    u->plain_head = NULL;
    u->plain_tail = &u->plain_head;
    while (io) {
        struct ev_io *next = io->next_;

        io->fn(io, evloop_do_io(io));
        io = next;
    }
}

/*
 * Left to itself a ring waits for a stream, non-blocking or not, until it is
 * ready. Kernels before 6.7 cannot be told not to for a TAP, before 6.4 not for
 * a socket: those files are asked by plain system calls from then on.
 */
static int32_t uring_io_result(const struct ev_io *io, int32_t res)
{
    if (res != -EOPNOTSUPP || !uring_is_stream(io))
        return res;
    if (io->plain)
        *io->plain = true;
    return evloop_do_io(io);
}

static void uring_prep_cancel(struct io_uring_sqe *sqe, struct ev_slot *s)
{
    io_uring_prep_cancel64(sqe, uring_slot_data(s), 0);
    io_uring_sqe_set_data64(sqe, URING_NO_OWNER);
    s->cancelling = true;
}

/*
 * The kernel tells POLLRDHUP of whoever it polls, asked or not: a peer that has
 * sent all that it will would end each poll at once, for as long as nobody
 * wants to read. Such a watch is quiet: a poll that stays, tells that one time
 * and then only what changes, until something comes that was asked for.
 */
static void uring_prep_watch(struct io_uring_sqe *sqe, struct ev_slot *s)
{
    if (s->kind == EV_SLOT_FD && s->quiet)
        io_uring_prep_poll_multishot(sqe, s->owner.w->fd, s->owner.w->events);
    else if (s->kind == EV_SLOT_FD)
        io_uring_prep_poll_add(sqe, s->owner.w->fd, s->owner.w->events);
    else
        io_uring_prep_read(sqe, s->owner.c->fd, &s->count, sizeof(s->count), 0);
    io_uring_sqe_set_data64(sqe, uring_slot_data(s));
    s->in_flight = true;
    s->cancelling = false;
    s->stale = false;
}

static void uring_prep_io(struct io_uring_sqe *sqe, const struct ev_io *io)
{
    /* One buffer needs no array, which the kernel would copy and check. */
    bool single = io->iovcnt == 1 && io->iov->iov_len <= UINT32_MAX;
    int flags = io->offset_bytes == EV_IO_STREAM ? RWF_NOWAIT : 0;

    switch (io->op) {
    case EV_IO_READV:
        if (single)
            io_uring_prep_read(sqe, io->fd, io->iov->iov_base,
                               (unsigned)io->iov->iov_len, io->offset_bytes);
        else
            io_uring_prep_readv(sqe, io->fd, io->iov, io->iovcnt,
                                io->offset_bytes);
        sqe->rw_flags = flags;
        break;
    case EV_IO_WRITEV:
        if (single)
            io_uring_prep_write(sqe, io->fd, io->iov->iov_base,
                                (unsigned)io->iov->iov_len, io->offset_bytes);
        else
            io_uring_prep_writev(sqe, io->fd, io->iov, io->iovcnt,
                                 io->offset_bytes);
        sqe->rw_flags = flags;
        break;
    case EV_IO_FDATASYNC:
        io_uring_prep_fsync(sqe, io->fd, IORING_FSYNC_DATASYNC);
        break;
    case EV_IO_FALLOCATE:
        io_uring_prep_fallocate(sqe, io->fd, io->mode, (off_t)io->offset_bytes,
                                (off_t)io->len_bytes);
        break;
    }
    io_uring_sqe_set_data64(sqe, (uint64_t)(uintptr_t)io);
}

/*
 * Raising an eventfd rides on the system call that submits and waits. No
 * completion may come of it, or the wait would end at once. First in the
 * queue: whoever waits for it goes on while the kernel takes up the rest.
 */
static void uring_fill_signals(struct evloop *loop, struct uring *u)
{
    int fd;

    while ((fd = evloop_take_signal(loop)) >= 0) {
        struct io_uring_sqe *sqe =
            u->can_skip ? io_uring_get_sqe(&u->ring) : NULL;

        if (!sqe) {
            evloop_write_signal(fd);
            continue;
        }
        io_uring_prep_write(sqe, fd, &uring_one, sizeof(uring_one), 0);
        io_uring_sqe_set_flags(sqe, IOSQE_CQE_SKIP_SUCCESS);
        io_uring_sqe_set_data64(sqe, URING_NO_OWNER);
    }
}

static bool uring_slot_idle(const struct ev_slot *s)
{
    if (s->in_flight)
        return s->cancelling || (s->kind != EV_SLOT_ZOMBIE && !s->stale);
    return s->kind == EV_SLOT_FREE || s->kind == EV_SLOT_ZOMBIE ||
           (s->kind == EV_SLOT_FD && s->owner.w->events == 0);
}

/* Moves what waits into the queue; false when the queue is full first. */
static bool uring_fill(struct evloop *loop, struct uring *u)
{
    struct io_uring_sqe *sqe;

    while (u->pending_head) {
        struct ev_slot *s = evloop_slot(loop, u->pending_head);

        if (!uring_slot_idle(s)) {
            sqe = io_uring_get_sqe(&u->ring);
            if (!sqe)
                return false;
            if (s->in_flight)
                uring_prep_cancel(sqe, s);
            else
                uring_prep_watch(sqe, s);
        }
        u->pending_head = s->next_pending;
        s->pending = false;
        if (s->kind == EV_SLOT_ZOMBIE && !s->in_flight)
            evloop_slot_release(loop, s);
    }
    while (u->io_head) {
        sqe = io_uring_get_sqe(&u->ring);
        if (!sqe)
            return false;
        uring_prep_io(sqe, u->io_head);
        u->io_head = u->io_head->next_;
        if (!u->io_head)
            u->io_tail = &u->io_head;
    }
    return true;
}

/* Runs the callback for what was told; false: nothing that was asked for. */
static bool uring_tell(struct ev_fd *w, int res)
{
    uint32_t told = res < 0 ? 0 : (uint32_t)res;

    if (res < 0 && res != -ECANCELED)
        told = POLLERR; /* not pollable: let the owner find out */
    /* Events that were asked for before a mod do not count any more. */
    told &= w->events | POLLERR | POLLHUP;
    if (!told || w->events == 0)
        return false;
    w->fn(w, told);
    return true;
}

/* `more`: the operation stays in flight, as that of a quiet watch does. */
static void uring_slot_done(struct evloop *loop, struct ev_slot *s, int res,
                            bool more)
{
    s->in_flight = more;
    if (s->kind == EV_SLOT_ZOMBIE) {
        if (!s->pending && !more)
            evloop_slot_release(loop, s);
        return;
    }
    if (s->kind == EV_SLOT_COUNTER) {
        struct ev_counter *c = s->owner.c;

        if (res == (int)sizeof(s->count))
            c->fn(c, s->count);
    } else if (uring_tell(s->owner.w, res)) {
        if (s->kind == EV_SLOT_FD && more)
            (void)uring_rearm(loop, s); /* level-triggered from here on */
    } else if (more) {
        return;
    } else if (res > 0 && !s->stale) {
        s->quiet = true;
    }
    /* The callback may have removed it: then the next fill sees an idle slot,
     * which stays harmless. */
    if (s->kind == EV_SLOT_FD || s->kind == EV_SLOT_COUNTER)
        uring_touch(loop, s);
}

static void uring_complete(struct evloop *loop, uint64_t data, int res,
                           bool more)
{
    struct ev_io *io;

    if (data == URING_NO_OWNER)
        return;
    if (data & URING_SLOT_BIT) {
        uring_slot_done(loop, evloop_slot(loop, (uint32_t)(data >> 1)), res,
                        more);
        return;
    }
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): user_data is an integer */
    io = (struct ev_io *)(uintptr_t)data;
    io->fn(io, uring_io_result(io, res));
}

static int uring_turn(struct evloop *loop, uint64_t timeout_ns)
{
    struct uring *u = evloop_priv(loop);
    struct __kernel_timespec ts;
    struct io_uring_cqe *cqe = NULL;
    int rc;

    uring_fill_signals(loop, u);
    if (!uring_fill(loop, u) || u->plain_head)
        timeout_ns = 0;
    ts.tv_sec = (int64_t)(timeout_ns / 1000000000u);
    ts.tv_nsec = (int64_t)(timeout_ns % 1000000000u);
    if (timeout_ns == UINT64_MAX)
        rc = io_uring_submit_and_wait(&u->ring, 1);
    else
        rc = io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, &ts, NULL);
    if (rc < 0 && rc != -ETIME && rc != -EINTR && rc != -EBUSY && rc != -EAGAIN)
        return rc;
    /* One CQ's worth at most, then timers get their turn. */
    for (unsigned left = URING_ENTRIES * 2; left > 0; left--) {
        uint64_t data;
        bool more;
        int res;

        if (io_uring_peek_cqe(&u->ring, &cqe) != 0)
            break;
        data = io_uring_cqe_get_data64(cqe);
        res = cqe->res;
        more = cqe->flags & IORING_CQE_F_MORE;
        io_uring_cqe_seen(&u->ring, cqe);
        uring_complete(loop, data, res, more);
    }
    uring_run_plain(u);
    return 0;
}

const struct evloop_ops evloop_uring_ops = {
    .backend = EVLOOP_URING,
    .start = uring_start,
    .fini = uring_fini,
    .arm = uring_arm,
    .rearm = uring_rearm,
    .disarm = uring_disarm,
    .submit = uring_submit,
    .turn = uring_turn,
};
