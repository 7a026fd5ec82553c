/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/disk_open.h"

#include "devices/disk_align.h"
#include "devices/disk_cow.h"

int disk_open(const char *path, unsigned flags, struct log *log,
              struct disk **out_disk, struct errmsg *err)
{
    struct disk *raw = NULL;
    int rc;

    if (flags & DISK_COW)
        return disk_cow_open(path, flags, out_disk, err);
    rc = disk_raw_open(path, flags, log, &raw, err);
    if (rc)
        return rc;
    if (!(flags & DISK_DIRECT)) {
        *out_disk = raw;
        return 0;
    }
    rc = disk_align_new(raw, disk_raw_alignment(raw), out_disk);
    if (rc) {
        raw->ops->free(raw);
        return err_set(err, rc, "disk %s: out of memory; free some", path);
    }
    return 0;
}
