/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/restore.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/agent/identity.h"
#include "guest/agent/ops.h"
#include "guest/agent/restore_parse.h"
#include "guest/agent/spawn.h"
#include "guest/agent/tree.h"

#define RESTORE_HOOKS_MAX 64
#define RESTORE_HOOK_MS   30000u

struct restore {
    struct agent *agent;
    struct conn *conn; /* who waits for the answer, or NULL */
    bool again;        /* begin anew when the program at hand has ended */
    /* programs */
    char *names[RESTORE_HOOKS_MAX]; /* from malloc */
    size_t name_count, next;
    /* the one that runs; tree.pid is 0 if none does */
    struct tree tree;
    struct spawn *spawn;
    int status_fd;
    bool timed_out;
    struct loop_timer timer;
    /* the answer */
    struct codec_writer notes;
    uint8_t note_bytes[4096];
};

static void restore_next(struct restore *re);

/* ---- notes -------------------------------------------------------------- */

/* What does not fit is only in the log. */
static void restore_note(struct restore *re, struct text *line)
{
    text_log(line);
    if (re->notes.length + CODEC_HEADER + line->length <= re->notes.capacity)
        codec_put_text(&re->notes, MOTE_ATTR_NOTE, line->line);
}

static void restore_note_hook(struct restore *re, const char *what,
                              const char *why)
{
    struct text t;

    text_init(&t);
    text_add(&t, "restore.d/");
    text_add(&t, what);
    text_add(&t, ": ");
    text_add(&t, why);
    restore_note(re, &t);
}

/* ---- the programs ------------------------------------------------------- */

static int restore_by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool restore_is_program(int dir_fd, const char *name)
{
    struct stat st;

    return name[0] != '.' && fstatat(dir_fd, name, &st, 0) == 0 &&
           S_ISREG(st.st_mode) && (st.st_mode & 0111) != 0;
}

static void restore_forget_names(struct restore *re)
{
    while (re->name_count > 0)
        free(re->names[--re->name_count]);
    re->next = 0;
}

/* A directory that is not there has no programs. */
static void restore_list(struct restore *re)
{
    DIR *dir = opendir(re->agent->hook_dir);
    struct dirent *entry;

    restore_forget_names(re);
    if (!dir)
        return;
    while ((entry = readdir(dir))) {
        if (!restore_is_program(dirfd(dir), entry->d_name))
            continue;
        if (re->name_count < RESTORE_HOOKS_MAX)
            re->names[re->name_count] = strdup(entry->d_name);
        if (re->name_count == RESTORE_HOOKS_MAX || !re->names[re->name_count]) {
            restore_note_hook(re, entry->d_name, "one too many; not run");
            continue;
        }
        re->name_count++;
    }
    closedir(dir);
    qsort(re->names, re->name_count, sizeof(re->names[0]), restore_by_name);
}

/* Where they write to: the console of the machine. */
static int restore_console(const struct agent *agent)
{
    int fd = -1;

    if (!agent->is_init)
        return fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    fd = open("/dev/console", O_WRONLY | O_NOCTTY | O_CLOEXEC);
    return fd < 0 ? fcntl(agent->null_fd, F_DUPFD_CLOEXEC, 3) : fd;
}

/* A command of one argument, as a START would describe it. */
static struct spawn *restore_command(struct restore *re, const char *name)
{
    uint8_t bytes[512];
    struct codec_writer w;
    struct refusal why;
    struct start start;
    struct user user;
    struct text path;

    text_init(&path);
    text_add(&path, re->agent->hook_dir);
    text_add(&path, "/");
    text_add(&path, name);
    codec_writer_init(&w, bytes, sizeof(bytes));
    codec_put_text(&w, MOTE_ATTR_ARG, path.line);
    user_root(&user);
    if (w.overflow || start_parse(w.data, w.length, &start, &why) < 0)
        return NULL;
    return spawn_new(&re->agent->pool, &start, &user, false);
}

/* -errno on failure; then nothing of it is left. */
static int restore_spawn(struct restore *re, const char *name)
{
    struct agent *agent = re->agent;
    int console = restore_console(agent);
    int status[2] = {-1, -1};
    int err = -ENOMEM;

    re->spawn = restore_command(re, name);
    if (re->spawn && console >= 0 &&
        pipe2(status, O_CLOEXEC | O_NONBLOCK) == 0) {
        re->spawn->fds[0] = agent->null_fd;
        re->spawn->fds[1] = re->spawn->fds[2] = console;
        re->spawn->status_fd = status[1];
        tree_new(agent, &re->tree);
        re->tree.reaped = false;
        re->tree.pid = spawn_run(re->spawn, re->tree.cgroup_fd);
        err = re->tree.pid < 0 ? re->tree.pid : 0;
    }
    if (console >= 0)
        close(console);
    if (status[1] >= 0)
        close(status[1]);
    re->status_fd = status[0];
    if (err == 0)
        return 0;
    tree_release(agent, &re->tree);
    re->tree.pid = 0;
    spawn_free(&agent->pool, re->spawn);
    re->spawn = NULL;
    if (re->status_fd >= 0)
        close(re->status_fd);
    re->status_fd = -1;
    return err;
}

static void restore_late(struct loop_timer *timer)
{
    struct restore *re =
        (struct restore *)((char *)timer - offsetof(struct restore, timer));

    re->timed_out = true;
    tree_signal(&re->tree, SIGKILL);
}

static void restore_end(struct restore *re)
{
    struct agent *agent = re->agent;

    if (re->conn)
        conn_send(re->conn, MOTE_T_OK, re->notes.data, re->notes.length);
    restore_forget_names(re);
    agent->restore = NULL;
    pool_put(&agent->pool, re);
}

static void restore_next(struct restore *re)
{
    if (re->again) {
        re->again = false;
        restore_list(re);
    }
    while (re->next < re->name_count) {
        const char *name = re->names[re->next++];
        struct text t;
        int err = restore_spawn(re, name);

        if (err == 0) {
            re->timed_out = false;
            loop_arm(&re->agent->loop, &re->timer, RESTORE_HOOK_MS);
            return;
        }
        text_init(&t);
        text_add_errno(&t, -err);
        restore_note_hook(re, name, t.line);
    }
    restore_end(re);
}

/* How the program at hand ended, if not well. */
static void restore_judge(struct restore *re,
                          const struct spawn_failure *failed, int wait_status)
{
    const char *name = re->names[re->next - 1];
    struct refusal why;
    struct text t;

    text_init(&t);
    if (failed) {
        spawn_explain(re->spawn, failed, &why);
        text_add(&t, why.text.line);
    } else if (re->timed_out) {
        text_add(&t, "did not end in ");
        text_add_number(&t, RESTORE_HOOK_MS / 1000u);
        text_add(&t, " s; killed");
    } else if (WIFSIGNALED(wait_status)) {
        text_add(&t, "killed by signal ");
        text_add_number(&t, (uint64_t)WTERMSIG(wait_status));
    } else if (WEXITSTATUS(wait_status) != 0) {
        text_add(&t, "exit code ");
        text_add_number(&t, (uint64_t)WEXITSTATUS(wait_status));
    } else {
        return;
    }
    restore_note_hook(re, name, t.line);
}

bool restore_reaped(struct agent *agent, pid_t pid, int wait_status)
{
    struct restore *re = agent->restore;
    struct spawn_failure failure;
    bool failed;

    if (!re || re->tree.pid != pid)
        return false;
    loop_disarm(&agent->loop, &re->timer);
    failed = read(re->status_fd, &failure, sizeof(failure)) == sizeof(failure);
    close(re->status_fd);
    re->status_fd = -1;
    if (!re->again)
        restore_judge(re, failed ? &failure : NULL, wait_status);
    re->tree.reaped = true;
    re->tree.pid = 0;
    tree_release(agent, &re->tree);
    spawn_free(&agent->pool, re->spawn);
    re->spawn = NULL;
    restore_next(re);
    return true;
}

/* ---- the request -------------------------------------------------------- */

/* Nothing is done unless all of it can be read. */
static int restore_check(struct agent *agent, const uint8_t *data,
                         size_t length, struct restore_request *out,
                         struct refusal *r)
{
    int err = restore_parse(data, length, out);

    if (err == -EINVAL)
        return refuse(r, MOTE_ERR_BAD_REQUEST, 0, "RESTORE: no time", NULL,
                      NULL);
    if (err < 0)
        return ops_refuse_attr(r, "RESTORE", err);
    if (!agent->hook_dir)
        return refuse(r, MOTE_ERR_DENIED, 0,
                      "RESTORE: this agent is not PID 1 of a machine", NULL,
                      NULL);
    for (size_t i = 0; i < out->interface_count; i++) {
        if (net_renew(agent, out->interfaces[i].value,
                      out->interfaces[i].length, false, r) < 0)
            return -1;
    }
    return 0;
}

/* A test is no machine: there only the network and the programs are done. */
static int restore_identity(struct restore *re,
                            const struct restore_request *request,
                            struct refusal *r)
{
    struct text note;
    int err;

    if (!re->agent->is_init)
        return 0;
    err = power_set_clock(request->time_ns);
    if (err < 0)
        return refuse(r, MOTE_ERR_INTERNAL, -err, "RESTORE: wall clock", NULL,
                      NULL);
    if (request->seed.value)
        identity_seed(request->seed.value, request->seed.length);
    if (identity_boot_id(&note) < 0)
        restore_note(re, &note);
    if (request->hostname.value && request->hostname.length > 0 &&
        sethostname((const char *)request->hostname.value,
                    request->hostname.length) < 0)
        return refuse(r, MOTE_ERR_INTERNAL, errno, "RESTORE: host name", NULL,
                      NULL);
    return 0;
}

static int restore_apply(struct restore *re,
                         const struct restore_request *request,
                         struct refusal *r)
{
    int err = restore_identity(re, request, r);

    for (size_t i = 0; i < request->interface_count && err == 0; i++)
        err = net_renew(re->agent, request->interfaces[i].value,
                        request->interfaces[i].length, true, r);
    return err;
}

static struct restore *restore_new(struct agent *agent)
{
    struct restore *re = pool_get(&agent->pool, sizeof(*re));

    if (!re)
        return NULL;
    memset(re, 0, offsetof(struct restore, note_bytes));
    re->agent = agent;
    re->status_fd = re->tree.cgroup_fd = -1;
    re->timer.fire = restore_late;
    agent->restore = re;
    return re;
}

void restore_begin(struct conn *conn, const uint8_t *data, size_t length)
{
    struct agent *agent = conn->agent;
    struct restore *re = agent->restore;
    struct restore_request request;
    struct refusal why;

    if (restore_check(agent, data, length, &request, &why) < 0) {
        conn_fail(conn, why.error, why.errno_value, why.text.line);
        return;
    }
    if (re && re->conn) {
        conn_fail(conn, MOTE_ERR_BUSY, 0,
                  "RESTORE: another one is being carried out");
        return;
    }
    if (!re)
        re = restore_new(agent);
    if (!re) {
        conn_fail(conn, MOTE_ERR_RESOURCE, ENOMEM, "RESTORE: no memory");
        return;
    }
    re->again = true;
    re->conn = conn;
    codec_writer_init(&re->notes, re->note_bytes, sizeof(re->note_bytes));
    if (restore_apply(re, &request, &why) < 0) {
        re->conn = NULL;
        conn_fail(conn, why.error, why.errno_value, why.text.line);
        /* An earlier one goes on with its programs; ours was only this. */
        re->again = false;
        if (re->tree.pid == 0)
            restore_end(re);
        return;
    }
    if (re->tree.pid == 0)
        restore_next(re);
}

void restore_gone(struct conn *conn)
{
    if (restore_waits(conn))
        conn->agent->restore->conn = NULL;
}

bool restore_waits(const struct conn *conn)
{
    return conn->agent->restore && conn->agent->restore->conn == conn;
}
