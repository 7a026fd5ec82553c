/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/drive.h"

#include "devices/disk_open.h"
#include "devices/virtio_blk.h"

#include <sys/stat.h>

/* An engine that was asked for by name is not replaced by another. */
static int drive_check_engine(const struct vdev_env *env,
                              const struct config_drive *d, struct errmsg *err)
{
    int why = evloop_fallback_errno(env->loop);

    if (d->engine != ENGINE_ASYNC || why == 0)
        return 0;
    return err_set(err, -EINVAL,
                   "drive %s: io_engine Async needs io_uring, which this host "
                   "forbids (%s); allow it (sysctl kernel.io_uring_disabled=0, "
                   "or the container's seccomp profile) or use Sync",
                   d->id, err_reason(-why));
}

static unsigned drive_flags(const struct config_drive *d)
{
    return (d->read_only ? DISK_READ_ONLY : 0) | (d->direct ? DISK_DIRECT : 0) |
           (d->cow ? DISK_COW : 0) |
           (d->cow && d->cache == CACHE_UNSAFE ? DISK_UNSAFE : 0);
}

int drive_new(const struct vdev_env *env, const struct config_drive *d,
              uint32_t num_vcpus, struct virtio_dev **out_dev,
              struct errmsg *err)
{
    const struct vblk_args args = {
        .id = d->id,
        .num_queues = (uint16_t)min_u64(num_vcpus, VBLK_MAX_QUEUES),
        .unsafe_cache = d->cache == CACHE_UNSAFE,
        .limit = d->limit,
    };
    struct disk *disk = NULL;
    int rc = drive_check_engine(env, d, err);

    if (rc == 0)
        rc = disk_open(d->path, drive_flags(d), env->log, &disk, err);
    if (rc)
        return rc;
    rc = vblk_new(env, disk, &args, out_dev);
    if (rc) {
        disk->ops->free(disk);
        return err_set(err, rc, "disk %s: %s", d->path, err_reason(rc));
    }
    return 0;
}

int drive_set_path(struct virtio_dev *dev, const struct config_drive *d,
                   const char *path, struct errmsg *err)
{
    struct disk *disk = NULL;
    struct stat st;
    int rc;

    /* Its lock is ours already: a second one would be refused. */
    if (stat(path, &st) == 0 && vblk_is_file(dev, &st)) {
        rc = vblk_refresh_size(dev);
        if (rc)
            return err_set(err, rc, "disk %s: cannot find out its size: %s",
                           path, err_reason(rc));
        return 0;
    }
    rc = disk_open(path, drive_flags(d), dev->env.log, &disk, err);
    if (rc)
        return rc;
    rc = vblk_swap(dev, disk);
    if (rc) {
        disk->ops->free(disk);
        return err_set(err, rc, "disk %s: %s", path, err_reason(rc));
    }
    return 0;
}
