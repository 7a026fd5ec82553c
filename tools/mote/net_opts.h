/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_NET_OPTS_H
#define TOOLS_MOTE_NET_OPTS_H

/*
 * The value of --net: none, user, or tap=NAME[,ip=ADDRESS/BITS][,gw=ADDRESS]
 * [,dns=ADDRESS][,queues=N][,without=FEATURE+FEATURE...].
 * Ownership: the struct holds a copy of the text that the parameters point
 * into. Threads: any. Errors: -EINVAL with `err`.
 */

#include "tools/libmote/err.h"

#define NET_OPTS_TEXT    256
#define NET_OPTS_WITHOUT 16

struct net_opts {
    char text[NET_OPTS_TEXT];
    const char *without[NET_OPTS_WITHOUT + 1];
};

int net_opts_parse(const char *value, struct net_opts *o,
                   struct mote_net_params *out,
                   struct mote_err *err) MUST_CHECK;

#endif
