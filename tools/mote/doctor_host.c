/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/doctor.h"

#include "tools/libmote/rundir.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <mntent.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define HOST_MEMORY_LOW (768 * MIB) /* one default guest and some room */

void check_set(struct check *c, enum check_status status, const char *remedy,
               const char *fmt, ...)
{
    va_list ap;

    c->status = status;
    (void)snprintf(c->remedy, sizeof(c->remedy), "%s", remedy);
    va_start(ap, fmt);
    (void)vsnprintf(c->detail, sizeof(c->detail), fmt, ap);
    va_end(ap);
}

void doctor_vsock(const struct doctor *d, struct check *c)
{
    (void)d;
    check_set(c, CHECK_OK, "",
              "not needed from the host: guests are reached by Unix sockets");
}

void doctor_tun(const struct doctor *d, struct check *c)
{
    CLEANUP_FD int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

    (void)d;
    if (fd >= 0)
        check_set(c, CHECK_OK, "", "/dev/net/tun: opens");
    else if (errno == ENOENT || errno == ENODEV)
        check_set(c, CHECK_WARNING,
                  "modprobe tun; only guests with a tap device need it",
                  "/dev/net/tun: not there");
    else
        check_set(c, CHECK_WARNING,
                  "chmod 0666 /dev/net/tun is the usual mode; only guests "
                  "with a tap device need it",
                  "/dev/net/tun: %s", err_reason(neg_errno()));
}

/* The first line of a small file of the kernel's, without its newline. */
static bool host_read_line(const char *path, char *out, size_t cap)
{
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(out, (int)cap, f) != NULL;

    if (ok)
        out[strcspn(out, "\n")] = '\0';
    if (f)
        (void)fclose(f);
    return ok;
}

void doctor_cgroup(const struct doctor *d, struct check *c)
{
    FILE *f = setmntent("/proc/self/mounts", "re");
    char path[512];
    char controllers[128] = "";
    struct mntent *m;
    unsigned v1 = 0;
    bool v2 = false;

    (void)d;
    while (f && (m = getmntent(f)) != NULL) {
        v1 += !strcmp(m->mnt_type, "cgroup");
        if (strcmp(m->mnt_type, "cgroup2") || v2)
            continue;
        v2 = true;
        (void)snprintf(path, sizeof(path), "%s/cgroup.controllers", m->mnt_dir);
        (void)host_read_line(path, controllers, sizeof(controllers));
    }
    if (f)
        (void)endmntent(f);
    if (v1)
        check_set(c, CHECK_OK, "",
                  "version 1 with %u hierarchies; version 2: %s", v1,
                  !v2              ? "not mounted"
                  : controllers[0] ? controllers
                                   : "no controllers");
    else if (v2)
        check_set(c, CHECK_OK, "", "version 2: %s; version 1: not mounted",
                  controllers[0] ? controllers : "no controllers");
    else
        check_set(c, CHECK_WARNING,
                  "mount cgroup2; without it machines cannot be limited",
                  "neither version 1 nor version 2 is mounted");
}

void doctor_userns(const struct doctor *d, struct check *c)
{
    int status = 0;
    pid_t pid = fork();

    (void)d;
    /* Only trying tells: half a dozen settings may forbid it. */
    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : errno & 0xff);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        check_set(c, CHECK_WARNING, "", "could not be tried");
    else if (WEXITSTATUS(status) == 0)
        check_set(c, CHECK_OK, "", "can be made by uid %u",
                  (unsigned)geteuid());
    else
        check_set(c, CHECK_WARNING,
                  "sysctl user.max_user_namespaces, "
                  "kernel.unprivileged_userns_clone or "
                  "kernel.apparmor_restrict_unprivileged_userns",
                  "cannot be made by uid %u: %s", (unsigned)geteuid(),
                  err_reason(-WEXITSTATUS(status)));
}

void doctor_memory(const struct doctor *d, struct check *c)
{
    FILE *f = fopen("/proc/meminfo", "re");
    unsigned long long total_kib = 0;
    unsigned long long free_kib = 0;
    char line[128];

    (void)d;
    while (f && fgets(line, sizeof(line), f)) {
        (void)sscanf(line, "MemTotal: %llu kB", &total_kib);
        (void)sscanf(line, "MemAvailable: %llu kB", &free_kib);
    }
    if (f)
        (void)fclose(f);
    if (total_kib == 0)
        check_set(c, CHECK_WARNING, "mount /proc", "/proc/meminfo: unreadable");
    else if (free_kib * KIB < HOST_MEMORY_LOW)
        check_set(c, CHECK_WARNING,
                  "end other programs, or give guests less with --mem",
                  "%llu of %llu MiB available", free_kib / 1024,
                  total_kib / 1024);
    else
        check_set(c, CHECK_OK, "", "%llu of %llu MiB available",
                  free_kib / 1024, total_kib / 1024);
}

void doctor_runtime_dir(const struct doctor *d, struct check *c)
{
    struct mote_err err = {0};
    struct lm_rundir rd;
    char *remedy;

    (void)d;
    if (lm_rundir_open(&rd, &err) == 0) {
        check_set(c, CHECK_OK, "", "%s", rd.path);
        lm_rundir_close(&rd);
        return;
    }
    remedy = strstr(err.text, "; ");
    if (remedy)
        *remedy = '\0';
    check_set(c, CHECK_ERROR, remedy ? remedy + 2 : "", "%s", err.text);
}
