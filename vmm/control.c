/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/control.h"

#include "boot/boot_x86.h"
#include "vmm/cleanup.h"
#include "vmm/control_int.h"
#include "vmm/exit_report.h"
#include "vmm/probe_x86.h"
#include "vmm/seccomp_filter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a configuration file: what PUT /snapshot/load takes. */
#define CONTROL_LOAD_SECTION "snapshot-load"

/* --- the configuration ------------------------------------------------------
 */

int control_parse(json_t *doc, struct vm_config *out, struct errmsg *err)
{
    int rc;

    config_init(out);
    rc = doc ? config_apply(out, doc, API_BODY_ERROR, err)
             : err_set(err, -ENOMEM, "out of memory");
    if (rc == 0)
        rc = config_check(out, err);
    if (rc) {
        config_fini(out);
        json_decref(doc);
    }
    return rc;
}

int control_settle(struct control *c, int rc, json_t *doc,
                   struct vm_config *config)
{
    if (rc) {
        json_decref(doc);
        config_fini(config);
        return rc;
    }
    json_decref(c->doc);
    config_fini(&c->config);
    c->doc = doc;
    c->config = *config;
    return 0;
}

int control_adopt(struct control *c, json_t *doc, struct errmsg *err)
{
    struct vm_config config;
    int rc = control_parse(doc, &config, err);

    return rc ? rc : control_settle(c, 0, doc, &config);
}

/* What --config-file says; without one the configuration is empty. */
static int control_read_file(struct control *c, struct errmsg *err)
{
    const char *path = c->options->config_file;
    int rc;

    config_init(&c->config);
    if (!path) {
        c->doc = json_object();
        return c->doc ? 0 : err_set(err, -ENOMEM, "out of memory");
    }
    rc = config_read_file(path, &c->doc, err);
    if (rc)
        return rc;
    c->to_load = json_incref(json_object_get(c->doc, CONTROL_LOAD_SECTION));
    if (c->to_load)
        (void)json_object_del(c->doc, CONTROL_LOAD_SECTION);
    rc = config_apply(&c->config, c->doc, path, err);
    if (rc == 0)
        rc = c->to_load ? config_check(&c->config, err)
                        : config_validate(&c->config, err);
    return rc;
}

/* What the guest may read, with what --metadata says. */
static int control_make_mmds(struct control *c, struct errmsg *err)
{
    const struct vmm_options *o = c->options;

    c->mmds = mmds_new(o->mmds_limit ? o->mmds_limit : o->max_body);
    if (!c->mmds)
        return err_set(err, -ENOMEM, "out of memory");
    return o->metadata ? mmds_load(c->mmds, o->metadata, err) : 0;
}

/* What can be known of a machine without making it. */
static int control_check(const struct vm_config *config, struct errmsg *err)
{
    int rc = config->boot_args ? boot_check_cmdline(config->boot_args, err) : 0;

    return rc ? rc : boot_check_kernel(config->kernel_path, err);
}

/* --- the machine ------------------------------------------------------------
 */

static int control_probe(const struct vmm_options *o, struct log *log,
                         bool *out_emulated, struct errmsg *err)
{
    struct ring0_probe p = probe_ring0_known((double)o->ring0_ns);
    char dir[256];
    int rc = 0;

    if (!o->ring0_given)
        rc = probe_ring0_cached(probe_cache_dir(dir, sizeof(dir)) ? dir : NULL,
                                &p, err);
    if (rc)
        return rc;
    *out_emulated = p.emulated;
    if (p.emulated)
        log_msg(log, LOG_INFO,
                "this KVM emulates the guest's kernel code (%.0f ns an "
                "instruction): adding the words and work-arounds for that",
                p.ns_per_instruction);
    return 0;
}

int control_machine_options(struct control *c, struct machine_options *out,
                            struct errmsg *err)
{
    const struct vmm_options *o = c->options;

    *out = (struct machine_options){
        .loop = c->loop,
        .log = c->log,
        .console_in_fd = STDIN_FILENO,
        .console_out_fd = c->serial_fd >= 0 ? c->serial_fd : STDOUT_FILENO,
        .start_ns = o->start_us ? o->start_us * 1000 : c->start_ns,
        .keyboard = c->api != NULL,
        .filter_calls = !o->no_seccomp,
        .control_socket = c->api != NULL,
        .fork_socket = o->fork_from,
        .boot_timer = o->boot_timer,
        .cpu_offset = (int64_t)o->parent_cpu_us - (int64_t)o->start_cpu_us,
        .test_exit = o->test_exit,
        .count_exits = o->count_exits,
        .profile_hz = o->profile_hz,
        .mmds = &c->mmds->service,
    };
    if (c->metrics)
        seccomp_tell_metrics(metrics_fd(c->metrics));
    return control_probe(c->options, c->log, &out->emulated_ring0, err);
}

int control_boot(struct control *c, struct errmsg *err)
{
    struct machine_options mo;
    int rc = config_validate(&c->config, err);

    mmds_configure(c->mmds, &c->config.mmds);
    if (rc == 0)
        rc = control_machine_options(c, &mo, err);
    if (rc == 0)
        rc = machine_new(&c->config, &mo, NULL, &c->machine, err);
    return rc ? rc : machine_start(c->machine, err);
}

/* A file's machine, booted or loaded; nobody waits for one that stays paused.
 */
static void control_on_paused(void *arg)
{
    struct control *c = arg;

    log_msg(c->log, LOG_INFO, "the machine was loaded and stays paused");
}

static int control_begin(struct control *c, struct errmsg *err)
{
    bool later = false;

    return c->to_load
               ? control_load(c, c->to_load, control_on_paused, c, &later, err)
               : control_boot(c, err);
}

/* What a signal or the lifeline does, before and after there is a machine. */
static void control_request_stop(void *arg, enum stop_reason reason,
                                 uint32_t detail)
{
    struct control *c = arg;

    control_note_signal(c, detail);
    if (c->machine) {
        const struct stop_hook hook = machine_stop_hook(c->machine);

        hook.request_stop(hook.arg, reason, detail);
        return;
    }
    c->early_signal = detail;
    evloop_stop(c->loop);
}

/* --- the end ----------------------------------------------------------------
 */

static void control_describe(const struct machine_result *r, char *out,
                             size_t size)
{
    switch (r->reason) {
    case STOP_REQUEST:
        (void)snprintf(out, size, "%s",
                       r->detail ? strsignal((int)r->detail)
                                 : "the process that started it has ended");
        break;
    case STOP_KVM_ERROR:
    case STOP_TEST:
        (void)snprintf(out, size, "code %u", r->detail);
        break;
    default:
        (void)snprintf(out, size, "%s", stop_reason_name(r->reason));
        break;
    }
}

static int control_report(struct control *c, int exit_fd)
{
    struct machine_result r;
    char detail[128];
    int code;

    memset(&r, 0, sizeof(r));
    if (c->machine) {
        machine_collect(c->machine, &r);
    } else {
        r.reason = STOP_REQUEST;
        r.detail = c->early_signal;
    }
    code = exit_code_of(&r);
    control_describe(&r, detail, sizeof(detail));
    log_msg(c->log, LOG_INFO,
            "the VM ended: %s (%s); first KVM_RUN after %.1f ms",
            stop_reason_name(r.reason), detail, (double)r.first_run_ns / 1e6);
    if (exit_fd >= 0 && exit_report_write(exit_fd, &r, detail, code) != 0) {
        log_msg(c->log, LOG_ERROR, "--exit-file %s: writing failed",
                c->options->exit_file);
        if (code == 0)
            code = EXIT_CODE_OTHER;
    }
    return code;
}

/* --- the process ------------------------------------------------------------
 */

static int control_make_loop(struct control *c, struct errmsg *err)
{
    const struct stop_hook hook = {control_request_stop, c};
    int rc = endings_block_signals();
    int why;

    if (rc)
        return err_set(err, rc, "signals: %s", err_reason(rc));
    rc = evloop_new(EVLOOP_AUTO, &c->loop);
    if (rc)
        return err_set(err, rc, "event loop: %s", err_reason(rc));
    why = evloop_fallback_errno(c->loop);
    if (why)
        log_msg(c->log, LOG_WARN,
                "io_uring: %s; going on with epoll and plain I/O (check "
                "kernel.io_uring_disabled and the seccomp profile)",
                err_reason(-why));
    return endings_init(&c->endings, c->loop, hook, c->options->lifeline_fd,
                        err);
}

static int control_make_outputs(struct control *c, struct errmsg *err)
{
    int rc = control_set_logger(c, &c->config, err);

    if (rc == 0)
        rc = control_set_metrics(c, &c->config, err);
    if (rc == 0 && c->config.output.serial_path)
        rc = control_set_serial(c, &c->config, err);
    return rc;
}

/* --metrics-path is the section "metrics" in short. */
static int control_take_metrics_path(struct control *c, struct errmsg *err)
{
    json_t *section;

    if (!c->options->metrics_path)
        return 0;
    section = json_pack("{s:s}", "metrics_path", c->options->metrics_path);
    if (!section)
        return err_set(err, -EINVAL, "--metrics-path: not UTF-8");
    if (json_object_get(c->doc, "metrics")) {
        json_decref(section);
        return err_set(err, -EINVAL,
                       "--metrics-path: the configuration file has a section "
                       "metrics as well; remove one");
    }
    if (json_object_set_new(c->doc, "metrics", section))
        return err_set(err, -ENOMEM, "out of memory");
    c->config.output.metrics_path = strdup(c->options->metrics_path);
    return c->config.output.metrics_path
               ? 0
               : err_set(err, -ENOMEM, "out of memory");
}

static int control_make_api(struct control *c, struct errmsg *err)
{
    const struct api_server_args args = {
        .loop = c->loop,
        .log = c->log,
        .path = c->options->api_sock,
        .max_body = c->options->max_body,
        .fn = api_dispatch,
        .arg = c,
    };

    return args.path ? api_server_new(&args, &c->api, err) : 0;
}

/* All parts, and the machine if there is a file. *out_code: of a failure. */
static int control_start(struct control *c, int *out_code, struct errmsg *err)
{
    int rc;

    *out_code = EXIT_CODE_ARGUMENTS;
    rc = control_take_metrics_path(c, err);
    if (rc)
        return rc;
    *out_code = EXIT_CODE_OTHER;
    rc = control_make_loop(c, err);
    if (rc)
        return rc;
    *out_code = EXIT_CODE_ARGUMENTS;
    rc = control_make_api(c, err);
    if (rc)
        return rc;
    *out_code = EXIT_CODE_CONFIG;
    rc = control_make_outputs(c, err);
    if (rc)
        return rc;
    control_note_started(c);
    if (c->options->fork_from)
        return fork_wait_new(c->loop, c->options->fork_from, control_take_fork,
                             c, &c->wait, err);
    if (!c->options->config_file)
        return 0;
    rc = control_begin(c, err);
    if (rc != -EINVAL && rc != -E2BIG)
        *out_code = EXIT_CODE_OTHER;
    return rc;
}

static void control_fini(struct control *c)
{
    fork_wait_free(c->wait);
    fork_free(c->fork);
    api_server_free(c->api);
    endings_fini(&c->endings);
    control_end_metrics(c); /* the last line has the machine's counts */
    machine_free(c->machine);
    c->machine = NULL;
    free(c->told_machine);
    control_output_fini(c);
    mmds_free(c->mmds);
    evloop_free(c->loop);
    config_fini(&c->config);
    json_decref(c->doc);
    json_decref(c->to_load);
}

static int control_fail(struct control *c, const struct errmsg *err, int code)
{
    log_msg(c->log, LOG_ERROR, "%s", err->text);
    return code;
}

/* From a loaded configuration to the end of the machine. */
static int control_live(struct control *c)
{
    CLEANUP_FD int exit_fd = -1;
    struct errmsg err = {""};
    int code = EXIT_CODE_OTHER;
    int rc = 0;

    if (c->options->exit_file)
        rc = exit_report_open(c->options->exit_file, &exit_fd, &err);
    if (rc)
        return control_fail(c, &err, EXIT_CODE_ARGUMENTS);
    rc = control_start(c, &code, &err);
    if (rc && !c->machine) {
        if (exit_fd >= 0)
            (void)unlink(c->options->exit_file); /* ours, and tells nothing */
        return control_fail(c, &err, code);
    }
    if (rc)
        (void)control_fail(c, &err, code); /* the loop takes it down */
    rc = evloop_run(c->loop);
    if (rc) {
        (void)err_set(&err, rc, "event loop: %s", err_reason(rc));
        (void)control_fail(c, &err, code);
    }
    code = control_report(c, exit_fd);
    return rc ? EXIT_CODE_OTHER : code;
}

int control_run(const struct vmm_options *o, struct log *log, uint64_t start_ns)
{
    struct control c = {
        .options = o,
        .log = log,
        .start_ns = start_ns,
        .log_fd = -1,
        .serial_fd = -1,
    };
    struct errmsg err = {""};
    int code;
    int rc;

    if (control_open_log(&c, &err))
        return control_fail(&c, &err, EXIT_CODE_ARGUMENTS);
    rc = control_read_file(&c, &err);
    if (rc == 0)
        rc = control_make_mmds(&c, &err);
    if (rc == 0 && o->check && !c.to_load)
        rc = control_check(&c.config, &err);
    if (rc)
        code = control_fail(&c, &err, EXIT_CODE_CONFIG);
    else
        code = o->check ? 0 : control_live(&c);
    control_fini(&c);
    return code;
}
