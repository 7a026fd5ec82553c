/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/jail/cgroup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>

static const char v1[] =
    "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup "
    "rw,cpu,cpuacct\n"
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "35 31 0:32 / /sys/fs/cgroup/mem\\040ory rw - cgroup cgroup rw,memory\n"
    "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n";
static const char v2[] =
    "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
static const char both[] =
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

static struct jail_options options(const char *const *limits)
{
    struct jail_options o = {.id = "vm1", .exec_name = "mote-vmm"};
    struct errmsg err;

    for (size_t i = 0; limits && limits[i]; i++)
        assert_int_equal(
            jail_cgroup_parse(limits[i], &o.cgroups[o.cgroup_count++], &err),
            0);
    return o;
}

static void test_cgroup_plan_nothing_asked_for(void **state)
{
    struct jail_options o = options(NULL);
    struct cgroup_plan p;
    struct errmsg err;

    (void)state;
    assert_int_equal(cgroup_plan(&o, v1, &p, &err), 0);
    assert_int_equal(p.count, 0);
    assert_string_equal(p.name, "");
}

static void test_cgroup_plan_v1_one_place_for_each_hierarchy(void **state)
{
    const char *const limits[] = {"cpu.shares=2",  "cpuacct.usage=0",
                                  "cpuset.cpus=0", "memory.limit_in_bytes=1",
                                  "cpuset.mems=0", NULL};
    struct jail_options o = options(limits);
    struct cgroup_plan p;
    struct errmsg err;

    (void)state;
    assert_int_equal(cgroup_plan(&o, v1, &p, &err), 0);
    assert_int_equal(p.count, 3);
    assert_string_equal(p.name, "mote-vmm/vm1");
    assert_true(p.own_group);
    assert_string_equal(p.places[0].mount, "/sys/fs/cgroup/cpu,cpuacct");
    assert_string_equal(p.places[2].mount, "/sys/fs/cgroup/mem ory");
    assert_true(p.places[1].cpuset && !p.places[0].cpuset);
    assert_int_equal(p.place_of[1], 0);
    assert_int_equal(p.place_of[3], 2);
    assert_int_equal(p.place_of[4], 1);
}

static void test_cgroup_plan_a_missing_controller_is_named(void **state)
{
    /* "cpus" and "cp" are parts of a word only. */
    const char *const names[] = {"pids.max=1", "cpus.x=1", "cp.x=1",
                                 "systemd.x=1"};
    struct cgroup_plan p;
    struct errmsg err;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const char *const limits[] = {names[i], NULL};
        struct jail_options o = options(limits);

        assert_int_equal(cgroup_plan(&o, v1, &p, &err), -ENOENT);
        assert_non_null(strstr(err.text, names[i]));
    }
}

static void test_cgroup_plan_v2(void **state)
{
    const char *const limits[] = {"memory.max=1", "cpu.max=1", NULL};
    struct jail_options o = options(limits);
    struct cgroup_plan p;
    struct errmsg err;

    (void)state;
    o.parent_cgroup = "a/b";
    o.cgroup_version = 2;
    assert_int_equal(cgroup_plan(&o, v2, &p, &err), 0);
    assert_int_equal(p.count, 1);
    assert_true(p.places[0].v2);
    assert_string_equal(p.name, "a/b/vm1");
    assert_int_equal(cgroup_plan(&o, both, &p, &err), 0);
    assert_string_equal(p.places[0].mount, "/sys/fs/cgroup/unified");
    assert_int_equal(cgroup_plan(&o, v1, &p, &err), -ENOENT);
}

static void test_cgroup_plan_version_when_none_is_said(void **state)
{
    const char *const limits[] = {"cpu.max=1", NULL};
    struct jail_options o = options(limits);
    struct cgroup_plan p;
    struct errmsg err;

    (void)state;
    assert_int_equal(cgroup_plan(&o, both, &p, &err), 0);
    assert_false(p.places[0].v2);
    assert_int_equal(cgroup_plan(&o, v2, &p, &err), 0);
    assert_true(p.places[0].v2);
    o.cgroup_version = 1;
    assert_int_equal(cgroup_plan(&o, v2, &p, &err), -ENOENT);
    assert_int_equal(cgroup_plan(&o, "", &p, &err), -ENOENT);
}

static void test_BL_026_cgroup_plan_parent_without_limits(void **state)
{
    struct jail_options o = options(NULL);
    struct cgroup_plan p;
    struct errmsg err;

    (void)state;
    o.parent_cgroup = "P";
    assert_int_equal(cgroup_plan(&o, v2, &p, &err), 0);
    assert_int_equal(p.count, 1);
    assert_string_equal(p.name, "P");
    assert_false(p.own_group);
    /* All of v1 but hierarchies that somebody else runs. */
    assert_int_equal(cgroup_plan(&o, v1, &p, &err), 0);
    assert_int_equal(p.count, 3);
    assert_int_equal(cgroup_plan(&o, "", &p, &err), -ENOENT);
}

static void test_cgroup_plan_bent_lines_are_skipped(void **state)
{
    static const char *const texts[] = {
        "\n\n",
        " - cgroup c cpu\n",
        "1 2 3 4 - cgroup\n",
        "1 2 3 / /x rw cgroup cgroup rw,cpu\n",
        "1 2 3 / /x rw - cgroup\n2 3 4 / /y rw - tmpfs t cpu",
        "1 2 3 / /x rw - cgroup3 cgroup rw,cpu",
    };
    const char *const limits[] = {"cpu.shares=1", NULL};
    struct jail_options o = options(limits);
    struct cgroup_plan p;
    struct errmsg err;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        assert_int_equal(cgroup_plan(&o, texts[i], &p, &err), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cgroup_plan_nothing_asked_for),
        cmocka_unit_test(test_cgroup_plan_v1_one_place_for_each_hierarchy),
        cmocka_unit_test(test_cgroup_plan_a_missing_controller_is_named),
        cmocka_unit_test(test_cgroup_plan_v2),
        cmocka_unit_test(test_cgroup_plan_version_when_none_is_said),
        cmocka_unit_test(test_BL_026_cgroup_plan_parent_without_limits),
        cmocka_unit_test(test_cgroup_plan_bent_lines_are_skipped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
