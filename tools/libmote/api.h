/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_API_H
#define TOOLS_LIBMOTE_API_H

/*
 * Requests to a monitor's control socket (vmm/api.yaml): one connection each,
 * blocking. The monitor is ours and trusted, its answers are bounded all the
 * same.
 * Threads: any. Errors: -errno with `err`; -EREMOTEIO when the monitor says
 * no, with its words.
 */

#include "tools/libmote/err.h"

#include <jansson.h>

/*
 * `body` is borrowed, NULL for none. `out_json` (may be NULL) gets the answer,
 * to be released by the caller, or NULL if it has no body.
 */
int lm_api_call(const char *path, const char *method, const char *target,
                json_t *body, json_t **out_json,
                struct mote_err *err) MUST_CHECK;

#endif
