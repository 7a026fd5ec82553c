/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/metrics.h"

#include "tests/harness/loop_run.h"
#include "vmm/cleanup.h"
#include "vmm/sink.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct fixture {
    char dir[64];
    char path[100];
    struct evloop *loop;
    struct metrics *metrics;
    bool paused;
    int gathered;
    bool reader_done;
    bool (*gather)(void *arg, json_t *line);
};

static bool gather(void *arg, json_t *line)
{
    struct fixture *f = arg;

    f->gathered++;
    if (f->paused)
        return false;
    return json_object_set_new(line, "n", json_integer(f->gathered)) == 0;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/mote-metrics-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof(f->path), "%s/m", f->dir);
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    f->gather = gather;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    metrics_free(f->metrics);
    evloop_free(f->loop);
    (void)unlink(f->path);
    assert_int_equal(rmdir(f->dir), 0);
    free(f);
    return 0;
}

static int start(struct fixture *f, uint64_t period_ns)
{
    const struct metrics_args args = {
        .loop = f->loop,
        .path = f->path,
        .id = "x1",
        .properties = "{\"a\":\"b\"}",
        .period_ns = period_ns,
        .gather = f->gather,
        .arg = f,
    };
    struct errmsg err = {""};

    return metrics_new(&args, &f->metrics, &err);
}

/* The file's lines; each must be JSON. The last goes to `out_last`. */
static int lines(struct fixture *f, json_t **out_last)
{
    FILE *file = fopen(f->path, "re");
    char text[512];
    int n = 0;

    assert_non_null(file);
    while (fgets(text, sizeof(text), file)) {
        json_t *line = json_loads(text, 0, NULL);

        assert_non_null(line);
        assert_int_equal(text[strlen(text) - 1], '\n');
        n++;
        if (out_last) {
            json_decref(*out_last);
            *out_last = json_incref(line);
        }
        json_decref(line);
    }
    (void)fclose(file);
    return n;
}

static void test_metrics_line_has_labels_and_groups(void **state)
{
    struct fixture *f = *state;
    json_t *last = NULL;

    assert_int_equal(start(f, 0), 0);
    assert_int_equal(metrics_flush(f->metrics), 0);
    assert_int_equal(lines(f, &last), 1);
    assert_string_equal(json_string_value(json_object_get(last, "id")), "x1");
    assert_true(json_is_object(json_object_get(last, "properties")));
    assert_int_equal(json_integer_value(json_object_get(last, "n")), 1);
    assert_true(json_integer_value(json_object_get(last, "utc_timestamp_ms")) >
                1700000000000);
    json_decref(last);
    /* One more at the end, and none while it is not the time. */
    f->paused = true;
    assert_int_equal(metrics_flush(f->metrics), 0);
    assert_int_equal(lines(f, NULL), 1);
    f->paused = false;
    metrics_free(f->metrics);
    f->metrics = NULL;
    assert_int_equal(lines(f, NULL), 2);
}

/* The configuration that they come from is replaced by each later request. */
static void test_metrics_properties_outlive_their_source(void **state)
{
    struct fixture *f = *state;
    char text[] = "{\"a\":\"b\"}";
    const struct metrics_args args = {
        .loop = f->loop,
        .path = f->path,
        .properties = text,
        .gather = f->gather,
        .arg = f,
    };
    struct errmsg err = {""};
    json_t *last = NULL;

    assert_int_equal(metrics_new(&args, &f->metrics, &err), 0);
    memset(text, 'x', sizeof(text) - 1);
    assert_int_equal(metrics_flush(f->metrics), 0);
    assert_int_equal(lines(f, &last), 1);
    assert_string_equal(json_string_value(json_object_get(
                            json_object_get(last, "properties"), "a")),
                        "b");
    assert_null(json_object_get(last, "id"));
    json_decref(last);
}

static bool gathered_three(void *arg)
{
    return ((struct fixture *)arg)->gathered >= 3;
}

static void test_metrics_come_by_themselves(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(start(f, 1000000), 0);
    assert_true(loop_run_until(f->loop, gathered_three, f));
    assert_true(lines(f, NULL) >= 3);
}

static void test_BL_020_fifo_nobody_reads_loses_lines_and_counts(void **state)
{
    struct fixture *f = *state;
    int lost = 0;

    assert_int_equal(mkfifo(f->path, 0600), 0);
    assert_int_equal(start(f, 0), 0); /* does not wait for a reader */
    for (int i = 0; i < 3000; i++)
        lost += metrics_flush(f->metrics) == -EAGAIN;
    assert_true(lost > 0 && lost < 3000);
    assert_int_equal(metrics_num_lost(f->metrics), lost);
}

static bool gather_long(void *arg, json_t *line)
{
    struct fixture *f = arg;
    char text[10000];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    f->gathered++;
    return json_object_set_new(line, "n", json_integer(f->gathered)) == 0 &&
           json_object_set_new(line, "long", json_string(text)) == 0;
}

static bool no_more(void *arg)
{
    struct fixture *f = arg;

    return f->reader_done;
}

/* A turn of the loop later what waited is there. */
static void on_tick(struct ev_timer *t)
{
    ((struct fixture *)t->arg)->reader_done = true;
}

/* All that the FIFO has, behind what was read before. */
static void slurp(int fd, char *text, size_t size, size_t *len)
{
    ssize_t n;

    while (*len < size && (n = read(fd, text + *len, size - *len)) > 0)
        *len += (size_t)n;
}

/* Longer than PIPE_BUF: a full FIFO takes a part. No line may join another. */
static void test_BL_020_long_lines_into_a_slow_fifo_are_whole(void **state)
{
    static char text[1 << 20];
    struct fixture *f = *state;
    size_t len = 0;
    int lost = 0;
    int n = 0;
    int fd;

    assert_int_equal(mkfifo(f->path, 0600), 0);
    fd = open(f->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    f->gather = gather_long;
    assert_int_equal(start(f, 0), 0);
    for (int round = 0; round < 5; round++) {
        struct ev_timer tick = {.arg = f};

        for (int i = 0; i < 10; i++) /* 100 KB where 64 fit */
            lost += metrics_flush(f->metrics) == -EAGAIN;
        slurp(fd, text, sizeof(text), &len);
        f->reader_done = false;
        assert_int_equal(evloop_timer_arm(f->loop, &tick,
                                          util_now_ns() + 20000000, on_tick, f),
                         0);
        assert_true(loop_run_until(f->loop, no_more, f));
        slurp(fd, text, sizeof(text), &len);
    }
    assert_true(lost > 0);
    assert_int_equal(metrics_num_lost(f->metrics), lost);
    assert_int_equal(metrics_num_failed(f->metrics), 0);
    for (size_t at = 0; at < len; n++) {
        const char *end = memchr(text + at, '\n', len - at);
        json_t *line;

        assert_non_null(end); /* the last one was completed by the loop */
        line = json_loadb(text + at, (size_t)(end - text) - at, 0, NULL);
        assert_non_null(line);
        json_decref(line);
        at = (size_t)(end - text) + 1;
    }
    assert_int_equal(n, 50 - lost);
    close(fd);
}

static void test_metrics_path_that_cannot_be_opened(void **state)
{
    struct fixture *f = *state;

    (void)snprintf(f->path, sizeof(f->path), "%s/no/m", f->dir);
    assert_int_equal(start(f, 0), -ENOENT);
    assert_null(f->metrics);
}

static void test_sink_appends_and_is_private(void **state)
{
    struct fixture *f = *state;
    struct stat st;

    for (int i = 0; i < 2; i++) {
        CLEANUP_FD int fd = -1;

        assert_int_equal(sink_open(f->path, &fd), 0);
        assert_int_equal(write(fd, "ab", 2), 2);
        assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    }
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_size, 4);
    assert_int_equal(st.st_mode & 07777, 0600);
}

#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_metrics_line_has_labels_and_groups),
        T(test_metrics_properties_outlive_their_source),
        T(test_metrics_come_by_themselves),
        T(test_BL_020_fifo_nobody_reads_loses_lines_and_counts),
        T(test_BL_020_long_lines_into_a_slow_fifo_are_whole),
        T(test_metrics_path_that_cannot_be_opened),
        T(test_sink_appends_and_is_private),
    };

    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
