/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/resolver.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include "guest/agent/codec.h"
#include "guest/agent/text.h"

#define RESOLVER_RUN "/run/mote-resolv.conf"

static void resolver_ip(struct text *t, const struct mote_ip *ip)
{
    static const char digits[] = "0123456789abcdef";
    size_t bytes = ip->family == 4 ? 4 : 16;

    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = ip->address[i];

        if (ip->family == 4) {
            if (i > 0)
                text_add(t, ".");
            text_add_number(t, byte);
            continue;
        }
        if (i > 0 && i % 2 == 0)
            text_add(t, ":");
        text_add_bytes(t, &digits[byte >> 4], 1);
        text_add_bytes(t, &digits[byte & 15], 1);
    }
}

static int resolver_file(const char *path, const struct text *t)
{
    int fd =
        open(path,
             O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
             0644);
    int err = 0;

    if (fd < 0)
        return -errno;
    if (write(fd, t->line, t->length) != (ssize_t)t->length)
        err = -EIO;
    close(fd);
    return err;
}

static int resolver_put(const struct text *t)
{
    int err = resolver_file(RESOLVER_FILE, t);

    if (err == -ELOOP &&
        unlink(RESOLVER_FILE) == 0) /* a resolver daemon's link */
        err = resolver_file(RESOLVER_FILE, t);
    if (err != -EROFS)
        return err;
    /* A read-only root: lay it over, if there is a file to lay it over. */
    err = resolver_file(RESOLVER_RUN, t);
    if (err == 0 && mount(RESOLVER_RUN, RESOLVER_FILE, NULL, MS_BIND, NULL) < 0)
        err = -errno;
    return err;
}

int resolver_write(const uint8_t *data, size_t length)
{
    struct codec_iter it;
    struct codec_attr a;
    struct mote_ip ip;
    struct text t;

    text_init(&t);
    codec_iter_init(&it, data, length);
    while (codec_iter_next(&it, &a) > 0) {
        if (a.type == MOTE_ATTR_RESOLVER && codec_attr_ip(&a, &ip) == 0) {
            text_add(&t, "nameserver ");
            resolver_ip(&t, &ip);
        } else if (a.type == MOTE_ATTR_SEARCH) {
            text_add(&t, "search ");
            text_add_bytes(&t, a.value, a.length);
        } else {
            continue;
        }
        text_add(&t, "\n");
    }
    return t.length == sizeof(t.line) - 1 ? -EMSGSIZE : resolver_put(&t);
}
