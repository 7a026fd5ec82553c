/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/net.h"

#include "tools/libmote/launch.h"
#include "tools/libmote/request.h"
#include "tools/libmote/tap.h"
#include "tools/libmote/vm_end.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>

/*
 * What a guest on passt has. passt answers for every other address of this
 * network, so it hides nothing of the host's but these three.
 */
#define NET_USER_ADDRESS  "10.0.2.15"
#define NET_USER_BITS     "24"
#define NET_USER_GATEWAY  "10.0.2.2"
#define NET_USER_RESOLVER "10.0.2.3"
/* No wire: a frame is as large as an IP packet with its header can be. */
#define NET_USER_MTU 65520
#define NET_PASST_FD 3
#define NET_FREE_FD  10

static const struct mote_net_params net_user = {
    .kind = MOTE_NET_USER,
    .address = NET_USER_ADDRESS "/" NET_USER_BITS,
    .gateway = NET_USER_GATEWAY,
    .resolver = NET_USER_RESOLVER,
};

/* --- addresses ----------------------------------------------------------- */

/* "10.0.0.2" or IPv6; with `bits` also "10.0.0.2/24". */
static int net_parse_ip(const char *text, bool bits, struct mote_ip *out)
{
    char copy[INET6_ADDRSTRLEN];
    const char *slash = strchr(text, '/');
    size_t len = slash ? (size_t)(slash - text) : strlen(text);
    uint64_t prefix = 0;

    if (len >= sizeof(copy) || bits != (slash != NULL))
        return -EINVAL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, copy, out->address) == 1)
        out->family = 4;
    else if (inet_pton(AF_INET6, copy, out->address) == 1)
        out->family = 6;
    else
        return -EINVAL;
    if (bits &&
        util_parse_u64(slash + 1, 1, out->family == 4 ? 32 : 128, &prefix))
        return -EINVAL;
    out->prefix = (uint8_t)prefix;
    return 0;
}

static int net_check_ip(const char *what, const char *text, bool bits,
                        struct mote_err *err)
{
    struct mote_ip ip;

    if (!text || net_parse_ip(text, bits, &ip) == 0)
        return 0;
    return lm_err(err, -EINVAL, "network: %s %.60s: not an address such as %s",
                  what, text, bits ? "10.0.0.2/24" : "10.0.0.1");
}

int lm_net_check(const struct mote_net_params *p, struct mote_err *err)
{
    int rc = 0;

    if (p->kind == MOTE_NET_TAP && (!p->tap || !*p->tap))
        return lm_err(err, -EINVAL, "network: no interface; name a TAP");
    if (p->kind != MOTE_NET_TAP)
        return 0;
    rc = net_check_ip("address", p->address, true, err);
    if (rc == 0)
        rc = net_check_ip("gateway", p->gateway, false, err);
    if (rc == 0)
        rc = net_check_ip("resolver", p->resolver, false, err);
    if (rc == 0)
        rc = lm_tap_check(p->tap, err);
    return rc;
}

/* --- passt --------------------------------------------------------------- */

static int net_spawn_passt(int fd, int log_fd, pid_t *out_pid)
{
    static const char *const words[] = {"passt",
                                        "--foreground",
                                        "--quiet",
                                        "--stderr",
                                        "--no-map-gw",
                                        "--tcp-ports",
                                        "none",
                                        "--udp-ports",
                                        "none",
                                        "--address",
                                        NET_USER_ADDRESS,
                                        "--netmask",
                                        NET_USER_BITS,
                                        "--gateway",
                                        NET_USER_GATEWAY,
                                        "--dns-forward",
                                        NET_USER_RESOLVER,
                                        "--fd",
                                        "3",
                                        NULL};
    char **argv = lm_words_copy(words);
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t set;
    int rc;

    if (!argv)
        return -ENOMEM;
    rc = -posix_spawn_file_actions_init(&fa);
    if (rc == 0)
        rc = -posix_spawnattr_init(&attr);
    if (rc) {
        free(argv);
        return rc;
    }
    (void)sigemptyset(&set);
    (void)posix_spawnattr_setsigmask(&attr, &set);
    (void)sigfillset(&set);
    (void)posix_spawnattr_setsigdefault(&attr, &set);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETSID);
    rc = -posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDWR, 0);
    if (rc == 0)
        rc = -posix_spawn_file_actions_adddup2(&fa, log_fd, 1);
    if (rc == 0)
        rc = -posix_spawn_file_actions_adddup2(&fa, log_fd, 2);
    if (rc == 0)
        rc = -posix_spawn_file_actions_adddup2(&fa, fd, NET_PASST_FD);
    if (rc == 0)
        rc = -posix_spawn_file_actions_addclosefrom_np(&fa, NET_PASST_FD + 1);
    if (rc == 0)
        rc = -posix_spawnp(out_pid, argv[0], &fa, &attr, argv, environ);
    (void)posix_spawn_file_actions_destroy(&fa);
    (void)posix_spawnattr_destroy(&attr);
    free(argv);
    return rc;
}

/* Above the numbers that the child's descriptors get. */
static int net_move_up(int *fd)
{
    int up = fcntl(*fd, F_DUPFD_CLOEXEC, NET_FREE_FD);

    if (up < 0)
        return neg_errno();
    drop_fd(fd);
    *fd = up;
    return 0;
}

static int net_start_passt(const struct lm_slot *slot, struct lm_net *net,
                           struct mote_err *err)
{
    CLEANUP_FD int far_end = -1;
    int ends[2];
    int rc = 0;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        rc = neg_errno();
        return lm_err(err, rc, "network: socket pair: %s", err_reason(rc));
    }
    net->vmm_fd = ends[0];
    far_end = ends[1];
    net->log_fd =
        openat(slot->dir_fd, LM_PASST_FILE,
               O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (net->log_fd < 0)
        rc = neg_errno();
    if (rc == 0)
        rc = net_move_up(&net->log_fd);
    if (rc == 0)
        rc = net_move_up(&far_end);
    if (rc == 0)
        rc = net_spawn_passt(far_end, net->log_fd, &net->pid);
    if (rc == -ENOENT)
        return lm_err(err, rc,
                      "network: passt is not there; install the package passt, "
                      "or use a TAP (--net tap=NAME)");
    if (rc == 0) {
        net->pidfd = pidfd_open(net->pid, 0);
        rc = net->pidfd < 0 ? neg_errno() : 0;
    }
    if (rc)
        return lm_err(err, rc, "network: passt cannot be started: %s",
                      err_reason(rc));
    return 0;
}

/* passt that gave up has said why; where there is no route is the usual. */
static int net_check_passt(const struct lm_net *net, struct mote_err *err)
{
    struct pollfd p = {.fd = net->pidfd, .events = POLLIN};
    char line[200];

    if (net->pid == 0 || poll(&p, 1, 0) <= 0)
        return 0;
    lm_last_log_line(net->log_fd, line, sizeof(line));
    return lm_err(err, -ENETDOWN,
                  "network: passt ended: %s; the host needs a default route "
                  "for --net user",
                  line[0] ? line : "it did not say why");
}

/* --- the monitor's side -------------------------------------------------- */

int lm_net_start(const struct mote_net_params *p, const struct lm_slot *slot,
                 struct lm_net *out, struct mote_err *err)
{
    if (p->kind == MOTE_NET_NONE)
        return 0;
    if (getrandom(out->mac, sizeof(out->mac), 0) != sizeof(out->mac))
        return lm_err(err, -EIO, "network: the host gave no random address");
    out->mac[0] = (uint8_t)((out->mac[0] & 0xfc) | 0x02);
    return p->kind == MOTE_NET_USER ? net_start_passt(slot, out, err) : 0;
}

static json_t *net_own_fields(const struct mote_net_params *p, int fd)
{
    json_t *own = json_object();
    json_t *without = json_array();
    int rc = own && without ? 0 : -1;

    for (size_t i = 0; rc == 0 && p->without && p->without[i]; i++)
        rc = json_array_append_new(without, json_string(p->without[i]));
    if (rc == 0 && json_array_size(without) > 0)
        rc = json_object_set(own, "without", without);
    if (rc == 0 && p->kind == MOTE_NET_USER)
        rc = json_object_set_new(own, "fd", json_integer(fd));
    if (rc == 0 && p->queue_pairs > 1)
        rc = json_object_set_new(own, "queue_pairs",
                                 json_integer(p->queue_pairs));
    json_decref(without);
    if (rc) {
        json_decref(own);
        return NULL;
    }
    return own;
}

static void net_mac_text(const uint8_t mac[6], char out[18])
{
    (void)snprintf(out, 18, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1],
                   mac[2], mac[3], mac[4], mac[5]);
}

json_t *lm_net_config(const struct mote_net_params *p, const struct lm_net *net,
                      int fd)
{
    char mac[18];
    json_t *mtu =
        p->kind == MOTE_NET_USER ? json_integer(NET_USER_MTU) : json_null();

    net_mac_text(net->mac, mac);
    return json_pack("[{s:s, s:s*, s:s, s:o, s:o}]", "iface_id", "eth0",
                     "host_dev_name", p->kind == MOTE_NET_TAP ? p->tap : NULL,
                     "guest_mac", mac, "mtu", mtu, "mote",
                     net_own_fields(p, fd));
}

json_t *lm_net_override(const struct mote_net_params *p,
                        const struct lm_net *net, const char *iface_id, int fd)
{
    char mac[18];

    net_mac_text(net->mac, mac);
    /* Its address in the guest changes only if that is told of it. */
    return json_pack("{s:s, s:s*, s:s*, s:o}", "iface_id", iface_id,
                     "host_dev_name", p->kind == MOTE_NET_TAP ? p->tap : NULL,
                     "guest_mac",
                     p->kind == MOTE_NET_USER || p->address ? mac : NULL,
                     "mote", net_own_fields(p, fd));
}

/* --- the guest's side ---------------------------------------------------- */

static int net_put_ip(struct lm_buf *b, uint16_t type, const char *text,
                      bool bits)
{
    struct mote_ip ip;

    if (!text)
        return 0;
    if (net_parse_ip(text, bits, &ip))
        return -EINVAL;
    return lm_put_attr(b, type, MOTE_ATTR_REQUIRED, &ip, sizeof(ip));
}

static int net_put_default_route(struct lm_buf *b, const char *gateway)
{
    struct mote_route route = {0};
    struct mote_ip ip;

    if (!gateway)
        return 0;
    if (net_parse_ip(gateway, false, &ip))
        return -EINVAL;
    route.family = ip.family;
    memcpy(route.gateway, ip.address, sizeof(route.gateway));
    return lm_put_attr(b, MOTE_ATTR_ROUTE, MOTE_ATTR_REQUIRED, &route,
                       sizeof(route));
}

static int net_put_mac(struct lm_buf *b, uint16_t type, const uint8_t mac[6])
{
    return lm_put_attr(b, type, MOTE_ATTR_REQUIRED, mac, 6);
}

static int net_put_addresses(struct lm_buf *b, const struct mote_net_params *p)
{
    int rc = net_put_ip(b, MOTE_ATTR_ADDRESS, p->address, true);

    if (rc == 0)
        rc = net_put_default_route(b, p->gateway);
    if (rc == 0)
        rc = net_put_ip(b, MOTE_ATTR_RESOLVER, p->resolver, false);
    return rc;
}

int lm_net_put_interface(struct lm_buf *out, const struct mote_net_params *p,
                         const struct lm_net *net, const uint8_t *old_mac)
{
    struct lm_buf inner = {0};
    int rc = 0;

    if (p->kind == MOTE_NET_USER)
        p = &net_user;
    if (p->kind == MOTE_NET_NONE || !p->address)
        return 0;
    if (old_mac)
        rc = net_put_mac(&inner, MOTE_ATTR_IF_MAC, old_mac);
    if (rc == 0)
        rc = net_put_mac(&inner, MOTE_ATTR_SET_MAC, net->mac);
    if (rc == 0)
        rc = net_put_addresses(&inner, p);
    if (rc == 0)
        rc = lm_put_attr(out, MOTE_ATTR_INTERFACE, MOTE_ATTR_REQUIRED,
                         inner.data, inner.len);
    lm_buf_fini(&inner);
    return rc;
}

int lm_net_tell_guest(const struct mote_net_params *p, const struct lm_net *net,
                      const char *vsock_path, int timeout_ms, int cancel_fd,
                      struct mote_err *err)
{
    struct mote_request *r = NULL;
    struct lm_buf attrs = {0};
    int rc;

    if (p->kind == MOTE_NET_USER)
        p = &net_user;
    if (p->kind == MOTE_NET_NONE || !p->address)
        return 0;
    rc = net_check_passt(net, err);
    if (rc)
        return rc;
    if (net_put_mac(&attrs, MOTE_ATTR_IF_MAC, net->mac) ||
        net_put_addresses(&attrs, p)) {
        lm_buf_fini(&attrs);
        return lm_err_nomem(err);
    }
    rc = lm_request_start(vsock_path, MOTE_T_NET_CONFIG, &attrs, &r, err);
    if (rc == 0)
        rc = mote_request_wait(r, timeout_ms, cancel_fd, err);
    mote_request_free(r);
    return rc;
}

void lm_net_fini(struct lm_net *net)
{
    if (net->pid > 0) {
        /* Not reaped: the pid is still its own. */
        (void)kill(net->pid, SIGKILL);
        (void)waitpid(net->pid, NULL, 0);
        net->pid = 0;
    }
    drop_fd(&net->pidfd);
    drop_fd(&net->log_fd);
    drop_fd(&net->vmm_fd);
}
