/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root file system: wait for the disk, mount it, lay a writable layer over
 * it if asked, make it "/".
 */
#ifndef GUEST_AGENT_ROOT_H
#define GUEST_AGENT_ROOT_H

struct words;

/* Moves /proc and /dev along. Does not return if the root cannot be had. */
void root_enter(const struct words *words);

#endif
