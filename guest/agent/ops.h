/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that are done at once: network, clock, power. Each reads its
 * message and returns 0, or -1 with the reason in *r.
 */
#ifndef GUEST_AGENT_OPS_H
#define GUEST_AGENT_OPS_H

#include "guest/agent/agent.h"
#include "guest/agent/text.h"

/* Sets one interface up and writes /etc/resolv.conf. */
int net_config(struct agent *agent, const uint8_t *data, size_t length,
               struct refusal *r);
/*
 * The same for a machine that came out of a snapshot: with an ADDRESS the
 * interface goes down first, its neighbours and old addresses with it, and the
 * new addresses are told to the network. `apply` false only checks.
 */
int net_renew(struct agent *agent, const uint8_t *data, size_t length,
              bool apply, struct refusal *r);
/* Brings "lo" up; quietly without a network in the kernel. */
void net_loopback(void);

int power_clock_set(struct agent *agent, const uint8_t *data, size_t length,
                    struct refusal *r);
/* -errno; `ns` since 1970 UTC. */
int power_set_clock(uint64_t ns);
/* Checks and arms it; the machine goes once the answer is on its way. */
int power_request(struct agent *agent, const uint8_t *data, size_t length,
                  struct refusal *r);

/* Why an attribute walk of `what` ended early: err is from the codec, or
 * -ENOENT for a required attribute that is not known. Returns -1. */
int ops_refuse_attr(struct refusal *r, const char *what, int err);

#endif
