/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <unistd.h>

#include "guest/abi.h"

#define IDENTITY_FILE  "/run/mote-boot-id"
#define IDENTITY_PROC  "/proc/sys/kernel/random/boot_id"
#define IDENTITY_BYTES 37u /* 36 signs and a line feed */

void identity_seed(const void *bytes, size_t length)
{
    /* struct rand_pool_info, which has an array without a length */
    struct {
        int entropy_count, buf_size;
        uint8_t buf[MOTE_SEED_MAX];
    } pool;
    int fd = open("/dev/urandom", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || length > sizeof(pool.buf))
        return;
    pool.entropy_count = (int)(length * 8u);
    pool.buf_size = (int)length;
    memcpy(pool.buf, bytes, length);
    if (ioctl(fd, RNDADDENTROPY, &pool) < 0)
        (void)!write(fd, bytes, length); /* counted or not, it differs */
    (void)ioctl(fd, RNDRESEEDCRNG);
    explicit_bzero(&pool, sizeof(pool));
    close(fd);
}

/* A random UUID, version 4. spec: RFC 9562 5.4 */
static bool identity_uuid(char out[IDENTITY_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t raw[16];
    size_t at = 0;

    if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
        return false;
    raw[6] = (uint8_t)((raw[6] & 0x0f) | 0x40);
    raw[8] = (uint8_t)((raw[8] & 0x3f) | 0x80);
    for (size_t i = 0; i < sizeof(raw); i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            out[at++] = '-';
        out[at++] = digits[raw[i] >> 4];
        out[at++] = digits[raw[i] & 15];
    }
    out[at] = '\n';
    return true;
}

/* In place: it may be mounted already, by the restore before this one. */
static int identity_write(const char *uuid)
{
    int fd =
        open(IDENTITY_FILE, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0444);
    int err = 0;

    if (fd < 0)
        return -errno;
    if (pwrite(fd, uuid, IDENTITY_BYTES, 0) != (ssize_t)IDENTITY_BYTES)
        err = -EIO;
    close(fd);
    return err;
}

static bool identity_shows(const char *uuid)
{
    char seen[IDENTITY_BYTES];
    int fd = open(IDENTITY_PROC, O_RDONLY | O_CLOEXEC);
    ssize_t got;

    if (fd < 0)
        return false;
    got = read(fd, seen, sizeof(seen));
    close(fd);
    return got == (ssize_t)IDENTITY_BYTES &&
           memcmp(seen, uuid, IDENTITY_BYTES) == 0;
}

int identity_boot_id(struct text *why)
{
    char uuid[IDENTITY_BYTES];
    int err = identity_uuid(uuid) ? identity_write(uuid) : -EIO;

    if (err == 0 && !identity_shows(uuid) &&
        mount(IDENTITY_FILE, IDENTITY_PROC, NULL, MS_BIND, NULL) < 0)
        err = -errno;
    if (err == 0)
        return 0;
    text_init(why);
    text_add(why, "boot id: ");
    text_add_errno(why, -err);
    text_add(why, "; it is that of the snapshot");
    return -1;
}
