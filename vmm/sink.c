/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/sink.h"

#include <fcntl.h>

/*
 * A FIFO without a reader cannot be opened for writing alone; opened for both
 * it can, and its reader may come and go. What may only be written to is
 * opened for that.
 */
int sink_open(const char *path, int *out_fd)
{
    const int flags = O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int fd = open(path, O_RDWR | flags, 0600);

    if (fd < 0 && errno == EACCES)
        fd = open(path, O_WRONLY | flags, 0600);
    if (fd < 0)
        return neg_errno();
    *out_fd = fd;
    return 0;
}
