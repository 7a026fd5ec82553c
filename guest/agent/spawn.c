/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "guest/agent/sys.h"

#define SPAWN_PATH                                                             \
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define SPAWN_DEFAULTS 5u /* variables that spawn_defaults may add */

/* ---- in the child ------------------------------------------------------- */

#define CALL(number, a, b, c, d)                                               \
    sys_call4((number), (long)(a), (long)(b), (long)(c), (long)(d))

/*
 * AddressSanitizer would mark the child's stack frames as off limits, and as
 * these functions never return the marks would stay when the agent uses that
 * memory again.
 */
#define IN_CHILD __attribute__((no_sanitize_address))

IN_CHILD static _Noreturn void spawn_fail(const struct spawn *s, int stage,
                                          long error)
{
    struct spawn_failure failure = {.stage = stage, .error = (int32_t)-error};

    (void)CALL(SYS_write, s->status_fd, &failure, sizeof(failure), 0);
    for (;;)
        (void)CALL(SYS_exit_group, 127, 0, 0, 0);
}

/* Session, descriptors and terminal. */
IN_CHILD static void spawn_child_files(const struct spawn *s)
{
    long err;

    (void)CALL(SYS_setsid, 0, 0, 0, 0); /* a fresh process can always */
    for (int i = 0; i < 3; i++) {
        err = CALL(SYS_dup2, s->fds[i], i, 0, 0);
        if (err < 0)
            spawn_fail(s, SPAWN_TERMINAL, err);
    }
    if (s->terminal) {
        err = CALL(SYS_ioctl, STDOUT_FILENO, TIOCSCTTY, 0, 0);
        if (err < 0)
            spawn_fail(s, SPAWN_TERMINAL, err);
    }
}

IN_CHILD static void spawn_child_limits(const struct spawn *s)
{
    for (size_t i = 0; i < s->limit_count; i++) {
        /* struct rlimit64 of the kernel: soft, then hard */
        uint64_t pair[2] = {s->limits[i].soft, s->limits[i].hard};
        long err = CALL(SYS_prlimit64, 0, s->limits[i].resource, pair, NULL);

        if (err < 0)
            spawn_fail(s, SPAWN_LIMITS, err);
    }
}

IN_CHILD static void spawn_child_user(const struct spawn *s)
{
    long err = CALL(SYS_setgroups, s->group_count, s->groups, 0, 0);

    if (err == 0)
        err = CALL(SYS_setresgid, s->gid, s->gid, s->gid, 0);
    if (err == 0)
        err = CALL(SYS_setresuid, s->uid, s->uid, s->uid, 0);
    if (err < 0)
        spawn_fail(s, SPAWN_USER, err);
}

/* Builds the next candidate of the search path; false after the last. */
IN_CHILD static bool spawn_child_next(const struct spawn *s, const char **at)
{
    char *to = s->candidate;
    const char *from = *at;

    if (!from)
        return false;
    while (*from && *from != ':')
        *to++ = *from++;
    if (to != s->candidate)
        *to++ = '/'; /* an empty entry is the current directory */
    for (const char *p = s->program; *p; p++)
        *to++ = *p;
    *to = 0;
    *at = *from ? from + 1 : NULL;
    return true;
}

IN_CHILD static bool spawn_child_exists(const char *path)
{
    return CALL(SYS_faccessat, AT_FDCWD, path, F_OK, 0) == 0;
}

IN_CHILD static _Noreturn void spawn_child_exec(const struct spawn *s)
{
    const char *at = s->search;
    long err = -ENOENT, last;

    if (!s->search) {
        err = CALL(SYS_execve, s->program, s->argv, s->envp, 0);
        if (err == -ENOENT && spawn_child_exists(s->program))
            spawn_fail(s, SPAWN_INTERPRETER, err);
        spawn_fail(s, SPAWN_EXEC, err);
    }
    while (spawn_child_next(s, &at)) {
        last = CALL(SYS_execve, s->candidate, s->argv, s->envp, 0);
        if (last == -ENOENT || last == -ENOTDIR)
            continue;
        err = last;
        if (last != -EACCES) /* as a shell: a later one may be allowed */
            break;
    }
    if (err == -ENOENT) {
        at = s->search;
        while (spawn_child_next(s, &at)) {
            if (spawn_child_exists(s->candidate))
                spawn_fail(s, SPAWN_INTERPRETER, err);
        }
    }
    spawn_fail(s, SPAWN_EXEC, err);
}

IN_CHILD static void spawn_child(void *arg)
{
    const struct spawn *s = arg;
    uint64_t no_signals = 0;
    long err;

    spawn_child_files(s);
    spawn_child_limits(s);
    if (s->has_umask)
        (void)CALL(SYS_umask, s->umask, 0, 0, 0);
    if (s->set_user)
        spawn_child_user(s);
    if (s->cwd) {
        err = CALL(SYS_chdir, s->cwd, 0, 0, 0);
        if (err < 0)
            spawn_fail(s, SPAWN_CWD, err);
    }
    (void)CALL(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, NULL,
               sizeof(no_signals));
    spawn_child_exec(s);
}

pid_t spawn_run(struct spawn *spawn, int cgroup_fd)
{
    struct clone_args args = {
        .flags = CLONE_VM,
        .exit_signal = SIGCHLD,
        .stack = (uint64_t)(uintptr_t)spawn->stack,
        .stack_size = sizeof(spawn->stack),
    };

    if (cgroup_fd >= 0) {
        args.flags |= (uint64_t)CLONE_INTO_CGROUP;
        args.cgroup = (unsigned int)cgroup_fd;
    }
    return (pid_t)sys_clone3(&args, sizeof(args), spawn_child, spawn);
}

/* ---- building ----------------------------------------------------------- */

/* Hands out the memory behind a struct spawn. */
struct spawn_arena {
    char **pointers;
    char *text;
};

static char *spawn_copy(struct spawn_arena *arena, const void *from,
                        size_t length)
{
    char *to = arena->text;

    memcpy(to, from, length);
    to[length] = 0;
    arena->text += length + 1;
    return to;
}

static char *spawn_variable(struct spawn_arena *arena, const char *name,
                            const char *value)
{
    char *to = spawn_copy(arena, name, strlen(name));

    arena->text[-1] = '='; /* in place of the NUL */
    (void)spawn_copy(arena, value, strlen(value));
    return to;
}

/* Copies all attributes of one type; a NULL ends the vector. */
static char **spawn_vector(struct spawn_arena *arena, const struct start *start,
                           uint16_t type, size_t spare)
{
    char **first = arena->pointers;
    struct codec_iter it;
    struct codec_attr a;

    codec_iter_init(&it, start->data, start->length);
    while (codec_iter_next(&it, &a) > 0) {
        if (a.type == type)
            *arena->pointers++ = spawn_copy(arena, a.value, a.length);
    }
    arena->pointers += spare + 1; /* which are NULL */
    return first;
}

static const char *spawn_getenv(char *const *envp, const char *name)
{
    size_t length = strlen(name);

    for (; *envp; envp++) {
        if (strncmp(*envp, name, length) == 0 && (*envp)[length] == '=')
            return *envp + length + 1;
    }
    return NULL;
}

/* Adds what a program expects and the request does not name. */
static void spawn_defaults(struct spawn_arena *arena, struct spawn *s,
                           const struct start *start, const struct user *user)
{
    const char *defaults[SPAWN_DEFAULTS][2] = {
        {"PATH", SPAWN_PATH}, {"HOME", user->home},       {"USER", user->name},
        {"LANG", "C.UTF-8"},  {"TERM", "xterm-256color"},
    };
    size_t count = start->want_pty ? SPAWN_DEFAULTS : SPAWN_DEFAULTS - 1;
    char **end = s->envp + start->env_count;

    for (size_t i = 0; i < count; i++) {
        if (spawn_getenv(s->envp, defaults[i][0]))
            continue;
        *end = spawn_variable(arena, defaults[i][0], defaults[i][1]);
        end++;
    }
}

static void spawn_user(struct spawn *s, const struct start *start,
                       const struct user *user, bool set_user)
{
    s->set_user = set_user;
    s->uid = user->uid;
    s->gid = user->gid;
    s->group_count = user->group_count;
    memcpy(s->groups, user->groups, sizeof(s->groups));
    if (start->group_count > 0) {
        s->set_user = true;
        s->group_count = start->group_count;
        for (size_t i = 0; i < start->group_count; i++)
            s->groups[i] = start->groups[i];
    }
}

/* Where the program is to be looked for, and room to put the paths together. */
static void spawn_search(struct spawn_arena *arena, struct spawn *s)
{
    if (!s->program || !*s->program || strchr(s->program, '/'))
        return;
    s->search = spawn_getenv(s->envp, "PATH");
    if (!s->search)
        s->search = SPAWN_PATH;
    s->candidate = arena->text;
}

void spawn_free(struct pool *pool, struct spawn *spawn)
{
    if (spawn)
        explicit_bzero(spawn + 1, spawn->tail_bytes);
    pool_put(pool, spawn);
}

struct spawn *spawn_new(struct pool *pool, const struct start *start,
                        const struct user *user, bool set_user)
{
    size_t pointers = start->arg_count + start->env_count + SPAWN_DEFAULTS + 2;
    /* All strings, the defaults, program and directory, and once more for
     * the candidate: a PATH and a program are among them. */
    size_t text = 2 * (start->text_bytes + start->program.length +
                       start->cwd.length + 1024);
    size_t tail = pointers * sizeof(char *) + text;
    struct spawn *s = pool_get(pool, sizeof(*s) + tail);
    struct spawn_arena arena;

    if (!s)
        return NULL;
    /* Not the stack between them: it is large, and needs no zeros. */
    memset(s, 0, offsetof(struct spawn, stack));
    arena.pointers = (char **)(s + 1);
    memset(arena.pointers, 0, pointers * sizeof(*arena.pointers));
    arena.text = (char *)(arena.pointers + pointers);
    s->argv = spawn_vector(&arena, start, MOTE_ATTR_ARG, 0);
    s->envp = spawn_vector(&arena, start, MOTE_ATTR_ENV, SPAWN_DEFAULTS);
    if (!start->env_bare)
        spawn_defaults(&arena, s, start, user);
    s->program = s->argv[0];
    if (start->program.value)
        s->program =
            spawn_copy(&arena, start->program.value, start->program.length);
    if (start->cwd.value)
        s->cwd = spawn_copy(&arena, start->cwd.value, start->cwd.length);
    spawn_search(&arena, s);
    spawn_user(s, start, user, set_user);
    s->has_umask = start->has_umask;
    s->umask = start->umask;
    s->limit_count = start->limit_count;
    memcpy(s->limits, start->limits, sizeof(s->limits));
    s->tail_bytes = (size_t)(arena.text - (char *)(s + 1));
    return s;
}

/* ---- words for failures ------------------------------------------------- */

static void spawn_explain_exec(const struct spawn *s, int stage, int error,
                               struct refusal *r)
{
    const char *why = NULL;
    uint32_t code = MOTE_ERR_NOT_EXECUTABLE;

    (void)refuse(r, code, 0, "cannot run '", s->program, "': ");
    r->errno_value = error;
    if (stage == SPAWN_INTERPRETER) {
        code = MOTE_ERR_NO_SUCH_PROGRAM;
        why = "the interpreter or loader that it names is missing";
    } else if (error == ENOENT || error == ENOTDIR) {
        code = MOTE_ERR_NO_SUCH_PROGRAM;
        why = s->search ? "not found in PATH; give its path or install it"
                        : "no such file";
    } else if (error == EACCES) {
        why = "not an executable file, or not permitted to this user";
    } else if (error == ENOEXEC) {
        why = "neither a program for this machine nor a script with #!";
    } else if (error == E2BIG) {
        code = MOTE_ERR_RESOURCE;
        why = "arguments and environment are too long for the kernel";
    } else if (error == ENOMEM || error == EAGAIN || error == EMFILE ||
               error == ENFILE) {
        code = MOTE_ERR_RESOURCE;
    }
    r->error = code;
    if (why)
        text_add(&r->text, why);
    else
        text_add_errno(&r->text, error);
}

void spawn_explain(const struct spawn *spawn,
                   const struct spawn_failure *failure, struct refusal *r)
{
    switch (failure->stage) {
    case SPAWN_TERMINAL:
        (void)refuse(r, MOTE_ERR_RESOURCE, failure->error,
                     "cannot set up the terminal", NULL, NULL);
        return;
    case SPAWN_LIMITS:
        (void)refuse(r, MOTE_ERR_BAD_REQUEST, failure->error,
                     "cannot set a resource limit", NULL, NULL);
        return;
    case SPAWN_USER:
        (void)refuse(r, MOTE_ERR_DENIED, failure->error,
                     "cannot change to the user", NULL, NULL);
        return;
    case SPAWN_CWD:
        (void)refuse(r, MOTE_ERR_BAD_CWD, failure->error, "working directory '",
                     spawn->cwd, "'");
        return;
    default:
        spawn_explain_exec(spawn, failure->stage, failure->error, r);
        return;
    }
}
