/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/log.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

struct pipe_log {
    int fds[2];
    struct log log;
};

static void open_log(struct pipe_log *p, enum log_level level)
{
    assert_int_equal(pipe2(p->fds, O_NONBLOCK | O_CLOEXEC), 0);
    log_init(&p->log, p->fds[1], level, "t");
}

static size_t read_log(struct pipe_log *p, char *buf, size_t size)
{
    ssize_t n = read(p->fds[0], buf, size - 1);

    n = n < 0 ? 0 : n;
    buf[n] = '\0';
    return (size_t)n;
}

static void close_log(struct pipe_log *p)
{
    close(p->fds[0]);
    close(p->fds[1]);
}

static void test_log_line_has_prefix_and_level_filter(void **state)
{
    struct pipe_log p;
    char buf[256];

    (void)state;
    open_log(&p, LOG_WARN);
    log_msg(&p.log, LOG_INFO, "hidden");
    log_msg(&p.log, LOG_ERROR, "code %d", 7);
    log_msg(&p.log, LOG_WARN, "careful");
    (void)read_log(&p, buf, sizeof(buf));
    assert_string_equal(buf, "t: code 7\nt: warning: careful\n");
    close_log(&p);
}

static void test_log_guest_text_stays_one_safe_line(void **state)
{
    struct pipe_log p;
    char buf[256];

    (void)state;
    open_log(&p, LOG_WARN);
    log_msg(&p.log, LOG_ERROR, "%s", "a\nb\x1b[31mc\x7f");
    (void)read_log(&p, buf, sizeof(buf));
    assert_string_equal(buf, "t: a?b?[31mc?\n");
    close_log(&p);
}

static void test_log_over_long_line_is_cut_and_ends(void **state)
{
    struct pipe_log p;
    char big[4000];
    char buf[8000];
    size_t n;

    (void)state;
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    open_log(&p, LOG_WARN);
    log_msg(&p.log, LOG_ERROR, "%s", big);
    n = read_log(&p, buf, sizeof(buf));
    assert_true(n < 1100);
    assert_int_equal(buf[n - 1], '\n');
    close_log(&p);
}

static void test_log_limited_holds_back_and_counts(void **state)
{
    struct pipe_log p;
    struct log_limit limit = {0};
    char buf[4096];
    size_t lines = 0;

    (void)state;
    open_log(&p, LOG_WARN);
    for (int i = 0; i < 1000; i++)
        log_limited(&p.log, &limit, LOG_WARN, "guest did it again");
    (void)read_log(&p, buf, sizeof(buf));
    for (const char *c = buf; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, 10);
    assert_int_equal(p.log.suppressed, 990);
    limit.window_start_ns -= 11000000000ull; /* as if time had passed */
    log_limited(&p.log, &limit, LOG_WARN, "once more");
    (void)read_log(&p, buf, sizeof(buf));
    assert_string_equal(buf, "t: warning: once more (990 more held back)\n");
    close_log(&p);
}

static void test_BL_020_log_to_a_full_pipe_drops_and_counts(void **state)
{
    struct pipe_log p;
    char big[900];

    (void)state;
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    open_log(&p, LOG_WARN);
    for (int i = 0; i < 200; i++) /* a pipe holds 64 KiB */
        log_msg(&p.log, LOG_ERROR, "%s", big);
    assert_true(p.log.lost > 0);
    assert_int_equal(p.log.failed, 0); /* there was no room, that is all */
    close_log(&p);
}

/* `fmt` with what the clock says left out; the file is this one. */
static void check_full(struct pipe_log *p, const char *want)
{
    char buf[256];
    size_t n = read_log(p, buf, sizeof(buf));

    assert_true(n > 30);
    assert_int_equal(buf[10], 'T');
    assert_int_equal(buf[19], '.');
    assert_int_equal(strspn(buf + 20, "0123456789"), 9);
    assert_string_equal(buf + 29, want);
}

static void test_log_full_lines_say_what_is_asked_for(void **state)
{
    const struct log_origin at = {"devices/x.c", 12};
    struct pipe_log p;

    (void)state;
    open_log(&p, LOG_INFO);
    p.log.full = true;
    log_msg_at(&p.log, LOG_INFO, at, "m%d", 1);
    check_full(&p, " [t:main] m1\n");
    p.log.show_level = true;
    log_msg_at(&p.log, LOG_WARN, at, "m");
    check_full(&p, " [t:main:WARN] m\n");
    p.log.show_origin = true;
    log_name_thread("vcpu0");
    log_msg_at(&p.log, LOG_ERROR, at, "m");
    check_full(&p, " [t:vcpu0:ERROR:devices/x.c:12] m\n");
    log_name_thread("main");
    p.log.show_level = false;
    log_msg_at(&p.log, LOG_INFO, at, "m");
    check_full(&p, " [t:main:devices/x.c:12] m\n");
    log_msg(&p.log, LOG_INFO, "m");
    {
        char buf[256];

        (void)read_log(&p, buf, sizeof(buf));
        assert_non_null(strstr(buf, "[t:main:tests/unit/test_log.c:"));
    }
    close_log(&p);
}

static void test_log_module_is_a_prefix_of_the_file(void **state)
{
    struct log_limit limit = {0};
    struct pipe_log p;
    char buf[256];

    (void)state;
    open_log(&p, LOG_INFO);
    p.log.module = "devices/virtio_";
    log_msg_at(&p.log, LOG_INFO, (struct log_origin){"vmm/x.c", 1}, "no");
    log_limited(&p.log, &limit, LOG_INFO, "no"); /* of this file */
    log_msg_at(&p.log, LOG_INFO, (struct log_origin){"devices/virtio_x.c", 1},
               "yes");
    (void)read_log(&p, buf, sizeof(buf));
    assert_string_equal(buf, "t: yes\n");
    close_log(&p);
}

static void test_BL_019_log_whose_reader_has_gone_counts(void **state)
{
    struct pipe_log p;

    (void)state;
    open_log(&p, LOG_INFO);
    assert_ptr_not_equal(signal(SIGPIPE, SIG_IGN), SIG_ERR);
    close(p.fds[0]);
    log_msg(&p.log, LOG_INFO, "to nobody");
    assert_int_equal(p.log.lost, 1);
    assert_int_equal(p.log.failed, 1);
    close(p.fds[1]);
}

static void test_BL_021_log_line_is_there_when_the_call_returns(void **state)
{
    struct pipe_log p;
    char buf[256];

    (void)state;
    open_log(&p, LOG_INFO);
    for (int i = 0; i < 3; i++) {
        log_msg(&p.log, LOG_INFO, "line");
        (void)read_log(&p, buf, sizeof(buf));
        assert_string_equal(buf, "t: line\n");
    }
    close_log(&p);
}

static void test_log_level_names(void **state)
{
    enum log_level l = LOG_OFF;

    (void)state;
    assert_int_equal(log_level_parse("debug", &l), 0);
    assert_int_equal(l, LOG_DEBUG);
    assert_int_equal(log_level_parse("Warning", &l), 0);
    assert_int_equal(l, LOG_WARN);
    assert_int_equal(log_level_parse("loud", &l), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_line_has_prefix_and_level_filter),
        cmocka_unit_test(test_log_guest_text_stays_one_safe_line),
        cmocka_unit_test(test_log_over_long_line_is_cut_and_ends),
        cmocka_unit_test(test_log_limited_holds_back_and_counts),
        cmocka_unit_test(test_BL_020_log_to_a_full_pipe_drops_and_counts),
        cmocka_unit_test(test_log_full_lines_say_what_is_asked_for),
        cmocka_unit_test(test_log_module_is_a_prefix_of_the_file),
        cmocka_unit_test(test_BL_019_log_whose_reader_has_gone_counts),
        cmocka_unit_test(test_BL_021_log_line_is_there_when_the_call_returns),
        cmocka_unit_test(test_log_level_names),
    };

    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
