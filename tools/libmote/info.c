/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/mote.h"

#include "tools/libmote/chan.h"
#include "tools/libmote/launch.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/pidfd.h>
#include <time.h>

#define INFO_FILE_MAX     ((size_t)64 * 1024)
#define INFO_KILL_WAIT_MS 10000 /* a killed process needs far less */
#define INFO_POLL_NS      2000000

/* --- reading
 * -------------------------------------------------------------------- */

/* Fills *out from a slot's own description; false if there is none yet. */
static bool info_parse(const char *text, struct mote_vm_info *out)
{
    json_t *json = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const char *name = NULL;
    json_int_t mem = 0;
    json_int_t started = 0;
    int version = 0;
    int owner = 0;
    int monitor = 0;
    int vcpus = 0;
    int rc = json_unpack(json, "{s:i, s:s, s:i, s:i, s:i, s:I, s:I}", "version",
                         &version, "name", &name, "owner_pid", &owner,
                         "monitor_pid", &monitor, "vcpus", &vcpus, "mem_bytes",
                         &mem, "started_ms", &started);

    if (!rc) {
        (void)snprintf(out->name, sizeof(out->name), "%s", name);
        out->owner_pid = owner;
        out->monitor_pid = monitor;
        out->vcpus = (unsigned)vcpus;
        out->mem_bytes = (uint64_t)mem;
        out->started_ms = started;
        out->shared_owner = json_is_true(json_object_get(json, "shared_owner"));
    }
    json_decref(json);
    return rc == 0;
}

/* -ENOENT unless somebody lives in the slot and it describes itself. */
static int info_load(const struct lm_rundir *rd, const char *id,
                     struct mote_vm_info *out)
{
    CLEANUP_FREE char *text = NULL;
    CLEANUP_FD int dir =
        openat(rd->vm_fd, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    *out = (struct mote_vm_info){0};
    if (dir < 0 || !lm_slot_alive(rd, id))
        return -ENOENT;
    text = lm_read_file(dir, LM_INFO_FILE, INFO_FILE_MAX);
    if (!info_parse(text, out))
        return -ENOENT;
    (void)snprintf(out->id, sizeof(out->id), "%s", id);
    /* A monitor in a jail has its sockets in a directory of its own. */
    (void)snprintf(out->vsock_path, sizeof(out->vsock_path),
                   "%s/vm/%s/%s" LM_VSOCK_FILE, rd->path, id,
                   faccessat(dir, LM_RUN_DIR, F_OK, 0) == 0 ? LM_RUN_DIR "/"
                                                            : "");
    out->ready = faccessat(dir, LM_READY_FILE, F_OK, 0) == 0;
    return 0;
}

static int info_by_age(const void *a, const void *b)
{
    const struct mote_vm_info *x = a;
    const struct mote_vm_info *y = b;

    if (x->started_ms != y->started_ms)
        return x->started_ms < y->started_ms ? -1 : 1;
    return strcmp(x->id, y->id);
}

static int info_collect(const struct lm_rundir *rd, struct mote_vm_info **out,
                        size_t *out_count)
{
    CLEANUP_FREE struct mote_vm_info *list = NULL;
    CLEANUP_FD int fd =
        openat(rd->vm_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dirent *e;
    size_t count = 0;
    size_t cap = 0;
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

    if (!dir)
        return neg_errno();
    (void)take_fd(&fd);
    while ((e = readdir(dir)) != NULL) {
        if (count == cap) {
            struct mote_vm_info *p;

            cap = cap ? cap * 2 : 16;
            p = reallocarray(list, cap, sizeof(*list));
            if (!p) {
                (void)closedir(dir);
                return -ENOMEM;
            }
            list = p;
        }
        if (lm_id_valid(e->d_name) && !info_load(rd, e->d_name, &list[count]))
            count++;
    }
    (void)closedir(dir);
    if (count > 0)
        qsort(list, count, sizeof(*list), info_by_age);
    *out = take_ptr(list);
    *out_count = count;
    return 0;
}

int mote_list(struct mote_vm_info **out, size_t *out_count,
              struct mote_err *err)
{
    struct lm_rundir rd;
    int rc = lm_rundir_open(&rd, err);

    if (rc)
        return rc;
    lm_rundir_reap(&rd);
    rc = info_collect(&rd, out, out_count);
    if (rc)
        (void)lm_err(err, rc, "%s/vm: %s", rd.path, err_reason(rc));
    lm_rundir_close(&rd);
    return rc;
}

int mote_find(const char *name_or_id, struct mote_vm_info *out,
              struct mote_err *err)
{
    struct lm_rundir rd;
    char id[MOTE_ID_LEN + 1];
    int rc = lm_rundir_open(&rd, err);

    if (rc)
        return rc;
    rc = lm_rundir_lookup(&rd, name_or_id, id);
    if (!rc)
        rc = info_load(&rd, id, out);
    if (rc)
        (void)lm_err(err, rc,
                     "machine '%.80s': none of that name or id is running; "
                     "`mote ls` lists them",
                     name_or_id);
    lm_rundir_close(&rd);
    return rc;
}

/* --- waiting
 * --------------------------------------------------------------------- */

/* The owner as a pidfd, so that a reused pid is never taken for it. */
static int info_owner(const struct mote_vm_info *info, int *out_pidfd,
                      struct mote_err *err)
{
    CLEANUP_FD int fd = pidfd_open(info->owner_pid, 0);
    struct mote_vm_info now;
    int rc;

    if (fd < 0)
        return lm_err(err, -ESRCH, "machine %s: has ended", info->id);
    /*
     * It had the lock after the pidfd was made, and the description that
     * names the pid is the lock holder's: the pidfd is the holder's.
     */
    rc = mote_find(info->id, &now, err);
    if (rc || now.owner_pid != info->owner_pid)
        return lm_err(err, -ESRCH, "machine %s: has ended", info->id);
    *out_pidfd = take_fd(&fd);
    return 0;
}

/* Reads away what inotify has to say; the state is looked at afresh. */
static void info_drain(int fd)
{
    char buf[4096] __attribute__((aligned(__alignof__(struct inotify_event))));

    while (read(fd, buf, sizeof(buf)) > 0)
        ;
}

static int info_watch(const struct mote_vm_info *info, int *out_fd,
                      struct mote_err *err)
{
    CLEANUP_FD int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    char dir[sizeof(info->vsock_path)];
    char *slash;
    int rc;

    (void)snprintf(dir, sizeof(dir), "%s", info->vsock_path);
    /* Up to the slot, which has the file that appears. */
    slash = strrchr(dir, '/');
    if (slash)
        *slash = '\0';
    slash = strrchr(dir, '/');
    if (slash && !strcmp(slash + 1, LM_RUN_DIR))
        *slash = '\0';
    if (fd < 0 || inotify_add_watch(fd, dir, IN_MOVED_TO | IN_ONLYDIR) < 0) {
        rc = neg_errno();
        if (rc == -ENOENT)
            return lm_err(err, -ECHILD, "machine %s: has ended", info->id);
        return lm_err(err, rc, "%s: cannot be watched: %s", dir,
                      err_reason(rc));
    }
    *out_fd = take_fd(&fd);
    return 0;
}

int mote_wait_ready(const struct mote_vm_info *info, int timeout_ms,
                    int cancel_fd, struct mote_err *err)
{
    uint64_t deadline_ns = lm_deadline(timeout_ms);
    CLEANUP_FD int owner = -1;
    CLEANUP_FD int watch = -1;
    int rc = info->ready ? 0 : info_owner(info, &owner, err);

    if (rc || info->ready)
        return rc == -ESRCH ? -ECHILD : rc;
    rc = info_watch(info, &watch, err);
    if (rc)
        return rc;
    for (;;) {
        struct pollfd p[] = {{.fd = watch, .events = POLLIN},
                             {.fd = owner, .events = POLLIN},
                             {.fd = cancel_fd, .events = POLLIN}};
        struct mote_vm_info now;
        int n;

        info_drain(watch);
        rc = mote_find(info->id, &now, err);
        if (rc)
            return lm_err(err, -ECHILD, "machine %s: has ended", info->id);
        if (now.ready)
            return 0;
        n = poll(p, ARRAY_SIZE(p), lm_poll_timeout(deadline_ns));
        if (n == 0)
            return lm_err(err, -ETIMEDOUT,
                          "machine %s: not ready after %d s; look at its "
                          "console, or allow it more time",
                          info->id, timeout_ms / 1000);
        if (n > 0 && p[2].revents)
            return lm_err(err, -ECANCELED, "machine %s: the wait was cancelled",
                          info->id);
        if (n > 0 && p[1].revents)
            return lm_err(err, -ECHILD, "machine %s: has ended", info->id);
    }
}

/* --- ending
 * ----------------------------------------------------------------------- */

static int info_signal(int pidfd, int signo, int timeout_ms)
{
    if (pidfd_send_signal(pidfd, signo, NULL, 0) < 0 && errno != ESRCH)
        return neg_errno();
    return lm_wait_fd(pidfd, POLLIN, lm_deadline(timeout_ms), -1);
}

static int info_stop_owner(const struct mote_vm_info *info, int timeout_ms,
                           struct mote_err *err)
{
    CLEANUP_FD int owner = -1;
    CLEANUP_FD int monitor = -1;
    struct lm_rundir rd;
    int rc = info_owner(info, &owner, err);

    if (rc)
        return rc;
    monitor = pidfd_open(info->monitor_pid, 0);
    rc = -ETIMEDOUT;
    if (timeout_ms > 0)
        rc = info_signal(owner, SIGTERM, timeout_ms);
    if (rc == -ETIMEDOUT)
        rc = info_signal(owner, SIGKILL, INFO_KILL_WAIT_MS);
    if (rc)
        return lm_err(err, rc, "machine %s: cannot be ended: %s", info->id,
                      err_reason(rc));
    /* A monitor whose owner was killed ends by itself, its lifeline is cut. */
    if (monitor >= 0)
        (void)!lm_wait_fd(monitor, POLLIN, lm_deadline(INFO_KILL_WAIT_MS), -1);
    if (lm_rundir_open(&rd, NULL) == 0) {
        lm_rundir_reap(&rd);
        lm_rundir_close(&rd);
    }
    return 0;
}

/* Its owner keeps others: so the monitor is told, and the owner sees its end.
 * The same pidfd reasoning as for an owner: the pid is the lock holder's
 * child. */
static int info_stop_shared(const struct mote_vm_info *info, int timeout_ms,
                            struct mote_err *err)
{
    CLEANUP_FD int monitor = pidfd_open(info->monitor_pid, 0);
    uint64_t deadline_ns = lm_deadline(INFO_KILL_WAIT_MS);
    const struct timespec pause = {0, INFO_POLL_NS};
    struct mote_vm_info now;
    int rc = mote_find(info->id, &now, err);

    if (monitor < 0 || rc || now.monitor_pid != info->monitor_pid)
        return lm_err(err, -ESRCH, "machine %s: has ended", info->id);
    rc = -ETIMEDOUT;
    if (timeout_ms > 0)
        rc = info_signal(monitor, SIGTERM, timeout_ms);
    if (rc == -ETIMEDOUT)
        rc = info_signal(monitor, SIGKILL, INFO_KILL_WAIT_MS);
    while (rc == 0 && mote_find(info->id, &now, NULL) == 0) {
        if (util_now_ns() > deadline_ns)
            rc = -ETIMEDOUT;
        (void)nanosleep(&pause, NULL);
    }
    return rc ? lm_err(err, rc, "machine %s: cannot be ended: %s", info->id,
                       err_reason(rc))
              : 0;
}

int mote_stop(const struct mote_vm_info *info, int timeout_ms,
              struct mote_err *err)
{
    if (info->shared_owner)
        return info_stop_shared(info, timeout_ms, err);
    return info_stop_owner(info, timeout_ms, err);
}
