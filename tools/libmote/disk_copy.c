/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/disk_copy.h"

#include "vmm/le.h"
#include "vmm/snapshot_mem.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <zlib.h>

#define DISK_STEP MIB

int lm_disk_size(int fd, uint64_t *out_bytes)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return neg_errno();
    if (S_ISREG(st.st_mode)) {
        *out_bytes = (uint64_t)st.st_size;
        return 0;
    }
    if (!S_ISBLK(st.st_mode))
        return -EINVAL;
    return ioctl(fd, BLKGETSIZE64, out_bytes) < 0 ? neg_errno() : 0;
}

static bool disk_cancelled(int cancel_fd)
{
    struct pollfd p = {.fd = cancel_fd, .events = POLLIN};

    return cancel_fd >= 0 && poll(&p, 1, 0) > 0;
}

/* Gets a step of the image at a time; the last page is filled with zeroes. */
typedef int (*disk_step_fn)(void *arg, uint64_t at, char *data, uint64_t len);

/* Where data begins at or after `at`, as far as the storage tells. */
static uint64_t disk_next_data(int fd, uint64_t at, uint64_t size)
{
    off_t data = lseek(fd, (off_t)at, SEEK_DATA);

    if (data < 0)
        return errno == ENXIO ? size : at; /* no data; or it cannot tell */
    return (uint64_t)data / SNAP_PAGE * SNAP_PAGE;
}

/* One step: the bytes, behind which the last page is filled with zeroes. */
static int disk_read(int fd, uint64_t at, char *buf, uint64_t len)
{
    uint64_t whole = len / SNAP_PAGE * SNAP_PAGE;

    memset(buf + whole, 0, align_up(len, SNAP_PAGE) - whole);
    return util_pread_full(fd, buf, len, (off_t)at);
}

static int disk_walk(int fd, uint64_t size, int cancel_fd, disk_step_fn step,
                     void *arg)
{
    char *buf = malloc(DISK_STEP);
    uint64_t at = 0;
    int rc = 0;

    if (!buf)
        return -ENOMEM;
    while (rc == 0 && (at = disk_next_data(fd, at, size)) < size) {
        uint64_t len = min_u64(DISK_STEP, size - at);

        rc = disk_cancelled(cancel_fd) ? -ECANCELED
                                       : disk_read(fd, at, buf, len);
        if (rc == 0)
            rc = step(arg, at, buf, len);
        at += len;
    }
    free(buf);
    return rc;
}

/* --- copy ------------------------------------------------------------------
 */

static int disk_pwrite(int fd, const char *p, uint64_t len, uint64_t at)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, p, len, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return neg_errno();
        p += n;
        at += (uint64_t)n;
        len -= (uint64_t)n;
    }
    return 0;
}

static int disk_put(void *arg, uint64_t at, char *data, uint64_t len)
{
    const int *to = arg;
    uint64_t begin = 0;
    int rc = 0;

    for (uint64_t i = 0; i < len && rc == 0; i += SNAP_PAGE) {
        if (!snap_page_is_zero(data + i))
            continue;
        if (i > begin)
            rc = disk_pwrite(*to, data + begin, i - begin, at + begin);
        begin = i + SNAP_PAGE;
    }
    if (rc == 0 && len > begin)
        rc = disk_pwrite(*to, data + begin, len - begin, at + begin);
    return rc;
}

int lm_disk_copy(int from, int to, uint64_t size_bytes, int cancel_fd)
{
    if (ioctl(to, FICLONE, from) == 0)
        return 0;
    if (ftruncate(to, (off_t)size_bytes) < 0)
        return neg_errno();
    return disk_walk(from, size_bytes, cancel_fd, disk_put, &to);
}

/* --- checksum --------------------------------------------------------------
 */

static int disk_add(void *arg, uint64_t at, char *data, uint64_t len)
{
    uint32_t *crc = arg;
    uint8_t number[sizeof(at)];

    for (uint64_t i = 0; i < len; i += SNAP_PAGE) {
        if (snap_page_is_zero(data + i))
            continue;
        put_le64(number, (at + i) / SNAP_PAGE);
        *crc = (uint32_t)crc32_z(*crc, number, sizeof(number));
        *crc = (uint32_t)crc32_z(*crc, (uint8_t *)data + i, SNAP_PAGE);
    }
    return 0;
}

int lm_disk_sum(int fd, uint64_t size_bytes, uint32_t *out_crc, int cancel_fd)
{
    *out_crc = 0;
    return disk_walk(fd, size_bytes, cancel_fd, disk_add, out_crc);
}
