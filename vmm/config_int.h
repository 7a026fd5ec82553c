/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_CONFIG_INT_H
#define VMM_CONFIG_INT_H

/*
 * Between the files of the configuration parser: typed fields (config_field.c)
 * and the sections that have a file of their own. Errors: -EINVAL with a line
 * that names file, section, field and what it must be.
 */

#include "vmm/config.h"

#include <jansson.h>

struct config_ctx {
    struct vm_config *c;
    struct errmsg *err;
    const char *file;
    const char *section;
};

/* --- errors -------------------------------------------------------------- */

int config_bad(struct config_ctx *x, const char *field, const char *want);
int config_unknown(struct config_ctx *x, const char *field);
int config_unsupported(struct config_ctx *x, const char *field);

/* --- typed fields; out is written on success only ------------------------ */

/* A copy that the caller owns; what *out held before is freed. */
int config_string(struct config_ctx *x, const char *field, const json_t *v,
                  char **out) MUST_CHECK;
int config_bool(struct config_ctx *x, const char *field, const json_t *v,
                bool *out) MUST_CHECK;
int config_uint(struct config_ctx *x, const char *field, const json_t *v,
                uint64_t lo, uint64_t hi, uint64_t *out) MUST_CHECK;
/* {bandwidth, ops}, either may be missing; null changes nothing. */
int config_rate_limit(struct config_ctx *x, const char *field, json_t *v,
                      struct rate_limit_config *out) MUST_CHECK;

/* Letters, digits and underscores, at least one. */
bool config_id_ok(const char *id);
/* `list` ends in NULL. */
bool config_is_one_of(const char *field, const char *const *list);

/* --- sections ------------------------------------------------------------ */

/* A file as a document; the caller's to decref. */
int config_read_file(const char *path, json_t **out_doc,
                     struct errmsg *err) MUST_CHECK;
/* All sections of a document into `c`, which config_init() was called on. */
int config_apply(struct vm_config *c, json_t *doc, const char *name,
                 struct errmsg *err) MUST_CHECK;

int config_drives(struct config_ctx *x, json_t *list) MUST_CHECK;
int config_nets(struct config_ctx *x, json_t *list) MUST_CHECK;

/* The field "console_ports" of the section "mote". */
int config_ports(struct config_ctx *x, const char *f, json_t *list) MUST_CHECK;
void config_ports_fini(struct vm_config *c);

int config_balloon_field(struct config_ctx *x, const char *f,
                         json_t *v) MUST_CHECK;
/* What only the whole configuration tells. */
int config_balloon_validate(const struct vm_config *c,
                            struct errmsg *err) MUST_CHECK;
/* config_mmds.c */
int config_mmds_field(struct config_ctx *x, const char *f,
                      json_t *v) MUST_CHECK;
int config_mmds_check(const struct vm_config *c, struct errmsg *err) MUST_CHECK;
void config_mmds_fini(struct config_mmds *m);
/* config_output.c */
int config_logger_field(struct config_ctx *x, const char *f,
                        json_t *v) MUST_CHECK;
int config_metrics_field(struct config_ctx *x, const char *f,
                         json_t *v) MUST_CHECK;
int config_serial_field(struct config_ctx *x, const char *f,
                        json_t *v) MUST_CHECK;
void config_output_fini(struct config_output *o);

#endif
