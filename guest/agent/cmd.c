/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/cmd.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * What can be on its way in a terminal: Linux limits the buffer of a pty to
 * 8 KiB, the line discipline holds 4 KiB. FIONREAD does not see all of it, so
 * reading goes on until it is empty, and at most this far.
 */
#define CMD_TERMINAL_LEFT (64u << 10)

/* ---- the end ------------------------------------------------------------ */

static void cmd_maybe_dead(struct cmd *cmd)
{
    struct cmd **at = &cmd->agent->cmds;

    if (cmd->dead || cmd->conn || !cmd->tree.reaped ||
        cmd->status.source.fd >= 0 || cmd->out[0].source.fd >= 0 ||
        cmd->out[1].source.fd >= 0)
        return;
    cmd->dead = true;
    cmd->agent->closed_some = true;
    while (*at != cmd)
        at = &(*at)->next;
    *at = cmd->next;
    cmd->next = cmd->agent->dead_cmds;
    cmd->agent->dead_cmds = cmd;
}

void cmd_free_dead(struct agent *agent)
{
    while (agent->dead_cmds) {
        struct cmd *cmd = agent->dead_cmds;

        agent->dead_cmds = cmd->next;
        pool_put(&agent->pool, cmd->in.queue);
        spawn_free(&agent->pool, cmd->spawn);
        pool_put(&agent->pool, cmd);
    }
}

static void cmd_out_close(struct cmd_out *out)
{
    loop_close(&out->cmd->agent->loop, &out->source);
    out->left = 0;
}

static void cmd_in_close(struct cmd_in *in)
{
    loop_close(&in->cmd->agent->loop, &in->source);
    pool_put(&in->cmd->agent->pool, in->queue);
    in->queue = NULL;
    in->at = in->length = in->capacity = 0;
}

/* The operation is over for the host; what still runs is on its own. */
static void cmd_leave(struct cmd *cmd)
{
    struct conn *conn = cmd->conn;

    if (!conn)
        return;
    cmd->conn = NULL;
    conn->cmd = NULL;
    if (conn->state == CONN_COMMAND)
        conn->state = CONN_OVER;
    for (int i = 0; i < 2; i++) {
        if (cmd->out[i].source.fd >= 0 &&
            loop_watch(&cmd->agent->loop, &cmd->out[i].source, EPOLLIN) < 0)
            cmd_out_close(&cmd->out[i]);
    }
}

static void cmd_send_exit(struct cmd *cmd)
{
    uint8_t bytes[128];
    struct codec_writer w;
    struct mote_exit end = {.kind = MOTE_EXIT_CODE};
    struct mote_usage usage = {
        .user_us = (uint64_t)cmd->usage.ru_utime.tv_sec * 1000000u +
                   (uint64_t)cmd->usage.ru_utime.tv_usec,
        .system_us = (uint64_t)cmd->usage.ru_stime.tv_sec * 1000000u +
                     (uint64_t)cmd->usage.ru_stime.tv_usec,
        .max_rss_bytes = (uint64_t)cmd->usage.ru_maxrss * 1024u,
        .wall_us = loop_now_us() - cmd->start_us,
    };

    if (WIFSIGNALED(cmd->wait_status)) {
        end.kind = MOTE_EXIT_SIGNAL;
        end.value = (uint32_t)WTERMSIG(cmd->wait_status);
        if (WCOREDUMP(cmd->wait_status))
            end.flags |= MOTE_EXIT_CORE;
    } else {
        end.value = (uint32_t)WEXITSTATUS(cmd->wait_status);
    }
    if (cmd->timed_out)
        end.flags |= MOTE_EXIT_TIMED_OUT;
    codec_writer_init(&w, bytes, sizeof(bytes));
    codec_put_exit(&w, &end);
    codec_put_usage(&w, &usage);
    conn_send(cmd->conn, MOTE_T_EXIT, w.data, w.length);
}

/* ---- start-up report ---------------------------------------------------- */

/* Looks whether the exec was done, or failed. True once it is known. */
static bool cmd_check_status(struct cmd *cmd)
{
    struct spawn_failure failure;
    struct refusal why;
    uint8_t bytes[32];
    struct codec_writer w;
    ssize_t got;

    if (cmd->status.source.fd < 0)
        return true;
    got = read(cmd->status.source.fd, &failure, sizeof(failure));
    if (got < 0)
        return false;
    loop_close(&cmd->agent->loop, &cmd->status.source);
    if (got == sizeof(failure)) {
        cmd->failed = true;
        if (cmd->conn) {
            spawn_explain(cmd->spawn, &failure, &why);
            conn_fail(cmd->conn, why.error, why.errno_value, why.text.line);
        }
        cmd_leave(cmd);
    } else if (cmd->conn) {
        codec_writer_init(&w, bytes, sizeof(bytes));
        codec_put_u32(&w, MOTE_ATTR_PID, (uint32_t)cmd->tree.pid);
        conn_send(cmd->conn, MOTE_T_STARTED, w.data, w.length);
    }
    spawn_free(&cmd->agent->pool, cmd->spawn);
    cmd->spawn = NULL;
    cmd_maybe_dead(cmd);
    return true;
}

static void cmd_status_ready(struct loop_source *source, uint32_t events)
{
    (void)events;
    (void)cmd_check_status(((struct cmd_status *)source)->cmd);
}

/* ---- output ------------------------------------------------------------- */

/*
 * The end of an output. But closing our side of a terminal hangs it up: a
 * program that only closes its descriptors before it exits would die of
 * SIGHUP. Until it has ended it may also open /dev/tty again, which an edge
 * tells; the level would report the hang-up all the time.
 */
static void cmd_out_ended(struct cmd_out *out)
{
    struct cmd *cmd = out->cmd;

    out->left = 0;
    if (!cmd->terminal || cmd->tree.reaped ||
        loop_watch(&cmd->agent->loop, &out->source, EPOLLIN | EPOLLET) < 0)
        cmd_out_close(out);
}

/* Moves one piece. False when there is nothing to move now. */
static bool cmd_pump(struct cmd *cmd, struct cmd_out *out, size_t max)
{
    int got;

    if (cmd->conn) {
        got = conn_send_from(cmd->conn, out->type, out->source.fd, max);
    } else {
        got = (int)read(out->source.fd, cmd->agent->scratch, AGENT_CHUNK);
        got = got < 0 ? -errno : got;
    }
    if (got == -EAGAIN || got == -EINTR) {
        out->left = 0;
        return false;
    }
    if (got <= 0) { /* a terminal that nobody has open gives EIO */
        cmd_out_ended(out);
        return false;
    }
    if (out->source.events & EPOLLET) /* its terminal was opened again */
        (void)loop_watch(&cmd->agent->loop, &out->source, EPOLLIN);
    out->left -= out->left < (size_t)got ? out->left : (size_t)got;
    return true;
}

static void cmd_pause(struct cmd *cmd)
{
    for (int i = 0; i < 2; i++) {
        /* Ending to watch cannot fail. */
        if (cmd->out[i].source.fd >= 0)
            (void)loop_watch(&cmd->agent->loop, &cmd->out[i].source, 0);
    }
}

/* After the process ended: deliver the rest as far as the connection takes it,
 * then EXIT. */
static void cmd_finish(struct cmd *cmd)
{
    if (!cmd->tree.reaped || !cmd->conn)
        return;
    for (int i = 0; i < 2; i++) {
        struct cmd_out *out = &cmd->out[i];

        while (out->left > 0 && cmd->conn) {
            if (conn_full(cmd->conn)) {
                cmd_pause(cmd);
                return;
            }
            (void)cmd_pump(cmd, out, out->left);
        }
    }
    if (!cmd->conn) /* it broke while sending */
        return;
    cmd_send_exit(cmd);
    cmd_leave(cmd);
    cmd_maybe_dead(cmd);
}

static void cmd_out_ready(struct loop_source *source, uint32_t events)
{
    struct cmd_out *out = (struct cmd_out *)source;
    struct cmd *cmd = out->cmd;

    (void)events;
    if (!cmd_check_status(cmd) || source->fd < 0)
        return;
    if (cmd->tree.reaped && cmd->conn) {
        cmd_finish(cmd);
        return;
    }
    (void)cmd_pump(cmd, out, AGENT_CHUNK);
    if (cmd->conn && conn_full(cmd->conn))
        cmd_pause(cmd);
    cmd_maybe_dead(cmd);
}

void cmd_drained(struct conn *conn)
{
    struct cmd *cmd = conn->cmd;

    if (!cmd)
        return;
    for (int i = 0; i < 2; i++) {
        if (cmd->out[i].source.fd >= 0 &&
            loop_watch(&cmd->agent->loop, &cmd->out[i].source, EPOLLIN) < 0)
            cmd_out_close(&cmd->out[i]);
    }
    cmd_finish(cmd);
}

/* ---- standard input ----------------------------------------------------- */

size_t cmd_room(const struct conn *conn)
{
    const struct cmd_in *in = &conn->cmd->in;

    if (in->source.fd < 0)
        return AGENT_CHUNK; /* thrown away */
    return MOTE_STDIN_QUEUE - (in->length - in->at);
}

/* Writes what it takes; -1 when nobody reads any more. */
static ssize_t cmd_in_write(struct cmd_in *in, const uint8_t *data,
                            size_t length)
{
    ssize_t done = write(in->source.fd, data, length);

    if (done >= 0)
        return done;
    return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

/* Once the queue is empty and no more will come. */
static void cmd_in_end(struct cmd_in *in)
{
    static const uint8_t end_of_file = 4; /* control-D */

    if (!in->eof || in->at < in->length || in->source.fd < 0)
        return;
    /* A terminal has no end; its user types this. */
    if (in->cmd->terminal)
        (void)cmd_in_write(in, &end_of_file, 1);
    cmd_in_close(in);
}

static void cmd_in_ready(struct loop_source *source, uint32_t events)
{
    struct cmd_in *in = (struct cmd_in *)source;
    ssize_t done = cmd_in_write(in, in->queue + in->at, in->length - in->at);

    (void)events;
    if (done < 0) {
        cmd_in_close(in);
    } else {
        in->at += (size_t)done;
        if (in->at == in->length) {
            pool_put(&in->cmd->agent->pool, in->queue);
            in->queue = NULL;
            in->at = in->length = in->capacity = 0;
            (void)loop_watch(&in->cmd->agent->loop, source, 0);
            cmd_in_end(in);
        }
    }
    if (in->cmd->conn)
        conn_update(in->cmd->conn);
}

static bool cmd_in_queue(struct cmd_in *in, const uint8_t *data, size_t length)
{
    if (in->at > 0) {
        in->length -= in->at;
        memmove(in->queue, in->queue + in->at, in->length);
        in->at = 0;
    }
    if (in->length + length > in->capacity) {
        size_t capacity = in->capacity ? in->capacity : 4096;
        uint8_t *queue;

        while (capacity < in->length + length)
            capacity *= 2;
        queue =
            pool_grow(&in->cmd->agent->pool, in->queue, in->length, capacity);
        if (!queue)
            return false;
        in->queue = queue;
        in->capacity = capacity;
    }
    memcpy(in->queue + in->length, data, length);
    in->length += length;
    return true;
}

void cmd_data(struct conn *conn, const uint8_t *data, size_t length)
{
    struct cmd_in *in = &conn->cmd->in;
    ssize_t done = 0;

    if (in->source.fd < 0 || in->eof)
        return; /* not wanted, or closed by the command: like a pipe */
    if (in->length == 0)
        done = cmd_in_write(in, data, length);
    if (done < 0) {
        cmd_in_close(in);
        return;
    }
    if ((size_t)done == length)
        return;
    if (!cmd_in_queue(in, data + done, length - (size_t)done) ||
        loop_watch(&conn->agent->loop, &in->source, EPOLLOUT) < 0)
        cmd_in_close(in);
}

void cmd_stdin_eof(struct cmd *cmd)
{
    cmd->in.eof = true;
    cmd_in_end(&cmd->in);
}

/* ---- signals, limits, departure ----------------------------------------- */

void cmd_signal(struct cmd *cmd, int signo, uint8_t scope)
{
    if (scope == MOTE_SCOPE_TREE)
        tree_signal(&cmd->tree, signo);
    else if (!cmd->tree.reaped)
        kill(scope == MOTE_SCOPE_GROUP ? -cmd->tree.pid : cmd->tree.pid, signo);
}

void cmd_resize(struct cmd *cmd, const struct mote_pty_size *size)
{
    struct winsize ws = {
        .ws_row = size->rows,
        .ws_col = size->columns,
        .ws_xpixel = size->width,
        .ws_ypixel = size->height,
    };

    /* The kernel tells the foreground group, if the size is another. */
    if (cmd->terminal && cmd->out[0].source.fd >= 0)
        (void)ioctl(cmd->out[0].source.fd, TIOCSWINSZ, &ws);
}

/* The tree must go: politely first if a grace was asked for. */
static void cmd_end_tree(struct cmd *cmd)
{
    bool polite = cmd->grace_ms > 0 && !cmd->ending;

    cmd->ending = true;
    tree_signal(&cmd->tree, polite ? SIGTERM : SIGKILL);
    if (polite) {
        tree_signal(&cmd->tree, SIGCONT); /* a stopped one cannot obey */
        loop_arm(&cmd->agent->loop, &cmd->clock.timer, cmd->grace_ms);
    }
}

static void cmd_clock_fired(struct loop_timer *timer)
{
    struct cmd *cmd = ((struct cmd_clock *)timer)->cmd;

    if (!cmd->ending)
        cmd->timed_out = true;
    cmd_end_tree(cmd);
}

void cmd_gone(struct conn *conn)
{
    struct cmd *cmd = conn->cmd;

    if (!cmd)
        return;
    cmd_leave(cmd);
    if (conn->reset) { /* nobody went: it lives on, its input just waits */
        cmd_maybe_dead(cmd);
        return;
    }
    cmd->in.eof = true;
    cmd_in_end(&cmd->in);
    if (!cmd->detached && !cmd->tree.reaped) {
        loop_disarm(&cmd->agent->loop, &cmd->clock.timer);
        cmd_end_tree(cmd);
    }
    cmd_maybe_dead(cmd);
}

struct cmd *cmd_find(struct agent *agent, pid_t pid)
{
    struct cmd *cmd = agent->cmds;

    while (cmd && (cmd->tree.pid != pid || cmd->tree.reaped))
        cmd = cmd->next;
    return cmd;
}

void cmd_attach(struct cmd *cmd, struct conn *conn)
{
    struct agent *agent = cmd->agent;

    cmd->status.source.ready = cmd_status_ready;
    cmd->out[0].source.ready = cmd->out[1].source.ready = cmd_out_ready;
    cmd->in.source.ready = cmd_in_ready;
    cmd->clock.timer.fire = cmd_clock_fired;
    cmd->next = agent->cmds;
    agent->cmds = cmd;
    cmd->conn = conn;
    conn->cmd = cmd;
    conn->state = CONN_COMMAND;
}

/* How much of its output is still in the pipe or terminal. */
static size_t cmd_out_left(const struct cmd *cmd, const struct cmd_out *out)
{
    int bytes = 0;

    if (out->source.fd < 0)
        return 0;
    if (cmd->terminal)
        return CMD_TERMINAL_LEFT;
    if (ioctl(out->source.fd, FIONREAD, &bytes) < 0 || bytes < 0)
        return 0;
    return (size_t)bytes;
}

void cmd_reaped(struct agent *agent, pid_t pid, int wait_status,
                const struct rusage *usage)
{
    struct cmd *cmd = cmd_find(agent, pid);

    if (!cmd)
        return; /* an orphan of a command */
    cmd->tree.reaped = true;
    cmd->wait_status = wait_status;
    cmd->usage = *usage;
    loop_disarm(&agent->loop, &cmd->clock.timer);
    cmd_in_close(&cmd->in);
    if (cmd->ending)
        tree_signal(&cmd->tree, SIGKILL);
    for (int i = 0; i < 2; i++)
        cmd->out[i].left = cmd_out_left(cmd, &cmd->out[i]);
    tree_release(agent, &cmd->tree);
    (void)cmd_check_status(cmd); /* its end of the pipe is closed: known */
    cmd_finish(cmd);
    cmd_maybe_dead(cmd);
}
