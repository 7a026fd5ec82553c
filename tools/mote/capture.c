/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/capture.h"

#include "tools/libmote/chan.h"
#include "tools/libmote/launch.h"
#include "tools/libmote/vm_end.h"
#include "vmm/cleanup.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

/* Output goes to memory files: no pipe to drain, so nothing can deadlock. */
struct capture_files {
    int out;
    int err;
    int null;
};

static int capture_spawn(char *const *argv, const struct capture_files *f,
                         pid_t *out_pid)
{
    posix_spawn_file_actions_t fa;
    int rc = -posix_spawn_file_actions_init(&fa);

    if (rc)
        return rc;
    rc = -posix_spawn_file_actions_adddup2(&fa, f->null, 0);
    if (!rc)
        rc = -posix_spawn_file_actions_adddup2(&fa, f->out, 1);
    if (!rc)
        rc = -posix_spawn_file_actions_adddup2(&fa, f->err, 2);
    if (!rc)
        rc = -posix_spawn(out_pid, argv[0], &fa, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&fa);
    return rc;
}

/* Waits for the child; kills it when its time is over. */
static int capture_wait(pid_t pid, int timeout_ms, int *out_status)
{
    CLEANUP_FD int pidfd = pidfd_open(pid, 0);
    int rc = pidfd < 0 ? neg_errno()
                       : lm_wait_fd(pidfd, POLLIN, lm_deadline(timeout_ms), -1);

    if (rc)
        (void)kill(pid, SIGKILL); /* not reaped yet: the pid is still its own */
    while (waitpid(pid, out_status, 0) < 0) {
        if (errno != EINTR)
            return neg_errno();
    }
    return rc;
}

static int capture_read(int fd, size_t max_bytes, char **out)
{
    CLEANUP_FREE char *text = NULL;
    off_t size = lseek(fd, 0, SEEK_END);

    if (size < 0)
        return neg_errno();
    if ((uint64_t)size > max_bytes)
        return -EFBIG;
    text = malloc((size_t)size + 1);
    if (!text)
        return -ENOMEM;
    if (util_pread_full(fd, text, (size_t)size, 0))
        return -EIO;
    text[size] = '\0';
    *out = take_ptr(text);
    return 0;
}

int capture_run(const char *const *argv, int timeout_ms, size_t max_bytes,
                struct capture *out)
{
    CLEANUP_FD int o = memfd_create("mote-out", MFD_CLOEXEC);
    CLEANUP_FD int e = memfd_create("mote-err", MFD_CLOEXEC);
    CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct capture_files files = {o, e, null};
    CLEANUP_FREE char **copy = lm_words_copy(argv);
    pid_t pid = 0;
    int status = 0;
    int rc;

    *out = (struct capture){.exit_code = -1};
    if (o < 0 || e < 0 || null < 0)
        return neg_errno();
    if (!copy)
        return -ENOMEM;
    rc = capture_spawn(copy, &files, &pid);
    if (!rc)
        rc = capture_wait(pid, timeout_ms, &status);
    if (rc)
        return rc;
    if (WIFEXITED(status))
        out->exit_code = WEXITSTATUS(status);
    lm_last_log_line(e, out->error, sizeof(out->error));
    return capture_read(o, max_bytes, &out->out);
}
