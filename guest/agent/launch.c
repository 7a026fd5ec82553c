/* SPDX-License-Identifier: Apache-2.0 */
/* START: from the request to a running struct cmd. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/agent/cmd.h"

/* The child's ends while they are being made; all -1 or open. */
struct launch {
    int child[3];
    int status;
};

static void launch_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void launch_close_all(const struct agent *agent, struct launch *l)
{
    if (l->child[0] == agent->null_fd)
        l->child[0] = -1;
    /* With a terminal several are one descriptor. */
    for (int i = 2; i >= 0; i--) {
        for (int j = 0; j < i; j++) {
            if (l->child[j] == l->child[i])
                l->child[i] = -1;
        }
        launch_close(&l->child[i]);
    }
    launch_close(&l->status);
}

/* A pipe of which only our end is non-blocking. `ours` is 0 to read. */
static int launch_pipe(int ours, int *out_ours, int *out_theirs)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    if (fcntl(fds[ours], F_SETFL, O_NONBLOCK) < 0) {
        int err = -errno;

        close(fds[0]);
        close(fds[1]);
        return err;
    }
    *out_ours = fds[ours];
    *out_theirs = fds[1 - ours];
    return 0;
}

static int launch_pipes(struct cmd *cmd, bool want_stdin, struct launch *l)
{
    int err = 0;

    l->child[0] = cmd->agent->null_fd;
    if (want_stdin)
        err = launch_pipe(1, &cmd->in.source.fd, &l->child[0]);
    for (int i = 0; i < 2 && err == 0; i++)
        err = launch_pipe(0, &cmd->out[i].source.fd, &l->child[i + 1]);
    return err;
}

static int launch_terminal_size(int fd, const struct mote_pty_size *size)
{
    struct winsize ws = {
        .ws_row = size->rows ? size->rows : 24,
        .ws_col = size->columns ? size->columns : 80,
        .ws_xpixel = size->width,
        .ws_ypixel = size->height,
    };

    return ioctl(fd, TIOCSWINSZ, &ws) < 0 ? -errno : 0;
}

/* The terminal belongs to the user: others like it open it by its name. */
static int launch_terminal(struct cmd *cmd, const struct start *start,
                           uid_t uid, struct launch *l)
{
    int unlock = 0, err, master;

    master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (master < 0)
        return -errno;
    cmd->out[0].source.fd = master;
    if (ioctl(master, TIOCSPTLCK, &unlock) < 0)
        return -errno;
    l->child[1] = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (l->child[1] < 0)
        return -errno;
    l->child[2] = l->child[1];
    if (uid != 0 && fchown(l->child[1], uid, (gid_t)-1) < 0)
        return -errno;
    err = launch_terminal_size(master, &start->pty);
    if (err < 0)
        return err;
    l->child[0] = l->child[1];
    /* A second descriptor, because epoll knows each only once. */
    cmd->in.source.fd = fcntl(master, F_DUPFD_CLOEXEC, 3);
    return cmd->in.source.fd < 0 ? -errno : 0;
}

static struct cmd *launch_new(struct agent *agent, const struct start *start)
{
    struct cmd *cmd = pool_get(&agent->pool, sizeof(*cmd));

    if (!cmd)
        return NULL;
    memset(cmd, 0, sizeof(*cmd));
    cmd->agent = agent;
    cmd->terminal = start->want_pty;
    cmd->detached = start->detached;
    cmd->grace_ms = start->grace_ms;
    cmd->start_us = loop_now_us();
    if (start->tag.value)
        memcpy(cmd->tag, start->tag.value, start->tag.length);
    cmd->tree.cgroup_fd = -1;
    cmd->status.cmd = cmd->clock.cmd = cmd->in.cmd = cmd;
    cmd->status.source.fd = cmd->in.source.fd = -1;
    for (int i = 0; i < 2; i++) {
        cmd->out[i].cmd = cmd;
        cmd->out[i].source.fd = -1;
        cmd->out[i].type = i == 0 ? MOTE_T_STDOUT : MOTE_T_STDERR;
    }
    return cmd;
}

static void launch_free(struct cmd *cmd)
{
    int fds[] = {cmd->status.source.fd, cmd->in.source.fd,
                 cmd->out[0].source.fd, cmd->out[1].source.fd};

    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        launch_close(&fds[i]);
    tree_release(cmd->agent, &cmd->tree);
    spawn_free(&cmd->agent->pool, cmd->spawn);
    pool_put(&cmd->agent->pool, cmd);
}

/* All descriptors, then the child. -errno on failure; `cmd` keeps what it
 * has. */
static int launch_run(struct cmd *cmd, const struct start *start,
                      struct launch *l)
{
    struct spawn *spawn = cmd->spawn;
    int err;

    err = launch_pipe(0, &cmd->status.source.fd, &l->status);
    if (err == 0 && start->want_pty)
        err = launch_terminal(cmd, start, spawn->uid, l);
    else if (err == 0)
        err = launch_pipes(cmd, start->want_stdin, l);
    if (err < 0)
        return err;
    memcpy(spawn->fds, l->child, sizeof(spawn->fds));
    spawn->status_fd = l->status;
    spawn->terminal = start->want_pty;
    tree_new(cmd->agent, &cmd->tree);
    cmd->tree.pid = spawn_run(spawn, cmd->tree.cgroup_fd);
    if (cmd->tree.pid < 0 && cmd->tree.cgroup_fd >= 0 &&
        cmd->tree.pid != -EAGAIN && cmd->tree.pid != -ENOMEM) {
        /* The guest's root may have spoilt the groups; commands still run. */
        tree_release(cmd->agent, &cmd->tree);
        cmd->tree.pid = spawn_run(spawn, -1);
    }
    return cmd->tree.pid < 0 ? cmd->tree.pid : 0;
}

/* The child runs: from here on failures are dealt with as its events. */
static void launch_watch(struct cmd *cmd, struct conn *conn, bool want_stdin,
                         uint64_t time_limit_ms)
{
    struct agent *agent = cmd->agent;
    int err;

    cmd_attach(cmd, conn);
    err = loop_watch(&agent->loop, &cmd->status.source, EPOLLIN);
    for (int i = 0; i < 2 && err == 0; i++) {
        if (cmd->out[i].source.fd >= 0)
            err = loop_watch(&agent->loop, &cmd->out[i].source, EPOLLIN);
    }
    /* Nobody types: a program that reads its terminal shall see the end. */
    if (cmd->terminal && !want_stdin)
        cmd_stdin_eof(cmd);
    if (time_limit_ms > 0)
        loop_arm(&agent->loop, &cmd->clock.timer, time_limit_ms);
    if (err < 0) /* epoll has no memory: the command cannot be followed */
        conn_vanish(conn);
}

void cmd_start(struct conn *conn, const uint8_t *data, size_t length)
{
    struct agent *agent = conn->agent;
    struct launch l = {{-1, -1, -1}, -1};
    struct refusal why;
    struct start start;
    struct user user;
    struct cmd *cmd;
    bool set_user = false;
    int err = -ENOMEM;

    user_root(&user);
    if (start_parse(data, length, &start, &why) < 0 ||
        (start.user.value && user_find((const char *)start.user.value,
                                       start.user.length, &user, &why) < 0)) {
        conn_fail(conn, why.error, why.errno_value, why.text.line);
        return;
    }
    if (start.user.value) /* PID 1 is root without groups already */
        set_user = !agent->is_init || user.uid != 0 || user.gid != 0 ||
                   user.group_count > 0;
    cmd = launch_new(agent, &start);
    if (cmd) {
        cmd->spawn = spawn_new(&agent->pool, &start, &user, set_user);
        if (cmd->spawn)
            err = launch_run(cmd, &start, &l);
    }
    launch_close_all(agent, &l);
    if (err < 0) {
        (void)refuse(&why, MOTE_ERR_RESOURCE, -err, "cannot start a process",
                     NULL, NULL);
        conn_fail(conn, why.error, why.errno_value, why.text.line);
        if (cmd)
            launch_free(cmd);
        return;
    }
    launch_watch(cmd, conn, start.want_stdin, start.time_limit_ms);
}
