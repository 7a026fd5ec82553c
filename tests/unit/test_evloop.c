/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop: every test runs on both back ends. */
#include "vmm/evloop.h"

#include "vmm/cleanup.h"
#include "vmm/evloop_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define GUARD_NS 20000000000ull

struct fixture {
    struct evloop *loop;
    struct ev_timer guard;
    int hits;
    int want;
    bool timed_out;
};

static void on_guard(struct ev_timer *t)
{
    struct fixture *f = t->arg;

    f->timed_out = true;
    evloop_stop(f->loop);
}

static void hit(struct fixture *f)
{
    if (++f->hits >= f->want)
        evloop_stop(f->loop);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    enum evloop_backend b = *(enum evloop_backend *)*state;

    assert_non_null(f);
    f->want = 1;
    if (evloop_new(b, &f->loop) != 0) {
        free(f);
        *state = NULL;
        return 0;
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    if (f)
        evloop_free(f->loop);
    free(f);
    return 0;
}

/* Runs until `want` hits or the hang guard. */
static void run(struct fixture *f)
{
    assert_int_equal(evloop_timer_arm(f->loop, &f->guard,
                                      util_now_ns() + GUARD_NS, on_guard, f),
                     0);
    assert_int_equal(evloop_run(f->loop), 0);
    assert_false(f->timed_out);
    evloop_timer_cancel(f->loop, &f->guard);
}

static struct fixture *fixture(void **state)
{
    if (!*state)
        skip(); /* this host forbids io_uring */
    return *state;
}

/* --- readiness ------------------------------------------------------------ */

static void on_readable(struct ev_fd *w, uint32_t revents)
{
    assert_true(revents & (POLLIN | POLLHUP));
    hit(w->arg);
}

static void test_fd_is_level_triggered(void **state)
{
    struct fixture *f = fixture(state);
    struct ev_fd w = {0};
    int p[2];

    assert_int_equal(pipe(p), 0);
    assert_int_equal(write(p[1], "x", 1), 1);
    f->want = 3; /* the byte is never read, so it is told again and again */
    assert_int_equal(evloop_fd_add(f->loop, &w, p[0], POLLIN, on_readable, f),
                     0);
    run(f);
    evloop_fd_del(f->loop, &w);
    evloop_fd_del(f->loop, &w); /* idempotent */
    close(p[0]);
    close(p[1]);
}

static void on_hup(struct ev_fd *w, uint32_t revents)
{
    struct fixture *f = w->arg;

    assert_true(revents & POLLHUP);
    evloop_fd_del(f->loop, w);
    hit(f);
}

static void test_fd_hup_is_told_and_del_inside_callback_works(void **state)
{
    struct fixture *f = fixture(state);
    struct ev_fd w = {0};
    int p[2];

    assert_int_equal(pipe(p), 0);
    close(p[1]);
    assert_int_equal(evloop_fd_add(f->loop, &w, p[0], POLLIN, on_hup, f), 0);
    run(f);
    assert_int_equal(f->hits, 1);
    close(p[0]);
}

static void on_never(struct ev_fd *w, uint32_t revents)
{
    (void)w;
    fail_msg("a removed or muted watch was told 0x%x", revents);
}

static void on_timer_hit(struct ev_timer *t)
{
    hit(t->arg);
}

static void
test_fd_removed_while_armed_is_silent_and_slot_is_reused(void **state)
{
    struct fixture *f = fixture(state);
    struct ev_timer t = {0};
    int p[2];

    assert_int_equal(pipe(p), 0);
    for (int i = 0; i < 500; i++) {
        struct ev_fd w = {0};

        assert_int_equal(evloop_fd_add(f->loop, &w, p[0], POLLIN, on_never, f),
                         0);
        evloop_fd_del(f->loop, &w);
        memset(&w, 0xaa, sizeof(w)); /* the struct is ours again */
    }
    assert_int_equal(write(p[1], "x", 1), 1);
    assert_int_equal(
        evloop_timer_arm(f->loop, &t, util_now_ns() + 1000000, on_timer_hit, f),
        0);
    run(f);
    close(p[0]);
    close(p[1]);
}

struct mod_case {
    struct fixture *f;
    int readable;
    int writable;
};

static void on_mod(struct ev_fd *w, uint32_t revents)
{
    struct mod_case *m = w->arg;

    if (revents & POLLOUT) {
        m->writable++;
        assert_int_equal(evloop_fd_mod(m->f->loop, w, POLLIN), 0);
        assert_int_equal(m->readable, 0);
        return;
    }
    m->readable++;
    assert_int_equal(m->writable, 1);
    hit(m->f);
}

static void mod_write(struct ev_timer *t)
{
    int *fd = t->arg;

    assert_int_equal(write(*fd, "x", 1), 1);
}

static void test_fd_mod_changes_events(void **state)
{
    struct fixture *f = fixture(state);
    struct mod_case m = {.f = f};
    struct ev_fd w = {0};
    struct ev_timer t = {0};
    int s[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
    assert_int_equal(evloop_fd_add(f->loop, &w, s[0], 0, on_mod, &m), 0);
    assert_int_equal(evloop_fd_mod(f->loop, &w, POLLOUT), 0);
    assert_int_equal(evloop_timer_arm(f->loop, &t, util_now_ns() + 2000000,
                                      mod_write, &s[1]),
                     0);
    run(f);
    evloop_fd_del(f->loop, &w);
    close(s[0]);
    close(s[1]);
}

static void test_fd_muted_by_mod_while_armed_is_silent(void **state)
{
    struct fixture *f = fixture(state);
    struct ev_fd w = {0};
    struct ev_timer t = {0};
    struct ev_timer wr = {0};
    int p[2];

    assert_int_equal(pipe(p), 0);
    assert_int_equal(evloop_fd_add(f->loop, &w, p[0], POLLIN, on_never, f), 0);
    assert_int_equal(evloop_fd_mod(f->loop, &w, 0), 0);
    assert_int_equal(evloop_timer_arm(f->loop, &wr, util_now_ns() + 1000000,
                                      mod_write, &p[1]),
                     0);
    assert_int_equal(
        evloop_timer_arm(f->loop, &t, util_now_ns() + 5000000, on_timer_hit, f),
        0);
    run(f);
    evloop_fd_del(f->loop, &w);
    close(p[0]);
    close(p[1]);
}

static void on_file(struct ev_fd *w, uint32_t revents)
{
    assert_true(revents & POLLIN);
    hit(w->arg);
}

static void test_fd_regular_file_is_always_ready(void **state)
{
    struct fixture *f = fixture(state);
    struct ev_fd w = {0};
    int fd = memfd_create("t", 0);

    assert_true(fd >= 0);
    f->want = 2;
    assert_int_equal(evloop_fd_add(f->loop, &w, fd, POLLIN, on_file, f), 0);
    run(f);
    evloop_fd_del(f->loop, &w);
    close(fd);
}

/* --- counters --------------------------------------------------------------
 */

static void on_count(struct ev_counter *c, uint64_t count)
{
    struct fixture *f = c->arg;

    assert_int_equal(count, 5);
    hit(f);
}

static void test_counter_reads_and_rearms(void **state)
{
    struct fixture *f = fixture(state);
    struct ev_counter c = {0};
    uint64_t five = 5;
    int fd = eventfd(0, EFD_NONBLOCK);

    assert_true(fd >= 0);
    assert_int_equal(evloop_counter_add(f->loop, &c, fd, on_count, f), 0);
    for (int i = 0; i < 3; i++) {
        f->hits = 0;
        assert_int_equal(write(fd, &five, sizeof(five)), sizeof(five));
        run(f);
        assert_int_equal(f->hits, 1);
    }
    evloop_counter_del(f->loop, &c);
    close(fd);
}

struct pair {
    struct fixture *f;
    struct ev_counter a, b;
    int fd_a, fd_b;
};

static void on_pair(struct ev_counter *c, uint64_t count)
{
    struct pair *p = c->arg;
    struct ev_counter *other = c == &p->a ? &p->b : &p->a;
    int fd = eventfd(0, 0);

    (void)count;
    /* Removes the other, ready in the same turn, and takes its slot. */
    evloop_counter_del(p->f->loop, other);
    assert_int_equal(evloop_counter_add(p->f->loop, other, fd, on_pair, p), 0);
    hit(p->f);
}

static void
test_counter_slot_reused_within_a_turn_gets_no_stale_event(void **state)
{
    struct fixture *f = fixture(state);
    struct pair p = {.f = f};
    struct ev_timer t = {0};
    uint64_t one = 1;

    p.fd_a = eventfd(1, 0);
    p.fd_b = eventfd(1, 0);
    assert_int_equal(evloop_counter_add(f->loop, &p.a, p.fd_a, on_pair, &p), 0);
    assert_int_equal(evloop_counter_add(f->loop, &p.b, p.fd_b, on_pair, &p), 0);
    f->want = 2;
    assert_int_equal(
        evloop_timer_arm(f->loop, &t, util_now_ns() + 3000000, on_timer_hit, f),
        0);
    run(f); /* hangs in a read of an empty counter if it went wrong */
    assert_int_equal(f->hits, 2);
    (void)one;
    close(p.a.fd);
    close(p.b.fd);
    evloop_counter_del(f->loop, &p.a);
    evloop_counter_del(f->loop, &p.b);
    close(p.fd_a == p.a.fd ? p.fd_b : p.fd_a);
}

/* --- timers ----------------------------------------------------------------
 */

#define NUM_TIMERS 200

struct timers {
    struct fixture *f;
    struct ev_timer t[NUM_TIMERS];
    uint64_t last;
};

static void on_ordered(struct ev_timer *t)
{
    struct timers *ts = t->arg;

    assert_true(t->deadline_ns >= ts->last);
    ts->last = t->deadline_ns;
    hit(ts->f);
}

static void test_timers_fire_in_order_and_cancelled_ones_do_not(void **state)
{
    struct fixture *f = fixture(state);
    struct timers *ts = calloc(1, sizeof(*ts));
    uint64_t now = util_now_ns();
    uint32_t seed = 1;

    assert_non_null(ts);
    ts->f = f;
    for (int i = 0; i < NUM_TIMERS; i++) {
        seed = seed * 1103515245u + 12345u;
        assert_int_equal(evloop_timer_arm(f->loop, &ts->t[i],
                                          now + (seed >> 8) % 5000000,
                                          on_ordered, ts),
                         0);
    }
    for (int i = 0; i < NUM_TIMERS; i += 4)
        evloop_timer_cancel(f->loop, &ts->t[i]);
    /* Moving an armed timer keeps one instance of it. */
    assert_int_equal(
        evloop_timer_arm(f->loop, &ts->t[1], now + 6000000, on_ordered, ts), 0);
    f->want = NUM_TIMERS - NUM_TIMERS / 4;
    run(f);
    assert_int_equal(f->hits, f->want);
    free(ts);
}

/* --- file I/O --------------------------------------------------------------
 */

struct io_case {
    struct fixture *f;
    struct ev_io io;
    struct iovec iov[2];
    int32_t result;
    bool inside_submit;
};

static void on_io(struct ev_io *io, int32_t result)
{
    struct io_case *c = io->arg;

    assert_false(c->inside_submit);
    c->result = result;
    hit(c->f);
}

static void do_io(struct io_case *c, enum ev_io_op op, int fd, uint64_t off)
{
    c->io = (struct ev_io){.op = op,
                           .fd = fd,
                           .iov = c->iov,
                           .iovcnt = 2,
                           .offset_bytes = off,
                           .fn = on_io,
                           .arg = c};
    c->f->hits = 0;
    c->inside_submit = true;
    evloop_io_submit(c->f->loop, &c->io);
    c->inside_submit = false;
    run(c->f);
}

static void test_io_write_sync_read_back(void **state)
{
    struct fixture *f = fixture(state);
    struct io_case c = {.f = f};
    char a[3], b[5];
    int fd = memfd_create("t", 0);

    assert_true(fd >= 0);
    c.iov[0] = (struct iovec){a, sizeof(a)};
    c.iov[1] = (struct iovec){b, sizeof(b)};
    memcpy(a, "abc", 3);
    memcpy(b, "defgh", 5);
    do_io(&c, EV_IO_WRITEV, fd, 10);
    assert_int_equal(c.result, 8);
    do_io(&c, EV_IO_FDATASYNC, fd, 0);
    assert_int_equal(c.result, 0);
    memset(a, 0, 3);
    memset(b, 0, 5);
    do_io(&c, EV_IO_READV, fd, 11);
    assert_int_equal(c.result, 7);
    assert_memory_equal(a, "bcd", 3);
    assert_memory_equal(b, "efgh", 4);
    close(fd);
}

static void test_io_fallocate_punches_a_hole(void **state)
{
    struct fixture *f = fixture(state);
    struct io_case c = {.f = f};
    char page[4096], got[4096];
    int fd = memfd_create("t", 0);

    memset(page, 'x', sizeof(page));
    assert_int_equal(pwrite(fd, page, sizeof(page), 4096), 4096);
    c.io = (struct ev_io){.op = EV_IO_FALLOCATE,
                          .fd = fd,
                          .mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          .offset_bytes = 4096,
                          .len_bytes = 4096,
                          .fn = on_io,
                          .arg = &c};
    evloop_io_submit(f->loop, &c.io);
    run(f);
    assert_int_equal(c.result, 0);
    memset(page, 0, sizeof(page));
    assert_int_equal(pread(fd, got, sizeof(got), 4096), 4096);
    assert_memory_equal(got, page, sizeof(page));
    close(fd);
}

static void test_io_on_a_stream_has_no_offset(void **state)
{
    struct fixture *f = fixture(state);
    struct io_case c = {.f = f};
    char a[3] = "abc", b[5] = "defg";
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    c.iov[0] = (struct iovec){a, sizeof(a)};
    c.iov[1] = (struct iovec){b, sizeof(b)};
    do_io(&c, EV_IO_WRITEV, fds[0], EV_IO_STREAM);
    assert_int_equal(c.result, 8);
    memset(a, 0, sizeof(a));
    do_io(&c, EV_IO_READV, fds[1], EV_IO_STREAM);
    assert_int_equal(c.result, 8);
    assert_memory_equal(a, "abc", 3);
    close(fds[0]);
    close(fds[1]);
}

static void test_io_error_is_passed_on(void **state)
{
    struct fixture *f = fixture(state);
    struct io_case c = {.f = f};
    char a[3], b[5];
    int fd = open("/dev/null", O_RDONLY);

    c.iov[0] = (struct iovec){a, sizeof(a)};
    c.iov[1] = (struct iovec){b, sizeof(b)};
    do_io(&c, EV_IO_WRITEV, fd, 0);
    assert_int_equal(c.result, -EBADF);
    close(fd);
}

#define MANY_IO 1000

static void test_io_more_requests_than_ring_entries(void **state)
{
    struct fixture *f = fixture(state);
    struct io_case *c = calloc(MANY_IO, sizeof(*c));
    uint32_t *words = calloc(MANY_IO, sizeof(*words));
    int fd = memfd_create("t", 0);

    assert_non_null(c);
    assert_non_null(words);
    assert_int_equal(ftruncate(fd, MANY_IO * 4), 0);
    f->want = MANY_IO;
    for (uint32_t i = 0; i < MANY_IO; i++) {
        words[i] = i;
        c[i].f = f;
        c[i].iov[0] = (struct iovec){&words[i], 4};
        c[i].io = (struct ev_io){.op = EV_IO_WRITEV,
                                 .fd = fd,
                                 .iov = c[i].iov,
                                 .iovcnt = 1,
                                 .offset_bytes = i * 4,
                                 .fn = on_io,
                                 .arg = &c[i]};
        evloop_io_submit(f->loop, &c[i].io);
    }
    run(f);
    for (uint32_t i = 0; i < MANY_IO; i++) {
        uint32_t got = 0;

        assert_int_equal(pread(fd, &got, 4, i * 4), 4);
        assert_int_equal(got, i);
        assert_int_equal(c[i].result, 4);
    }
    close(fd);
    free(words);
    free(c);
}

/* --- calls from other threads ----------------------------------------------
 */

#define POSTS 1000

struct poster {
    struct fixture *f;
    struct ev_call calls[POSTS];
    int next;
};

static void on_post(struct ev_call *c)
{
    struct poster *p = c->arg;

    assert_ptr_equal(c, &p->calls[p->next]);
    p->next++;
    hit(p->f);
}

static void *poster_main(void *arg)
{
    struct poster *p = arg;

    for (int i = 0; i < POSTS; i++) {
        p->calls[i].fn = on_post;
        p->calls[i].arg = p;
        evloop_post(p->f->loop, &p->calls[i]);
    }
    return NULL;
}

static void test_posts_from_a_thread_run_in_order(void **state)
{
    struct fixture *f = fixture(state);
    struct poster *p = calloc(1, sizeof(*p));
    pthread_t th;

    assert_non_null(p);
    p->f = f;
    f->want = POSTS;
    assert_int_equal(pthread_create(&th, NULL, poster_main, p), 0);
    run(f);
    assert_int_equal(pthread_join(th, NULL), 0);
    assert_int_equal(p->next, POSTS);
    free(p);
}

static void *stopper_main(void *arg)
{
    struct fixture *f = arg;

    evloop_stop(f->loop);
    return NULL;
}

static void test_stop_from_a_thread_ends_an_idle_loop(void **state)
{
    struct fixture *f = fixture(state);
    pthread_t th;

    assert_int_equal(pthread_create(&th, NULL, stopper_main, f), 0);
    run(f);
    assert_int_equal(pthread_join(th, NULL), 0);
}

/* --- the ring's own fence ----------------------------------------------------
 */

static int ring_result(struct io_uring *ring, struct io_uring_sqe *sqe)
{
    struct io_uring_cqe *cqe = NULL;
    int res;

    io_uring_sqe_set_data64(sqe, 0); /* nobody's, should the loop see it */
    assert_true(io_uring_submit_and_wait(ring, 1) >= 0);
    assert_int_equal(io_uring_peek_cqe(ring, &cqe), 0);
    res = cqe->res;
    io_uring_cqe_seen(ring, cqe);
    return res;
}

/* io_uring bypasses seccomp: the ring itself must refuse what we never use. */
static void test_ring_refuses_openat_connect_and_socket(void **state)
{
    struct fixture *f = fixture(state);
    struct io_uring *ring = evloop_priv(f->loop); /* its first member */
    struct io_uring_sqe *sqe;

    evloop_stop(f->loop);
    assert_int_equal(evloop_run(f->loop), 0); /* enables the ring */
    sqe = io_uring_get_sqe(ring);
    io_uring_prep_openat(sqe, AT_FDCWD, "/dev/null", O_RDONLY, 0);
    assert_int_equal(ring_result(ring, sqe), -EACCES);
    sqe = io_uring_get_sqe(ring);
    io_uring_prep_connect(sqe, 0, NULL, 0);
    assert_int_equal(ring_result(ring, sqe), -EACCES);
    sqe = io_uring_get_sqe(ring);
    io_uring_prep_socket(sqe, AF_UNIX, SOCK_STREAM, 0, 0);
    assert_int_equal(ring_result(ring, sqe), -EACCES);
    assert_int_equal(io_uring_register_buffers_sparse(ring, 1), -EACCES);
}

/* --- hosts that forbid io_uring ---------------------------------------------
 */

static int forbid_io_uring(uint32_t errno_value)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | errno_value),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {ARRAY_SIZE(code), code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

static int forbidden_child(int errno_value)
{
    struct evloop *loop = NULL;

    if (forbid_io_uring((uint32_t)errno_value))
        return 2;
    if (evloop_new(EVLOOP_URING, &loop) != -errno_value)
        return 3;
    if (evloop_new(EVLOOP_AUTO, &loop) != 0)
        return 4;
    if (evloop_backend(loop) != EVLOOP_EPOLL ||
        evloop_fallback_errno(loop) != errno_value)
        return 5;
    evloop_free(loop);
    return 0;
}

static void
test_BL_029_io_uring_forbidden_falls_back_and_tells_why(void **state)
{
    static const int errnos[] = {EPERM, ENOSYS};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(errnos); i++) {
        int status = -1;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
            _exit(forbidden_child(errnos[i]));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

#define T(name, b)                                                             \
    cmocka_unit_test_prestate_setup_teardown(name, setup, teardown, b)
#define BOTH(name) T(name, &uring), T(name, &epoll)

int main(void)
{
    static enum evloop_backend uring = EVLOOP_URING;
    static enum evloop_backend epoll = EVLOOP_EPOLL;
    const struct CMUnitTest tests[] = {
        BOTH(test_fd_is_level_triggered),
        BOTH(test_fd_hup_is_told_and_del_inside_callback_works),
        BOTH(test_fd_removed_while_armed_is_silent_and_slot_is_reused),
        BOTH(test_fd_mod_changes_events),
        BOTH(test_fd_muted_by_mod_while_armed_is_silent),
        BOTH(test_fd_regular_file_is_always_ready),
        BOTH(test_counter_reads_and_rearms),
        BOTH(test_counter_slot_reused_within_a_turn_gets_no_stale_event),
        BOTH(test_timers_fire_in_order_and_cancelled_ones_do_not),
        BOTH(test_io_write_sync_read_back),
        BOTH(test_io_fallocate_punches_a_hole),
        BOTH(test_io_on_a_stream_has_no_offset),
        BOTH(test_io_error_is_passed_on),
        BOTH(test_io_more_requests_than_ring_entries),
        BOTH(test_posts_from_a_thread_run_in_order),
        BOTH(test_stop_from_a_thread_ends_an_idle_loop),
        T(test_ring_refuses_openat_connect_and_socket, &uring),
        cmocka_unit_test(
            test_BL_029_io_uring_forbidden_falls_back_and_tells_why),
    };

    return cmocka_run_group_tests_name("evloop", tests, NULL, NULL);
}
