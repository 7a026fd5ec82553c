/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_blk_int.h"

#include <string.h>

/*
 * A block device whose machine pauses, is saved and loaded. thread: io
 *
 * Requests that the backend has are ended; all others are in the rings, where
 * the limiter's patience has left them. So what is saved is little: the size
 * that the guest knows, the disk's identity, and the limits.
 */

int vblk_rest(struct virtio_dev *dev)
{
    struct vblk *b = vblk_of(dev);

    for (uint32_t q = 0; q < dev->num_queues; q++)
        evloop_timer_cancel(dev->env.loop, &b->again[q]);
    /* The request that waits is in its ring: a kick finds it. */
    evloop_timer_cancel(dev->env.loop, &b->limit_timer);
    b->limited = false;
    rate_limit_settle(&b->limit, util_now_ns());
    vblk_tell(b);
    return b->in_flight == 0 ? 0 : -EINPROGRESS;
}

void vblk_wake(struct virtio_dev *dev)
{
    vblk_take_size(vblk_of(dev)); /* of a disk that grew since it was saved */
}

void vblk_save(struct virtio_dev *dev, struct state_out *out)
{
    const struct vblk *b = vblk_of(dev);

    state_put_u64(out, b->limits.capacity_bytes);
    state_put_u8(out, b->limits.read_only);
    state_put_bytes(out, b->id, sizeof(b->id));
    rate_limit_save(&b->limit, out);
}

/*
 * A guest that knows of sectors which are not there loses data, or finds its
 * file system broken, whenever it comes to them: better not to start it.
 */
static int vblk_check_disk(const struct vblk *b, uint64_t size_bytes,
                           bool read_only, const char *id, struct errmsg *err)
{
    uint64_t have_bytes = b->backing->disk->size_bytes;

    if (memcmp(id, b->id, sizeof(b->id)) != 0)
        return err_set(err, -EINVAL, "disk %s was saved with another id",
                       b->dev.name);
    if (read_only != b->limits.read_only)
        return err_set(err, -EINVAL,
                       "disk %s was saved %s, here it is %s; give it as it was",
                       b->dev.name, read_only ? "read-only" : "writable",
                       read_only ? "writable" : "read-only");
    if (have_bytes < size_bytes)
        return err_set(err, -EINVAL,
                       "disk %s had %llu bytes when the machine was saved, "
                       "here it has %llu; give the disk that it was saved with",
                       b->dev.name, (unsigned long long)size_bytes,
                       (unsigned long long)have_bytes);
    return 0;
}

int vblk_load(struct virtio_dev *dev, struct state_in *in, struct errmsg *err)
{
    struct vblk *b = vblk_of(dev);
    uint64_t size_bytes = state_get_u64(in);
    bool read_only = state_get_bool(in);
    char id[sizeof(b->id)];
    int rc;

    state_get_bytes(in, id, sizeof(id));
    if (in->bad || size_bytes % DISK_SECTOR_BYTES)
        return -EBADMSG;
    rc = vblk_check_disk(b, size_bytes, read_only, id, err);
    if (rc == 0)
        rc = rate_limit_load(&b->limit, in, util_now_ns());
    if (rc)
        return rc;
    /* What the guest knows; a larger disk is news, for when it runs. */
    b->limits.capacity_bytes = size_bytes;
    b->config.capacity = htole64(size_bytes / DISK_SECTOR_BYTES);
    return 0;
}
