/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_SNAPDIR_META_H
#define TOOLS_LIBMOTE_SNAPDIR_META_H

/* snapshot.json as text. Pure. Errors: -errno with `err`. */

#include "tools/libmote/snapdir.h"

#define SNAPDIR_TIME_TEXT 40

/* For free(); NULL when out of memory or a path is not UTF-8. */
char *snapdir_meta_text(const struct snapdir_meta *m);
/* `path` of the directory is for the words. */
int snapdir_meta_read(const char *text, const char *path,
                      struct snapdir_meta *out,
                      struct mote_err *err) MUST_CHECK;
/* RFC 3339, UTC. */
void snapdir_time_text(int64_t ms, char out[SNAPDIR_TIME_TEXT]);

#endif
