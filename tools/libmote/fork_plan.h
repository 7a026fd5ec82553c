/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_FORK_PLAN_H
#define TOOLS_LIBMOTE_FORK_PLAN_H

/*
 * What a fork's source is made of, and what each child is told to have
 * instead.
 * Ownership: embedded; strings are its own until fork_plan_fini().
 * Threads: any. Errors: -errno with `err`.
 */

#include "tools/libmote/api.h"
#include "tools/libmote/vm_int.h"

struct fork_plan {
    char api[160]; /* the source's control socket */
    /* Its shared directory, as it sees that and as we do; the same unless it
     * is in a jail. */
    char seen_run[MOTE_PATH_CAP];
    char run[MOTE_PATH_CAP];
    json_t *config;
    json_t *drives;       /* drive_overrides of each child */
    const char *iface_id; /* of its interface, in config; NULL: it has none */
    const char *tap;      /* likewise; NULL: it has no TAP */
    bool has_passt;
    bool has_mac;
    uint8_t old_mac[6];
    unsigned vcpus;
    uint64_t mem_bytes;
};

/* -EOPNOTSUPP for a machine whose children cannot be given all it has. */
int fork_plan_read(struct fork_plan *p, const struct mote_vm_info *source,
                   struct mote_err *err) MUST_CHECK;
void fork_plan_fini(struct fork_plan *p); /* idempotent */

/* The network of one child; `want` NULL: as the source has it. */
int fork_plan_net(const struct fork_plan *p, const struct mote_net_params *want,
                  struct mote_net_params *out, struct mote_err *err) MUST_CHECK;

/* Puts the socket where the source can reach it, for as long as it is asked. */
int fork_plan_lend(const struct fork_plan *p, const struct mote_vm *vm,
                   struct mote_err *err) MUST_CHECK;
void fork_plan_unlend(const struct fork_plan *p, const struct mote_vm *vm);

/* Its entry in PUT /mote/fork; NULL when out of memory or not UTF-8. */
json_t *fork_plan_child(const struct fork_plan *p, const struct mote_vm *vm,
                        const struct mote_net_params *net, bool track_writes);

#endif
