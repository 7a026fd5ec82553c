/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/vm_int.h"

#include "tools/libmote/vm_end.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"
#include "vmm/le.h"

#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

const char *mote_vm_id(const struct mote_vm *vm)
{
    return vm->slot.id;
}

const char *mote_vm_vsock_path(const struct mote_vm *vm)
{
    return vm->vsock.sun_path;
}

const char *mote_vm_jail_note(const struct mote_vm *vm)
{
    return vm->jail_note;
}

int mote_vm_pidfd(const struct mote_vm *vm)
{
    return vm->pidfd;
}

void mote_vm_times(const struct mote_vm *vm, struct mote_vm_times *out)
{
    *out = vm->times;
}

/* --- start -------------------------------------------------------------------
 */

/* Listens where the guest's agent will report: no polling for readiness. */
static int vm_listen(struct mote_vm *vm, const struct lm_vm_start *s,
                     struct mote_err *err)
{
    CLEANUP_FD int fd = -1;
    char suffix[16];
    struct sockaddr_un sa;
    int rc;

    (void)snprintf(suffix, sizeof(suffix), "_%u", MOTE_READY_PORT);
    rc = lm_unix_address(&sa, vm->vsock.sun_path, suffix, err);
    if (rc)
        return rc;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
        listen(fd, 1) < 0) {
        rc = neg_errno();
        return lm_err(err, rc, "%s: %s", sa.sun_path, err_reason(rc));
    }
    vm->listen_fd = take_fd(&fd);
    return lm_vm_give(s, strrchr(sa.sun_path, '/') + 1, err);
}

/* What others read about this machine; see info.c. */
static int vm_write_info(struct mote_vm *vm, const struct mote_vm_params *p,
                         struct mote_err *err)
{
    CLEANUP_FREE char *text = NULL;
    struct timespec now;
    json_t *info;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    info = json_pack("{s:i, s:s, s:s, s:i, s:i, s:i, s:I, s:I}", "version", 1,
                     "id", vm->slot.id, "name", vm->slot.name, "owner_pid",
                     (int)getpid(), "monitor_pid", (int)vm->pid, "vcpus",
                     (int)p->vcpus, "mem_bytes", (json_int_t)p->mem_bytes,
                     "started_ms",
                     (json_int_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
    if (info && vm->shared_owner)
        (void)json_object_set_new(info, "shared_owner", json_true());
    text = info ? json_dumps(info, JSON_INDENT(2)) : NULL;
    json_decref(info);
    if (!text)
        return lm_err_nomem(err);
    return lm_slot_write(&vm->slot, LM_INFO_FILE, text, err);
}

static int vm_launch(struct mote_vm *vm, struct lm_vm_start *s,
                     struct mote_err *err)
{
    CLEANUP_FD int far_end = -1;
    int ends[2];
    int rc;

    s->log_fd = s->params->log_fd;
    if (s->log_fd < 0) {
        vm->log_fd =
            openat(vm->slot.dir_fd, LM_LOG_FILE,
                   O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        s->log_fd = vm->log_fd;
    }
    if (s->log_fd < 0 || pipe2(ends, O_CLOEXEC) < 0) {
        rc = neg_errno();
        return lm_err(err, rc, "%s: %s", vm->slot.path, err_reason(rc));
    }
    far_end = ends[0];
    vm->lifeline_fd = ends[1];
    s->lifeline_fd = far_end;
    rc = lm_vm_launch(s, &vm->pid, err);
    if (rc)
        return rc;
    if (s->note[0]) {
        vm->jail_note = strdup(s->note);
        if (!vm->jail_note)
            return lm_err_nomem(err);
    }
    drop_fd(&vm->net.vmm_fd); /* the monitor's alone from now on */
    vm->pidfd = pidfd_open(vm->pid, 0);
    if (vm->pidfd < 0) {
        rc = neg_errno();
        return lm_err(err, rc, "mote-vmm: pidfd_open: %s", err_reason(rc));
    }
    return 0;
}

/* The guest hears of its addresses later, when the caller's may be gone. */
static int vm_keep_net(struct mote_vm *vm, const struct mote_net_params *p,
                       struct mote_err *err)
{
    const char *from[] = {p->address, p->gateway, p->resolver};
    const char **to[] = {&vm->net_params.address, &vm->net_params.gateway,
                         &vm->net_params.resolver};

    vm->net_params.kind = p->kind;
    for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
        if (!from[i])
            continue;
        vm->net_text[i] = strdup(from[i]);
        if (!vm->net_text[i])
            return lm_err_nomem(err);
        *to[i] = vm->net_text[i];
    }
    return 0;
}

int lm_vm_new(const char *name, struct mote_vm **out, struct mote_err *err)
{
    struct mote_vm *vm = calloc(1, sizeof(*vm));
    int rc;

    if (!vm)
        return lm_err_nomem(err);
    vm->start_ns = util_now_ns();
    vm->rundir = LM_RUNDIR_CLOSED;
    vm->slot = LM_SLOT_CLOSED;
    vm->report = LM_CHAN_CLOSED;
    vm->net = LM_NET_NONE;
    vm->pidfd = vm->lifeline_fd = vm->log_fd = vm->listen_fd = -1;
    vm->times = (struct mote_vm_times){-1, -1, -1};
    rc = lm_rundir_open(&vm->rundir, err);
    if (!rc)
        rc = lm_slot_new(&vm->rundir, name, &vm->slot, err);
    if (rc) {
        mote_vm_free(vm);
        return rc;
    }
    *out = vm;
    return 0;
}

int lm_vm_start(struct mote_vm *vm, struct lm_vm_start *s, struct mote_err *err)
{
    int rc;

    s->slot = &vm->slot;
    s->net = &vm->net;
    s->cgroup = &vm->cgroup;
    rc = lm_vm_prepare(s, err);
    if (!rc)
        rc = lm_unix_address(&vm->vsock, vm->slot.run_path, "/" LM_VSOCK_FILE,
                             err);
    if (!rc && !s->config && !s->waits) /* others have reported long ago */
        rc = vm_listen(vm, s, err);
    if (!rc)
        rc = vm_keep_net(vm, &s->params->net, err);
    if (!rc)
        rc = lm_net_start(&s->params->net, &vm->slot, &vm->net, err);
    if (!rc)
        rc = vm_launch(vm, s, err);
    return rc ? rc : vm_write_info(vm, s->params, err);
}

int mote_vm_start(const struct mote_vm_params *params, struct mote_vm **out,
                  struct mote_err *err)
{
    struct mote_vm *vm = NULL;
    struct lm_vm_start s = {.params = params};
    int rc = lm_params_check(params, err);

    if (!rc)
        rc = lm_vm_new(params->name, &vm, err);
    if (rc || !vm)
        return rc;
    rc = lm_vm_start(vm, &s, err);
    if (rc) {
        mote_vm_free(vm);
        return rc;
    }
    /* The remains of others are swept while the guest boots. */
    lm_rundir_reap(&vm->rundir);
    *out = vm;
    return 0;
}

/* --- ready
 * -------------------------------------------------------------------- */

static void vm_on_mark(struct mote_vm *vm, const struct lm_attr *a,
                       double *init_ms)
{
    uint32_t id;
    double ms;

    if (a->len < sizeof(struct mote_boot_mark))
        return;
    id = get_le32(a->data + offsetof(struct mote_boot_mark, id));
    ms = (double)get_le64(a->data + offsetof(struct mote_boot_mark, ns)) / 1e6;
    if (id == MOTE_MARK_INIT)
        *init_ms = ms;
    if (id == MOTE_MARK_READY && *init_ms >= 0 && ms >= *init_ms) {
        vm->times.kernel_ms = *init_ms;
        vm->times.agent_ms = ms - *init_ms;
    }
}

static int vm_on_report(struct mote_vm *vm, const struct lm_msg *msg,
                        struct mote_err *err)
{
    char text[256] = "no reason given";
    double init_ms = -1;
    struct lm_attr_iter it;
    struct lm_attr a;

    lm_attr_begin(&it, msg);
    while (lm_attr_next(&it, &a) > 0) {
        if (a.type == MOTE_ATTR_TEXT)
            lm_attr_text(&a, text, sizeof(text));
        if (a.type == MOTE_ATTR_BOOT_MARK)
            vm_on_mark(vm, &a, &init_ms);
    }
    if (msg->type == MOTE_T_ERROR)
        return lm_err(err, -EPROTO, "guest: could not get ready: %s", text);
    if (msg->type != MOTE_T_READY)
        return lm_err(err, -EPROTO,
                      "guest: sent something else than its report; use the "
                      "agent that was built with this mote");
    vm->times.start_to_ready_ms = (double)(util_now_ns() - vm->start_ns) / 1e6;
    vm->ready = true;
    return 0;
}

/* Takes the agent's connection and its report, as far as they have come. */
static int vm_step_report(struct mote_vm *vm, struct mote_err *err)
{
    struct lm_msg msg;
    int rc;

    if (vm->report.fd < 0) {
        CLEANUP_FD int fd = accept4(vm->listen_fd, NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0)
            return errno == EAGAIN || errno == ECONNABORTED ? 0 : neg_errno();
        rc = lm_chan_adopt(&vm->report, fd);
        if (rc)
            return lm_err_nomem(err);
        (void)take_fd(&fd);
    }
    rc = lm_chan_next(&vm->report, &msg);
    if (rc > 0)
        return vm_on_report(vm, &msg, err);
    if (rc == -ECONNRESET) {
        lm_chan_close(&vm->report); /* it may try again, or die */
        return 0;
    }
    if (rc < 0)
        return lm_err(err, -EPROTO,
                      "guest: its report is malformed; use the "
                      "agent that was built with this mote");
    return 0;
}

/* The agent is there: nothing listens for it any more. */
static int vm_set_ready(struct mote_vm *vm, struct mote_err *err)
{
    char file[32];

    (void)snprintf(file, sizeof(file), LM_VSOCK_FILE "_%u", MOTE_READY_PORT);
    lm_chan_close(&vm->report);
    drop_fd(&vm->listen_fd);
    (void)unlinkat(vm->slot.run_fd, file, 0);
    return lm_slot_write(&vm->slot, LM_READY_FILE, "", err);
}

int lm_vm_ended_early(struct mote_vm *vm, struct mote_err *err)
{
    struct mote_vm_end end;
    int rc = mote_vm_wait_end(vm, 0, &end);

    if (rc)
        return lm_err(err, rc, "mote-vmm: waiting for it: %s", err_reason(rc));
    return lm_err(err, -ECHILD, "%s%s", end.text,
                  lm_end_hint(&end, vm->log_fd < 0));
}

int mote_vm_wait_ready(struct mote_vm *vm, int timeout_ms, int cancel_fd,
                       struct mote_err *err)
{
    uint64_t deadline_ns = lm_deadline(timeout_ms);
    int rc;

    while (!vm->ready) {
        bool heard = vm->report.fd >= 0;
        struct pollfd p[] = {
            {.fd = heard ? vm->report.fd : vm->listen_fd,
             .events = heard ? lm_chan_events(&vm->report) : POLLIN},
            {.fd = vm->pidfd, .events = POLLIN},
            {.fd = cancel_fd, .events = POLLIN},
        };
        int n = poll(p, ARRAY_SIZE(p), lm_poll_timeout(deadline_ns));

        if (n < 0 && errno != EINTR)
            return lm_err(err, neg_errno(), "poll: %s",
                          err_reason(neg_errno()));
        if (n < 0)
            continue;
        if (n == 0)
            return lm_err(err, -ETIMEDOUT,
                          "guest: not ready after %d s; look at its console, "
                          "or allow it more time",
                          timeout_ms / 1000);
        if (p[2].revents)
            return lm_err(err, -ECANCELED, "guest: the wait was cancelled");
        rc = p[0].revents ? vm_step_report(vm, err) : 0;
        if (rc)
            return rc;
        if (p[1].revents && !p[0].revents)
            return lm_vm_ended_early(vm, err);
    }
    if (vm->listen_fd < 0)
        return 0;
    rc = lm_net_tell_guest(&vm->net_params, &vm->net, mote_vm_vsock_path(vm),
                           timeout_ms, cancel_fd, err);
    return rc ? rc : vm_set_ready(vm, err);
}

/* --- end
 * ----------------------------------------------------------------------- */

static int vm_reap(struct mote_vm *vm, uint64_t deadline_ns, int cancel_fd)
{
    int rc;

    if (vm->reaped)
        return 0;
    rc = lm_wait_fd(vm->pidfd, POLLIN, deadline_ns, cancel_fd);
    if (rc)
        return rc;
    /* It has ended: this does not block. */
    if (waitid(P_PIDFD, (id_t)vm->pidfd, &vm->status, WEXITED) < 0)
        return neg_errno();
    vm->reaped = true;
    return 0;
}

int mote_vm_wait_end(struct mote_vm *vm, int timeout_ms,
                     struct mote_vm_end *out)
{
    int rc = vm_reap(vm, lm_deadline(timeout_ms), -1);

    if (rc)
        return rc;
    lm_end_describe(&vm->slot, &vm->status, vm->log_fd, out);
    return 0;
}

int mote_vm_poweroff(struct mote_vm *vm, int timeout_ms, int cancel_fd,
                     struct mote_err *err)
{
    uint64_t deadline_ns = lm_deadline(timeout_ms);
    struct mote_request *r = NULL;
    int rc = mote_request_poweroff(mote_vm_vsock_path(vm), &r, err);

    if (!rc)
        rc = mote_request_wait(r, timeout_ms, cancel_fd, err);
    mote_request_free(r);
    /* A guest that is gone before its OK came out has done as told. */
    if (rc && rc != -ECONNRESET)
        return rc;
    rc = vm_reap(vm, deadline_ns, cancel_fd);
    if (rc)
        return lm_err(err, rc, "guest: did not switch itself off: %s",
                      err_reason(rc));
    return 0;
}

void mote_vm_free(struct mote_vm *vm)
{
    if (!vm)
        return;
    if (vm->pid > 0 && !vm->reaped && vm->pidfd >= 0) {
        (void)pidfd_send_signal(vm->pidfd, SIGKILL, NULL, 0);
        (void)vm_reap(vm, UINT64_MAX, -1);
    } else if (vm->pid > 0 && !vm->reaped) {
        (void)kill(vm->pid, SIGKILL); /* not reaped: the pid is still its own */
        (void)waitpid(vm->pid, NULL, 0);
    }
    lm_net_fini(&vm->net);
    for (size_t i = 0; i < ARRAY_SIZE(vm->net_text); i++)
        free(vm->net_text[i]);
    free(vm->jail_note);
    lm_cgroup_remove(&vm->cgroup);
    lm_chan_close(&vm->report);
    drop_fd(&vm->listen_fd);
    drop_fd(&vm->pidfd);
    drop_fd(&vm->lifeline_fd);
    drop_fd(&vm->log_fd);
    for (size_t i = 0; i < vm->disk_fd_count; i++)
        drop_fd(&vm->disk_fds[i]);
    lm_slot_remove(&vm->rundir, &vm->slot);
    lm_rundir_close(&vm->rundir);
    free(vm);
}
