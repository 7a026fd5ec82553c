/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tells one machine from its copies inside the kernel: the state of its
 * random generator, and the boot id.
 */
#ifndef GUEST_AGENT_IDENTITY_H
#define GUEST_AGENT_IDENTITY_H

#include "guest/agent/text.h"

/*
 * Mixes random bytes of the host into the kernel's pool and has the generator
 * seeded from it at once. vmgenid does the same where the kernel has it; this
 * does not depend on that, nor on when its interrupt is handled.
 */
void identity_seed(const void *bytes, size_t length);

/*
 * A fresh boot id, mounted over the kernel's, which cannot be changed. Whoever
 * mounts /proc again (a container does) sees the kernel's: that of the first
 * boot, the same in all copies. -1 with the reason in *why.
 */
int identity_boot_id(struct text *why);

#endif
