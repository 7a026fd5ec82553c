/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_API_INT_H
#define VMM_API_INT_H

/*
 * Between the route table (api_table.c), what dispatches by it (api_routes.c),
 * and its handlers: api_preboot.c for
 * what describes a machine, api_running.c for one that runs, api_mmds.c for the
 * guest's metadata, api_info.c for what only reads. thread: io
 */

#include "vmm/control_int.h"

enum api_phase { API_PRE = 1, API_POST = 2, API_BOTH = API_PRE | API_POST };

struct api_call;
/*
 * 0: done, 204 or 200 with `result`. API_LATER: api_finish() will be called.
 * -errno: 400 with the line in `err`.
 */
typedef int (*api_fn)(struct api_call *c);
#define API_LATER 1

struct api_route {
    const char *method;
    const char *path; /* "{}" stands for one id */
    enum api_phase phase;
    api_fn fn;
    const char *section; /* of the configuration, for the generic handlers */
    const char *key;     /* the field of the body that repeats the path's id */
    const char *need[3]; /* fields that the body has to have */
    const char *stat;    /* name of its counts in the metrics */
};

extern const struct api_route api_routes[];
extern const size_t api_num_routes; /* at most API_MAX_ROUTES */

struct api_call {
    struct control *ctl;
    const struct api_route *route;
    char id[64];  /* of the path, if the route has one */
    json_t *body; /* borrowed; an object, or NULL without a body */
    json_t *result;
    struct errmsg err;
    bool deprecated;
    int status; /* of a refusal; 0: 400 */
};

/* Answers a request whose handler gave API_LATER. */
void api_finish(struct control *ctl, int rc, const struct errmsg *err);

/* The same, with an object to be owned by the callee, or NULL. */
void api_finish_with(struct control *ctl, int rc, json_t *result,
                     const struct errmsg *err);

/* -EINVAL with a line: a field of the body is not one of `allowed`, a list
 * that ends in NULL. */
int api_only_fields(struct api_call *c, const char *const *allowed) MUST_CHECK;

/* --- handlers ------------------------------------------------------------ */

int api_put_section(struct api_call *c);
int api_patch_section(struct api_call *c);
int api_put_item(struct api_call *c);
int api_put_boot_source(struct api_call *c);
int api_put_drive(struct api_call *c);
int api_put_logger(struct api_call *c);
int api_put_metrics(struct api_call *c);
int api_put_serial(struct api_call *c);

int api_get_instance(struct api_call *c);
int api_get_version(struct api_call *c);
int api_get_machine(struct api_call *c);
int api_get_config(struct api_call *c);
int api_get_balloon(struct api_call *c);
int api_not_there(struct api_call *c); /* what this version does not do */

int api_put_mmds_config(struct api_call *c);
int api_get_mmds(struct api_call *c);
int api_put_mmds(struct api_call *c);
int api_patch_mmds(struct api_call *c);

int api_action(struct api_call *c);
int api_patch_vm(struct api_call *c);
int api_patch_drive(struct api_call *c);
int api_patch_net(struct api_call *c);
int api_patch_balloon(struct api_call *c);
int api_get_balloon_stats(struct api_call *c);
int api_patch_balloon_stats(struct api_call *c);
int api_snapshot_create(struct api_call *c);
int api_snapshot_load(struct api_call *c);
int api_fork(struct api_call *c);
int api_hinting_start(struct api_call *c);
int api_hinting_stop(struct api_call *c);
int api_hinting_status(struct api_call *c);

#endif
