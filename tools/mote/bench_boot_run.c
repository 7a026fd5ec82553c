/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/bench_boot_run.h"

#include "tools/libmote/launch.h"
#include "tools/mote/bench_boot_int.h"
#include "tools/mote/term.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define BOOT_END_MS 5000 /* from SIGTERM to SIGKILL */

const char *const boot_point_names[BOOT_POINTS] = {
    [BOOT_CONFIGURED] = "configured",
    [BOOT_KVM_RUN] = "first KVM_RUN",
    [BOOT_KERNEL] = "kernel entry",
    [BOOT_CLOCK] = "kernel's first line",
    [BOOT_INIT] = "/init",
    [BOOT_ROOT] = "root mounted",
    [BOOT_READY] = "agent ready",
    [BOOT_OUTPUT] = "first output",
};
const char *const boot_point_keys[BOOT_POINTS] = {
    [BOOT_CONFIGURED] = "configured",
    [BOOT_KVM_RUN] = "kvm_run",
    [BOOT_KERNEL] = "kernel",
    [BOOT_CLOCK] = "clock",
    [BOOT_INIT] = "init",
    [BOOT_ROOT] = "root",
    [BOOT_READY] = "ready",
    [BOOT_OUTPUT] = "output",
};

double boot_ms(const struct boot_live *b, uint64_t ns)
{
    return (double)(int64_t)(ns - b->start_ns) / 1e6;
}

int boot_wait(const struct boot_live *b, int fd, short events,
              struct mote_err *err)
{
    struct pollfd p[] = {{.fd = fd, .events = events},
                         {.fd = b->g->signal_fd, .events = POLLIN},
                         {.fd = b->pidfd, .events = POLLIN}};
    int n;

    do {
        n = poll(p, ARRAY_SIZE(p), lm_poll_timeout(b->deadline_ns));
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return lm_err(err, neg_errno(), "poll: %s", err_reason(neg_errno()));
    if (p[1].revents)
        return lm_err(err, -ECANCELED, "ended by a signal");
    if (p[0].revents)
        return 0;
    if (n == 0)
        return lm_err(err, -ETIMEDOUT,
                      "not done after %d s; allow more by --timeout",
                      b->g->timeout_ms / 1000);
    return lm_err(err, -ECHILD, "it ended before its guest was up");
}

/* --- what a peer's guest writes --------------------------------------------
 */

static void boot_take_marks(struct boot_live *b, const char *bytes, size_t n)
{
    double now_ms = boot_ms(b, util_now_ns());

    for (size_t i = 0; i < n; i++) {
        static const enum boot_point points[] = {
            [MOTE_MARK_KERNEL] = BOOT_KERNEL,
            [MOTE_MARK_INIT] = BOOT_INIT,
            [MOTE_MARK_ROOT] = BOOT_ROOT,
            [MOTE_MARK_READY] = BOOT_READY};

        if (bytes[i] >= MOTE_MARK_KERNEL && bytes[i] <= MOTE_MARK_READY &&
            b->r->at_ms[points[(size_t)bytes[i]]] < 0)
            b->r->at_ms[points[(size_t)bytes[i]]] = now_ms;
    }
}

/* Until the last point that this kind of peer can tell; an end of the peer
 * after /init is no failure: without vsock the agent does not go on. */
static int boot_listen_to_peer(struct boot_live *b, enum boot_kind kind,
                               struct mote_err *err)
{
    enum boot_point last = kind == BOOT_QEMU ? BOOT_READY : BOOT_INIT;
    char seen[8192];
    size_t used = 0;

    while (b->r->at_ms[last] < 0) {
        int rc = boot_wait(b, b->out_fd, POLLIN, err);
        ssize_t n;

        if (rc)
            return rc == -ECHILD && b->r->at_ms[BOOT_INIT] >= 0 ? 0 : rc;
        if (used == sizeof(seen) - 1) { /* keep what a word may straddle */
            memmove(seen, seen + used - 64, 64);
            used = 64;
        }
        n = read(b->out_fd, seen + used, sizeof(seen) - 1 - used);
        if (n <= 0)
            return b->r->at_ms[BOOT_INIT] >= 0
                       ? 0
                       : lm_err(err, -ECHILD,
                                "it ended before its guest was up");
        if (kind == BOOT_QEMU) {
            boot_take_marks(b, seen + used, (size_t)n);
            continue; /* nothing of it is kept */
        }
        used += (size_t)n;
        if (memmem(seen, used, BOOT_KVMTOOL_WORD, strlen(BOOT_KVMTOOL_WORD)))
            b->r->at_ms[BOOT_INIT] = boot_ms(b, util_now_ns());
    }
    return 0;
}

/* --- the monitor's process --------------------------------------------------
 */

static int boot_write_config(const struct boot_live *b, enum boot_kind kind,
                             struct mote_err *err)
{
    const struct mote_disk disk = {.path = b->g->root, .read_only = true};
    const struct mote_vm_params p = {.kernel = b->g->kernel,
                                     .initrd = b->g->initrd,
                                     .boot_args = boot_guest_words(kind),
                                     .disks = &disk,
                                     .disk_count = 1,
                                     .vcpus = b->g->cpus,
                                     .mem_bytes = b->g->mem_bytes};
    const struct lm_net net = LM_NET_NONE;
    CLEANUP_FREE char *text = lm_config_text(&p, &net, b->vsock);
    CLEANUP_FD int fd = -1;
    char path[64];
    int rc;

    if (!text)
        return lm_err_nomem(err);
    (void)snprintf(path, sizeof(path), "%s/config.json", b->dir);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    rc = fd < 0 ? neg_errno() : util_write_full(fd, text, strlen(text));
    return rc ? lm_err(err, rc, "%s: %s", path, err_reason(rc)) : 0;
}

/* What the monitor inherits; its numbers are those of boot_spawn(). */
struct boot_ends {
    int log_fd;
    int out_fd;
    int life_fd;
};

static int boot_open_ends(struct boot_live *b, struct boot_ends *e,
                          struct mote_err *err)
{
    char path[64];
    int ends[2];

    (void)snprintf(path, sizeof(path), "%s/log", b->dir);
    e->log_fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (e->log_fd < 0)
        return lm_err(err, neg_errno(), "%s: %s", path,
                      err_reason(neg_errno()));
    if (pipe2(ends, O_CLOEXEC) < 0)
        return lm_err(err, neg_errno(), "pipe: %s", err_reason(neg_errno()));
    b->out_fd = ends[0];
    e->out_fd = ends[1];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return lm_err(err, neg_errno(), "pipe: %s", err_reason(neg_errno()));
    e->life_fd = ends[0];
    b->lifeline_fd = ends[1];
    return 0;
}

static int boot_exec(struct boot_live *b, const struct boot_monitor *m,
                     const struct boot_ends *e, struct mote_err *err)
{
    struct boot_words *w = calloc(1, sizeof(*w));
    struct lm_spawn s = {.program = m->program,
                         .fds = {-1, e->out_fd, e->log_fd, e->life_fd},
                         .fd_count = BOOT_LIFELINE_FD + 1};
    int rc;

    if (!w)
        return lm_err_nomem(err);
    b->start_ns = util_now_ns();
    b->deadline_ns = lm_deadline(b->g->timeout_ms);
    rc = boot_words(w, m, b->g, b->dir, b->start_ns / 1000, err);
    s.words = w->v;
    if (rc == 0) {
        rc = lm_spawn(&s, &b->pid);
        if (rc)
            (void)lm_err(err, rc, "%s: %s", m->program, err_reason(rc));
    }
    free(w);
    return rc;
}

static int boot_spawn(struct boot_live *b, const struct boot_monitor *m,
                      struct mote_err *err)
{
    struct boot_ends e = {-1, -1, -1};
    int rc = boot_open_ends(b, &e, err);

    if (rc == 0)
        rc = boot_exec(b, m, &e, err);
    drop_fd(&e.log_fd);
    drop_fd(&e.out_fd);
    drop_fd(&e.life_fd);
    if (rc)
        return rc;
    b->pidfd = pidfd_open(b->pid, 0);
    return b->pidfd < 0 ? lm_err(err, neg_errno(), "pidfd_open: %s",
                                 err_reason(neg_errno()))
                        : 0;
}

/* The monitor may still have to write its exit file. */
static void boot_end(struct boot_live *b)
{
    struct pollfd p = {.fd = b->pidfd, .events = POLLIN};

    if (b->pid <= 0)
        return;
    (void)kill(b->pid, SIGTERM); /* not reaped yet: it is ours */
    if (b->pidfd < 0 || poll(&p, 1, BOOT_END_MS) <= 0)
        (void)kill(b->pid, SIGKILL);
    while (waitpid(b->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    b->pid = 0;
}

static int boot_read_report(struct boot_live *b, struct mote_err *err)
{
    char path[64];
    json_t *marks;
    json_t *mark;
    size_t i;

    (void)snprintf(path, sizeof(path), "%s/exit.json", b->dir);
    b->r->report = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    if (!b->r->report)
        return lm_err(err, -EPROTO, "mote-vmm: it left no exit file");
    b->r->at_ms[BOOT_CONFIGURED] =
        json_number_value(json_object_get(b->r->report, "configured_us")) / 1e3;
    b->r->at_ms[BOOT_KVM_RUN] =
        json_number_value(json_object_get(b->r->report, "first_run_us")) / 1e3;
    marks = json_object_get(b->r->report, "marks");
    json_array_foreach(marks, i, mark)
    {
        json_int_t id = json_integer_value(json_object_get(mark, "mark"));
        double ms = json_number_value(json_object_get(mark, "us")) / 1e3;
        double shift = ms - b->r->at_ms[BOOT_INIT];

        if (id == MOTE_MARK_KERNEL)
            b->r->at_ms[BOOT_KERNEL] = ms;
        if (id == MOTE_MARK_INIT && b->r->at_ms[BOOT_CLOCK] >= 0) {
            b->r->at_ms[BOOT_INIT] = ms;
            b->r->at_ms[BOOT_CLOCK] += shift;
        }
        if (id == MOTE_MARK_ROOT)
            b->r->at_ms[BOOT_ROOT] = ms;
    }
    return 0;
}

/* The last line that it said, for a boot that failed. */
static void boot_quote(const struct boot_live *b, const struct boot_monitor *m,
                       struct mote_err *err)
{
    static const char *const plain = "";
    CLEANUP_FREE char *line = NULL;
    char path[64];
    char why[sizeof(err->text)];
    size_t cap = 0;
    ssize_t n;
    ssize_t last = 0;
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/log", b->dir);
    (void)snprintf(why, sizeof(why), "%s", err ? err->text : plain);
    f = fopen(path, "re");
    while (f && (n = getline(&line, &cap, f)) > 0)
        last = n;
    if (f)
        (void)fclose(f);
    if (last > 0 && line[0]) {
        line[strcspn(line, "\n")] = '\0';
        for (char *c = line; *c; c++) {
            if ((unsigned char)*c < ' ' || *c == 127)
                *c = '?';
        }
    }
    if (err)
        (void)lm_err(err, err->rc, "%s: %.300s%s%.200s%s", m->name, why,
                     last > 0 ? " (it said: " : "",
                     last > 0 && line ? line : "", last > 0 ? ")" : "");
}

static void boot_remove(struct boot_live *b)
{
    static const char *const names[] = {"config.json", "exit.json", "log",
                                        "v.sock", "v.sock_1025"};
    char path[64];

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", b->dir, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(b->dir);
}

/* Between the directory's making and its removal. */
static int boot_in_dir(struct boot_live *b, const struct boot_monitor *m,
                       struct mote_err *err)
{
    bool talks = m->kind == BOOT_MOTE || m->kind == BOOT_FIRECRACKER;
    int rc = 0;

    if (talks)
        rc = boot_write_config(b, m->kind, err);
    if (rc == 0 && talks)
        rc = boot_listen(b, err);
    if (rc == 0)
        rc = boot_spawn(b, m, err);
    if (rc == 0)
        rc = talks ? boot_talk(b, err) : boot_listen_to_peer(b, m->kind, err);
    boot_end(b);
    if (rc == 0 && m->kind == BOOT_MOTE)
        rc = boot_read_report(b, err);
    if (rc && rc != -ECANCELED)
        boot_quote(b, m, err);
    return rc;
}

int boot_once(const struct boot_monitor *m, const struct boot_guest *g,
              struct boot_result *out, struct mote_err *err)
{
    struct boot_live b = {.g = g,
                          .r = out,
                          .dir = "/tmp/mote-boot-XXXXXX",
                          .pidfd = -1,
                          .out_fd = -1,
                          .listen_fd = -1,
                          .lifeline_fd = -1};
    int rc;

    out->report = NULL;
    for (size_t i = 0; i < BOOT_POINTS; i++)
        out->at_ms[i] = -1;
    if (!mkdtemp(b.dir))
        return lm_err(err, neg_errno(), "%s: %s", b.dir,
                      err_reason(neg_errno()));
    (void)snprintf(b.vsock, sizeof(b.vsock), "%s/v.sock", b.dir);
    rc = boot_in_dir(&b, m, err);
    drop_fd(&b.pidfd);
    drop_fd(&b.out_fd);
    drop_fd(&b.listen_fd);
    drop_fd(&b.lifeline_fd);
    boot_remove(&b);
    if (rc)
        boot_result_fini(out);
    return rc;
}

void boot_result_fini(struct boot_result *r)
{
    json_decref(r->report);
    r->report = NULL;
}
