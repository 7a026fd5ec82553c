/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/rtnl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

void rtnl_begin(struct rtnl_message *m, uint16_t type, uint16_t flags,
                size_t body)
{
    memset(m, 0, sizeof(*m));
    m->head.nlmsg_len = (uint32_t)NLMSG_LENGTH(body);
    m->head.nlmsg_type = type;
    m->head.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
}

void rtnl_add(struct rtnl_message *m, uint16_t type, const void *value,
              size_t length)
{
    struct rtattr head = {
        .rta_len = (uint16_t)RTA_LENGTH(length),
        .rta_type = type,
    };
    uint8_t *to = (uint8_t *)m + NLMSG_ALIGN(m->head.nlmsg_len);

    memcpy(to, &head, sizeof(head));
    memcpy(to + RTA_LENGTH(0), value, length);
    m->head.nlmsg_len =
        (uint32_t)(NLMSG_ALIGN(m->head.nlmsg_len) + RTA_ALIGN(head.rta_len));
}

static int rtnl_send(int fd, const struct rtnl_message *m)
{
    return send(fd, m, m->head.nlmsg_len, 0) < 0 ? -errno : 0;
}

int rtnl_talk(int fd, struct rtnl_message *m)
{
    uint8_t answer[1024];
    struct nlmsghdr head;
    struct nlmsgerr verdict;
    ssize_t got;
    int err;

    m->head.nlmsg_flags |= NLM_F_ACK;
    err = rtnl_send(fd, m);
    if (err < 0)
        return err;
    got = recv(fd, answer, sizeof(answer), 0);
    if (got < (ssize_t)(NLMSG_HDRLEN + sizeof(verdict)))
        return got < 0 ? -errno : -EPROTO;
    memcpy(&head, answer, sizeof(head));
    memcpy(&verdict, answer + NLMSG_HDRLEN, sizeof(verdict));
    return head.nlmsg_type == NLMSG_ERROR ? verdict.error : -EPROTO;
}

int rtnl_dump(int fd, struct rtnl_message *m,
              void (*see)(const struct nlmsghdr *head, void *arg), void *arg)
{
    _Alignas(struct nlmsghdr) uint8_t answer[8192];
    int err;

    m->head.nlmsg_flags |= NLM_F_DUMP;
    err = rtnl_send(fd, m);
    if (err < 0)
        return err;
    for (;;) {
        ssize_t got = recv(fd, answer, sizeof(answer), 0);
        const struct nlmsghdr *head = (const void *)answer;

        if (got <= 0)
            return got < 0 ? -errno : -EPROTO;
        for (; NLMSG_OK(head, (size_t)got); head = NLMSG_NEXT(head, got)) {
            if (head->nlmsg_type == NLMSG_DONE)
                return 0;
            if (head->nlmsg_type == NLMSG_ERROR)
                return -EIO;
            see(head, arg);
        }
    }
}

const uint8_t *rtnl_get(const struct nlmsghdr *head, size_t body, uint16_t type,
                        size_t *out_length)
{
    const struct rtattr *a =
        (const void *)((const uint8_t *)NLMSG_DATA(head) + NLMSG_ALIGN(body));
    size_t left = head->nlmsg_len - NLMSG_SPACE(body);

    for (; RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        if (a->rta_type == type) {
            *out_length = RTA_PAYLOAD(a);
            return RTA_DATA(a);
        }
    }
    return NULL;
}
