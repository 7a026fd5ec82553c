/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_NET_H
#define TOOLS_LIBMOTE_NET_H

/*
 * A machine's network, seen from the host: what the monitor's configuration
 * says of it, passt where it is wanted, and what the guest is told.
 *
 * passt gets one end of a socket pair and the monitor the other: it ends when
 * the monitor does, however that ends.
 * Threads: any. Errors: -errno with `err`.
 */

#include "tools/libmote/frame.h"
#include "tools/libmote/rundir.h"

#include <jansson.h>

struct lm_net {
    uint8_t mac[6];
    int vmm_fd; /* for the monitor, until it was started; -1: none */
    int log_fd; /* passt's words; -1: it was not started */
    pid_t pid;  /* passt's; 0: none */
    int pidfd;
};

#define LM_NET_NONE ((struct lm_net){.vmm_fd = -1, .log_fd = -1, .pidfd = -1})

/* -EINVAL if the parameters make no network. */
int lm_net_check(const struct mote_net_params *p,
                 struct mote_err *err) MUST_CHECK;
int lm_net_start(const struct mote_net_params *p, const struct lm_slot *slot,
                 struct lm_net *out, struct mote_err *err) MUST_CHECK;
/*
 * The section network-interfaces, for a kind other than none; NULL when out of
 * memory or not UTF-8. The monitor is to inherit net->vmm_fd as `fd`.
 */
json_t *lm_net_config(const struct mote_net_params *p, const struct lm_net *net,
                      int fd);
/* The item of network_overrides that puts another host end in its place. */
json_t *lm_net_override(const struct mote_net_params *p,
                        const struct lm_net *net, const char *iface_id, int fd);
/*
 * The attribute INTERFACE of a RESTORE: it becomes net->mac with the addresses
 * of `p`; nothing if those are not set up. `old_mac` NULL: the guest's first.
 */
int lm_net_put_interface(struct lm_buf *out, const struct mote_net_params *p,
                         const struct lm_net *net,
                         const uint8_t *old_mac) MUST_CHECK;
/* Once the agent is ready: addresses, routes, resolver. */
int lm_net_tell_guest(const struct mote_net_params *p, const struct lm_net *net,
                      const char *vsock_path, int timeout_ms, int cancel_fd,
                      struct mote_err *err) MUST_CHECK;
void lm_net_fini(struct lm_net *net); /* idempotent */

#endif
