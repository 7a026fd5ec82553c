/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two files of a snapshot: whatever happens while they are written, one
 * whole pair is found afterwards.
 */

#include "vmm/snapshot_pair.h"

#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RAM (2 * SNAP_PAGE)

static char dir[] = "/tmp/mote-pair-XXXXXX";

static int enter_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int leave_dir(void **state)
{
    (void)state;
    return chdir("/") == 0 && rmdir(dir) == 0 ? 0 : -1;
}

static void clean(void)
{
    static const char *const names[] = {"s",      "m",     "s.part",
                                        "m.part", "m.old", "link"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void)unlink(names[i]);
    (void)rmdir("d");
}

static size_t count_files(void)
{
    DIR *d = opendir(".");
    size_t n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    (void)closedir(d);
    return n - 2; /* . and .. */
}

/* What a snapshot with the id (n, n, ...) puts into its two files. */
static void content(struct snap_pair *p, uint8_t n, struct state_out *out)
{
    uint8_t id[STATE_ID_BYTES];
    char page[SNAP_PAGE];
    struct snap_mem m;
    struct errmsg err;

    memset(id, n, sizeof(id));
    memset(page, n, sizeof(page));
    assert_int_equal(snap_mem_init(&m, SNAP_FULL, RAM, &err), 0);
    assert_int_equal(ftruncate(p->mem_fd, RAM + SNAP_PAGE), 0);
    assert_int_equal(snap_mem_write(&m, p->mem_fd, 0, page, SNAP_PAGE), 0);
    assert_int_equal(snap_mem_write_trailer(&m, p->mem_fd, id), 0);
    state_out_init(out);
    snap_mem_save(&m, out);
    assert_int_equal(state_finish(out, id), 0);
    snap_mem_fini(&m);
}

static void begin(struct snap_pair *p)
{
    struct errmsg err = {""};

    if (snap_pair_begin(p, "s", "m", &err))
        fail_msg("%s", err.text);
}

static void save(uint8_t n)
{
    struct snap_pair p;
    struct state_out out;
    struct errmsg err = {""};

    begin(&p);
    content(&p, n, &out);
    if (snap_pair_commit(&p, out.data, out.len_bytes, &err))
        fail_msg("%s", err.text);
    state_out_fini(&out);
}

/* Both parts are on disk, and there the process died. */
static void save_parts(uint8_t n)
{
    struct snap_pair p;
    struct state_out out;

    begin(&p);
    content(&p, n, &out);
    assert_int_equal(util_write_full(p.state_fd, out.data, out.len_bytes), 0);
    state_out_fini(&out);
    drop_fd(&p.state_fd);
    drop_fd(&p.mem_fd);
    snap_pair_abort(&p); /* without its descriptors it takes nothing away */
}

/* The number of the pair that is found, each of its parts checked. */
static uint8_t found(void)
{
    CLEANUP_FREE void *data = NULL;
    CLEANUP_FD int fd = -1;
    struct state_file f;
    struct snap_mem m;
    struct errmsg err = {""};
    size_t len = 0;
    uint8_t n;

    if (snap_read_state("s", &data, &len, &err) ||
        state_open(&f, data, len, &err) || snap_mem_load(&m, &f, &err) ||
        snap_pair_open_mem("m", &m, &f, &fd, &err) ||
        snap_mem_verify(&m, fd, "m", &err))
        fail_msg("%s", err.text);
    snap_mem_fini(&m);
    assert_int_equal(pread(fd, &n, 1, 0), 1);
    assert_int_equal(f.id[0], n);
    return n;
}

static void test_pair_takes_the_place_of_the_one_before(void **state)
{
    struct stat st;

    (void)state;
    for (uint8_t n = 1; n < 4; n++) {
        save(n);
        assert_int_equal(found(), n);
        assert_int_equal(count_files(), 2);
    }
    assert_int_equal(stat("s", &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    clean();
}

static void test_pair_abort_leaves_the_old_one_alone(void **state)
{
    struct snap_pair p;
    struct state_out out;

    (void)state;
    save(1);
    begin(&p);
    content(&p, 2, &out);
    state_out_fini(&out);
    snap_pair_abort(&p);
    snap_pair_abort(&p);
    assert_int_equal(found(), 1);
    assert_int_equal(count_files(), 2);
    clean();
}

/*
 * The steps of a commit once the parts are on disk. After each prefix of them
 * one pair is found, and the next save cleans up.
 */
static void step(int i)
{
    switch (i) {
    case 0:
        assert_int_equal(link("m", "m.old"), 0);
        break;
    case 1:
        assert_int_equal(rename("m.part", "m"), 0);
        break;
    case 2:
        assert_int_equal(rename("s.part", "s"), 0);
        break;
    default:
        assert_int_equal(unlink("m.old"), 0);
        break;
    }
}

static void test_BL_082_every_prefix_of_a_commit_leaves_a_pair(void **state)
{
    (void)state;
    for (int steps = 0; steps <= 4; steps++) {
        save(1);
        save_parts(2);
        for (int i = 0; i < steps; i++)
            step(i);
        assert_int_equal(found(), steps < 3 ? 1 : 2);
        /* Another crash on top of it. */
        save_parts(3);
        assert_int_equal(found(), steps < 3 ? 1 : 2);
        save(4);
        assert_int_equal(found(), 4);
        assert_int_equal(count_files(), 2);
        clean();
    }
}

/*
 * A commit that ends between the renames, again and again: the memory that
 * belongs to the state is never let go of.
 */
static void test_BL_082_commits_that_fail_in_a_row_leave_the_pair(void **state)
{
    struct errmsg err = {""};

    (void)state;
    save(1);
    for (uint8_t n = 2; n < 5; n++) {
        struct snap_pair p;
        struct state_out out;

        begin(&p);
        content(&p, n, &out);
        assert_int_equal(unlink("s.part"), 0); /* it cannot take its place */
        assert_int_equal(snap_pair_commit(&p, out.data, out.len_bytes, &err),
                         -ENOENT);
        state_out_fini(&out);
        assert_int_equal(found(), 1);
    }
    save(9);
    assert_int_equal(found(), 9);
    assert_int_equal(count_files(), 2);
    clean();
}

static void test_pair_begin_refuses_what_it_would_not_write(void **state)
{
    struct snap_pair p;
    struct errmsg err;

    (void)state;
    assert_int_equal(mkdir("d", 0700), 0);
    assert_int_equal(symlink("nowhere", "link"), 0);
    assert_int_equal(snap_pair_begin(&p, "s", "s", &err), -EINVAL);
    assert_int_equal(snap_pair_begin(&p, "d", "m", &err), -EINVAL);
    assert_int_equal(snap_pair_begin(&p, "s", "d", &err), -EINVAL);
    assert_int_equal(snap_pair_begin(&p, "link", "m", &err), -EINVAL);
    assert_int_equal(snap_pair_begin(&p, "s", "/dev/null", &err), -EINVAL);
    assert_int_equal(snap_pair_begin(&p, "no/s", "m", &err), -ENOENT);
    assert_int_equal(snap_pair_begin(&p, "s", "no/m", &err), -ENOENT);
    assert_int_equal(count_files(), 2);
    clean();
    /* A part that is a link is not followed. */
    assert_int_equal(symlink("nowhere", "m.part"), 0);
    assert_int_equal(snap_pair_begin(&p, "s", "m", &err), -ELOOP);
    clean();
}

static void test_pair_begin_refuses_names_that_meet(void **state)
{
    static const char *const pairs[][2] = {
        {"m.old", "m"},   {"m.part", "m"}, {"s", "s.part"},
        {"./m.old", "m"}, {"s", "./s"},    {"./s", "s.part"},
    };
    struct snap_pair p;
    struct errmsg err;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        assert_int_equal(snap_pair_begin(&p, pairs[i][0], pairs[i][1], &err),
                         -EINVAL);
        assert_int_equal(count_files(), 0);
    }
}

static void test_pair_that_another_one_writes_is_busy(void **state)
{
    struct snap_pair p;
    struct snap_pair q;
    struct errmsg err;

    (void)state;
    begin(&p);
    assert_int_equal(snap_pair_begin(&q, "s", "m", &err), -EBUSY);
    assert_int_equal(access("s.part", F_OK), 0);
    assert_int_equal(access("m.part", F_OK), 0);
    assert_int_equal(snap_pair_begin(&q, "s2", "m", &err), -EBUSY);
    snap_pair_abort(&p);
    assert_int_equal(count_files(), 0);
}

static void test_pair_read_refuses_what_is_no_state(void **state)
{
    void *data = NULL;
    size_t len = 0;
    struct errmsg err;
    int fd = open("s", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(snap_read_state("s", &data, &len, &err), -EBADMSG);
    assert_int_equal(ftruncate(fd, SNAP_STATE_MAX + 1), 0);
    assert_int_equal(snap_read_state("s", &data, &len, &err), -EBADMSG);
    (void)close(fd);
    assert_int_equal(snap_read_state(".", &data, &len, &err), -EBADMSG);
    assert_int_equal(snap_read_state("no", &data, &len, &err), -ENOENT);
    /* Nobody writes to it: reading it would wait for ever. */
    assert_int_equal(mkfifo("link", 0600), 0);
    assert_int_equal(snap_read_state("link", &data, &len, &err), -EBADMSG);
    assert_null(data);
    clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pair_takes_the_place_of_the_one_before),
        cmocka_unit_test(test_pair_abort_leaves_the_old_one_alone),
        cmocka_unit_test(test_BL_082_every_prefix_of_a_commit_leaves_a_pair),
        cmocka_unit_test(test_BL_082_commits_that_fail_in_a_row_leave_the_pair),
        cmocka_unit_test(test_pair_begin_refuses_what_it_would_not_write),
        cmocka_unit_test(test_pair_begin_refuses_names_that_meet),
        cmocka_unit_test(test_pair_that_another_one_writes_is_busy),
        cmocka_unit_test(test_pair_read_refuses_what_is_no_state),
    };

    return cmocka_run_group_tests(tests, enter_dir, leave_dir);
}
