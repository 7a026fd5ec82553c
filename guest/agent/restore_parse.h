/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A RESTORE message, read and checked. Pure: views into the message only.
 */
#ifndef GUEST_AGENT_RESTORE_PARSE_H
#define GUEST_AGENT_RESTORE_PARSE_H

#include "guest/agent/codec.h"

#define RESTORE_HOSTNAME_MAX   64u
#define RESTORE_INTERFACES_MAX 32u

struct restore_request {
    uint64_t time_ns; /* since 1970 UTC */
    /* value is NULL where the attribute is absent */
    struct codec_attr hostname, seed;
    size_t interface_count;
    struct codec_attr interfaces[RESTORE_INTERFACES_MAX];
};

/*
 * 0; -EPROTO and -EMSGSIZE as in codec.h; -ENOENT for a required attribute
 * that is not known; -EINVAL without a time.
 */
int restore_parse(const uint8_t *data, size_t length,
                  struct restore_request *out);

#endif
