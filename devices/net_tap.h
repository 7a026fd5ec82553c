/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_NET_TAP_H
#define DEVICES_NET_TAP_H

/*
 * A TAP interface of the host as a network back end, with vnet headers and the
 * kernel's offloads, one descriptor for each pair of queues.
 *
 * Ownership: the back end owns its descriptors; an interface that was created
 * here goes with them. Threads: opening on any, then the loop's.
 * Errors: -errno with one line that names the interface and what to do; `err`
 * is not NULL.
 */

#include "devices/net_back.h"
#include "vmm/errmsg.h"

struct net_tap_args {
    const char *name;
    uint16_t
        pairs;    /* 1 .. NET_MAX_PAIRS; more than 1 needs a multi_queue TAP */
    bool create;  /* if it is not there; else that is an error */
    uint32_t mtu; /* of an interface that is created; 0: the kernel's */
};

int net_tap_open(const struct net_tap_args *args, struct net_back **out_back,
                 struct errmsg *err) MUST_CHECK;

/*
 * A descriptor of a TAP that somebody else opened; one pair. Owned once this
 * succeeded. -ENOTTY, without a line: it is no TUN or TAP descriptor.
 */
int net_tap_adopt(int fd, struct net_back **out_back,
                  struct errmsg *err) MUST_CHECK;

#endif
