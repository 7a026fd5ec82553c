/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What PID 1 does before it serves: mounts, root file system, settings.
 */
#ifndef GUEST_AGENT_BOOT_H
#define GUEST_AGENT_BOOT_H

#include "guest/agent/agent.h"
#include "guest/agent/text.h"

/* Words of the kernel command line that are ours. Text is NUL terminated and
 * lives in `line`; NULL where a word is absent. */
struct boot_words {
    char line[4096];
    const char *root;      /* root=/dev/vdX */
    const char *root_type; /* rootfstype=, else found out */
    const char *overlay;   /* mote.overlay=tmpfs or /dev/vdX */
    const char *hostname;  /* mote.hostname= */
    bool writable;         /* rw */
    bool marks;            /* mote.marks */
};

/* Cuts `words->line` into words. Pure. */
void boot_parse(struct boot_words *words);

/* Does it all. A guest that cannot get its root ends here: it says why to the
 * kernel log and to the host, and exits, which the kernel takes as a panic. */
void boot_run(struct agent *agent);

/* Notes that the boot got to this point, and tells the monitor if asked. */
void boot_mark(struct agent *agent, uint32_t id);

/* Ends the guest with that reason. */
_Noreturn void boot_fail(const struct text *why);

#endif
