/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Talking rtnetlink: one request at a time on a socket of the caller's.
 * Netlink has the answer ready before send returns, so nothing is waited for.
 */
#ifndef GUEST_AGENT_RTNL_H
#define GUEST_AGENT_RTNL_H

#include <linux/rtnetlink.h>
#include <stddef.h>
#include <stdint.h>

/* A request to the kernel, filled from the front. */
struct rtnl_message {
    struct nlmsghdr head;
    union {
        struct ifinfomsg link;
        struct ifaddrmsg address;
        struct rtmsg route;
        uint8_t room[480];
    };
};

/* An empty request; `body` is the size of its member of the union. */
void rtnl_begin(struct rtnl_message *m, uint16_t type, uint16_t flags,
                size_t body);

/* Appends an attribute. The caller knows that all of its fit into `room`. */
void rtnl_add(struct rtnl_message *m, uint16_t type, const void *value,
              size_t length);

/* Sends it; the kernel's verdict, 0 or a negative errno. */
int rtnl_talk(int fd, struct rtnl_message *m);

/* Sends it as a dump and calls see() for each message of the answer. */
int rtnl_dump(int fd, struct rtnl_message *m,
              void (*see)(const struct nlmsghdr *head, void *arg), void *arg);

/* The value of an attribute behind a body of that size, or NULL. */
const uint8_t *rtnl_get(const struct nlmsghdr *head, size_t body, uint16_t type,
                        size_t *out_length);

#endif
