/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/agent/text.h"

/* Rounds of looking for what was forked while the last round killed. */
#define TREE_ROUNDS 64
/* Sessions that one command's tree may consist of; more are left alive. */
#define TREE_SESSIONS 256

struct tree_process {
    pid_t pid, parent, session;
    bool member, zombie;
};

struct tree_scan {
    struct tree_process *list;
    size_t count, capacity;
    size_t session_count, victim_count, victim_capacity;
    pid_t own_session;
    pid_t *victims; /* signalled in an earlier round */
    pid_t sessions[TREE_SESSIONS];
};

/* ---- by /proc ----------------------------------------------------------- */

/* The next number after blanks; moves *at behind it. */
static int64_t tree_field(const char **at)
{
    const char *from = *at;
    size_t length;

    while (*from == ' ')
        from++;
    length = strspn(from, "0123456789");
    *at = from + length;
    return text_number(from, length, INT32_MAX);
}

/* proc(5): pid (comm) state ppid pgrp session ...; comm may hold anything. */
static bool tree_read(int proc_fd, const char *name, struct tree_process *out)
{
    struct text path;
    char stat[512];
    const char *at;
    ssize_t got;
    int fd;

    text_init(&path);
    text_add(&path, name);
    text_add(&path, "/stat");
    fd = openat(proc_fd, path.line, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    got = read(fd, stat, sizeof(stat) - 1);
    close(fd);
    if (got <= 0)
        return false;
    stat[got] = 0;
    at = strrchr(stat, ')');
    if (!at || at[1] != ' ' || at[2] == 0)
        return false;
    out->zombie = at[2] == 'Z' || at[2] == 'X';
    out->member = false;
    at += 3;
    out->pid = (pid_t)text_number(name, strlen(name), INT32_MAX);
    out->parent = (pid_t)tree_field(&at);
    (void)tree_field(&at); /* process group */
    out->session = (pid_t)tree_field(&at);
    return true;
}

static struct tree_process *tree_slot(struct tree_scan *scan)
{
    if (scan->count == scan->capacity) {
        size_t capacity = scan->capacity ? 2 * scan->capacity : 64;
        struct tree_process *list =
            realloc(scan->list, capacity * sizeof(*list));

        if (!list)
            return NULL;
        scan->list = list;
        scan->capacity = capacity;
    }
    return &scan->list[scan->count];
}

static void tree_collect(struct tree_scan *scan)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    scan->count = 0;
    if (!proc)
        return;
    while ((entry = readdir(proc))) {
        struct tree_process *slot;

        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        slot = tree_slot(scan);
        if (slot && tree_read(dirfd(proc), entry->d_name, slot))
            scan->count++;
    }
    closedir(proc);
}

static bool tree_has_member(const struct tree_scan *scan, pid_t pid)
{
    for (size_t i = 0; i < scan->count; i++) {
        if (scan->list[i].pid == pid)
            return scan->list[i].member;
    }
    return false;
}

static bool tree_has_session(const struct tree_scan *scan, pid_t session)
{
    for (size_t i = 0; i < scan->session_count; i++) {
        if (scan->sessions[i] == session)
            return true;
    }
    return false;
}

/* Remembered over the rounds: a killed parent no longer leads to its child. */
static void tree_add_session(struct tree_scan *scan, pid_t session)
{
    if (scan->session_count < TREE_SESSIONS && !tree_has_session(scan, session))
        scan->sessions[scan->session_count++] = session;
}

static void tree_mark(struct tree_scan *scan, const struct tree *tree)
{
    bool more = true;

    while (more) {
        more = false;
        for (size_t i = 0; i < scan->count; i++) {
            struct tree_process *p = &scan->list[i];

            /* A command starts in a session of its own, so that ours never
             * is among them. */
            if (p->member || p->pid == getpid())
                continue;
            p->member = tree_has_session(scan, p->session) ||
                        (!tree->reaped && p->pid == tree->pid) ||
                        tree_has_member(scan, p->parent);
            if (p->member && p->session != scan->own_session)
                tree_add_session(scan, p->session);
            more |= p->member;
        }
    }
}

/* True if it is new among the victims. */
static bool tree_add_victim(struct tree_scan *scan, pid_t pid)
{
    for (size_t i = 0; i < scan->victim_count; i++) {
        if (scan->victims[i] == pid)
            return false;
    }
    if (scan->victim_count == scan->victim_capacity) {
        size_t capacity = scan->victim_capacity + 64;
        pid_t *victims = realloc(scan->victims, capacity * sizeof(*victims));

        if (!victims)
            return false;
        scan->victims = victims;
        scan->victim_capacity = capacity;
    }
    scan->victims[scan->victim_count++] = pid;
    return true;
}

/* One round; true if somebody new was signalled. All are found before the
 * first is killed, as orphans cannot be traced. */
static bool tree_round(struct tree_scan *scan, const struct tree *tree,
                       int signo)
{
    bool more = false;

    tree_collect(scan);
    tree_mark(scan, tree);
    for (size_t i = 0; i < scan->count; i++) {
        const struct tree_process *p = &scan->list[i];

        if (p->member && !p->zombie && kill(p->pid, signo) == 0)
            more |= tree_add_victim(scan, p->pid);
    }
    return more;
}

static void tree_signal_proc(const struct tree *tree, int signo)
{
    struct tree_scan scan = {.own_session = getsid(0)};

    tree_add_session(&scan, tree->pid);
    for (int i = 0; i < TREE_ROUNDS; i++) {
        /* Only a killed process cannot fork behind our back. */
        if (!tree_round(&scan, tree, signo) || signo != SIGKILL)
            break;
    }
    if (scan.count == 0 && !tree->reaped) /* no /proc, or no memory */
        kill(-tree->pid, signo);
    free(scan.victims);
    free(scan.list);
}

/* ---- by cgroup ---------------------------------------------------------- */

static bool tree_write(int dir_fd, const char *name, const char *text)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC);
    bool done;

    if (fd < 0)
        return false;
    done = write(fd, text, strlen(text)) > 0;
    close(fd);
    return done;
}

/* Signals every process listed by the cgroup. */
static void tree_signal_cgroup(int cgroup_fd, int signo)
{
    int fd = openat(cgroup_fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    char bytes[1024];
    int64_t pid = 0;
    ssize_t got;

    if (fd < 0)
        return;
    while ((got = read(fd, bytes, sizeof(bytes))) > 0) {
        for (ssize_t i = 0; i < got; i++) {
            if (bytes[i] != '\n') {
                pid = pid * 10 + (bytes[i] - '0');
                continue;
            }
            if (pid > 1)
                kill((pid_t)pid, signo);
            pid = 0;
        }
    }
    close(fd);
}

void tree_signal(struct tree *tree, int signo)
{
    if (tree->cgroup_fd < 0) {
        tree_signal_proc(tree, signo);
        return;
    }
    if (signo == SIGKILL && tree_write(tree->cgroup_fd, "cgroup.kill", "1"))
        return;
    tree_signal_cgroup(tree->cgroup_fd, signo);
}

static void tree_name(char name[24], uint32_t number)
{
    struct text t;

    text_init(&t);
    text_add_number(&t, number);
    memcpy(name, t.line, t.length + 1);
}

void tree_init(struct agent *agent, const char *path)
{
    agent->cgroup_fd = -1;
    /* Where no cgroup file system is mounted, sysfs refuses to make it. */
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return;
    agent->cgroup_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

void tree_new(struct agent *agent, struct tree *tree)
{
    char name[24];

    tree->cgroup_fd = -1;
    if (agent->cgroup_fd < 0)
        return;
    tree->cgroup_number = agent->next_cgroup++;
    tree_name(name, tree->cgroup_number);
    if (mkdirat(agent->cgroup_fd, name, 0755) < 0)
        return;
    tree->cgroup_fd =
        openat(agent->cgroup_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tree->cgroup_fd < 0)
        unlinkat(agent->cgroup_fd, name, AT_REMOVEDIR);
}

/* Removes the cgroups below first: a command may have made some. */
static bool tree_remove(int parent_fd, const char *name, int depth)
{
    struct dirent *entry;
    DIR *dir;
    int fd;

    if (unlinkat(parent_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return true;
    if (depth == 0)
        return false;
    fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    while ((entry = readdir(dir))) {
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
            (void)tree_remove(dirfd(dir), entry->d_name, depth - 1);
    }
    closedir(dir);
    return unlinkat(parent_fd, name, AT_REMOVEDIR) == 0;
}

void tree_release(struct agent *agent, struct tree *tree)
{
    char name[24];

    if (tree->cgroup_fd < 0)
        return;
    close(tree->cgroup_fd);
    tree->cgroup_fd = -1;
    tree_name(name, tree->cgroup_number);
    if (unlinkat(agent->cgroup_fd, name, AT_REMOVEDIR) == 0)
        return;
    if (agent->left_cgroup_count == agent->left_cgroup_capacity) {
        size_t capacity = agent->left_cgroup_capacity + 64;
        uint32_t *list = realloc(agent->left_cgroups, capacity * sizeof(*list));

        if (!list)
            return; /* an empty directory stays: better than to fail */
        agent->left_cgroups = list;
        agent->left_cgroup_capacity = capacity;
    }
    agent->left_cgroups[agent->left_cgroup_count++] = tree->cgroup_number;
}

void tree_sweep(struct agent *agent)
{
    size_t kept = 0;

    for (size_t i = 0; i < agent->left_cgroup_count; i++) {
        char name[24];

        tree_name(name, agent->left_cgroups[i]);
        if (!tree_remove(agent->cgroup_fd, name, 4))
            agent->left_cgroups[kept++] = agent->left_cgroups[i];
    }
    agent->left_cgroup_count = kept;
}
