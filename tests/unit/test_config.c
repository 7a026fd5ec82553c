/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/config.h"

#include "vmm/options.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

static int load(const char *text, struct vm_config *c, struct errmsg *err)
{
    int rc;

    config_init(c);
    rc = config_load_text(c, text, strlen(text), "f.json", err);
    return rc ? rc : config_validate(c, err);
}

static void test_config_full_example_is_read(void **state)
{
    static const char text[] =
        "{\"boot-source\":{\"kernel_image_path\":\"/k\",\"initrd_path\":\"/i\","
        "\"boot_args\":\"a b\"},"
        "\"machine-config\":{\"vcpu_count\":4,\"mem_size_mib\":512,"
        "\"smt\":false,\"cpu_template\":null},"
        "\"drives\":[{\"drive_id\":\"r\",\"path_on_host\":\"/d\","
        "\"is_root_device\":true,\"is_read_only\":true,"
        "\"cache_type\":\"Writeback\",\"io_engine\":\"Async\"}],"
        "\"network-interfaces\":[],"
        "\"vsock\":{\"guest_cid\":3,\"uds_path\":\"/v\"},\"entropy\":{},"
        "\"mote\":{\"virtio_console\":true,\"vmgenid\":false}}";
    struct errmsg err = {""};
    struct vm_config c;

    (void)state;
    assert_int_equal(load(text, &c, &err), 0);
    assert_string_equal(c.kernel_path, "/k");
    assert_string_equal(c.initrd_path, "/i");
    assert_string_equal(c.boot_args, "a b");
    assert_int_equal(c.num_vcpus, 4);
    assert_true(c.mem_bytes == 512 * MIB);
    assert_int_equal(c.num_drives, 1);
    assert_true(c.drives[0].is_root && c.drives[0].read_only);
    assert_string_equal(c.vsock_path, "/v");
    assert_true(c.entropy && c.virtio_console && !c.vmgenid);
    config_fini(&c);
    config_fini(&c); /* idempotent */
}

static void test_config_defaults(void **state)
{
    struct errmsg err = {""};
    struct vm_config c;

    (void)state;
    assert_int_equal(
        load("{\"boot-source\":{\"kernel_image_path\":\"/k\"}}", &c, &err), 0);
    assert_int_equal(c.num_vcpus, 1);
    assert_true(c.mem_bytes == 128 * MIB);
    assert_false(c.entropy);
    config_fini(&c);
}

#define K "\"boot-source\":{\"kernel_image_path\":\"/k\"}"
#define D(more)                                                                \
    "{" K ",\"drives\":[{\"drive_id\":\"a\",\"path_on_host\":\"/d\"" more "}]" \
    "}"

static void test_config_drive_says_how_it_is_stored(void **state)
{
    struct errmsg err = {""};
    struct vm_config c;
    const struct config_drive *d = &c.drives[0];

    (void)state;
    /* Firecracker's defaults */
    assert_int_equal(load(D(""), &c, &err), 0);
    assert_int_equal(d->cache, CACHE_UNSAFE);
    assert_int_equal(d->engine, ENGINE_SYNC);
    assert_false(d->direct || d->read_only || d->cow);
    assert_null(d->partuuid);
    assert_int_equal(d->limit.bandwidth.size, 0);
    config_fini(&c);
    assert_int_equal(load(D(",\"cache_type\":null,\"io_engine\":null,"
                            "\"partuuid\":null,\"rate_limiter\":null,"
                            "\"socket\":null,\"mote_direct\":null,"
                            "\"mote\":null"),
                          &c, &err),
                     0);
    config_fini(&c);
    assert_int_equal(
        load(D(",\"cache_type\":\"Writeback\",\"io_engine\":\"Async\","
               "\"mote_direct\":true,\"partuuid\":\"0eaa91a0-01\","
               "\"rate_limiter\":{\"bandwidth\":{\"size\":4096,"
               "\"refill_time\":1000}}"),
             &c, &err),
        0);
    assert_int_equal(d->cache, CACHE_WRITEBACK);
    assert_int_equal(d->engine, ENGINE_ASYNC);
    assert_true(d->direct);
    assert_string_equal(d->partuuid, "0eaa91a0-01");
    assert_int_equal(d->limit.bandwidth.size, 4096);
    assert_int_equal(d->limit.bandwidth.refill_ms, 1000);
    config_fini(&c);
    assert_int_equal(load(D(",\"mote\":{\"format\":\"cow\"}"), &c, &err), 0);
    assert_true(d->cow);
    config_fini(&c);
    assert_int_equal(load(D(",\"mote\":{\"format\":\"raw\"}"), &c, &err), 0);
    assert_false(d->cow);
    config_fini(&c);
}

static void test_config_refusals_name_the_field(void **state)
{
    static const struct {
        const char *text;
        const char *named;
    } bad[] = {
        {"", "line 1"},
        {"[]", "one JSON object"},
        {"{" K "," K "}", "duplicate"},
        {"{}", "kernel_image_path"},
        {"{\"boot-source\":{}}", "kernel_image_path"},
        {"{\"boot-source\":{\"kernel_image_path\":\"\"}}", "kernel_image_path"},
        {"{\"boot-source\":{\"kernel_image_path\":7}}", "kernel_image_path"},
        {"{\"boot-source\":{\"kernel_image_path\":\"/k\\u0000x\"}}", "line 1"},
        {"{\"boot-source\":{\"kernel_image_path\":\"/k\",\"x\":1}}",
         "boot-source.x: unknown"},
        {"{" K ",\"mystery\":{}}", "mystery: unknown section"},
        {"{" K ",\"pmem\":[{}]}", "pmem: not supported"},
        {"{" K ",\"metrics\":{\"x\":1}}", "metrics.x: unknown"},
        {"{" K ",\"metrics\":{\"emit_id\":1}}", "metrics.emit_id: must"},
        {"{" K ",\"metrics\":{\"properties\":{\"a\":1}}}",
         "metrics.properties: must be an object of strings"},
        {"{" K ",\"logger\":{\"x\":1}}", "logger.x: unknown"},
        {"{" K ",\"logger\":{\"level\":\"loud\"}}", "logger.level: must"},
        {"{" K ",\"logger\":{\"level\":7}}", "logger.level: must"},
        {"{" K ",\"logger\":{\"module\":7}}", "module: must be"},
        {"{" K ",\"logger\":{\"module\":\"\"}}", "module: must be"},
        {"{" K ",\"logger\":{\"show_log_origin\":1}}",
         "show_log_origin: must be"},
        {"{" K ",\"serial\":{\"x\":1}}", "serial.x: unknown"},
        {"{" K ",\"serial\":{\"rate_limiter\":{}}}",
         "rate_limiter: not supported"},
        {"{" K ",\"machine-config\":{\"vcpu_count\":0}}", "vcpu_count"},
        {"{" K ",\"machine-config\":{\"vcpu_count\":33}}", "from 1 to 32"},
        {"{" K ",\"machine-config\":{\"vcpu_count\":\"1\"}}", "vcpu_count"},
        {"{" K ",\"machine-config\":{\"vcpu_count\":1.5}}", "vcpu_count"},
        {"{" K ",\"machine-config\":{\"mem_size_mib\":-1}}", "mem_size_mib"},
        {"{" K ",\"machine-config\":{\"mem_size_mib\":1}}", "mem_size_mib"},
        {"{" K ",\"machine-config\":{\"smt\":true}}", "smt: not supported"},
        {"{" K ",\"machine-config\":[]}", "must be an object"},
        {"{" K ",\"drives\":{}}", "must be a list"},
        {"{" K ",\"drives\":[1]}", "must be objects"},
        {"{" K ",\"drives\":[{\"drive_id\":\"a\"}]}", "path_on_host"},
        {"{" K ",\"drives\":[{\"path_on_host\":\"/a\"}]}", "drive_id"},
        {D(",\"is_read_only\":\"yes\""), "is_read_only"},
        {D(",\"rate_limiter\":[]"), "rate_limiter: must be"},
        {D(",\"rate_limiter\":{\"ops\":{\"size\":1}}"), "refill_time"},
        {D(",\"cache_type\":\"unsafe\""), "\"Unsafe\" or \"Writeback\""},
        {D(",\"cache_type\":1"), "cache_type"},
        {D(",\"io_engine\":\"Threads\""), "\"Sync\" or \"Async\""},
        {D(",\"mote_direct\":1"), "mote_direct: must be true or false"},
        {D(",\"mote\":7"), "drives.mote: must be an object"},
        {D(",\"mote\":{\"x\":1}"), "drives.mote.x: unknown"},
        {D(",\"mote\":{\"format\":\"qcow2\"}"), "\"raw\" or \"cow\""},
        {D(",\"mote\":{\"format\":\"cow\"},\"mote_direct\":true"),
         "leave mote_direct away"},
        {D(",\"socket\":\"/s\""), "socket: not supported"},
        {D(",\"partuuid\":\"\""), "partuuid"},
        {D(",\"partuuid\":\"1-2 init=/bin/sh\""), "partuuid: must be"},
        {D(",\"partuuid\":\"00000000000000000000000000000000000000000000000000"
           "000000000000000\""),
         "partuuid: must be"},
        {D(",\"nope\":1"), "drives.nope: unknown"},
        {"{" K ",\"drives\":[{\"drive_id\":\"a-b\",\"path_on_host\":\"/d\"}]}",
         "drive_id"},
        {"{" K ",\"drives\":[{\"drive_id\":\"a\",\"path_on_host\":\"/d\"},"
         "{\"drive_id\":\"a\",\"path_on_host\":\"/e\"}]}",
         "two have the drive_id a"},
        {"{" K ",\"drives\":[{\"drive_id\":\"a\",\"path_on_host\":\"/d\","
         "\"is_root_device\":true},{\"drive_id\":\"b\",\"path_on_host\":\"/e\","
         "\"is_root_device\":true}]}",
         "both is_root_device"},
        {"{" K ",\"vsock\":{\"guest_cid\":2,\"uds_path\":\"/v\"}}",
         "guest_cid"},
        {"{" K ",\"vsock\":{\"uds_path\":\"/v\"}}", "guest_cid is missing"},
        {"{" K ",\"vsock\":{\"guest_cid\":3}}", "uds_path is missing"},
        {"{" K ",\"entropy\":{\"rate_limiter\":{}}}", "rate_limiter"},
        {"{" K ",\"mote\":{\"x\":true}}", "mote.x: unknown"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct errmsg err = {""};
        struct vm_config c;

        assert_int_equal(load(bad[i].text, &c, &err), -EINVAL);
        if (!strstr(err.text, bad[i].named))
            fail_msg("%s\n  said: %s\n  not: %s", bad[i].text, err.text,
                     bad[i].named);
        config_fini(&c);
    }
}

static void test_config_output_sections_are_read(void **state)
{
    struct errmsg err = {""};
    struct vm_config c;

    (void)state;
    assert_int_equal(
        load("{" K ",\"logger\":{\"log_path\":\"/l\",\"level\":\"debug\","
             "\"show_level\":true,\"show_log_origin\":false,"
             "\"module\":null},"
             "\"metrics\":{\"metrics_path\":\"/m\",\"emit_id\":true,"
             "\"properties\":{\"a\":\"b\"}},"
             "\"serial\":{\"serial_out_path\":\"/s\"}}",
             &c, &err),
        0);
    assert_true(c.output.logger && c.output.log_show_level);
    assert_string_equal(c.output.log_path, "/l");
    assert_int_equal(c.output.log_level, LOG_DEBUG);
    assert_string_equal(c.output.metrics_path, "/m");
    assert_true(c.output.metrics_emit_id);
    assert_string_equal(c.output.metrics_properties, "{\"a\":\"b\"}");
    assert_string_equal(c.output.serial_path, "/s");
    config_fini(&c);
    assert_int_equal(
        load("{" K ",\"logger\":{\"show_level\":false}}", &c, &err), 0);
    assert_int_equal(c.output.log_level, LOG_INFO);
    config_fini(&c);
}

#define B(fields) "{" K ",\"balloon\":{" fields "}}"
#define B2        "\"amount_mib\":64,\"deflate_on_oom\":true"

static void test_config_balloon_is_read(void **state)
{
    struct errmsg err = {""};
    struct vm_config c;

    (void)state;
    assert_int_equal(load(B(B2), &c, &err), 0);
    assert_true(c.balloon.present && c.balloon.deflate_on_oom);
    assert_true(c.balloon.target_bytes == 64 * MIB);
    assert_false(c.balloon.hinting || c.balloon.reporting);
    assert_int_equal(c.balloon.stats_interval_s, 0);
    config_fini(&c);
    assert_int_equal(load(B(B2 ",\"stats_polling_interval_s\":5,"
                               "\"free_page_hinting\":true,"
                               "\"free_page_reporting\":true"),
                          &c, &err),
                     0);
    assert_true(c.balloon.hinting && c.balloon.reporting);
    assert_int_equal(c.balloon.stats_interval_s, 5);
    config_fini(&c);
    assert_int_equal(load(B(B2 ",\"stats_polling_interval_s\":null,"
                               "\"free_page_hinting\":null"),
                          &c, &err),
                     0);
    config_fini(&c);
    assert_int_equal(load("{" K ",\"balloon\":null}", &c, &err), 0);
    assert_false(c.balloon.present);
    config_fini(&c);
}

static void test_config_balloon_refusals_name_the_field(void **state)
{
    static const struct {
        const char *text;
        const char *named;
    } bad[] = {
        {B(""), "balloon: amount_mib is missing"},
        {B("\"amount_mib\":1"), "balloon: deflate_on_oom is missing"},
        {B("\"deflate_on_oom\":true"), "balloon: amount_mib is missing"},
        {B("\"amount_mib\":129,\"deflate_on_oom\":true"),
         "amount_mib is 129, the guest has 128"},
        {B("\"amount_mib\":-1"), "balloon.amount_mib: must be"},
        {B("\"amount_mib\":1.5"), "balloon.amount_mib: must be"},
        {B("\"amount_mib\":18446744073709551615"), "line 1"},
        {B("\"deflate_on_oom\":null"), "balloon.deflate_on_oom: must be"},
        {B("\"stats_polling_interval_s\":65536"),
         "balloon.stats_polling_interval_s: must be"},
        {B("\"free_page_hinting\":1"), "balloon.free_page_hinting: must be"},
        {B("\"free_page_reporting\":\"\""),
         "balloon.free_page_reporting: must be"},
        {B("\"x\":1"), "balloon.x: unknown field"},
        {"{" K ",\"balloon\":[]}", "balloon: must be an object"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct errmsg err = {""};
        struct vm_config c;

        assert_int_equal(load(bad[i].text, &c, &err), -EINVAL);
        if (!strstr(err.text, bad[i].named))
            fail_msg("%s\n  said: %s\n  not: %s", bad[i].text, err.text,
                     bad[i].named);
        config_fini(&c);
    }
}

#define P(list) "{" K ",\"mote\":{\"console_ports\":" list "}}"
#define P1      "{\"name\":\"org.x-1_a\",\"path\":\"/s\"}"

static void test_config_console_ports_are_read(void **state)
{
    struct errmsg err = {""};
    struct vm_config c;

    (void)state;
    assert_int_equal(
        load(P("[" P1 ",{\"path\":\"/t\",\"name\":\"b\"}]"), &c, &err), 0);
    assert_int_equal(c.num_ports, 2);
    assert_string_equal(c.ports[0].name, "org.x-1_a");
    assert_string_equal(c.ports[1].path, "/t");
    assert_false(c.virtio_console);
    config_fini(&c);
    assert_int_equal(load(P("[]"), &c, &err), 0);
    config_fini(&c);
}

static void test_config_console_port_refusals_say_why(void **state)
{
    static const struct {
        const char *text;
        const char *named;
    } bad[] = {
        {P("{}"), "console_ports: must be a list"},
        {P("[1]"), "console_ports: must be a list of objects"},
        {P("[{}]"), "with name and path"},
        {P("[{\"name\":\"a\"}]"), "with name and path"},
        {P("[{\"name\":\"\",\"path\":\"/a\"}]"), "console_ports.name"},
        {P("[{\"name\":\"a\",\"path\":7}]"), "console_ports.path"},
        {P("[{\"name\":\"a/b\",\"path\":\"/a\"}]"), "the name a/b"},
        {P("[{\"name\":\".a\",\"path\":\"/a\"}]"), "no dot first"},
        {P("[{\"name\":\"a\",\"path\":\"/a\",\"x\":1}]"), "mote.x: unknown"},
        {P("[" P1 "," P1 "]"), "two have the name or the path"},
        {P("[" P1 ",{\"name\":\"b\",\"path\":\"/s\"}]"),
         "two have the name or the path"},
    };
    char text[512];
    char path[128];
    struct errmsg err = {""};
    struct vm_config c;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(load(bad[i].text, &c, &err), -EINVAL);
        if (!strstr(err.text, bad[i].named))
            fail_msg("%s\n  said: %s\n  not: %s", bad[i].text, err.text,
                     bad[i].named);
        config_fini(&c);
    }
    memset(path, 'p', sizeof(path));
    path[108] = 0;
    (void)snprintf(text, sizeof(text), P("[{\"name\":\"a\",\"path\":\"%s\"}]"),
                   path);
    assert_int_equal(load(text, &c, &err), -EINVAL);
    assert_non_null(strstr(err.text, "a Unix socket takes 107"));
    config_fini(&c);
    path[64] = 0;
    (void)snprintf(text, sizeof(text), P("[{\"name\":\"%s\",\"path\":\"/a\"}]"),
                   path);
    assert_int_equal(load(text, &c, &err), -EINVAL);
    assert_non_null(strstr(err.text, "at most 63"));
    config_fini(&c);
    assert_int_equal(
        load(P("[{\"name\":\"a\",\"path\":\"/a\"},{\"name\":\"b\",\"path\":"
               "\"/b\"},{\"name\":\"c\",\"path\":\"/c\"},{\"name\":\"d\","
               "\"path\":\"/d\"},{\"name\":\"e\",\"path\":\"/e\"},{\"name\":"
               "\"f\",\"path\":\"/f\"},{\"name\":\"g\",\"path\":\"/g\"}]"),
             &c, &err),
        -EINVAL);
    assert_non_null(strstr(err.text, "6 at most"));
    config_fini(&c);
}

static void
test_BL_023_socket_path_of_107_bytes_works_108_is_refused(void **state)
{
    (void)state;
    for (size_t len = 107; len <= 108; len++) {
        char path[128] = "";
        char text[512];
        struct errmsg err = {""};
        struct vm_config c;

        memset(path, 'p', len);
        path[0] = '/';
        (void)snprintf(
            text, sizeof(text),
            "{" K ",\"vsock\":{\"guest_cid\":3,\"uds_path\":\"%s\"}}", path);
        assert_int_equal(load(text, &c, &err), len == 107 ? 0 : -EINVAL);
        if (len == 108)
            assert_non_null(strstr(err.text, "takes 107"));
        config_fini(&c);
    }
}

static void test_config_missing_file_is_named(void **state)
{
    struct errmsg err = {""};
    struct vm_config c;

    (void)state;
    config_init(&c);
    assert_int_equal(config_load_file(&c, "/nonexistent/f.json", &err),
                     -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/f.json"));
    config_fini(&c);
}

static int parse(const char *words, struct vmm_options *o, struct errmsg *err)
{
    static char copy[256];
    char *argv[16] = {(char[]){"mote-vmm"}};
    int argc = 1;

    (void)snprintf(copy, sizeof(copy), "%s", words);
    for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "))
        argv[argc++] = w;
    return options_parse(argc, argv, o, err);
}

static void test_options_both_value_forms(void **state)
{
    struct errmsg err = {""};
    struct vmm_options o;

    (void)state;
    assert_int_equal(parse("--config-file /c --level=Debug --no-api --id a-1 "
                           "--lifeline-fd 0",
                           &o, &err),
                     0);
    assert_string_equal(o.config_file, "/c");
    assert_int_equal(o.level, LOG_DEBUG);
    assert_true(o.no_api);
    assert_string_equal(o.id, "a-1");
    assert_int_equal(o.lifeline_fd, 0);
}

/* Every flag that a jailer or a client library passes. */
static void test_options_of_firecracker_are_taken(void **state)
{
    char *argv[] = {(char[]){"/usr/bin/firecracker-v1.17"},
                    (char[]){"--no-seccomp"},
                    (char[]){"--start-time-us=1"},
                    (char[]){"--start-time-cpu-us=2"},
                    (char[]){"--parent-cpu-time-us=3"},
                    (char[]){"--show-level"},
                    (char[]){"--show-log-origin"},
                    (char[]){"--module=vmm"},
                    (char[]){"--boot-timer"},
                    (char[]){"--metrics-path=/m"}};
    struct errmsg err = {""};
    struct vmm_options o;

    (void)state;
    assert_int_equal(options_parse(ARRAY_SIZE(argv), argv, &o, &err), 0);
    assert_true(o.as_firecracker);
    assert_string_equal(o.api_sock, "/run/firecracker.socket");
    assert_string_equal(o.metrics_path, "/m");
    assert_int_equal(o.start_us, 1);
    assert_int_equal(o.start_cpu_us, 2);
    assert_int_equal(o.parent_cpu_us, 3);
    assert_true(o.show_level && o.show_origin && o.boot_timer);
    assert_string_equal(o.module, "vmm");
    assert_int_equal(o.max_body, 51200);
    /* Under our own name there is a socket only where one is asked for. */
    assert_int_equal(parse("--config-file c", &o, &err), 0);
    assert_null(o.api_sock);
    assert_int_equal(parse("--api-sock /s --id x", &o, &err), 0);
    assert_string_equal(o.api_sock, "/s");
}

static void test_options_refusals_name_the_word(void **state)
{
    static const struct {
        const char *words;
        const char *named;
    } bad[] = {
        {"", "--config-file"},
        {"--nope", "--nope: unknown"},
        {"stray", "stray: unknown"},
        {"--config-file", "--config-file: needs a value"},
        {"--config-file=", "--config-file: needs a value"},
        {"--no-api=1", "--no-api: takes no value"},
        {"--level loud --config-file c", "loud"},
        {"--id a/b --config-file c", "--id"},
        {"--lifeline-fd 999 --config-file c", "999"},
        {"--start-time-us x --config-file c", "x is no number"},
        {"--start-time-cpu-us x --config-file c", "x is no number"},
        {"--parent-cpu-time-us -1 --config-file c", "-1 is no number"},
        {"--boot-timer=1 --config-file c", "--boot-timer: takes no value"},
        {"--module", "--module: needs a value"},
        {"--no-api", "--no-api needs a --config-file"},
        {"--check --api-sock s", "--check needs"},
        {"--no-api --api-sock s --config-file c", "exclude"},
        {"--http-api-max-payload-size 0 --api-sock s", "from 1 to"},
        {"--http-api-max-payload-size 9z --api-sock s", "from 1 to"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct errmsg err = {""};
        struct vmm_options o;

        assert_int_equal(parse(bad[i].words, &o, &err), -EINVAL);
        assert_non_null(strstr(err.text, bad[i].named));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_full_example_is_read),
        cmocka_unit_test(test_config_defaults),
        cmocka_unit_test(test_config_drive_says_how_it_is_stored),
        cmocka_unit_test(test_config_refusals_name_the_field),
        cmocka_unit_test(test_config_console_ports_are_read),
        cmocka_unit_test(test_config_console_port_refusals_say_why),
        cmocka_unit_test(test_config_output_sections_are_read),
        cmocka_unit_test(test_config_balloon_is_read),
        cmocka_unit_test(test_config_balloon_refusals_name_the_field),
        cmocka_unit_test(
            test_BL_023_socket_path_of_107_bytes_works_108_is_refused),
        cmocka_unit_test(test_config_missing_file_is_named),
        cmocka_unit_test(test_options_both_value_forms),
        cmocka_unit_test(test_options_of_firecracker_are_taken),
        cmocka_unit_test(test_options_refusals_name_the_word),
    };

    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
