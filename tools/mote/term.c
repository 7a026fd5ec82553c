/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/term.h"

#include "vmm/util.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MEM_MAJOR_NULL makedev(1, 3) /* /dev/null everywhere on Linux */

enum input_kind term_open_std(void)
{
    bool had_input = fcntl(STDIN_FILENO, F_GETFD) >= 0;
    struct stat st;

    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            continue;
        /* The lowest free descriptor is `fd`: all below are open. */
        if (open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) != fd)
            break;
    }
    if (!had_input || fstat(STDIN_FILENO, &st) < 0)
        return INPUT_NONE;
    if (S_ISCHR(st.st_mode) && st.st_rdev == MEM_MAJOR_NULL)
        return INPUT_NONE;
    return isatty(STDIN_FILENO) ? INPUT_TERM : INPUT_STREAM;
}

static bool signal_is_ignored(int signo)
{
    struct sigaction sa;

    return sigaction(signo, NULL, &sa) == 0 && sa.sa_handler == SIG_IGN;
}

static void signals_fill(sigset_t *set, bool tty)
{
    static const int ends[] = {SIGINT, SIGQUIT, SIGHUP, SIGTERM};

    (void)sigemptyset(set);
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        if (!signal_is_ignored(ends[i]))
            (void)sigaddset(set, ends[i]);
    }
    if (tty) {
        (void)sigaddset(set, SIGWINCH);
        (void)sigaddset(set, SIGTSTP);
    }
}

int signals_open(void)
{
    sigset_t set;
    int fd;

    (void)signal(SIGPIPE, SIG_IGN); /* a valid signal: cannot fail */
    signals_fill(&set, false);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return neg_errno();
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? neg_errno() : fd;
}

void signals_of_tty(int signal_fd, bool on)
{
    sigset_t tty;
    sigset_t set;

    (void)sigemptyset(&tty);
    (void)sigaddset(&tty, SIGWINCH);
    (void)sigaddset(&tty, SIGTSTP);
    signals_fill(&set, on);
    /* Valid arguments throughout: these cannot fail. */
    (void)sigprocmask(on ? SIG_BLOCK : SIG_UNBLOCK, &tty, NULL);
    (void)signalfd(signal_fd, &set, 0);
}

int signals_next(int signal_fd)
{
    struct signalfd_siginfo si;

    if (read(signal_fd, &si, sizeof(si)) != (ssize_t)sizeof(si))
        return 0;
    return (int)si.ssi_signo;
}

void term_raw(struct term *t)
{
    struct termios raw;

    if (t->raw || tcgetattr(STDIN_FILENO, &t->saved) < 0)
        return;
    raw = t->saved;
    cfmakeraw(&raw);
    t->raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

void term_restore(struct term *t)
{
    if (t->raw)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &t->saved);
    t->raw = false;
}

struct mote_tty_size term_size(void)
{
    static const int fds[] = {STDOUT_FILENO, STDIN_FILENO, STDERR_FILENO};
    struct winsize ws;

    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        if (ioctl(fds[i], TIOCGWINSZ, &ws) == 0 && ws.ws_row && ws.ws_col)
            return (struct mote_tty_size){ws.ws_row, ws.ws_col};
    }
    return (struct mote_tty_size){24, 80};
}

bool term_in_background(void)
{
    pid_t owner = tcgetpgrp(STDIN_FILENO);

    return owner > 0 && owner != getpgrp();
}

bool term_is_tty(int fd)
{
    return isatty(fd) == 1;
}
