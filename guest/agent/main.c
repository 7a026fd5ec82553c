/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mote-agent: PID 1 of the guest. Reading order: main, boot, root; then
 * server, conn, launch, spawn, cmd, tree.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/agent/boot.h"
#include "guest/agent/cmd.h"
#include "guest/agent/restore.h"
#include "guest/agent/server.h"
#include "guest/agent/tree.h"

/* What commands inherit: tools that open thousands of files are common. */
#define MAIN_FILES_SOFT 65536u
#define MAIN_FILES_HARD 1048576u

static const char main_usage[] =
    "usage: mote-agent --test-socket PATH [OPTION]...\n"
    "Runs as PID 1 of a guest; with --test-socket as an ordinary program that\n"
    "serves the agent protocol on a Unix socket.\n"
    "  --test-ready PATH  Unix socket to send READY to\n"
    "  --test-cgroups DIR make the commands' cgroups in DIR (version 2)\n"
    "  --test-net         allow NET_CONFIG (in a network namespace of yours)\n"
    "  --test-restore DIR allow RESTORE, with the programs of DIR\n"
    "  --test-reset       take ECONNRESET for a restored machine's reset\n";

struct main_options {
    const char *socket, *ready, *cgroups, *hooks;
    bool net, reset;
};

static bool main_parse(int argc, char **argv, struct main_options *out)
{
    memset(out, 0, sizeof(*out));
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--test-net") == 0)
            out->net = true;
        else if (strcmp(argv[i], "--test-reset") == 0)
            out->reset = true;
        else if (strcmp(argv[i], "--test-restore") == 0 && i + 1 < argc)
            out->hooks = argv[++i];
        else if (strcmp(argv[i], "--test-socket") == 0 && i + 1 < argc)
            out->socket = argv[++i];
        else if (strcmp(argv[i], "--test-ready") == 0 && i + 1 < argc)
            out->ready = argv[++i];
        else if (strcmp(argv[i], "--test-cgroups") == 0 && i + 1 < argc)
            out->cgroups = argv[++i];
        else
            return false;
    }
    return out->socket && strlen(out->socket) <= 107;
}

/* ---- children ----------------------------------------------------------- */

static void main_reap(struct loop_source *source, uint32_t events)
{
    struct agent *agent =
        (struct agent *)((char *)source - offsetof(struct agent, sigchld));
    struct signalfd_siginfo info;
    struct rusage usage;
    int status;
    pid_t pid;

    (void)events;
    (void)!read(source->fd, &info, sizeof(info));
    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        if (!restore_reaped(agent, pid, status))
            cmd_reaped(agent, pid, status, &usage);
    }
    if (agent->left_cgroup_count > 0)
        tree_sweep(agent);
}

/*
 * Ignored signals would stay ignored in commands; PID 1 has none. By the raw
 * call: libc keeps 32 to 34 to itself, and programs that were started by
 * glibc's posix_spawn (so by make) have two of them ignored.
 */
static void main_default_signals(void)
{
    /* The kernel's struct sigaction: handler, flags, restorer, mask. */
    static const uint64_t dflt[4];

    for (long sig = 1; sig < NSIG; sig++)
        (void)syscall(SYS_rt_sigaction, sig, dflt, NULL, sizeof(dflt[3]));
}

/* Signals wait; children are told of by a descriptor. PID 1 has no use for
 * any other, a test wants to be stopped. */
static int main_signals(struct agent *agent)
{
    sigset_t blocked, children;

    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigfillset(&blocked);
    if (!agent->is_init) {
        blocked = children;
        sigaddset(&blocked, SIGPIPE);
        main_default_signals();
        (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    }
    if (sigprocmask(SIG_BLOCK, &blocked, NULL) < 0)
        return -errno;
    agent->sigchld.fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    if (agent->sigchld.fd < 0)
        return -errno;
    agent->sigchld.ready = main_reap;
    return loop_watch(&agent->loop, &agent->sigchld, EPOLLIN);
}

/* ---- start -------------------------------------------------------------- */

static int main_prepare(struct agent *agent)
{
    struct rlimit files = {
        .rlim_cur = MAIN_FILES_SOFT,
        .rlim_max = MAIN_FILES_HARD,
    };
    int err;

    if (setrlimit(RLIMIT_NOFILE, &files) < 0 &&
        getrlimit(RLIMIT_NOFILE, &files) == 0) {
        /* A test that may not raise it: as much as it has. */
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    /* Standard descriptors must be taken: a child's are set up in order. */
    do {
        agent->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (agent->null_fd >= 0 && agent->null_fd <= 2 &&
             fcntl(agent->null_fd, F_SETFD, 0) == 0);
    if (agent->null_fd < 0)
        return -errno;
    err = loop_init(&agent->loop);
    return err < 0 ? err : main_signals(agent);
}

static _Noreturn void main_fail(const struct agent *agent, const char *what,
                                int err)
{
    struct text t;

    text_init(&t);
    text_add(&t, what);
    text_add(&t, ": ");
    text_add_errno(&t, -err);
    if (agent->is_init)
        boot_fail(&t);
    text_log(&t);
    _exit(1);
}

int main(int argc, char **argv)
{
    static struct agent agent; /* zeroed, and its buffers cost nothing yet */
    struct main_options options = {0};
    int err;

    agent.port_fd = agent.cgroup_fd = agent.listener.fd = -1;
    boot_mark(&agent, MOTE_MARK_INIT);
    /* The kernel gives init the words of the command line it has no use
     * for; only our own option makes this anything but PID 1 of a guest. */
    agent.is_init =
        getpid() == 1 && !(argc > 1 && strncmp(argv[1], "--test", 6) == 0);
    if (!agent.is_init && !main_parse(argc, argv, &options)) {
        (void)!write(STDERR_FILENO, main_usage, sizeof(main_usage) - 1);
        return 2;
    }
    agent.may_net = agent.is_init || options.net;
    agent.hook_dir = agent.is_init ? RESTORE_HOOKS : options.hooks;
    agent.reset_is_restore = options.reset;
    if (agent.is_init)
        boot_run(&agent);
    err = main_prepare(&agent);
    if (err < 0)
        main_fail(&agent, "cannot set up the event loop", err);
    if (agent.is_init || options.cgroups)
        tree_init(&agent, agent.is_init ? TREE_CGROUPS : options.cgroups);
    err = server_listen(&agent, options.socket);
    if (err < 0)
        main_fail(&agent,
                  agent.is_init ? "cannot listen on vsock port 1024"
                                : options.socket,
                  err);
    boot_mark(&agent, MOTE_MARK_READY);
    if (agent.is_init || options.ready)
        server_ready(&agent, options.ready);
    if (!agent.is_init && chdir("/") < 0) /* as commands expect it */
        main_fail(&agent, "/", -errno);
    server_run(&agent);
    return 0;
}
