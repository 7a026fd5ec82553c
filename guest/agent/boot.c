/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "guest/agent/ops.h"
#include "guest/agent/root.h"
#include "guest/agent/server.h"
#include "guest/agent/words.h"

/* ---- command line ------------------------------------------------------- */

static void boot_read_words(struct words *words)
{
    int fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t got = 0;

    memset(words, 0, offsetof(struct words, line)); /* not all of the line */
    if (fd >= 0) {
        got = read(fd, words->line, sizeof(words->line) - 1);
        close(fd);
    }
    words->line[got > 0 ? got : 0] = 0;
    words_parse(words);
}

/* ---- marks -------------------------------------------------------------- */

void boot_mark(struct agent *agent, uint32_t id)
{
    struct timespec now;
    uint8_t byte = (uint8_t)id;

    if (agent->mark_count == AGENT_MARKS_MAX)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    agent->marks[agent->mark_count].id = id;
    agent->marks[agent->mark_count].ns =
        (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    agent->mark_count++;
    if (agent->port_fd >= 0) /* nothing hangs on it */
        (void)!pwrite(agent->port_fd, &byte, 1, MOTE_MARK_PORT);
}

/* ---- mounts ------------------------------------------------------------- */

_Noreturn void boot_fail(struct text *why)
{
    text_log(why);
    server_not_ready(why->line);
    _exit(1);
}

/* 0, also if the kernel does not know the type; else it is in the log. */
static void boot_mount(const char *type, const char *where, unsigned long flags,
                       const char *options)
{
    struct text t;

    if (mount(type, where, type, flags, options) == 0)
        return;
    if (errno == ENOENT && mkdir(where, 0755) == 0 &&
        mount(type, where, type, flags, options) == 0)
        return;
    if (errno == ENODEV || errno == EBUSY)
        return;
    text_init(&t);
    text_add(&t, "cannot mount ");
    text_add(&t, where);
    text_add(&t, ": ");
    text_add_errno(&t, errno);
    text_log(&t);
}

static void boot_mounts(bool root_is_read_only)
{
    const unsigned long safe = MS_NOSUID | MS_NODEV;

    /* Without sysfs there is no place for cgroups, nor anybody to ask. */
    if (mount("sysfs", "/sys", "sysfs", safe | MS_NOEXEC, NULL) == 0)
        boot_mount("cgroup2", "/sys/fs/cgroup", safe | MS_NOEXEC, NULL);
    (void)mkdir("/dev/pts", 0755); /* in a fresh devtmpfs */
    boot_mount("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC,
               "gid=5,mode=620,ptmxmode=666");
    (void)mkdir("/dev/shm", 01777);
    boot_mount("tmpfs", "/dev/shm", safe, "mode=1777");
    boot_mount("tmpfs", "/run", safe, "mode=755");
    /* On a writable root the root's own: a disk has more room than RAM. */
    if (root_is_read_only)
        boot_mount("tmpfs", "/tmp", safe, "mode=1777");
    else if (mkdir("/tmp", 01777) == 0)
        (void)chmod("/tmp", 01777); /* made now: the umask cut it */
}

static void boot_links(void)
{
    static const char *const links[][2] = {
        {"/proc/self/fd", "/dev/fd"},
        {"/proc/self/fd/0", "/dev/stdin"},
        {"/proc/self/fd/1", "/dev/stdout"},
        {"/proc/self/fd/2", "/dev/stderr"},
    };

    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
        (void)!symlink(links[i][0], links[i][1]);
}

/* Links and FIFOs in /tmp that belong to others are not followed. */
static void boot_sysctl(void)
{
    static const char *const on[] = {
        "/proc/sys/fs/protected_symlinks",
        "/proc/sys/fs/protected_hardlinks",
        "/proc/sys/fs/protected_fifos",
        "/proc/sys/fs/protected_regular",
    };

    for (size_t i = 0; i < sizeof(on) / sizeof(on[0]); i++) {
        int fd = open(on[i], O_WRONLY | O_CLOEXEC);

        if (fd < 0)
            return; /* a kernel without sysctl */
        (void)!write(fd, "1", 1);
        close(fd);
    }
}

void boot_run(struct agent *agent)
{
    const unsigned long safe = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    struct words words;
    const char *hostname = "mote";
    bool read_only = false;

    (void)umask(022);
    boot_mount("proc", "/proc", safe, NULL);
    boot_mount("devtmpfs", "/dev", MS_NOSUID, "mode=755");
    boot_read_words(&words);
    if (words.marks) {
        agent->port_fd = open("/dev/port", O_WRONLY | O_CLOEXEC);
        agent->mark_count = 0; /* so that it hears of the first one too */
        boot_mark(agent, MOTE_MARK_INIT);
    }
    if (words.root) {
        root_enter(&words);
        read_only = !words.overlay && !words.writable;
    }
    boot_mark(agent, MOTE_MARK_ROOT);
    boot_mounts(read_only);
    boot_links();
    boot_sysctl();
    if (words.hostname)
        hostname = words.hostname;
    (void)sethostname(hostname, strlen(hostname));
    net_loopback();
}
