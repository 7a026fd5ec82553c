/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/drive_fork.h"

#include "devices/disk_cow.h"
#include "devices/virtio_blk.h"
#include "vmm/cleanup.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* --- files ------------------------------------------------------------------
 */

static int fork_file(const struct drive_fork *f, const char *path, int *out_fd,
                     struct errmsg *err)
{
    int rc;

    *out_fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (*out_fd >= 0)
        return 0;
    rc = neg_errno();
    return err_set(err, rc, "drive %s: a new file %s: %s", f->drive->id, path,
                   err_reason(rc));
}

int drive_fork_begin(struct drive_fork *f, struct errmsg *err)
{
    int rc = 0;

    f->next_fd = -1;
    f->num_made = 0;
    f->frozen = f->keep = false;
    f->fds = calloc(f->num_clones, sizeof(*f->fds));
    if (!f->fds)
        return err_set(err, -ENOMEM, "out of memory");
    if (f->drive->cow)
        rc = fork_file(f, f->next_path, &f->next_fd, err);
    for (size_t i = 0; i < f->num_clones && rc == 0; i++) {
        rc = fork_file(f, f->clones[i], &f->fds[i], err);
        if (rc == 0)
            f->num_made++;
    }
    return rc;
}

void drive_fork_hurry(struct drive_fork *f)
{
    int fds[COW_MAX_DEPTH + 1];

    if (f->drive->cow && disk_cow_fds(vblk_disk(f->dev), fds) > 0)
        (void)fdatasync(fds[0]); /* a failure shows at the freeze */
}

/* --- the instant ------------------------------------------------------------
 */

static int fork_freeze_raw(struct drive_fork *f, struct errmsg *err)
{
    struct disk *disk = vblk_disk(f->dev);
    int rc = disk->ops->clone ? disk->ops->clone(disk, f->fds[0]) : -EOPNOTSUPP;

    if (rc == 0)
        return 0;
    return err_set(err, rc,
                   "drive %s: copying it to %s: %s; both have to be on one "
                   "file system with reflinks (xfs, btrfs), or the drive be a "
                   "copy-on-write file (mote disk create)",
                   f->drive->id, f->clones[0], err_reason(rc));
}

int drive_fork_freeze(struct drive_fork *f, struct errmsg *err)
{
    int rc;

    if (!f->drive->cow)
        return fork_freeze_raw(f, err);
    rc = disk_cow_freeze(vblk_disk(f->dev), f->next_fd, f->drive->path, err);
    if (rc == 0) {
        f->next_fd = -1; /* the disk's */
        f->frozen = true;
    }
    return rc;
}

/* --- the children's ---------------------------------------------------------
 */

/* Each on the file that was on top before. */
static int fork_finish_cow(struct drive_fork *f, struct errmsg *err)
{
    int layers[COW_MAX_DEPTH + 1];
    struct cow_file *top = calloc(1, sizeof(*top));
    struct cow_base base;
    int rc;

    if (!top)
        return err_set(err, -ENOMEM, "out of memory");
    (void)disk_cow_fds(vblk_disk(f->dev), layers); /* two at least */
    rc = cow_file_read(layers[1], f->drive->path, top, err);
    if (rc == 0) {
        cow_base_cow(&top->header, f->drive->path, &base);
        free(top->map);
    }
    for (size_t i = 0; i < f->num_clones && rc == 0; i++)
        rc = cow_create_fd(f->fds[i], f->clones[i], &base, 0, err);
    free(top);
    return rc;
}

/* The first was made in the stop; the others are copies of it. */
static int fork_finish_raw(struct drive_fork *f, struct errmsg *err)
{
    for (size_t i = 1; i < f->num_clones; i++) {
        int rc = ioctl(f->fds[i], FICLONE, f->fds[0]) < 0 ? neg_errno() : 0;

        if (rc)
            return err_set(err, rc, "drive %s: copying it to %s: %s",
                           f->drive->id, f->clones[i], err_reason(rc));
    }
    return 0;
}

int drive_fork_finish(struct drive_fork *f, struct errmsg *err)
{
    return f->drive->cow ? fork_finish_cow(f, err) : fork_finish_raw(f, err);
}

/* --- the end ----------------------------------------------------------------
 */

void drive_fork_keep(struct drive_fork *f)
{
    f->keep = true;
}

void drive_fork_fini(struct drive_fork *f)
{
    for (size_t i = 0; i < f->num_made; i++) {
        (void)close(f->fds[i]);
        if (!f->keep)
            (void)unlink(f->clones[i]);
    }
    f->num_made = 0;
    if (f->next_fd >= 0) {
        (void)unlink(f->next_path); /* never came into use */
        drop_fd(&f->next_fd);
    }
    free(f->fds);
    f->fds = NULL;
}
