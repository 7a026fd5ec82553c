/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_MMDS_STORE_H
#define VMM_MMDS_STORE_H

/*
 * The metadata of one machine: a JSON object that the control socket writes
 * and the guest reads, by path.
 *
 * Ownership: the store owns its document; texts that it gives are the caller's
 * to free. Threads: io. Errors: -errno; the document is as before then.
 */

#include "vmm/util.h"

#include <jansson.h>

struct mmds_store {
    json_t *doc;  /* NULL: nothing was stored yet */
    size_t limit; /* bytes of the document as compact text */
};

/* A copy of the object. -EFBIG: it is larger than the limit; -ENOMEM. */
int mmds_store_put(struct mmds_store *s, json_t *doc) MUST_CHECK;
/* As rfc7396 says. -ENOENT: there is nothing to be merged with; as above. */
int mmds_store_patch(struct mmds_store *s, json_t *patch) MUST_CHECK;
/* The document, {} for none; a new reference, NULL without memory. */
json_t *mmds_store_get(const struct mmds_store *s);
void mmds_store_fini(struct mmds_store *s);

/*
 * The value at `path` as text: JSON, or the words of a metadata service: a
 * string as it is, an object as the lines of its keys, where objects end in /.
 * A path is a JSON pointer (rfc6901); slashes count once, one at the end is no
 * key. -ENOENT: there is no such value; -ENOTSUP: it has no words; -ENOMEM.
 */
int mmds_store_text(const struct mmds_store *s, const char *path, bool as_json,
                    char **out_text) MUST_CHECK;

#endif
