/* SPDX-License-Identifier: Apache-2.0 */
/* A command's connection: what goes out, and what a guest may answer. */
#include "tools/libmote/mote.h"

#include "guest/abi.h"
#include "vmm/le.h"
#include "vmm/util.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The test is the monitor and the guest behind it. */
struct fixture {
    char path[40];
    int listen_fd;
    int guest_fd;
    struct mote_exec *exec;
};

static const char hail[] = "CONNECT 1024\n";

static int setup(void **state)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    struct fixture *f = calloc(1, sizeof(*f));

    if (!f)
        return -1;
    (void)snprintf(f->path, sizeof(f->path), "/tmp/mote-unit-%d.sock",
                   (int)getpid());
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", f->path);
    (void)unlink(f->path);
    f->guest_fd = -1;
    f->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *state = f;
    if (bind(f->listen_fd, (struct sockaddr *)&sa, sizeof(sa)))
        return -1;
    return listen(f->listen_fd, 4);
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    mote_exec_free(f->exec);
    if (f->guest_fd >= 0)
        (void)close(f->guest_fd);
    (void)close(f->listen_fd);
    (void)unlink(f->path);
    free(f);
    return 0;
}

/* Starts a command and takes its connection; the greeting is read. */
static void start(struct fixture *f, const struct mote_exec_params *p)
{
    char got[sizeof(hail)] = "";

    assert_int_equal(mote_exec_start(f->path, p, &f->exec, NULL), 0);
    f->guest_fd = accept(f->listen_fd, NULL, NULL);
    assert_true(f->guest_fd >= 0);
    assert_int_equal(recv(f->guest_fd, got, sizeof(hail) - 1, MSG_WAITALL),
                     sizeof(hail) - 1);
    assert_string_equal(got, hail);
}

static void start_true(struct fixture *f)
{
    static const char *const argv[] = {"true", NULL};

    start(f, &(struct mote_exec_params){.argv = argv});
}

static void guest_sends(struct fixture *f, const void *data, size_t len)
{
    assert_int_equal(send(f->guest_fd, data, len, MSG_NOSIGNAL), len);
}

/* "OK", HELLO and these bytes, written in hexadecimal. */
static void guest_plays(struct fixture *f, const char *hex)
{
    uint8_t bytes[512];
    size_t n = strlen(hex) / 2;

    assert_true(n <= sizeof(bytes));
    for (size_t i = 0; i < n; i++) {
        unsigned v = 0;

        assert_int_equal(sscanf(hex + 2 * i, "%2x", &v), 1);
        bytes[i] = (uint8_t)v;
    }
    guest_sends(f, "OK 1073741824\n", 14);
    guest_sends(f, bytes, n);
}

#define HELLO_HEX "4d4f544501000100"

static void expect_output(struct fixture *f, enum mote_exec_kind kind,
                          const char *text)
{
    struct mote_exec_event ev;

    assert_int_equal(mote_exec_next(f->exec, &ev, NULL), 1);
    assert_int_equal(ev.kind, kind);
    assert_int_equal(ev.len, strlen(text));
    assert_memory_equal(ev.data, text, ev.len);
}

static void expect_failure(struct fixture *f, int rc, const char *text)
{
    struct mote_exec_event ev;
    struct mote_err err = {0};

    assert_int_equal(mote_exec_next(f->exec, &ev, &err), rc);
    if (!strstr(err.text, text))
        fail_msg("%s", err.text);
}

/* --- transcripts: what agents of each version really sent --------------------
 */

/*
 * Recorded from the agent of version 1: sh -c 'echo hi; echo err >&2; exit 7'.
 * A restored guest keeps the agent it was saved with: this stays readable for
 * ever.
 */
static const char transcript_1[] =
    "4d4f5445010001000c0000008100000020000000040000006c7000000300000082000000"
    "68690a04000000830000006572720a380000008400000021000000080000000100000007"
    "0000002200000020000000ee0d000000000000000000000000000000e019000000000"
    "01d32030000000000";

static void test_transcript_of_version_1(void **state)
{
    struct fixture *f = *state;
    struct mote_exec_event ev;

    start_true(f);
    guest_plays(f, transcript_1);
    assert_int_equal(mote_exec_next(f->exec, &ev, NULL), 1);
    assert_int_equal(ev.kind, MOTE_EXEC_STARTED);
    assert_int_equal(ev.pid, 0x706c);
    expect_output(f, MOTE_EXEC_STDOUT, "hi\n");
    expect_output(f, MOTE_EXEC_STDERR, "err\n");
    assert_int_equal(mote_exec_next(f->exec, &ev, NULL), 1);
    assert_int_equal(ev.kind, MOTE_EXEC_EXITED);
    assert_int_equal(ev.exit_code, 7);
    assert_int_equal(ev.signal, 0);
    assert_false(ev.timed_out);
    assert_int_equal(ev.wall_us, 209437);
    assert_int_equal(mote_exec_next(f->exec, &ev, NULL), 0);
}

static void test_transcript_of_version_1_refusal(void **state)
{
    struct fixture *f = *state;
    struct mote_exec_event ev;

    start_true(f);
    guest_plays(
        f,
        "4d4f544501000100630000008500000030000000040000007f000000310000004300"
        "000063616e6e6f742072756e20276e6f73756368273a206e6f7420666f756e642069"
        "6e20504154483b2067697665206974732070617468206f7220696e7374616c6c2069"
        "74320000000400000002000000");
    assert_int_equal(mote_exec_next(f->exec, &ev, NULL), 1);
    assert_int_equal(ev.kind, MOTE_EXEC_REFUSED);
    assert_int_equal(ev.error, MOTE_ERR_NO_SUCH_PROGRAM);
    assert_string_equal(ev.text, "cannot run 'nosuch': not found in PATH; give "
                                 "its path or install it");
}

/* --- what goes out
 * -------------------------------------------------------------- */

static void test_start_is_not_sent_before_the_monitors_ok(void **state)
{
    struct fixture *f = *state;
    struct mote_exec_event ev;
    char byte;

    start_true(f);
    assert_int_equal(mote_exec_next(f->exec, &ev, NULL), 0);
    assert_int_equal(recv(f->guest_fd, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(mote_exec_events(f->exec), POLLIN);
    guest_sends(f, "OK 5\n", 5);
    assert_int_equal(mote_exec_next(f->exec, &ev, NULL), 0);
    assert_int_equal(recv(f->guest_fd, &byte, 1, MSG_DONTWAIT), 1);
    assert_int_equal(byte, 'M');
}

/* Reads one frame that we sent; its payload goes to `out`. */
static size_t guest_reads(struct fixture *f, uint8_t *out_type, uint8_t *out,
                          size_t cap)
{
    uint8_t head[8];
    size_t len;

    assert_int_equal(recv(f->guest_fd, head, 8, MSG_WAITALL), 8);
    len = get_le32(head);
    assert_true(len <= cap);
    *out_type = head[4];
    if (len > 0)
        assert_int_equal(recv(f->guest_fd, out, len, MSG_WAITALL), len);
    return len;
}

static void test_start_carries_all_parameters(void **state)
{
    static const char *const argv[] = {"sh", "-c", NULL};
    static const char *const env[] = {"A=1", "B=", NULL};
    static const uint16_t want[] = {
        MOTE_ATTR_ARG,     MOTE_ATTR_ARG, MOTE_ATTR_ENV,
        MOTE_ATTR_ENV,     MOTE_ATTR_CWD, MOTE_ATTR_USER,
        MOTE_ATTR_STDIN,   MOTE_ATTR_PTY, MOTE_ATTR_TIME_LIMIT_MS,
        MOTE_ATTR_GRACE_MS};
    const struct mote_exec_params p = {.argv = argv,
                                       .env = env,
                                       .workdir = "/w",
                                       .user = "u",
                                       .stdin_open = true,
                                       .tty = true,
                                       .size = {40, 120},
                                       .time_limit_ms = 5,
                                       .grace_ms = 6};
    struct fixture *f = *state;
    struct mote_exec_event ev;
    uint8_t data[512];
    uint8_t type = 0;
    size_t at = 0;
    size_t len;

    start(f, &p);
    guest_sends(f, "OK 5\n", 5);
    assert_int_equal(mote_exec_next(f->exec, &ev, NULL), 0);
    assert_int_equal(recv(f->guest_fd, data, 8, MSG_WAITALL), 8); /* HELLO */
    len = guest_reads(f, &type, data, sizeof(data));
    assert_int_equal(type, MOTE_T_START);
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        assert_true(at + 8 <= len);
        assert_int_equal(get_le16(data + at), want[i]);
        if (want[i] == MOTE_ATTR_PTY) {
            assert_int_equal(get_le16(data + at + 8), 40);
            assert_int_equal(get_le16(data + at + 10), 120);
        }
        at += 8 + get_le32(data + at + 4);
    }
    assert_int_equal(at, len);
}

static void test_input_frames_and_end(void **state)
{
    static const char *const argv[] = {"cat", NULL};
    struct fixture *f = *state;
    struct mote_exec_event ev;
    uint8_t data[64];
    uint8_t type = 0;

    start(f, &(struct mote_exec_params){.argv = argv, .stdin_open = true});
    guest_sends(f, "OK 5\n", 5);
    assert_int_equal(mote_exec_write(f->exec, "abc", 3), 0);
    assert_int_equal(mote_exec_write(f->exec, NULL, 0), 0);
    assert_int_equal(mote_exec_write(f->exec, "more", 4), -EPIPE);
    assert_int_equal(mote_exec_resize(f->exec, (struct mote_tty_size){1, 2}),
                     0);
    assert_true(mote_exec_backlog(f->exec) > 0);
    assert_int_equal(mote_exec_next(f->exec, &ev, NULL), 0);
    assert_int_equal(mote_exec_backlog(f->exec), 0);
    assert_int_equal(recv(f->guest_fd, data, 8, MSG_WAITALL), 8); /* HELLO */
    (void)guest_reads(f, &type, data, sizeof(data));
    assert_int_equal(type, MOTE_T_START);
    assert_int_equal(guest_reads(f, &type, data, sizeof(data)), 3);
    assert_int_equal(type, MOTE_T_STDIN);
    assert_memory_equal(data, "abc", 3);
    assert_int_equal(guest_reads(f, &type, data, sizeof(data)), 0);
    assert_int_equal(type, MOTE_T_STDIN_EOF);
    assert_int_equal(guest_reads(f, &type, data, sizeof(data)), 16);
    assert_int_equal(type, MOTE_T_RESIZE);
}

static void test_arguments_above_the_limit_are_refused(void **state)
{
    struct fixture *f = *state;
    char *big = malloc(MOTE_MESSAGE_MAX);
    const char *argv[] = {big, NULL};
    struct mote_exec_params p = {.argv = argv};
    struct mote_err err = {0};

    assert_non_null(big);
    memset(big, 'x', MOTE_MESSAGE_MAX - 1);
    big[MOTE_MESSAGE_MAX - 1] = '\0';
    assert_int_equal(mote_exec_start(f->path, &p, &f->exec, &err), -E2BIG);
    assert_non_null(strstr(err.text, "4 MiB"));
    free(big);
}

/* --- what a guest may not do
 * ------------------------------------------------------ */

static void test_no_listener_in_the_guest(void **state)
{
    struct fixture *f = *state;

    start_true(f);
    (void)shutdown(f->guest_fd, SHUT_RDWR);
    expect_failure(f, -ECONNREFUSED, "does not listen");
}

static void test_lost_in_the_middle(void **state)
{
    struct fixture *f = *state;

    start_true(f);
    guest_plays(f, HELLO_HEX "0300000082000000"
                             "68690a"
                             "0300000082000000");
    (void)shutdown(f->guest_fd, SHUT_RDWR);
    expect_output(f, MOTE_EXEC_STDOUT, "hi\n");
    expect_failure(f, -ECONNRESET, "lost before the command ended");
}

static void test_greeting_of_something_else(void **state)
{
    static const char *const cases[] = {
        "HTTP/1.1 400\n", "OK without an end that goes on and on and on", "\n"};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        start_true(f);
        guest_sends(f, cases[i], strlen(cases[i]));
        expect_failure(f, -EPROTO, "broke the agent protocol");
        mote_exec_free(f->exec);
        f->exec = NULL;
        (void)close(f->guest_fd);
        f->guest_fd = -1;
    }
}

static void test_messages_out_of_place_or_malformed(void **state)
{
    static const char *const cases[] = {
        /* OK is no answer to a command */
        HELLO_HEX "0000000086000000",
        /* EXIT without how */
        HELLO_HEX "0000000084000000",
        /* a code of 256 */
        HELLO_HEX "1000000084000000"
                  "2100000008000000"
                  "0100000000010000",
        /* signal 0, signal 128, an unknown kind */
        HELLO_HEX "1000000084000000"
                  "2100000008000000"
                  "0200000000000000",
        HELLO_HEX "1000000084000000"
                  "2100000008000000"
                  "0200000080000000",
        HELLO_HEX "1000000084000000"
                  "2100000008000000"
                  "0300000000000000",
        /* a short EXIT value, a pid of five bytes */
        HELLO_HEX "0c00000084000000"
                  "2100000004000000"
                  "01000000",
        HELLO_HEX "0d00000081000000"
                  "2000000005000000"
                  "0100000000",
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        start_true(f);
        guest_plays(f, cases[i]);
        expect_failure(f, -EPROTO, "broke the agent protocol");
        mote_exec_free(f->exec);
        f->exec = NULL;
        (void)close(f->guest_fd);
        f->guest_fd = -1;
    }
}

static void test_text_of_a_guest_cannot_steer_the_terminal(void **state)
{
    struct fixture *f = *state;
    struct mote_exec_event ev;

    start_true(f);
    /* ERROR with TEXT "a ESC [ 2 J newline b" and no number */
    guest_plays(f, HELLO_HEX "0f00000085000000"
                             "3100000007000000"
                             "611b5b324a0a62");
    assert_int_equal(mote_exec_next(f->exec, &ev, NULL), 1);
    assert_int_equal(ev.kind, MOTE_EXEC_REFUSED);
    assert_int_equal(ev.error, 0);
    assert_string_equal(ev.text, "a?[2J?b");
}

static void test_missing_socket_is_named(void **state)
{
    static const char *const argv[] = {"true", NULL};
    struct mote_exec_params p = {.argv = argv};
    struct mote_exec *x = NULL;
    struct mote_err err = {0};

    (void)state;
    assert_int_equal(mote_exec_start("/tmp/mote-unit-none", &p, &x, &err),
                     -ENOENT);
    assert_non_null(strstr(err.text, "/tmp/mote-unit-none"));
    assert_null(x);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_transcript_of_version_1),
        T(test_transcript_of_version_1_refusal),
        T(test_start_is_not_sent_before_the_monitors_ok),
        T(test_start_carries_all_parameters),
        T(test_input_frames_and_end),
        T(test_arguments_above_the_limit_are_refused),
        T(test_no_listener_in_the_guest),
        T(test_lost_in_the_middle),
        T(test_greeting_of_something_else),
        T(test_messages_out_of_place_or_malformed),
        T(test_text_of_a_guest_cannot_steer_the_terminal),
        cmocka_unit_test(test_missing_socket_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
