/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_NET_STREAM_H
#define DEVICES_NET_STREAM_H

/*
 * A Unix stream socket as a network back end, as passt and QEMU's `stream`
 * netdev speak it: each frame goes after its length in four bytes, highest
 * first. No headers for offloads, one pair of queues.
 *
 * Frames are read and written in place; only what is left of a frame that was
 * cut off by a reset is copied. A peer that is slow holds up this network
 * alone, one that breaks the framing or goes away is a link that is down.
 *
 * Ownership: the back end owns the socket. Threads: the loop's, apart from
 * opening. Errors: -errno with a line.
 */

#include "devices/net_back.h"
#include "vmm/errmsg.h"

/* Connects to a peer that listens at `path`. */
int net_stream_connect(const char *path, struct net_back **out_back,
                       struct errmsg *err) MUST_CHECK;
/* A connected stream socket, which becomes non-blocking; owned on success. */
int net_stream_adopt(int fd, struct net_back **out_back,
                     struct errmsg *err) MUST_CHECK;

#endif
