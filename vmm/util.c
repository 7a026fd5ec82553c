/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/util.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t util_now_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail on Linux */
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int util_pread_full(int fd, void *buf, size_t len, off_t off)
{
    char *p = buf;

    while (len > 0) {
        ssize_t n = pread(fd, p, len, off);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return neg_errno();
        if (n == 0)
            return -ENODATA;
        p += n;
        off += n;
        len -= (size_t)n;
    }
    return 0;
}

/* The number in /dev/fd/N or /dev/fd/N/NAME; -1: it is another path. */
static int util_path_fd(const char *path)
{
    static const char prefix[] = "/dev/fd/";
    char *end = NULL;
    long n;

    if (strncmp(path, prefix, strlen(prefix)) != 0)
        return -1;
    path += strlen(prefix);
    if (!isdigit((unsigned char)*path))
        return -1;
    n = strtol(path, &end, 10);
    return (*end == '\0' || *end == '/') && n <= INT_MAX ? (int)n : -1;
}

static int util_open_again(int n, int flags)
{
    const int settable = O_DIRECT | O_NONBLOCK;
    int have = fcntl(n, F_GETFL);
    int mode = have & O_ACCMODE;
    int fd;

    if (have < 0)
        return neg_errno();
    if ((have & O_PATH) || (mode != O_RDWR && mode != (flags & O_ACCMODE)))
        return -EACCES;
    fd = fcntl(n, F_DUPFD_CLOEXEC, 0);
    if (fd < 0 ||
        fcntl(fd, F_SETFL, (have & ~settable) | (flags & settable)) < 0) {
        int rc = neg_errno();

        if (fd >= 0)
            (void)close(fd);
        return rc;
    }
    return fd;
}

int util_open(const char *path, int flags)
{
    int n = util_path_fd(path);
    int fd;

    if (n >= 0)
        return util_open_again(n, flags);
    fd = open(path, flags | O_CLOEXEC);
    return fd < 0 ? neg_errno() : fd;
}

int util_write_full(int fd, const void *buf, size_t len)
{
    const char *p = buf;

    while (len > 0) {
        ssize_t n = write(fd, p, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return neg_errno();
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

/* strtoull accepts signs and leading blanks; a number of ours does not. */
static int util_parse_prefix(const char *s, uint64_t *out, const char **out_end)
{
    char *end = NULL;

    if (!isdigit((unsigned char)s[0]))
        return -EINVAL;
    errno = 0;
    *out = strtoull(s, &end, 10);
    if (errno == ERANGE)
        return -ERANGE;
    *out_end = end;
    return 0;
}

int util_parse_u64(const char *s, uint64_t lo, uint64_t hi, uint64_t *out)
{
    const char *end = NULL;
    uint64_t v = 0;
    int rc = util_parse_prefix(s, &v, &end);

    if (rc)
        return rc;
    if (*end != '\0')
        return -EINVAL;
    if (v < lo || v > hi)
        return -ERANGE;
    *out = v;
    return 0;
}

int util_parse_size(const char *s, uint64_t unit, uint64_t *out_bytes)
{
    static const char suffixes[] = "KMGT";
    const char *end = NULL;
    const char *found = NULL;
    uint64_t v = 0;
    int rc = util_parse_prefix(s, &v, &end);

    if (rc)
        return rc;
    if (*end != '\0') {
        found = strchr(suffixes, toupper((unsigned char)*end));
        if (!found)
            return -EINVAL;
        end++;
        if (strcmp(end, "") && strcmp(end, "B") && strcmp(end, "iB"))
            return -EINVAL;
        unit = KIB << (10 * (found - suffixes));
    }
    if (__builtin_mul_overflow(v, unit, out_bytes))
        return -ERANGE;
    return 0;
}

int util_parse_duration_ms(const char *s, uint64_t *out_ms)
{
    static const struct {
        const char *suffix;
        uint64_t us;
    } units[] = {{"", 1000000},
                 {"ms", 1000},
                 {"s", 1000000},
                 {"m", 60000000ull},
                 {"h", 3600000000ull}};
    const char *end = NULL;
    uint64_t whole = 0;
    uint64_t micro = 0; /* the fraction in millionths */
    uint64_t us = 0;
    int rc = util_parse_prefix(s, &whole, &end);

    if (rc)
        return rc;
    if (*end == '.') {
        uint64_t place = 100000;

        if (!isdigit((unsigned char)*++end))
            return -EINVAL;
        for (; isdigit((unsigned char)*end); end++, place /= 10)
            micro += place * (uint64_t)(*end - '0');
    }
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (strcmp(end, units[i].suffix))
            continue;
        if (__builtin_mul_overflow(whole, units[i].us, &us))
            return -ERANGE;
        us += micro * units[i].us / 1000000;
        *out_ms = us / 1000;
        return 0;
    }
    return -EINVAL;
}
