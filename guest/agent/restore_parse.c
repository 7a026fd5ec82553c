/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/restore_parse.h"

#include <errno.h>
#include <string.h>

static int restore_attr(struct restore_request *out, const struct codec_attr *a,
                        bool *has_time)
{
    int err;

    switch (a->type) {
    case MOTE_ATTR_TIME_NS:
        *has_time = true;
        return codec_attr_u64(a, &out->time_ns);
    case MOTE_ATTR_HOSTNAME:
        err = codec_attr_text(a, RESTORE_HOSTNAME_MAX);
        out->hostname = *a;
        return err;
    case MOTE_ATTR_SEED:
        out->seed = *a;
        return a->length > MOTE_SEED_MAX ? -EMSGSIZE : 0;
    case MOTE_ATTR_INTERFACE:
        if (out->interface_count == RESTORE_INTERFACES_MAX)
            return -EMSGSIZE;
        out->interfaces[out->interface_count++] = *a;
        return 0;
    default:
        return a->required ? -ENOENT : 0;
    }
}

int restore_parse(const uint8_t *data, size_t length,
                  struct restore_request *out)
{
    struct codec_iter it;
    struct codec_attr a;
    bool has_time = false;
    int got, err = 0;

    memset(out, 0, sizeof(*out));
    codec_iter_init(&it, data, length);
    while (err == 0 && (got = codec_iter_next(&it, &a)) != 0)
        err = got < 0 ? got : restore_attr(out, &a, &has_time);
    if (err == 0 && !has_time)
        err = -EINVAL;
    return err;
}
