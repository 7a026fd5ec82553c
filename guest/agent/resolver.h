/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resolver's file: name servers and search domains of a NET_CONFIG.
 */
#ifndef GUEST_AGENT_RESOLVER_H
#define GUEST_AGENT_RESOLVER_H

#include <stddef.h>
#include <stdint.h>

#define RESOLVER_FILE "/etc/resolv.conf"

/* Writes it from the attributes RESOLVER and SEARCH of the message, which was
 * checked; over a read-only root it is mounted. -errno. */
int resolver_write(const uint8_t *data, size_t length);

#endif
