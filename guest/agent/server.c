/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/server.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/agent/cmd.h"
#include "guest/agent/conn.h"
#include "guest/agent/ops.h"
#include "guest/agent/restore.h"

#ifndef MOTE_VERSION
#define MOTE_VERSION "0.0.0"
#endif

#define SERVER_BACKLOG 128
/* How long a guest that could not start waits for the host to hear it. */
#define SERVER_LAST_WORDS_MS 1000

/* ---- small requests ----------------------------------------------------- */

static void server_refuse(struct conn *conn, const struct refusal *r)
{
    conn_fail(conn, r->error, r->errno_value, r->text.line);
}

static void server_ping(struct conn *conn, const uint8_t *data, size_t length)
{
    uint8_t bytes[MOTE_TOKEN_MAX + CODEC_HEADER];
    struct codec_writer w;
    struct codec_iter it;
    struct codec_attr a;
    struct refusal why;
    int got, err = 0;

    codec_writer_init(&w, bytes, sizeof(bytes));
    codec_iter_init(&it, data, length);
    while ((got = codec_iter_next(&it, &a)) > 0 && err == 0) {
        if (a.type == MOTE_ATTR_TOKEN)
            codec_put_bytes(&w, MOTE_ATTR_TOKEN, a.value, a.length);
        else if (a.required)
            err = -ENOENT;
    }
    if (w.overflow)
        err = -EMSGSIZE;
    if (got < 0 || err < 0) {
        (void)ops_refuse_attr(&why, "PING", err);
        server_refuse(conn, &why);
        return;
    }
    conn_send(conn, MOTE_T_OK, w.data, w.length);
}

/* The arguments as the process has them now; nothing if it is gone. */
static void server_put_args(struct codec_writer *w, pid_t pid)
{
    char bytes[2048];
    struct text path;
    ssize_t got;
    int fd;

    text_init(&path);
    text_add(&path, "/proc/");
    text_add_number(&path, (uint64_t)pid);
    text_add(&path, "/cmdline");
    fd = open(path.line, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    got = read(fd, bytes, sizeof(bytes));
    close(fd);
    for (ssize_t at = 0; at < got;) {
        size_t length = strnlen(bytes + at, (size_t)(got - at));

        codec_put_bytes(w, MOTE_ATTR_ARG, bytes + at, length);
        at += (ssize_t)length + 1;
    }
}

static void server_list(struct conn *conn)
{
    uint8_t bytes[4096];
    struct codec_writer w;

    for (struct cmd *cmd = conn->agent->cmds; cmd; cmd = cmd->next) {
        if (cmd->tree.reaped || cmd->failed)
            continue;
        codec_writer_init(&w, bytes, sizeof(bytes));
        codec_put_u32(&w, MOTE_ATTR_PID, (uint32_t)cmd->tree.pid);
        codec_put_u64(&w, MOTE_ATTR_START_NS, cmd->start_us * 1000u);
        if (cmd->tag[0])
            codec_put_text(&w, MOTE_ATTR_TAG, cmd->tag);
        server_put_args(&w, cmd->tree.pid);
        conn_send(conn, MOTE_T_ITEM, w.data, w.length);
    }
    conn_send(conn, MOTE_T_END, NULL, 0);
}

/* What SIGNAL and KILL carry. */
struct server_signal {
    uint32_t pid, signo;
    uint8_t scope;
};

static int server_parse_signal(const uint8_t *data, size_t length,
                               struct server_signal *out, struct refusal *r)
{
    struct codec_iter it;
    struct codec_attr a;
    int got, err = 0;

    *out = (struct server_signal){.scope = MOTE_SCOPE_PROCESS};
    codec_iter_init(&it, data, length);
    while ((got = codec_iter_next(&it, &a)) > 0 && err == 0) {
        if (a.type == MOTE_ATTR_PID)
            err = codec_attr_u32(&a, &out->pid);
        else if (a.type == MOTE_ATTR_SIGNAL)
            err = codec_attr_u32(&a, &out->signo);
        else if (a.type == MOTE_ATTR_SCOPE)
            err = codec_attr_u8(&a, &out->scope);
        else if (a.required)
            err = -ENOENT;
    }
    if (got < 0 || err < 0)
        return ops_refuse_attr(r, "SIGNAL", err);
    if (out->signo < 1 || out->signo > 64)
        return refuse(r, MOTE_ERR_BAD_REQUEST, 0,
                      "SIGNAL: signals have the numbers 1 to 64", NULL, NULL);
    if (out->scope < MOTE_SCOPE_PROCESS || out->scope > MOTE_SCOPE_TREE)
        return refuse(r, MOTE_ERR_BAD_REQUEST, 0,
                      "SIGNAL: neither process, group nor tree", NULL, NULL);
    return 0;
}

static int server_kill(struct agent *agent, const uint8_t *data, size_t length,
                       struct refusal *r)
{
    struct server_signal s;
    struct cmd *cmd;

    if (server_parse_signal(data, length, &s, r) < 0)
        return -1;
    cmd = cmd_find(agent, (pid_t)s.pid);
    if (!cmd)
        return refuse(r, MOTE_ERR_NOT_FOUND, 0,
                      "KILL: no command runs with this process id", NULL, NULL);
    cmd_signal(cmd, (int)s.signo, s.scope);
    return 0;
}

/* ---- dispatch ----------------------------------------------------------- */

static const char *server_unsupported(uint8_t type)
{
    if (type >= MOTE_T_STDIN)
        return "this frame belongs to an operation; none was started";
    return "this agent does not know the operation";
}

static void server_request(struct conn *conn, uint8_t type, uint8_t flags,
                           const uint8_t *data, size_t length)
{
    struct agent *agent = conn->agent;
    struct refusal why;
    int err;

    switch (type) {
    case MOTE_T_START:
        cmd_start(conn, data, length);
        return;
    case MOTE_T_PING:
        server_ping(conn, data, length);
        return;
    case MOTE_T_LIST:
        server_list(conn);
        return;
    case MOTE_T_RESTORE:
        restore_begin(conn, data, length);
        return;
    case MOTE_T_NET_CONFIG:
        err = net_config(agent, data, length, &why);
        break;
    case MOTE_T_CLOCK_SET:
        err = power_clock_set(agent, data, length, &why);
        break;
    case MOTE_T_POWER:
        err = power_request(agent, data, length, &why);
        break;
    case MOTE_T_KILL:
        err = server_kill(agent, data, length, &why);
        break;
    default:
        /* Requests and what follows them are never skipped; others are,
         * unless they must not be. */
        if (type > MOTE_T_ENTRY_IN && !(flags & MOTE_FRAME_REQUIRED))
            return;
        err = refuse(&why,
                     type >= MOTE_T_STDIN && type <= MOTE_T_RESIZE
                         ? MOTE_ERR_BAD_REQUEST
                         : MOTE_ERR_UNSUPPORTED,
                     0, server_unsupported(type), NULL, NULL);
        break;
    }
    if (err < 0)
        server_refuse(conn, &why);
    else
        conn_send(conn, MOTE_T_OK, NULL, 0);
}

static int server_resize(struct cmd *cmd, const uint8_t *data, size_t length,
                         struct refusal *r)
{
    struct mote_pty_size size = {0};
    struct codec_iter it;
    struct codec_attr a;
    int got, err = 0;

    codec_iter_init(&it, data, length);
    while ((got = codec_iter_next(&it, &a)) > 0 && err == 0) {
        if (a.type == MOTE_ATTR_PTY)
            err = codec_attr_pty(&a, &size);
        else if (a.required)
            err = -ENOENT;
    }
    if (got < 0 || err < 0)
        return ops_refuse_attr(r, "RESIZE", err);
    if (size.rows > 0 && size.columns > 0)
        cmd_resize(cmd, &size);
    return 0;
}

static void server_command(struct conn *conn, uint8_t type, uint8_t flags,
                           const uint8_t *data, size_t length)
{
    struct server_signal s;
    struct refusal why;
    int err = 0;

    switch (type) {
    case MOTE_T_STDIN_EOF:
        cmd_stdin_eof(conn->cmd);
        break;
    case MOTE_T_SIGNAL:
        err = server_parse_signal(data, length, &s, &why);
        if (err == 0)
            cmd_signal(conn->cmd, (int)s.signo, s.scope);
        break;
    case MOTE_T_RESIZE:
        err = server_resize(conn->cmd, data, length, &why);
        break;
    default:
        if (type >= MOTE_T_STDIN && !(flags & MOTE_FRAME_REQUIRED))
            break;
        err = refuse(&why, MOTE_ERR_PROTOCOL, 0,
                     "a command runs on this connection: open another", NULL,
                     NULL);
        break;
    }
    if (err < 0) {
        cmd_gone(conn);
        server_refuse(conn, &why);
    }
}

static void server_message(struct conn *conn, uint8_t type, uint8_t flags,
                           const uint8_t *data, size_t length)
{
    if (conn->state == CONN_COMMAND)
        server_command(conn, type, flags, data, length);
    else if (restore_waits(conn))
        conn_fail(conn, MOTE_ERR_PROTOCOL, 0,
                  "a RESTORE runs on this connection: wait for its OK");
    else
        server_request(conn, type, flags, data, length);
}

static void server_data(struct conn *conn, const uint8_t *data, size_t length)
{
    if (conn->state == CONN_COMMAND)
        cmd_data(conn, data, length);
    else
        conn_fail(conn, MOTE_ERR_BAD_REQUEST, 0,
                  server_unsupported(MOTE_T_STDIN));
}

static void server_gone(struct conn *conn)
{
    restore_gone(conn);
    cmd_gone(conn);
}

static const struct conn_ops server_ops = {
    .room = cmd_room,
    .message = server_message,
    .data = server_data,
    .gone = server_gone,
    .drained = cmd_drained,
};

/* ---- accepting ---------------------------------------------------------- */

union server_address {
    struct sockaddr any;
    struct sockaddr_vm vm;
    struct sockaddr_un un;
};

static socklen_t server_address(union server_address *out, const char *path,
                                unsigned int cid, unsigned int port)
{
    memset(out, 0, sizeof(*out));
    if (!path) {
        out->vm.svm_family = AF_VSOCK;
        out->vm.svm_cid = cid;
        out->vm.svm_port = port;
        return sizeof(out->vm);
    }
    out->un.sun_family = AF_UNIX;
    strncpy(out->un.sun_path, path, sizeof(out->un.sun_path) - 1);
    return sizeof(out->un);
}

static void server_accept(struct loop_source *source, uint32_t events)
{
    struct agent *agent =
        (struct agent *)((char *)source - offsetof(struct agent, listener));
    union server_address peer = {0};
    socklen_t length = sizeof(peer);
    int fd = accept4(source->fd, &peer.any, &length, SOCK_CLOEXEC);

    (void)events;
    if (fd < 0) {
        /* Out of descriptors: try again when one was closed. */
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
            (void)loop_watch(&agent->loop, source, 0);
        return;
    }
    /*
     * Where the kernel has vsock loopback, any program of the guest could
     * come in here and run commands as root: only the host may.
     */
    if (peer.any.sa_family == AF_VSOCK && peer.vm.svm_cid != MOTE_HOST_CID) {
        close(fd);
        return;
    }
    (void)conn_new(agent, &server_ops, fd);
}

int server_listen(struct agent *agent, const char *path)
{
    union server_address address;
    socklen_t length =
        server_address(&address, path, VMADDR_CID_ANY, MOTE_AGENT_PORT);
    int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    agent->listener.fd = fd;
    agent->listener.ready = server_accept;
    if (bind(fd, &address.any, length) < 0 || listen(fd, SERVER_BACKLOG) < 0)
        return -errno;
    return loop_watch(&agent->loop, &agent->listener, EPOLLIN);
}

/* ---- READY -------------------------------------------------------------- */

void server_ready(struct agent *agent, const char *path)
{
    union server_address address;
    socklen_t length =
        server_address(&address, path, MOTE_HOST_CID, MOTE_READY_PORT);
    uint8_t bytes[384];
    struct codec_writer w;
    struct utsname kernel;
    struct conn *conn;
    int fd;

    fd = socket(address.any.sa_family,
                SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (connect(fd, &address.any, length) < 0 && errno != EINPROGRESS) {
        close(fd);
        return;
    }
    conn = conn_new(agent, &server_ops, fd);
    if (!conn)
        return;
    codec_writer_init(&w, bytes, sizeof(bytes));
    codec_put_text(&w, MOTE_ATTR_AGENT, MOTE_VERSION);
    if (uname(&kernel) == 0)
        codec_put_text(&w, MOTE_ATTR_KERNEL, kernel.release);
    for (unsigned int i = 0; i < agent->mark_count; i++)
        codec_put_mark(&w, agent->marks[i].id, agent->marks[i].ns);
    conn_send(conn, MOTE_T_READY, w.data, w.length);
}

void server_not_ready(const char *line)
{
    union server_address address;
    socklen_t length =
        server_address(&address, NULL, MOTE_HOST_CID, MOTE_READY_PORT);
    uint8_t bytes[1024];
    struct codec_writer w;
    struct pollfd wait = {.events = POLLIN};

    wait.fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (wait.fd < 0)
        return;
    codec_hello_encode(bytes);
    codec_writer_init(&w, bytes + 2 * CODEC_HEADER,
                      sizeof(bytes) - 2 * CODEC_HEADER);
    codec_put_u32(&w, MOTE_ATTR_ERROR, MOTE_ERR_NOT_READY);
    codec_put_text(&w, MOTE_ATTR_TEXT, line);
    codec_frame_encode(bytes + CODEC_HEADER, MOTE_T_ERROR, 0,
                       (uint32_t)w.length);
    if (connect(wait.fd, &address.any, length) == 0 &&
        send(wait.fd, bytes, 2 * CODEC_HEADER + w.length, MSG_NOSIGNAL) > 0)
        (void)poll(&wait, 1, SERVER_LAST_WORDS_MS); /* its HELLO, or its end */
    close(wait.fd);
}

/* ---- the loop ----------------------------------------------------------- */

static void server_after_batch(void *arg)
{
    struct agent *agent = arg;

    conn_flush_all(agent);
    cmd_free_dead(agent);
    if (agent->listener.events == 0 && agent->closed_some)
        (void)loop_watch(&agent->loop, &agent->listener, EPOLLIN);
    agent->closed_some = false;
}

void server_run(struct agent *agent)
{
    loop_run(&agent->loop, server_after_batch, agent);
}
