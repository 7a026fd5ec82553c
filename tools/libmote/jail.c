/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/jail.h"

#include "tools/libmote/tap.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>

/*
 * Users for monitors: numbers that no distribution, no system service and no
 * container manager hands out (systemd's UIDS-GIDS leaves them free). Where
 * they do not exist, in a container, those of its dynamic users.
 */
#define JAIL_UID_FIRST  0x70000000u
#define JAIL_UID_COUNT  0x01000000u
#define JAIL_UID_FIRST2 61184u
#define JAIL_UID_COUNT2 4000u

/* --- who --------------------------------------------------------------------
 */

/* Whether this user namespace has all users of the range. */
static bool jail_have_users(uint32_t first, uint32_t count)
{
    FILE *f = fopen("/proc/self/uid_map", "re");
    unsigned inside = 0;
    unsigned outside = 0;
    unsigned n = 0;
    bool found = false;

    /* NOLINTNEXTLINE(cert-err34-c): the kernel wrote it */
    while (f && !found && fscanf(f, "%u %u %u", &inside, &outside, &n) == 3)
        found = inside <= first && n > first - inside &&
                n - (first - inside) >= count;
    if (f)
        (void)fclose(f);
    return found;
}

static int jail_tap_owner(const char *tap, struct lm_jail *out,
                          struct mote_err *err)
{
    long owner = lm_tap_owner(tap);

    if (owner == 0)
        return lm_err(err, -EPERM,
                      "TAP %s belongs to root (`ip tuntap add ... user N`)",
                      tap);
    if (owner > 0)
        out->uid = (uint32_t)owner;
    return 0;
}

int lm_jail_choose(const char *tap, struct lm_jail *out, struct mote_err *err)
{
    uint32_t first = JAIL_UID_FIRST;
    uint32_t count = JAIL_UID_COUNT;
    uint32_t random = 0;
    int rc;

    *out = (struct lm_jail){0};
    if (geteuid() != 0)
        return 0;
    if (!jail_have_users(first, count)) {
        first = JAIL_UID_FIRST2;
        count = JAIL_UID_COUNT2;
    }
    if (!jail_have_users(first, count))
        return lm_err(err, -EINVAL, "no users %u to %u in this user namespace",
                      first, first + count - 1);
    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return lm_err(err, -EIO, "no random number");
    out->uid = first + random % count;
    rc = tap ? jail_tap_owner(tap, out, err) : 0;
    out->gid = out->uid;
    return rc;
}

int lm_jail_give(const struct lm_jail *j, int dir_fd, const char *path,
                 struct mote_err *err)
{
    if (j->uid && fchownat(dir_fd, path, j->uid, j->gid, AT_SYMLINK_NOFOLLOW))
        return lm_err(err, neg_errno(), "%s: chown: %s", path,
                      err_reason(neg_errno()));
    return 0;
}

/* --- the process ------------------------------------------------------------
 */

#define JAIL_OWN_WORDS 24

struct jail_words {
    char program[MOTE_PATH_CAP];
    char uid[12];
    char gid[12];
    char pass[16];
    char report[12];
    const char *words[JAIL_OWN_WORDS + LM_LAUNCH_MAX_WORDS];
};

static int jail_make_words(const struct lm_launch *l, const struct lm_jail *j,
                           struct jail_words *w, struct mote_err *err)
{
    size_t last = 2 + l->fd_count;
    size_t n = 0;
    int rc = mote_find_file("mote-jail", w->program, err);

    if (rc)
        return rc;
    (void)snprintf(w->uid, sizeof(w->uid), "%u", j->uid);
    (void)snprintf(w->gid, sizeof(w->gid), "%u", j->gid);
    (void)snprintf(w->pass, sizeof(w->pass), "3-%zu", last);
    (void)snprintf(w->report, sizeof(w->report), "%zu", last + 1);
    w->words[n++] = "mote-jail";
    w->words[n++] = "--id";
    w->words[n++] = l->slot->id;
    w->words[n++] = "--exec-file";
    w->words[n++] = l->program;
    w->words[n++] = "--in-place";
    w->words[n++] = l->slot->run_path;
    w->words[n++] = "--report-fd";
    w->words[n++] = w->report;
    if (j->uid) {
        w->words[n++] = "--uid";
        w->words[n++] = w->uid;
        w->words[n++] = "--gid";
        w->words[n++] = w->gid;
    }
    if (!l->host_net)
        w->words[n++] = "--new-net-ns";
    if (l->fd_count) {
        w->words[n++] = "--pass-fd";
        w->words[n++] = w->pass;
    }
    w->words[n++] = "--";
    for (size_t i = 0; i < LM_LAUNCH_MAX_WORDS - 1 && l->words[i]; i++)
        w->words[n++] = l->words[i];
    w->words[n] = NULL;
    return 0;
}

/* What the jail has to say before the program runs; 0 if nothing. */
static int jail_listen(int report_fd, pid_t pid, struct mote_err *err)
{
    char text[512];
    size_t have = 0;
    ssize_t n;
    int status = 0;

    do {
        n = read(report_fd, text + have, sizeof(text) - 1 - have);
        if (n > 0)
            have += (size_t)n;
    } while (n > 0 || (n < 0 && errno == EINTR));
    if (have == 0)
        return 0;
    text[have] = '\0';
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return lm_err(err, -EPERM, "%s", text);
}

int lm_launch_jailed(const struct lm_launch *l, const struct lm_jail *j,
                     pid_t *out_pid, struct mote_err *err)
{
    struct lm_spawn s;
    CLEANUP_FREE struct jail_words *w = calloc(1, sizeof(*w));
    CLEANUP_FD int read_end = -1;
    CLEANUP_FD int write_end = -1;
    int ends[2];
    pid_t pid = 0;
    int rc = w ? jail_make_words(l, j, w, err) : lm_err_nomem(err);

    if (rc)
        return rc;
    rc = lm_launch_fds(l, &s);
    if (rc || s.fd_count == LM_SPAWN_MAX_FDS)
        return lm_err(err, -E2BIG, "too many files for a jail");
    if (pipe2(ends, O_CLOEXEC) < 0)
        return lm_err(err, neg_errno(), "pipe: %s", err_reason(neg_errno()));
    read_end = ends[0];
    write_end = ends[1];
    s.program = w->program;
    s.words = w->words;
    s.fds[s.fd_count++] = write_end;
    rc = lm_spawn(&s, &pid);
    if (rc)
        return lm_err(err, rc, "%s: cannot be started: %s", w->program,
                      err_reason(rc));
    drop_fd(&write_end);
    /* At once: memory is counted where it was first touched. */
    if (l->cgroup)
        rc = lm_cgroup_add(l->cgroup, pid);
    if (rc) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        return lm_err(err, rc, "control group: %s", err_reason(rc));
    }
    rc = jail_listen(read_end, pid, err);
    if (rc == 0)
        *out_pid = pid;
    return rc;
}

/* --- what a jailed monitor cannot find out
 * ------------------------------------
 */

/* The first line of a file of /proc without its end, or NULL; for free(). */
static char *jail_read_line(const char *path)
{
    char *line = NULL;
    size_t cap = 0;
    FILE *f = fopen(path, "re");
    ssize_t n = f ? getline(&line, &cap, f) : -1;

    if (f)
        (void)fclose(f);
    if (n < 0) {
        free(line);
        return NULL;
    }
    line[strcspn(line, "\n")] = '\0';
    return line;
}

/* The monitor's own cache: "<boot id> <kvm module> <ns>\n", see probe_x86.c. */
static int jail_read_ring0(unsigned *out_ns)
{
    const char *base = geteuid() == 0 ? "/run" : getenv("XDG_RUNTIME_DIR");
    CLEANUP_FREE char *line = NULL;
    CLEANUP_FREE char *boot = NULL;
    char module[64];
    char path[512];
    double ns = 0;

    if (!base || *base != '/')
        return -ENODATA;
    (void)snprintf(path, sizeof(path), "%s/mote/ring0", base);
    line = lm_read_file(AT_FDCWD, path, 160);
    boot = jail_read_line("/proc/sys/kernel/random/boot_id");
    if (!line || !boot || strlen(boot) < 36 || strncmp(line, boot, 36) != 0 ||
        line[36] != ' ' || sscanf(line + 37, "%63s %lf", module, &ns) != 2)
        return -ENODATA;
    /* It is another KVM if that module has gone meanwhile. */
    (void)snprintf(path, sizeof(path), "/sys/module/%s", module);
    if (access(path, F_OK) < 0 || ns < 0 || ns >= 1000000)
        return -ENODATA;
    *out_ns = (unsigned)ns + (ns > (unsigned)ns); /* no less */
    return 0;
}

int lm_jail_ring0(const char *program, unsigned *out_ns)
{
    const char *words[] = {"mote-vmm", "--probe", NULL};
    const struct lm_spawn s = {
        .program = program, .words = words, .fds = {-1, -1, -1}, .fd_count = 3};
    int status = 0;
    pid_t pid = 0;
    int rc = jail_read_ring0(out_ns);

    /* Once in a boot of the host: it leaves what it finds in the cache. */
    if (rc && lm_spawn(&s, &pid) == 0) {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        rc = jail_read_ring0(out_ns);
    }
    return rc;
}
