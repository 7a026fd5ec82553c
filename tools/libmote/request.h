/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_REQUEST_H
#define TOOLS_LIBMOTE_REQUEST_H

/* Requests whose whole answer is OK or ERROR, for the library's own files. */

#include "tools/libmote/frame.h"
#include "tools/libmote/mote.h"

/* Begins `type` with `attrs`, which it takes over. */
int lm_request_start(const char *vsock_path, uint8_t type, struct lm_buf *attrs,
                     struct mote_request **out,
                     struct mote_err *err) MUST_CHECK;

#endif
