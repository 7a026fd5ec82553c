/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/jail/options.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* Splits `line` at blanks into the arguments of mote-jail. */
static int parse(const char *line, struct jail_options *o, struct errmsg *err)
{
    static char copy[1024];
    static char *argv[128];
    char *save = NULL;
    int argc = 0;

    (void)snprintf(copy, sizeof(copy), "mote-jail %s", line);
    for (char *w = strtok_r(copy, " ", &save); w;
         w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    argv[argc] = NULL;
    err->text[0] = '\0';
    return jail_options_parse(argc, argv, o, err);
}

static void refused(const char *line, int rc, const char *said)
{
    struct jail_options o;
    struct errmsg err;

    assert_int_equal(parse(line, &o, &err), rc);
    if (!strstr(err.text, said))
        fail_msg("%s: no \"%s\" in: %s", line, said, err.text);
}

static void test_jail_options_firecrackers_line_is_taken(void **state)
{
    struct jail_options o;
    struct errmsg err;

    (void)state;
    assert_int_equal(
        parse("--id 551e7604-E35c --exec-file /usr/bin/firecracker --uid 123 "
              "--gid=100 --cgroup cpuset.mems=0 --cgroup cpuset.cpus=0-1,3 "
              "--cgroup-version 2 --parent-cgroup a/b --chroot-base-dir /jails "
              "--netns /run/netns/x --resource-limit no-file=99 "
              "--resource-limit=fsize=5 --daemonize --new-pid-ns -- "
              "--no-seccomp --api-sock /a --",
              &o, &err),
        0);
    assert_string_equal(o.id, "551e7604-E35c");
    assert_string_equal(o.exec_name, "firecracker");
    assert_int_equal(o.uid, 123);
    assert_int_equal(o.gid, 100);
    assert_true(o.uid_given && o.gid_given && o.daemonize && o.new_pid_ns);
    assert_int_equal(o.cgroup_count, 2);
    assert_string_equal(o.cgroups[1].value, "0-1,3");
    assert_int_equal(o.cgroup_version, 2);
    assert_string_equal(o.parent_cgroup, "a/b");
    assert_string_equal(o.base_dir, "/jails");
    assert_string_equal(o.netns, "/run/netns/x");
    assert_int_equal(o.no_file, 99);
    assert_int_equal(o.fsize_bytes, 5);
    assert_int_equal(o.rest_count, 4);
    assert_string_equal(o.rest[0], "--no-seccomp");
    assert_string_equal(o.rest[3], "--");
}

static void test_jail_options_defaults(void **state)
{
    struct jail_options o;
    struct errmsg err;

    (void)state;
    assert_int_equal(parse("--id a --exec-file vmm", &o, &err), 0);
    assert_string_equal(o.base_dir, "/srv/jailer");
    assert_string_equal(o.exec_name, "vmm");
    assert_null(o.parent_cgroup);
    assert_int_equal(o.cgroup_version, 0);
    assert_int_equal(o.rest_count, 0);
    assert_false(o.uid_given || o.gid_given || o.no_file_given ||
                 o.fsize_given || o.purge);
}

static void test_jail_options_ids(void **state)
{
    struct jail_options o;
    struct errmsg err;
    char line[160];

    (void)state;
    (void)snprintf(line, sizeof(line), "--exec-file v --id %064d", 0);
    assert_int_equal(parse(line, &o, &err), 0);
    (void)snprintf(line, sizeof(line), "--exec-file v --id %065d", 0);
    refused(line, -EINVAL, "--id");
    refused("--exec-file v --id a_b", -EINVAL, "--id");
    refused("--exec-file v --id a/b", -EINVAL, "--id");
    refused("--exec-file v --id ..", -EINVAL, "--id");
    refused("--exec-file v --id a\xc3\xa4", -EINVAL, "--id");
    refused("--exec-file v --id=", -EINVAL, "--id");
    refused("--exec-file v", -EINVAL, "--id: needed");
}

static void test_jail_options_exec_files(void **state)
{
    (void)state;
    refused("--id a", -EINVAL, "--exec-file: needed");
    refused("--id a --exec-file /usr/", -EINVAL, "--exec-file");
    refused("--id a --exec-file ..", -EINVAL, "--exec-file");
    refused("--id a --exec-file /x/.", -EINVAL, "--exec-file");
    refused("--id a --exec-file /bin/dev", -EINVAL, "dev");
    refused("--id a --exec-file run", -EINVAL, "run");
}

static void test_jail_options_numbers(void **state)
{
    struct jail_options o;
    struct errmsg err;

    (void)state;
    assert_int_equal(
        parse("--id a --exec-file v --uid 4294967294 --gid 0", &o, &err), 0);
    assert_int_equal(o.uid, 4294967294u);
    refused("--uid 4294967295", -EINVAL, "--uid"); /* (uid_t)-1 */
    refused("--gid 4294967296", -EINVAL, "--gid");
    refused("--uid -1", -EINVAL, "--uid");
    refused("--uid 1x", -EINVAL, "--uid");
    refused("--cgroup-version 0", -EINVAL, "--cgroup-version");
    refused("--cgroup-version 3", -EINVAL, "--cgroup-version");
    refused("--pass-fd 2", -EINVAL, "--pass-fd");
    refused("--pass-fd 1024", -EINVAL, "--pass-fd");
}

static void test_jail_options_words_are_refused_by_name(void **state)
{
    (void)state;
    refused("--nonsense", -EINVAL, "--nonsense");
    refused("word", -EINVAL, "word");
    refused("--uid", -EINVAL, "--uid");
    refused("--daemonize=1", -EINVAL, "--daemonize");
    refused("--id a --exec-file v --netns n --new-net-ns", -EINVAL, "--netns");
}

static void test_jail_options_parent_cgroups(void **state)
{
    (void)state;
    refused("--parent-cgroup /a", -EINVAL, "--parent-cgroup");
    refused("--parent-cgroup a//b", -EINVAL, "--parent-cgroup");
    refused("--parent-cgroup ..", -EINVAL, "--parent-cgroup");
    refused("--parent-cgroup a/../b", -EINVAL, "--parent-cgroup");
    refused("--parent-cgroup a/./b", -EINVAL, "--parent-cgroup");
}

static void test_jail_options_too_many_are_refused(void **state)
{
    char line[1000] = "";
    size_t n = 0;

    (void)state;
    for (int i = 0; i <= JAIL_MAX_CGROUPS; i++)
        n += (size_t)snprintf(line + n, sizeof(line) - n, "--cgroup a.b=1 ");
    refused(line, -E2BIG, "--cgroup");
    n = 0;
    for (int i = 0; i <= JAIL_MAX_FDS; i++)
        n += (size_t)snprintf(line + n, sizeof(line) - n, "--pass-fd=9 ");
    refused(line, -E2BIG, "--pass-fd");
    refused("--pass-fd 3-67", -E2BIG, "--pass-fd");
    n = 0;
    for (int i = 0; i <= JAIL_MAX_BINDS; i++)
        n += (size_t)snprintf(line + n, sizeof(line) - n, "--bind /a:/b ");
    refused(line, -E2BIG, "--bind");
}

static void test_jail_cgroup_lines(void **state)
{
    static const char *const bad[] = {
        "",        "=",    "a.b",     "a.b=",     "ab=1",
        ".b=1",    "a.=1", "a/b.c=1", "../a.b=1", "cgroup.kill=1",
        "a b.c=1", "=a.b", "x=a.b",
    };
    struct jail_cgroup c;
    struct errmsg err;

    (void)state;
    assert_int_equal(
        jail_cgroup_parse("hugetlb.2MB.limit_in_bytes=4", &c, &err), 0);
    assert_int_equal(c.controller_len, 7);
    assert_int_equal(c.file_len, strlen("hugetlb.2MB.limit_in_bytes"));
    assert_string_equal(c.value, "4");
    assert_int_equal(jail_cgroup_parse("io.max=8:0 rbps=1", &c, &err), 0);
    assert_string_equal(c.value, "8:0 rbps=1");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        err.text[0] = '\0';
        assert_int_equal(jail_cgroup_parse(bad[i], &c, &err), -EINVAL);
        assert_non_null(strstr(err.text, "--cgroup"));
    }
}

static void test_jail_limit_lines(void **state)
{
    static const char *const bad[] = {
        "",         "fsize",     "fsize=",
        "fsize=x",  "fsize=1k",  "no-file=-1",
        "nofile=1", "memlock=1", "fsize=9223372036854775808",
    };
    struct jail_options o = {.id = NULL};
    struct errmsg err;

    (void)state;
    assert_int_equal(jail_limit_parse("fsize=250000000", &o, &err), 0);
    assert_true(o.fsize_given && !o.no_file_given);
    assert_int_equal(o.fsize_bytes, 250000000);
    assert_int_equal(jail_limit_parse("no-file=0", &o, &err), 0);
    assert_true(o.no_file_given);
    assert_int_equal(o.no_file, 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(jail_limit_parse(bad[i], &o, &err), -EINVAL);
}

static void test_jail_bind_lines(void **state)
{
    static const char *const bad[] = {
        "",       "a",        "/a:",     ":/b",    "/a:b",   "/a:/b:ro",
        "/a:/b:", "/a:/b/..", "/a:/./b", "/a://b", "/a:/b/", "/a:/",
    };
    struct jail_bind b;
    struct errmsg err;

    (void)state;
    assert_int_equal(jail_bind_parse("/x/y:/b/c", &b, &err), 0);
    assert_int_equal(b.source_len, 4);
    assert_string_equal(b.target, "/b/c");
    assert_int_equal(b.target_len, 4);
    assert_false(b.writable);
    assert_int_equal(jail_bind_parse("/x:/..b/c.:rw", &b, &err), 0);
    assert_int_equal(b.target_len, 7);
    assert_true(b.writable);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (jail_bind_parse(bad[i], &b, &err) != -EINVAL)
            fail_msg("%s was taken", bad[i]);
    }
}

static void test_jail_options_in_place(void **state)
{
    struct jail_options o;
    struct errmsg err;

    (void)state;
    assert_int_equal(parse("--id a --exec-file v --in-place /d --report-fd 9 "
                           "--pass-fd 3-5 --pass-fd 7 --bind /a:/b",
                           &o, &err),
                     0);
    assert_string_equal(o.in_place, "/d");
    assert_int_equal(o.report_fd, 9);
    assert_int_equal(o.fd_count, 4);
    assert_int_equal(o.fds[2], 5);
    assert_int_equal(o.fds[3], 7);
    assert_int_equal(o.bind_count, 1);
    refused("--id a --exec-file v --in-place /d --daemonize", -EINVAL,
            "--in-place");
    refused("--id a --exec-file v --in-place /d --cgroup a.b=1", -EINVAL,
            "--parent-cgroup");
    refused("--id a --exec-file v --bind /a:/b", -EINVAL, "--in-place");
    refused("--pass-fd 3-2", -EINVAL, "--pass-fd");
    refused("--pass-fd 3-1024", -EINVAL, "--pass-fd");
    refused("--pass-fd 00000003", -EINVAL, "--pass-fd");
    refused("--report-fd 2", -EINVAL, "--report-fd");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jail_options_firecrackers_line_is_taken),
        cmocka_unit_test(test_jail_options_defaults),
        cmocka_unit_test(test_jail_options_ids),
        cmocka_unit_test(test_jail_options_exec_files),
        cmocka_unit_test(test_jail_options_numbers),
        cmocka_unit_test(test_jail_options_words_are_refused_by_name),
        cmocka_unit_test(test_jail_options_parent_cgroups),
        cmocka_unit_test(test_jail_options_too_many_are_refused),
        cmocka_unit_test(test_jail_cgroup_lines),
        cmocka_unit_test(test_jail_limit_lines),
        cmocka_unit_test(test_jail_bind_lines),
        cmocka_unit_test(test_jail_options_in_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
