/* SPDX-License-Identifier: Apache-2.0 */
/* Finding, creating and opening TAPs. thread: any */
#include "devices/net_tap_int.h"

#include "vmm/cleanup.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define TAP_DEVICE "/dev/net/tun"

/* --- interfaces by name -------------------------------------------------- */

/* A request on interface `r->ifr_name`. syscalls: socket, ioctl(SIOC*) */
static int tap_ifreq(unsigned long what, struct ifreq *r)
{
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || ioctl(fd, what, r) < 0)
        return neg_errno();
    return 0;
}

static void tap_name(struct ifreq *r, const char *name)
{
    memset(r, 0, sizeof(*r));
    (void)snprintf(r->ifr_name, sizeof(r->ifr_name), "%s", name);
}

/* 0: there is none. */
static int tap_index(const char *name)
{
    struct ifreq r;

    tap_name(&r, name);
    return tap_ifreq(SIOCGIFINDEX, &r) ? 0 : r.ifr_ifindex;
}

static uint32_t tap_mtu(const char *name)
{
    struct ifreq r;

    tap_name(&r, name);
    return tap_ifreq(SIOCGIFMTU, &r) || r.ifr_mtu < 0 ? 0 : (uint32_t)r.ifr_mtu;
}

/* An interface that nobody else looks after: its MTU, and up. */
static int tap_raise(const struct net_tap_args *args, struct errmsg *err)
{
    struct ifreq r;
    int rc = 0;

    tap_name(&r, args->name);
    if (args->mtu) {
        r.ifr_mtu = (int)args->mtu;
        rc = tap_ifreq(SIOCSIFMTU, &r);
    }
    if (rc == 0) {
        tap_name(&r, args->name);
        rc = tap_ifreq(SIOCGIFFLAGS, &r);
        r.ifr_flags |= IFF_UP;
    }
    if (rc == 0)
        rc = tap_ifreq(SIOCSIFFLAGS, &r);
    if (rc)
        return err_set(err, rc,
                       "network interface %s: cannot be set up (MTU %u): %s; "
                       "create it yourself",
                       args->name, args->mtu, err_reason(rc));
    return 0;
}

/* --- opening ------------------------------------------------------------- */

static int tap_open_error(const struct net_tap_args *a, int rc,
                          struct errmsg *err)
{
    switch (rc) {
    case -EBUSY:
        return err_set(err, rc,
                       "network interface %s: in use by another process; end "
                       "that one or use another interface",
                       a->name);
    case -EPERM:
    case -EACCES:
        return err_set(err, rc,
                       "network interface %s: not allowed; give it to this "
                       "user (ip tuntap add %s mode tap user NAME) or run "
                       "with CAP_NET_ADMIN",
                       a->name, a->name);
    case -EINVAL:
        return err_set(err, rc,
                       "network interface %s: no TAP interface%s; make one "
                       "with: ip tuntap add %s mode tap%s",
                       a->name, a->pairs > 1 ? " of several queues" : "",
                       a->name, a->pairs > 1 ? " multi_queue" : "");
    default:
        return err_set(err, rc, "network interface %s: cannot be opened: %s",
                       a->name, err_reason(rc));
    }
}

/* syscalls: openat, ioctl(TUNSETIFF) */
static int tap_open_queue(const char *name, bool multi, int *out_fd,
                          struct errmsg *err)
{
    CLEANUP_FD int fd = open(TAP_DEVICE, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    struct ifreq r;

    if (fd < 0) {
        int rc = neg_errno();

        return err_set(err, rc,
                       TAP_DEVICE ": %s; load the tun module (modprobe tun) "
                                  "and allow this user to open it",
                       err_reason(rc));
    }
    tap_name(&r, name);
    r.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    if (multi)
        r.ifr_flags |= IFF_MULTI_QUEUE;
    err->text[0] = '\0'; /* the caller words what follows */
    if (ioctl(fd, TUNSETIFF, &r) < 0)
        return neg_errno();
    *out_fd = take_fd(&fd);
    return 0;
}

/* All queues of the interface, the first in any flavour that it has. */
static int tap_open_queues(struct net_tap *t, const struct net_tap_args *a,
                           struct errmsg *err)
{
    bool multi = a->pairs > 1;
    int rc = 0;

    while (t->num_open < a->pairs && rc == 0) {
        int *fd = &t->pairs[t->num_open].fd;

        rc = tap_open_queue(a->name, multi, fd, err);
        if (rc == -EINVAL && !multi && !err->text[0])
            rc = tap_open_queue(a->name, true, fd, err);
        if (rc == 0)
            t->num_open++;
    }
    if (rc && !err->text[0])
        return tap_open_error(a, rc, err);
    return rc;
}

/* syscalls: ioctl(TUNSETVNETHDRSZ, TUNSETOFFLOAD) */
static int tap_set_header(struct net_tap *t, const char *name,
                          struct errmsg *err)
{
    for (uint16_t i = 0; t->base.vnet_hdr && i < t->num_open; i++) {
        int bytes = NET_HDR_BYTES;

        if (ioctl(t->pairs[i].fd, TUNSETVNETHDRSZ, &bytes) < 0 ||
            ioctl(t->pairs[i].fd, TUNSETOFFLOAD, 0) < 0) {
            int rc = neg_errno();

            return err_set(err, rc,
                           "network interface %s: its headers cannot be set: "
                           "%s; the host's kernel has to be 4.8 or newer",
                           name, err_reason(rc));
        }
    }
    return 0;
}

static int tap_missing(const char *name, struct errmsg *err)
{
    return err_set(err, -ENODEV,
                   "network interface %s: does not exist; create it: ip "
                   "tuntap add %s mode tap && ip link set %s up",
                   name, name, name);
}

static int tap_open_into(struct net_tap *t, const struct net_tap_args *a,
                         struct errmsg *err)
{
    int index = tap_index(a->name);
    int rc;

    if (strlen(a->name) >= IFNAMSIZ)
        return err_set(err, -EINVAL,
                       "network interface %.32s: a name has %u characters at "
                       "most; use another",
                       a->name, IFNAMSIZ - 1);
    if (index == 0 && !a->create)
        return tap_missing(a->name, err);
    rc = tap_open_queues(t, a, err);
    if (rc)
        return rc;
    /* One that went away meanwhile was just made anew, without anybody's
     * address or bridge: that is not what was asked for. */
    if (index != 0 && index != tap_index(a->name))
        return tap_missing(a->name, err);
    rc = tap_set_header(t, a->name, err);
    if (rc == 0 && index == 0)
        rc = tap_raise(a, err);
    t->base.mtu = tap_mtu(a->name);
    return rc;
}

int net_tap_open(const struct net_tap_args *args, struct net_back **out_back,
                 struct errmsg *err)
{
    struct net_tap *t = tap_new(args->pairs);
    int rc;

    if (!t)
        return err_set(err, -ENOMEM, "network: out of memory");
    rc = tap_open_into(t, args, err);
    if (rc) {
        t->base.ops->free(&t->base);
        return rc;
    }
    *out_back = &t->base;
    return 0;
}

int net_tap_adopt(int fd, struct net_back **out_back, struct errmsg *err)
{
    struct net_tap *t;
    struct ifreq r;
    int flags;
    int rc;

    memset(&r, 0, sizeof(r));
    if (ioctl(fd, TUNGETIFF, &r) < 0)
        return -ENOTTY;
    flags = fcntl(fd, F_GETFL);
    if (!(r.ifr_flags & IFF_TAP) || !(r.ifr_flags & IFF_NO_PI) || flags < 0 ||
        fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return err_set(err, -EINVAL,
                       "network descriptor %d: not a TAP without packet "
                       "information; open it with IFF_TAP and IFF_NO_PI",
                       fd);
    t = tap_new(1);
    if (!t)
        return err_set(err, -ENOMEM, "network: out of memory");
    t->base.vnet_hdr = r.ifr_flags & IFF_VNET_HDR;
    t->base.mtu = tap_mtu(r.ifr_name);
    t->pairs[0].fd = fd;
    t->num_open = 1;
    rc = tap_set_header(t, r.ifr_name, err);
    if (rc) {
        t->pairs[0].fd = -1; /* still the caller's */
        t->base.ops->free(&t->base);
        return rc;
    }
    *out_back = &t->base;
    return 0;
}
