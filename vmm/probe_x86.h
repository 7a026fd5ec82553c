/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_PROBE_X86_H
#define VMM_PROBE_X86_H

/*
 * Does this KVM run the guest's ring 0 natively or emulate it in software?
 * Found out by measuring: a loop in ring 0 of a throw-away VM.
 *
 * Threads: any. Errors: -errno with a line in `err`.
 */

#include "vmm/errmsg.h"

struct ring0_probe {
    bool emulated;
    double ns_per_instruction;
    bool from_cache;
};

/* Some ten thousand instructions; 10 to 20 ms where they are emulated. */
int probe_ring0_measure(struct ring0_probe *out, struct errmsg *err) MUST_CHECK;

/* What follows from a time that was measured before. Pure. */
struct ring0_probe probe_ring0_known(double ns_per_instruction);

/*
 * The same through a file that holds for one boot of the host: `dir` is a
 * directory that only this user can write (NULL: always measure). A cache
 * that cannot be read or written is no error.
 */
int probe_ring0_cached(const char *dir, struct ring0_probe *out,
                       struct errmsg *err) MUST_CHECK;

/* Leaves a measurement in that file, as far as that can be done. */
void probe_ring0_store(const char *dir, const struct ring0_probe *p);

/*
 * Directory for that file: /run/mote as root, else $XDG_RUNTIME_DIR/mote; made
 * (0700) if its parent is there. False when there is no safe place.
 */
bool probe_cache_dir(char *out, size_t size);

#endif
