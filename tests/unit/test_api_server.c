/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/api_server.h"

#include "tests/harness/loop_run.h"
#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define PATIENCE_MS 20000
#define GET         "GET /a HTTP/1.1\r\n\r\n"

/* The server runs on a thread of its own; the test is its clients. */
struct fixture {
    char dir[64];
    char path[100];
    struct evloop *loop;
    struct log log;
    struct api_server *server;
    struct loop_thread *thread;
    struct errmsg err;
    _Atomic unsigned asked;
    struct ev_timer later;
};

static void answer(struct fixture *f, const char *path)
{
    struct http_reply r = {.status = 200, .body = path};

    api_server_answer(f->server, &r);
}

static void on_later(struct ev_timer *t)
{
    answer(t->arg, "\"later\"");
}

/* "/later" is answered from a later turn, "/never" not at all. */
static void on_request(void *arg, const struct http_request *req)
{
    struct fixture *f = arg;
    char text[64];

    f->asked++;
    if (!strcmp(req->path, "/never"))
        return;
    if (!strcmp(req->path, "/later")) {
        assert_int_equal(evloop_timer_arm(f->loop, &f->later,
                                          util_now_ns() + 20000000, on_later,
                                          f),
                         0);
        return;
    }
    (void)snprintf(text, sizeof(text), "\"%.20s %zu\"", req->path,
                   req->body_len);
    answer(f, text);
}

static int open_server(struct fixture *f, const char *path)
{
    const struct api_server_args args = {
        .loop = f->loop,
        .log = &f->log,
        .path = path,
        .max_body = HTTP_DEFAULT_BODY,
        .fn = on_request,
        .arg = f,
    };

    return api_server_new(&args, &f->server, &f->err);
}

static int setup_on(void **state, enum evloop_backend backend)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/mote-api-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof(f->path), "%s/api.sock", f->dir);
    log_init(&f->log, -1, LOG_OFF, "test");
    assert_int_equal(evloop_new(backend, &f->loop), 0);
    *state = f;
    return 0;
}

static int setup(void **state)
{
    return setup_on(state, EVLOOP_AUTO);
}

/* What the loop is where the host forbids io_uring. */
static int setup_epoll(void **state)
{
    return setup_on(state, EVLOOP_EPOLL);
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    if (f->thread)
        loop_thread_stop(f->thread);
    evloop_timer_cancel(f->loop, &f->later);
    api_server_free(f->server);
    evloop_free(f->loop);
    (void)unlink(f->path);
    assert_int_equal(rmdir(f->dir), 0);
    free(f);
    return 0;
}

static void start(struct fixture *f)
{
    assert_int_equal(open_server(f, f->path), 0);
    f->thread = loop_thread_start(f->loop);
}

static int dial(struct fixture *f)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", f->path);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Reads until `text` has come (true) or the end of the stream (false). */
static bool hear(int fd, const char *text)
{
    static char buf[1 << 16];
    size_t len = 0;

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n;

        assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
        n = recv(fd, buf + len, sizeof(buf) - 1 - len, 0);
        if (n <= 0)
            return false;
        len += (size_t)n;
        buf[len] = '\0';
        if (strstr(buf, text))
            return true;
    }
}

static void test_api_answers_and_keeps_the_connection(void **state)
{
    struct fixture *f = *state;
    CLEANUP_FD int fd = -1;

    start(f);
    fd = dial(f);
    for (int i = 0; i < 3; i++) {
        say(fd, GET);
        assert_true(hear(fd, "\r\n\r\n\"/a 0\""));
    }
    say(fd, "GET /b HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_false(hear(fd, "no such text"));
}

static void test_api_pipelined_requests_are_answered_in_order(void **state)
{
    struct fixture *f = *state;
    CLEANUP_FD int fd = -1;

    start(f);
    fd = dial(f);
    say(fd, "GET /1 HTTP/1.1\r\n\r\nGET /later HTTP/1.1\r\n\r\n"
            "PUT /3 HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
            "GET /last HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_true(hear(fd, "\"/last 0\""));
    assert_int_equal(f->asked, 4);
}

static void test_api_half_a_request_stops_nobody(void **state)
{
    struct fixture *f = *state;
    int slow[API_MAX_CONNS - 1];
    CLEANUP_FD int fd = -1;

    start(f);
    for (size_t i = 0; i < ARRAY_SIZE(slow); i++) {
        slow[i] = dial(f);
        say(slow[i], i % 2 ? "PUT /x HTTP/1.1\r\nContent-Le"
                           : "PUT /x HTTP/1.1\r\nContent-Length: 9\r\n\r\n{");
    }
    fd = dial(f);
    say(fd, GET);
    assert_true(hear(fd, "\"/a 0\""));
    for (size_t i = 0; i < ARRAY_SIZE(slow); i++)
        (void)close(slow[i]);
}

static void test_api_eleventh_connection_gets_503(void **state)
{
    struct fixture *f = *state;
    int fds[API_MAX_CONNS];
    CLEANUP_FD int more = -1;
    CLEANUP_FD int again = -1;

    start(f);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = dial(f);
        say(fds[i], GET);
        assert_true(hear(fds[i], "\"/a 0\""));
    }
    more = dial(f);
    /* It may say something first and still sees why, then the end. */
    say(more, GET);
    assert_true(hear(more, "HTTP/1.1 503 "));
    assert_false(hear(more, "no such text"));
    (void)close(fds[0]);
    fds[0] = -1;
    /* The place is free as soon as the server has seen that. */
    for (bool ok = false; !ok;) {
        again = dial(f);
        say(again, GET);
        ok = hear(again, "HTTP/1.1 200 ");
        if (!ok)
            drop_fd(&again);
    }
    for (size_t i = 1; i < ARRAY_SIZE(fds); i++)
        (void)close(fds[i]);
}

static void test_api_bad_request_is_told_why_and_closed(void **state)
{
    struct fixture *f = *state;
    CLEANUP_FD int fd = -1;
    CLEANUP_FREE char *big = calloc(1, 60001);

    start(f);
    assert_non_null(big);
    memset(big, 'x', 60000);
    fd = dial(f);
    say(fd, "PUT /x HTTP/1.1\r\nContent-Length: 60000\r\n\r\n");
    /* The client goes on sending, and must not see a broken pipe. */
    assert_true(hear(fd, "All previous unanswered requests will be dropped"));
    say(fd, big);
    assert_false(hear(fd, "no such text"));
    assert_int_equal(f->asked, 0);
}

static void test_api_client_that_reads_nothing_is_bounded(void **state)
{
    struct fixture *f = *state;
    CLEANUP_FD int fd = -1;
    CLEANUP_FD int other = -1;
    unsigned sent = 0;

    start(f);
    fd = dial(f);
    /* Until neither side takes more: the server has stopped to read. */
    for (struct pollfd p = {.fd = fd, .events = POLLOUT};
         poll(&p, 1, 200) == 1;) {
        ssize_t n = send(fd, GET, sizeof(GET) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);

        assert_true(n == sizeof(GET) - 1 || errno == EAGAIN);
        sent += n > 0;
        assert_true(sent < 1000000);
    }
    other = dial(f);
    say(other, GET);
    assert_true(hear(other, "\"/a 0\""));
    assert_true(f->asked < sent);
}

static void test_api_client_gone_before_its_answer(void **state)
{
    struct fixture *f = *state;
    CLEANUP_FD int other = -1;
    int fd;

    start(f);
    fd = dial(f);
    say(fd, "GET /later HTTP/1.1\r\n\r\n");
    while (f->asked == 0)
        (void)poll(NULL, 0, 1);
    (void)close(fd);
    other = dial(f);
    say(other, GET);
    assert_true(hear(other, "\"/a 0\""));
}

static void test_api_free_with_a_request_unanswered(void **state)
{
    struct fixture *f = *state;
    CLEANUP_FD int fd = -1;

    start(f);
    fd = dial(f);
    say(fd, "GET /never HTTP/1.1\r\n\r\n");
    while (f->asked == 0)
        (void)poll(NULL, 0, 1);
    loop_thread_stop(f->thread);
    f->thread = NULL;
    api_server_free(f->server);
    f->server = NULL;
    assert_false(hear(fd, "no such text"));
}

static bool file_is_there(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

static void test_api_socket_is_private_and_removed(void **state)
{
    struct fixture *f = *state;
    struct stat st;

    assert_int_equal(open_server(f, f->path), 0);
    assert_int_equal(lstat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    api_server_free(f->server);
    f->server = NULL;
    assert_false(file_is_there(f->path));
}

static void test_BL_022_stale_live_and_plain_file(void **state)
{
    struct fixture *f = *state;
    struct api_server *first;
    CLEANUP_FD int dead = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    FILE *plain;

    /* Left behind by a killed owner: taken over. */
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", f->path);
    assert_int_equal(bind(dead, (struct sockaddr *)&a, sizeof(a)), 0);
    drop_fd(&dead);
    assert_int_equal(open_server(f, f->path), 0);
    /* Live: refused, and the owner keeps its file. */
    first = f->server;
    assert_int_equal(open_server(f, f->path), -EADDRINUSE);
    assert_non_null(strstr(f->err.text, "another process listens"));
    assert_non_null(strstr(f->err.text, "--api-sock"));
    assert_true(file_is_there(f->path));
    api_server_free(first);
    f->server = NULL;
    /* A plain file: refused, never deleted. */
    plain = fopen(f->path, "we");
    assert_non_null(plain);
    assert_int_equal(fclose(plain), 0);
    assert_int_equal(open_server(f, f->path), -EEXIST);
    assert_non_null(strstr(f->err.text, "not a socket"));
    assert_true(file_is_there(f->path));
}

static void test_BL_023_socket_path_of_107_bytes(void **state)
{
    struct fixture *f = *state;
    char path[128];

    for (size_t len = 107; len <= 108; len++) {
        memset(path, 'p', len);
        path[len] = '\0';
        memcpy(path, f->dir, strlen(f->dir));
        path[strlen(f->dir)] = '/';
        assert_int_equal(open_server(f, path), len == 107 ? 0 : -ENAMETOOLONG);
        if (len == 107) {
            api_server_free(f->server);
            f->server = NULL;
        }
    }
    assert_non_null(strstr(f->err.text, "can have 107"));
}

#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
#define E(t) cmocka_unit_test_setup_teardown(t, setup_epoll, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_api_answers_and_keeps_the_connection),
        T(test_api_pipelined_requests_are_answered_in_order),
        T(test_api_half_a_request_stops_nobody),
        T(test_api_eleventh_connection_gets_503),
        T(test_api_bad_request_is_told_why_and_closed),
        T(test_api_client_that_reads_nothing_is_bounded),
        T(test_api_client_gone_before_its_answer),
        T(test_api_free_with_a_request_unanswered),
        T(test_api_socket_is_private_and_removed),
        T(test_BL_022_stale_live_and_plain_file),
        T(test_BL_023_socket_path_of_107_bytes),
        E(test_api_answers_and_keeps_the_connection),
        E(test_api_pipelined_requests_are_answered_in_order),
        E(test_api_half_a_request_stops_nobody),
        E(test_api_eleventh_connection_gets_503),
        E(test_api_bad_request_is_told_why_and_closed),
        E(test_api_client_that_reads_nothing_is_bounded),
        E(test_api_client_gone_before_its_answer),
        E(test_api_free_with_a_request_unanswered),
    };

    return cmocka_run_group_tests_name("api_server", tests, NULL, NULL);
}
