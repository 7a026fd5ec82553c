/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_COW_MERGE_H
#define VMM_COW_MERGE_H

/*
 * A chain of copy-on-write files as one new file. Blocks; any thread. Holes of
 * the files stay holes, and zeroes become some.
 */

#include "vmm/cow_file.h"

/*
 * The whole disk, byte for byte, at `out_path`, which must not exist and is
 * there when all of it is on disk. COW_BASE_RAW: as a raw image that needs
 * nothing else. COW_BASE_COW: as one copy-on-write file on the raw base of the
 * chain (or on nothing, if it has none).
 */
int cow_merge(const struct cow_chain *chain, const char *out_path,
              enum cow_base_kind kind, struct errmsg *err) MUST_CHECK;

#endif
