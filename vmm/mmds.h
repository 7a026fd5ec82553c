/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_MMDS_H
#define VMM_MMDS_H

/*
 * The metadata service of one machine: what the control socket stores, what a
 * guest may ask and how it is answered. How the guest's requests get here is
 * the matter of devices/mmds_net.h.
 *
 * Ownership: owns its document. Threads: io. Errors: -errno with a line.
 */

#include "devices/mmds_net.h"
#include "vmm/config_int.h"
#include "vmm/mmds_store.h"
#include "vmm/mmds_token.h"

struct mmds_totals {
    struct mmds_counts net;
    uint64_t no_token; /* requests that were refused for that */
    uint64_t bad_token;
};

struct mmds {
    struct mmds_store store;
    struct mmds_tokens tokens;
    struct mmds_service service; /* what devices are given */
    struct mmds_totals counts;
    bool v2;                 /* a token is needed */
    bool imds_compat;        /* answers are text, whatever is accepted */
    struct mmds_totals told; /* what the last line of metrics said */
};

/* `limit`: of the document, in bytes. NULL: out of memory. */
struct mmds *mmds_new(size_t limit) MUST_CHECK;
void mmds_free(struct mmds *m); /* NULL is fine */

/* The document out of a file. */
int mmds_load(struct mmds *m, const char *path, struct errmsg *err) MUST_CHECK;
/* How it is for the machine that is about to start. */
void mmds_configure(struct mmds *m, const struct config_mmds *c);
/* Adds its counts since the last line. */
void mmds_gather(struct mmds *m, json_t *line);

/* mmds_http.c: struct mmds_service's respond(); `arg` is the mmds. */
int32_t mmds_respond(void *arg, const char *data, size_t len, bool full,
                     struct mmds_response *out);

#endif
