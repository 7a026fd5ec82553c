/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_CONFIG_DOC_H
#define VMM_CONFIG_DOC_H

/*
 * The configuration as the JSON document that a configuration file holds. The
 * control socket changes it section by section: a changed copy is made, read
 * by the same parser as a file, and takes the place of the old one if it is
 * good.
 *
 * Ownership: functions give new references; arguments are borrowed and, though
 * jansson has no const for what it counts references of, not changed. NULL when
 * out of memory. Threads: any, one at a time.
 */

#include "vmm/config_int.h"

/* With `section` replaced by `value`; NULL takes it away. */
json_t *config_doc_with(json_t *doc, const char *section,
                        json_t *value) MUST_CHECK;
/* With `item` in the list `section`, in place of the one that has the same
 * `key`, else at its end. */
json_t *config_doc_with_item(json_t *doc, const char *section, const char *key,
                             json_t *item) MUST_CHECK;
/* Borrowed; NULL: there is none. */
json_t *config_doc_item(json_t *doc, const char *section, const char *key,
                        const char *id);

/*
 * `old` (or NULL) with the fields of `patch` over it. An object in both is
 * merged one level deep: a rate limiter keeps the bucket that is not named.
 * null stands for a field that is left out.
 */
json_t *config_doc_patched(json_t *old, json_t *patch) MUST_CHECK;

/* The section machine-config with all its fields. */
json_t *config_doc_machine(json_t *doc, const struct vm_config *c) MUST_CHECK;
/* All sections, as GET /vm/config shows them: a file can hold the same. */
json_t *config_doc_view(json_t *doc, const struct vm_config *c) MUST_CHECK;

#endif
