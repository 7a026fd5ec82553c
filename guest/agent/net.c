/* SPDX-License-Identifier: Apache-2.0 */
/* NET_CONFIG: one interface, by rtnetlink; the resolver's file. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/agent/ops.h"
#include "guest/agent/resolver.h"
#include "guest/agent/rtnl.h"

#define NET_MAC_BYTES  6u
#define NET_ARP_NOTIFY "/proc/sys/net/ipv4/conf/all/arp_notify"

/* The attributes of a NET_CONFIG that occur once. */
struct net_request {
    char name[IFNAMSIZ];
    char hostname[65];
    bool has_mac, set_mac, has_address, has_resolver, flush;
    bool renew; /* the machine came out of a snapshot */
    uint8_t mac[NET_MAC_BYTES];
    uint8_t new_mac[NET_MAC_BYTES];
    uint32_t mtu;
    const uint8_t *data; /* to walk the repeated ones */
    size_t length;
};

/* ---- the interface ------------------------------------------------------ */

struct net_search {
    const struct net_request *request;
    int index; /* 0: not found */
};

static void net_see_link(const struct nlmsghdr *head, void *arg)
{
    struct net_search *search = arg;
    const struct net_request *request = search->request;
    const struct ifinfomsg *link = NLMSG_DATA(head);
    size_t length = 0;
    const uint8_t *value;

    if (search->index != 0 || head->nlmsg_type != RTM_NEWLINK)
        return;
    if (request->has_mac) {
        value = rtnl_get(head, sizeof(*link), IFLA_ADDRESS, &length);
        if (!value || length != NET_MAC_BYTES ||
            memcmp(value, request->mac, NET_MAC_BYTES) != 0)
            return;
    }
    if (request->name[0]) {
        value = rtnl_get(head, sizeof(*link), IFLA_IFNAME, &length);
        if (!value || strncmp((const char *)value, request->name, length) != 0)
            return;
    }
    if (!request->has_mac && !request->name[0] &&
        (link->ifi_flags & IFF_LOOPBACK))
        return;
    search->index = link->ifi_index;
}

static int net_find(int fd, const struct net_request *request)
{
    struct net_search search = {.request = request};
    struct rtnl_message m;
    int err;

    rtnl_begin(&m, RTM_GETLINK, 0, sizeof(m.link));
    err = rtnl_dump(fd, &m, net_see_link, &search);
    if (err < 0)
        return err;
    return search.index ? search.index : -ENODEV;
}

/* Up or down. */
static int net_switch(int fd, int index, unsigned int flags)
{
    struct rtnl_message m;

    rtnl_begin(&m, RTM_NEWLINK, 0, sizeof(m.link));
    m.link.ifi_index = index;
    m.link.ifi_flags = flags;
    m.link.ifi_change = IFF_UP;
    return rtnl_talk(fd, &m);
}

/* Leaves it as it is, up or down. */
static int net_link(int fd, int index, const struct net_request *request)
{
    struct rtnl_message m;

    if (!request->set_mac && request->mtu == 0)
        return 0;
    rtnl_begin(&m, RTM_NEWLINK, 0, sizeof(m.link));
    m.link.ifi_index = index;
    if (request->set_mac)
        rtnl_add(&m, IFLA_ADDRESS, request->new_mac, NET_MAC_BYTES);
    if (request->mtu > 0)
        rtnl_add(&m, IFLA_MTU, &request->mtu, sizeof(request->mtu));
    return rtnl_talk(fd, &m);
}

static uint8_t net_family(uint8_t family)
{
    return family == 4 ? AF_INET : AF_INET6;
}

static size_t net_address_bytes(uint8_t family)
{
    return family == 4 ? 4 : 16;
}

static int net_address(int fd, int index, const struct mote_ip *ip)
{
    struct rtnl_message m;
    size_t bytes = net_address_bytes(ip->family);

    rtnl_begin(&m, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE,
               sizeof(m.address));
    m.address.ifa_family = net_family(ip->family);
    m.address.ifa_prefixlen = ip->prefix;
    m.address.ifa_index = (uint32_t)index;
    /* The host has given this address to nobody else. */
    m.address.ifa_flags = ip->family == 6 ? IFA_F_NODAD : 0;
    rtnl_add(&m, IFA_LOCAL, ip->address, bytes);
    rtnl_add(&m, IFA_ADDRESS, ip->address, bytes);
    return rtnl_talk(fd, &m);
}

static int net_route(int fd, int index, const struct mote_route *route)
{
    static const uint8_t none[16];
    struct rtnl_message m;
    size_t bytes = net_address_bytes(route->family);

    rtnl_begin(&m, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, sizeof(m.route));
    m.route.rtm_family = net_family(route->family);
    m.route.rtm_dst_len = route->prefix;
    m.route.rtm_table = RT_TABLE_MAIN;
    m.route.rtm_protocol = RTPROT_STATIC;
    m.route.rtm_type = RTN_UNICAST;
    m.route.rtm_scope = RT_SCOPE_LINK;
    if (route->prefix > 0)
        rtnl_add(&m, RTA_DST, route->destination, bytes);
    if (memcmp(route->gateway, none, bytes) != 0) {
        m.route.rtm_scope = RT_SCOPE_UNIVERSE;
        rtnl_add(&m, RTA_GATEWAY, route->gateway, bytes);
    }
    if (route->metric > 0)
        rtnl_add(&m, RTA_PRIORITY, &route->metric, sizeof(route->metric));
    rtnl_add(&m, RTA_OIF, &index, sizeof(index));
    return rtnl_talk(fd, &m);
}

/* Addresses to delete: a dump must not be mixed with other requests. */
struct net_old {
    uint32_t index;
    size_t count;
    struct {
        struct ifaddrmsg head;
        uint8_t local[16];
    } list[32];
};

static void net_see_address(const struct nlmsghdr *head, void *arg)
{
    const struct ifaddrmsg *address = NLMSG_DATA(head);
    struct net_old *old = arg;
    const uint8_t *local;
    size_t length = 0;

    if (head->nlmsg_type != RTM_NEWADDR || address->ifa_index != old->index ||
        address->ifa_scope != RT_SCOPE_UNIVERSE || old->count == 32)
        return;
    local = rtnl_get(head, sizeof(*address), IFA_LOCAL, &length);
    if (!local) /* IPv6 has it here */
        local = rtnl_get(head, sizeof(*address), IFA_ADDRESS, &length);
    if (!local || length > 16)
        return;
    old->list[old->count].head = *address;
    memcpy(old->list[old->count].local, local, length);
    old->count++;
}

static int net_flush(int fd, int index)
{
    struct net_old old = {.index = (uint32_t)index};
    struct rtnl_message m;
    int err;

    rtnl_begin(&m, RTM_GETADDR, 0, sizeof(m.address));
    err = rtnl_dump(fd, &m, net_see_address, &old);
    for (size_t i = 0; i < old.count && err == 0; i++) {
        rtnl_begin(&m, RTM_DELADDR, 0, sizeof(m.address));
        m.address = old.list[i].head;
        rtnl_add(&m, IFA_LOCAL, old.list[i].local,
                 m.address.ifa_family == AF_INET ? 4 : 16);
        err = rtnl_talk(fd, &m);
        if (err == -EADDRNOTAVAIL) /* went with its primary address */
            err = 0;
    }
    return err;
}

void net_loopback(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {.ifr_name = "lo"};

    if (fd < 0)
        return;
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    (void)ioctl(fd, SIOCSIFFLAGS, &request);
    close(fd);
}

/* ---- the request -------------------------------------------------------- */

static int net_copy_text(const struct codec_attr *a, char *to, size_t size)
{
    int err = codec_attr_text(a, size - 1);

    if (err == 0)
        memcpy(to, a->value, a->length); /* `to` is zeroed */
    return err;
}

static int net_copy_mac(const struct codec_attr *a, uint8_t *to, bool *has)
{
    if (a->length != NET_MAC_BYTES)
        return -EPROTO;
    memcpy(to, a->value, NET_MAC_BYTES);
    *has = true;
    return 0;
}

/* One attribute is checked; what occurs once is kept. */
static int net_attr(struct net_request *request, const struct codec_attr *a)
{
    struct mote_route route;
    struct mote_ip ip;

    switch (a->type) {
    case MOTE_ATTR_IF_NAME:
        return net_copy_text(a, request->name, sizeof(request->name));
    case MOTE_ATTR_IF_MAC:
        return net_copy_mac(a, request->mac, &request->has_mac);
    case MOTE_ATTR_SET_MAC:
        return net_copy_mac(a, request->new_mac, &request->set_mac);
    case MOTE_ATTR_MTU:
        return codec_attr_u32(a, &request->mtu);
    case MOTE_ATTR_ADDRESS:
        request->has_address = true;
        return codec_attr_ip(a, &ip);
    case MOTE_ATTR_ROUTE:
        return codec_attr_route(a, &route);
    case MOTE_ATTR_RESOLVER:
        request->has_resolver = true;
        return codec_attr_ip(a, &ip);
    case MOTE_ATTR_SEARCH:
        request->has_resolver = true;
        return codec_attr_text(a, 253);
    case MOTE_ATTR_HOSTNAME:
        return net_copy_text(a, request->hostname, sizeof(request->hostname));
    case MOTE_ATTR_FLUSH:
        return codec_attr_bool(a, &request->flush);
    default:
        return a->required ? -ENOENT : 0;
    }
}

static int net_parse(const uint8_t *data, size_t length,
                     struct net_request *out, struct refusal *r)
{
    struct codec_iter it;
    struct codec_attr a;
    int got, err = 0;

    memset(out, 0, sizeof(*out));
    out->data = data;
    out->length = length;
    codec_iter_init(&it, data, length);
    while (err == 0 && (got = codec_iter_next(&it, &a)) != 0)
        err = got < 0 ? got : net_attr(out, &a);
    return err < 0 ? ops_refuse_attr(r, "NET_CONFIG", err) : 0;
}

/* What is walked in turn: routes need addresses. IPv6 has none while the
 * interface is down. */
enum net_pass { NET_IPV4, NET_IPV6, NET_ROUTES };

static int net_pass(int fd, int index, const struct net_request *request,
                    enum net_pass pass)
{
    struct codec_iter it;
    struct codec_attr a;
    struct mote_route route;
    struct mote_ip ip;
    int err = 0;

    codec_iter_init(&it, request->data, request->length);
    while (err == 0 && codec_iter_next(&it, &a) > 0) {
        if (pass != NET_ROUTES && a.type == MOTE_ATTR_ADDRESS &&
            codec_attr_ip(&a, &ip) == 0 &&
            (ip.family == 4) == (pass == NET_IPV4))
            err = net_address(fd, index, &ip);
        else if (pass == NET_ROUTES && a.type == MOTE_ATTR_ROUTE &&
                 codec_attr_route(&a, &route) == 0)
            err = net_route(fd, index, &route);
    }
    return err;
}

/*
 * Whether the kernel tells the network (by a gratuitous ARP) of its addresses
 * when an interface comes up. Packet sockets would do it as well; the tiny
 * kernel has none. The sign that was there, or 0.
 */
static char net_announce(char on)
{
    int fd = open(NET_ARP_NOTIFY, O_RDWR | O_CLOEXEC);
    char before = 0;

    if (fd < 0)
        return 0;
    if (read(fd, &before, 1) == 1)
        (void)!pwrite(fd, &on, 1, 0);
    close(fd);
    return before;
}

/* `what` tells what failed. */
static int net_apply(int fd, int index, const struct net_request *request,
                     const char **what)
{
    /* Down it loses neighbours and routes, so only for new addresses. */
    bool down = request->renew && request->has_address;
    int err = down ? net_switch(fd, index, 0) : 0;

    *what = "NET_CONFIG: interface";
    if (err == 0)
        err = net_link(fd, index, request);
    if (err == 0 && (request->flush || down))
        err = net_flush(fd, index);
    if (err == 0 && down) {
        *what = "NET_CONFIG: address";
        err = net_pass(fd, index, request, NET_IPV4);
    }
    if (err == 0) {
        err = net_switch(fd, index, IFF_UP);
        *what = "NET_CONFIG: address";
    }
    if (err == 0 && !down)
        err = net_pass(fd, index, request, NET_IPV4);
    if (err == 0)
        err = net_pass(fd, index, request, NET_IPV6);
    if (err == 0) {
        *what = "NET_CONFIG: route";
        err = net_pass(fd, index, request, NET_ROUTES);
    }
    return err;
}

static int net_carry_out(const struct net_request *request, struct refusal *r)
{
    const char *what = "NET_CONFIG: interface";
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    int index, err;
    char before = 0;

    if (fd < 0)
        return refuse(r, MOTE_ERR_UNSUPPORTED, errno,
                      "NET_CONFIG: no rtnetlink in this kernel", NULL, NULL);
    if (request->renew)
        before = net_announce('1');
    index = net_find(fd, request);
    err = index < 0 ? index : net_apply(fd, index, request, &what);
    close(fd);
    if (before)
        (void)net_announce(before);
    if (err == 0 && request->hostname[0] &&
        sethostname(request->hostname, strlen(request->hostname)) < 0) {
        what = "NET_CONFIG: host name";
        err = -errno;
    }
    if (err == 0 && request->has_resolver) {
        what = "NET_CONFIG: " RESOLVER_FILE;
        err = resolver_write(request->data, request->length);
    }
    if (err == -ENODEV)
        return refuse(r, MOTE_ERR_NOT_FOUND, ENODEV, what, NULL, NULL);
    return err < 0 ? refuse(r, MOTE_ERR_INTERNAL, -err, what, NULL, NULL) : 0;
}

static int net_request(struct agent *agent, const uint8_t *data, size_t length,
                       struct net_request *out, struct refusal *r)
{
    if (net_parse(data, length, out, r) < 0)
        return -1;
    if (!agent->may_net)
        return refuse(r, MOTE_ERR_DENIED, 0,
                      "NET_CONFIG: this agent is not PID 1 of a machine", NULL,
                      NULL);
    return 0;
}

int net_config(struct agent *agent, const uint8_t *data, size_t length,
               struct refusal *r)
{
    struct net_request request;

    if (net_request(agent, data, length, &request, r) < 0)
        return -1;
    return net_carry_out(&request, r);
}

int net_renew(struct agent *agent, const uint8_t *data, size_t length,
              bool apply, struct refusal *r)
{
    struct net_request request;

    if (net_request(agent, data, length, &request, r) < 0)
        return -1;
    request.renew = true;
    return apply ? net_carry_out(&request, r) : 0;
}
