/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What PID 1 does before it serves: mounts, root file system, settings.
 */
#ifndef GUEST_AGENT_BOOT_H
#define GUEST_AGENT_BOOT_H

#include "guest/agent/agent.h"
#include "guest/agent/text.h"

/* Does it all. A guest that cannot get its root ends here: it says why to the
 * kernel log and to the host, and exits, which the kernel takes as a panic. */
void boot_run(struct agent *agent);

/* Notes that the boot got to this point, and tells the monitor if asked. */
void boot_mark(struct agent *agent, uint32_t id);

/* Ends the guest with that reason. */
_Noreturn void boot_fail(struct text *why);

#endif
