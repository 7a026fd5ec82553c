/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/boot_file.h"

#include "vmm/cleanup.h"

#include <fcntl.h>
#include <sys/stat.h>

static const char *boot_file_type(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISFIFO(mode))
        return "a FIFO";
    if (S_ISSOCK(mode))
        return "a socket";
    if (S_ISBLK(mode))
        return "a block device";
    return "a character device";
}

static int boot_file_open_error(const char *role, const char *path, int rc,
                                struct errmsg *err)
{
    /* A socket cannot be opened; everything else that exists can. */
    if (rc == -ENXIO)
        return err_set(err, rc,
                       "%s %.256s: is a socket or a device without a driver; "
                       "give a regular file",
                       role, path);
    if (rc == -EACCES || rc == -EPERM)
        return err_set(err, rc,
                       "%s %.256s: permission denied for uid %u; make the "
                       "file readable and its folders searchable",
                       role, path, (unsigned)geteuid());
    if (rc == -ENOENT || rc == -ENOTDIR)
        return err_set(err, rc,
                       "%s %.256s: no such file; give the path of an existing "
                       "file",
                       role, path);
    return err_set(err, rc, "%s %.256s: cannot be opened: %s; check the path",
                   role, path, err_reason(rc));
}

int boot_file_open(const char *role, const char *path, int *out_fd,
                   uint64_t *out_size_bytes, struct errmsg *err)
{
    CLEANUP_FD int fd = -1;
    struct stat st;

    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    fd = util_open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return boot_file_open_error(role, path, fd, err);
    if (fstat(fd, &st) < 0)
        return boot_file_open_error(role, path, neg_errno(), err);
    if (!S_ISREG(st.st_mode))
        return err_set(err, S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL,
                       "%s %.256s: is %s; give a regular file", role, path,
                       boot_file_type(st.st_mode));
    if (st.st_size <= 0)
        return err_set(err, -ENODATA,
                       "%s %.256s: is empty (0 bytes); give a file that was "
                       "written completely",
                       role, path);
    *out_size_bytes = (uint64_t)st.st_size;
    *out_fd = take_fd(&fd);
    return 0;
}
