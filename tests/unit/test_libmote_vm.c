/* SPDX-License-Identifier: Apache-2.0 */
/* What a machine is told (its configuration) and what is said of its end. */
#include "tools/libmote/launch.h"
#include "tools/libmote/vm_end.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- configuration -----------------------------------------------------------
 */

static const struct mote_disk disks[] = {
    {.path = "/r.img", .read_only = true},
    {.path = "/d \"x\"", .direct = true, .unsafe_cache = true}};

static const struct lm_net net = {.mac = {2, 0, 0, 0, 0, 9}};

static struct mote_vm_params params(void)
{
    return (struct mote_vm_params){.kernel = "/k",
                                   .initrd = "/i",
                                   .boot_args = "a=b",
                                   .disks = disks,
                                   .disk_count = 2,
                                   .vcpus = 2,
                                   .mem_bytes = 128 * MIB,
                                   .console_fd = -1,
                                   .log_fd = -1};
}

static void test_config_is_firecrackers_form(void **state)
{
    struct mote_vm_params p = params();
    char *text = lm_config_text(&p, &net, "/v.sock");
    json_t *want = json_loads(
        "{\"boot-source\":{\"kernel_image_path\":\"/k\",\"initrd_path\":"
        "\"/i\",\"boot_args\":\"a=b\"},\"machine-config\":{\"vcpu_count\":2,"
        "\"mem_size_mib\":128},\"drives\":[{\"drive_id\":\"vda\","
        "\"path_on_host\":\"/r.img\",\"is_root_device\":true,"
        "\"is_read_only\":true,\"cache_type\":\"Writeback\"},{\"drive_id\":"
        "\"vdb\",\"path_on_host\":\"/d \\\"x\\\"\",\"is_root_device\":false,"
        "\"is_read_only\":false,\"cache_type\":\"Unsafe\","
        "\"mote_direct\":true}],\"vsock\":{"
        "\"guest_cid\":3,\"uds_path\":\"/v.sock\"},\"entropy\":{}}",
        0, NULL);
    json_t *got;

    (void)state;
    assert_non_null(text);
    got = json_loads(text, 0, NULL);
    assert_non_null(want);
    assert_true(json_equal(want, got));
    json_decref(want);
    json_decref(got);
    free(text);
}

static void test_config_without_initrd_and_disks(void **state)
{
    struct mote_vm_params p = params();
    char *text;

    (void)state;
    p.initrd = NULL;
    p.disk_count = 0;
    p.boot_args = NULL;
    text = lm_config_text(&p, &net, "/v.sock");
    assert_non_null(text);
    assert_null(strstr(text, "initrd"));
    assert_non_null(strstr(text, "\"drives\": []"));
    free(text);
}

static void test_config_refuses_paths_that_json_cannot_carry(void **state)
{
    struct mote_vm_params p = params();

    (void)state;
    p.kernel = "/bad\xff";
    assert_null(lm_config_text(&p, &net, "/v.sock"));
    p = params();
    p.disks = &(const struct mote_disk){.path = "/bad\xff"};
    p.disk_count = 1;
    assert_null(lm_config_text(&p, &net, "/v.sock"));
}

static void test_params_out_of_range_are_refused(void **state)
{
    static const struct {
        unsigned vcpus;
        uint64_t mem;
        size_t disk_count;
    } bad[] = {
        {0, MIB, 0}, {33, MIB, 0}, {1, 0, 0}, {1, MIB + 512, 0}, {1, MIB, 27}};
    struct mote_vm_params p = params();

    (void)state;
    assert_int_equal(lm_params_check(&p, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct mote_err err = {0};

        p.vcpus = bad[i].vcpus;
        p.mem_bytes = bad[i].mem;
        p.disk_count = bad[i].disk_count;
        assert_int_equal(lm_params_check(&p, &err), -EINVAL);
        assert_non_null(strstr(err.text, "; use "));
    }
}

/* --- ends
 * ---------------------------------------------------------------------- */

struct ended {
    char dir[32];
    struct lm_slot slot;
    int log_fd;
};

static int setup(void **state)
{
    struct ended *e = calloc(1, sizeof(*e));

    if (!e)
        return -1;
    (void)strcpy(e->dir, "/tmp/mote-unit-XXXXXX");
    if (!mkdtemp(e->dir))
        return -1;
    e->slot = LM_SLOT_CLOSED;
    e->slot.dir_fd = open(e->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    e->slot.run_fd = fcntl(e->slot.dir_fd, F_DUPFD_CLOEXEC, 0);
    e->log_fd =
        openat(e->slot.dir_fd, LM_LOG_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    *state = e;
    return e->log_fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    struct ended *e = *state;

    (void)unlinkat(e->slot.dir_fd, LM_LOG_FILE, 0);
    (void)unlinkat(e->slot.dir_fd, LM_EXIT_FILE, 0);
    (void)rmdir(e->dir);
    (void)close(e->log_fd);
    (void)close(e->slot.run_fd);
    (void)close(e->slot.dir_fd);
    free(e);
    return 0;
}

static struct mote_vm_end describe(struct ended *e, const char *exit_file,
                                   const char *log, int code, int signo)
{
    siginfo_t status = {.si_code = signo ? CLD_KILLED : CLD_EXITED};
    struct mote_vm_end end;

    status.si_status = signo ? signo : code;
    if (exit_file)
        assert_int_equal(lm_slot_write(&e->slot, LM_EXIT_FILE, exit_file, NULL),
                         0);
    assert_int_equal(ftruncate(e->log_fd, 0), 0);
    assert_int_equal(pwrite(e->log_fd, log, strlen(log), 0),
                     (ssize_t)strlen(log));
    lm_end_describe(&e->slot, &status, e->log_fd, &end);
    return end;
}

static void test_end_by_the_guest(void **state)
{
    struct mote_vm_end end = describe(
        *state, "{\"reason\":\"panic\",\"detail\":\"0\"}", "noise\n", 20, 0);

    assert_true(end.by_guest);
    assert_string_equal(end.reason, "panic");
    assert_int_equal(end.exit_code, 20);
    assert_non_null(strstr(end.text, "panicked"));
    assert_non_null(strstr(lm_end_hint(&end, false), "--console"));
}

static void test_end_by_a_signal(void **state)
{
    struct mote_vm_end end = describe(*state, NULL, "a line\n", 0, 9);

    assert_int_equal(end.signal, 9);
    assert_int_equal(end.exit_code, -1);
    assert_string_equal(end.reason, "");
    assert_string_equal(end.text, "mote-vmm: killed by signal 9 (Killed)");
}

static void test_end_takes_the_last_line_of_the_log(void **state)
{
    struct mote_vm_end end =
        describe(*state, "{\"reason\":\"internal\",\"detail\":\"\"}",
                 "2024-01-01T00:00:00.000000Z INFO mote-vmm: hello\n"
                 "mote-vmm: disk x: Is\ta directory; name a file\n\n",
                 152, 0);

    assert_false(end.by_guest);
    assert_string_equal(end.text, "disk x: Is?a directory; name a file");
    assert_string_equal(lm_end_hint(&end, false), "");
}

static void test_BL_025_end_by_the_filter_names_thread_and_call(void **state)
{
    struct mote_vm_end end = describe(
        *state, NULL,
        "mote-vmm: error: seccomp: thread loop made the forbidden system call "
        "accept4 (288); the VM ends here\n",
        148, 0);

    assert_int_equal(end.exit_code, 148);
    assert_false(end.by_guest);
    assert_non_null(strstr(end.text, "thread loop made the forbidden system "
                                     "call accept4 (288)"));
}

static void test_end_with_malformed_exit_file(void **state)
{
    static const char *const files[] = {
        "",
        "{",
        "[]",
        "{\"reason\":7}",
        "{\"detail\":{\"a\":1}}",
        "{\"reason\":\"\\u001b[2J a reason that is far too long for it\"}"};

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        struct mote_vm_end end = describe(*state, files[i], "", 3, 0);

        assert_false(end.by_guest);
        assert_string_equal(end.text, "mote-vmm: ended with exit code 3");
        assert_non_null(strstr(lm_end_hint(&end, false), "mote doctor"));
    }
}

static void test_log_line_of_a_long_log(void **state)
{
    struct ended *e = *state;
    char line[64];
    char big[5000];

    memset(big, 'x', sizeof(big));
    memcpy(big + sizeof(big) - 6, "\nlast\n", 6);
    assert_int_equal(pwrite(e->log_fd, big, sizeof(big), 0), sizeof(big));
    lm_last_log_line(e->log_fd, line, sizeof(line));
    assert_string_equal(line, "last");
    lm_last_log_line(-1, line, sizeof(line));
    assert_string_equal(line, "");
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_is_firecrackers_form),
        cmocka_unit_test(test_config_without_initrd_and_disks),
        cmocka_unit_test(test_config_refuses_paths_that_json_cannot_carry),
        cmocka_unit_test(test_params_out_of_range_are_refused),
        T(test_end_by_the_guest),
        T(test_end_by_a_signal),
        T(test_end_takes_the_last_line_of_the_log),
        T(test_BL_025_end_by_the_filter_names_thread_and_call),
        T(test_end_with_malformed_exit_file),
        T(test_log_line_of_a_long_log),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
