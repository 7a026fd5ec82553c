/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root file system: wait for the disk, mount it, lay a writable layer over
 * it if asked, make it "/".
 */
#ifndef GUEST_AGENT_ROOT_H
#define GUEST_AGENT_ROOT_H

#include <stddef.h>
#include <stdint.h>

struct boot_words;

/* Bytes of a disk that root_type looks at. */
#define ROOT_PROBE_BYTES 2048u

/* The file system whose mark these first bytes carry, or NULL. Pure. */
const char *root_type(const uint8_t *bytes, size_t length);

/* Moves /proc and /dev along. Does not return if the root cannot be had. */
void root_enter(const struct boot_words *words);

#endif
