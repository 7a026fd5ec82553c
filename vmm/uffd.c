/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/uffd.h"

#include "vmm/cleanup.h"
#include "vmm/unix_listen.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define UFFD_PAGE   4096u
#define UFFD_DEVICE "/dev/userfaultfd"

/* As root by the system call, else by the device if this user may open it. */
static int uffd_create(int *out_fd)
{
    CLEANUP_FD int dev = -1;
    long fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    int rc = fd < 0 ? neg_errno() : 0;

    if (rc == 0) {
        *out_fd = (int)fd;
        return 0;
    }
    dev = open(UFFD_DEVICE, O_RDWR | O_CLOEXEC);
    if (dev < 0)
        return rc;
#ifdef USERFAULTFD_IOC_NEW
    *out_fd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
    return *out_fd < 0 ? neg_errno() : 0;
#else
    return rc;
#endif
}

/* What the balloon gives back is told to the handler, which has to answer it
 * with empty pages from then on. */
static int uffd_register(const struct guest_mem *gm, int fd)
{
    struct uffdio_api api = {.api = UFFD_API,
                             .features = UFFD_FEATURE_EVENT_REMOVE};

    if (ioctl(fd, UFFDIO_API, &api) < 0)
        return neg_errno();
    for (size_t i = 0; i < gm_region_count(gm); i++) {
        const struct gm_region *r = gm_region(gm, i);
        struct uffdio_register reg = {
            .range = {.start = (uint64_t)(uintptr_t)r->host,
                      .len = r->len_bytes},
            .mode = UFFDIO_REGISTER_MODE_MISSING,
        };

        if (ioctl(fd, UFFDIO_REGISTER, &reg) < 0)
            return neg_errno();
    }
    return 0;
}

/* One JSON text, as handlers read it; page_size_kib is in bytes as well. */
static size_t uffd_describe(const struct guest_mem *gm, char *out, size_t size)
{
    size_t n = 0;

    for (size_t i = 0; i < gm_region_count(gm); i++) {
        const struct gm_region *r = gm_region(gm, i);

        n += (size_t)snprintf(
            out + n, size - n,
            "%s{\"base_host_virt_addr\":%llu,\"size\":%llu,\"offset\":%llu,"
            "\"page_size\":%u,\"page_size_kib\":%u}",
            i == 0 ? "[" : ",", (unsigned long long)(uintptr_t)r->host,
            (unsigned long long)r->len_bytes,
            (unsigned long long)r->fd_offset_bytes, UFFD_PAGE, UFFD_PAGE);
    }
    return n + (size_t)snprintf(out + n, size - n, "]");
}

/* Without waiting: a handler that takes nobody would hold the loop. */
static int uffd_connect(const char *path, int *out_sock)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof(a.sun_path))
        return -ENAMETOOLONG;
    memcpy(a.sun_path, path, strlen(path));
    return unix_dial(&a, out_sock);
}

static int uffd_send(int sock, int fd, char *text, size_t len)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } c;
    struct iovec iov = {.iov_base = text, .iov_len = len};
    struct msghdr msg = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = &c,
        .msg_controllen = sizeof(c.room),
    };
    ssize_t n;

    memset(&c, 0, sizeof(c));
    c.head.cmsg_level = SOL_SOCKET;
    c.head.cmsg_type = SCM_RIGHTS;
    c.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&c.head), &fd, sizeof(fd));
    n = sendmsg(sock, &msg, MSG_NOSIGNAL);
    if (n < 0)
        return neg_errno();
    return (size_t)n == len ? 0 : -EIO;
}

int uffd_offer(const struct guest_mem *gm, const char *path, int *out_fd,
               struct errmsg *err)
{
    CLEANUP_FD int sock = -1;
    CLEANUP_FD int fd = -1;
    char text[512];
    int rc = uffd_connect(path, &sock);

    if (rc)
        return err_set(err, rc, "memory backend %s: %s", path, err_reason(rc));
    rc = uffd_create(&fd);
    if (rc)
        return err_set(err, rc,
                       "memory backend: userfaultfd: %s; run as root, or give "
                       "this user " UFFD_DEVICE ", or use the backend File",
                       err_reason(rc));
    rc = uffd_register(gm, fd);
    if (rc == 0)
        rc = uffd_send(sock, fd, text, uffd_describe(gm, text, sizeof(text)));
    if (rc)
        return err_set(err, rc, "memory backend %s: %s", path, err_reason(rc));
    *out_fd = take_fd(&fd);
    return 0;
}

void uffd_end(const struct guest_mem *gm, int fd)
{
    for (size_t i = 0; i < gm_region_count(gm); i++) {
        const struct gm_region *r = gm_region(gm, i);
        struct uffdio_range range = {
            .start = (uint64_t)(uintptr_t)r->host,
            .len = r->len_bytes,
        };

        /* It cannot fail for what was registered; if it did, only SIGKILL
         * would end a vCPU that waits. */
        (void)ioctl(fd, UFFDIO_UNREGISTER, &range);
    }
}
