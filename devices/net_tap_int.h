/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_NET_TAP_INT_H
#define DEVICES_NET_TAP_INT_H

/* Between net_tap.c (frames) and net_tap_open.c; nobody else includes this. */

#include "devices/net_tap.h"

struct tap_pair {
    struct net_tap *tap;
    int fd;
    struct ev_fd watch; /* events are 0 unless somebody waits */
};

struct net_tap {
    struct net_back base; /* first */
    struct evloop *loop;
    const struct net_events *events;
    void *arg;
    uint16_t num_open;
    uint16_t attached; /* pairs that frames come on; others answer EBADFD */
    bool gone;
    bool plain;   /* the loop's note on what kind of file a TAP is */
    uint8_t sink; /* tells a frame that does not fit from one that does */
    struct tap_pair pairs[NET_MAX_PAIRS];
};

/* No descriptor yet, all pairs counted as attached; NULL when out of memory. */
struct net_tap *tap_new(uint16_t pairs);

#endif
