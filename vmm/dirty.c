/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/dirty.h"

#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define DIRTY_PAGE 4096u

void dirty_init(struct dirty *d, struct kvm *kvm, struct guest_mem *mem)
{
    memset(d, 0, sizeof(*d));
    d->kvm = kvm;
    d->mem = mem;
    d->words = (gm_num_pages(mem) + 63) / 64;
}

void dirty_fini(struct dirty *d)
{
    free(d->bits);
    d->bits = NULL;
}

int dirty_start(struct dirty *d, struct errmsg *err)
{
    int rc = 0;

    if (d->on)
        return 0;
    if (!d->bits)
        d->bits = calloc(d->words, sizeof(*d->bits));
    if (!d->bits || gm_track_writes(d->mem))
        return err_set(err, -ENOMEM, "tracking writes: out of memory");
    rc = kvm_log_dirty(d->kvm, d->mem, true, err);
    if (rc == 0) {
        d->on = true;
        dirty_clear(d);
        gm_take_dirty(d->mem, d->bits);
        dirty_clear(d);
    }
    return rc;
}

int dirty_stop(struct dirty *d, struct errmsg *err)
{
    int rc = d->on ? kvm_log_dirty(d->kvm, d->mem, false, err) : 0;

    if (rc == 0)
        d->on = false;
    return rc;
}

/* A region starts at any page of the file, its log at bit 0. */
static void dirty_merge(struct dirty *d, uint64_t first, const uint64_t *log,
                        uint64_t pages)
{
    uint64_t shift = first % 64;
    uint64_t *to = d->bits + first / 64;

    for (uint64_t i = 0; i < (pages + 63) / 64; i++) {
        if (!log[i])
            continue;
        to[i] |= log[i] << shift;
        if (shift && log[i] >> (64 - shift))
            to[i + 1] |= log[i] >> (64 - shift);
    }
}

static int dirty_collect_region(struct dirty *d, uint32_t slot,
                                const struct gm_region *r, uint64_t *log,
                                struct errmsg *err)
{
    uint64_t pages = r->len_bytes / DIRTY_PAGE;
    struct kvm_dirty_log req = {.slot = slot, .dirty_bitmap = log};

    memset(log, 0, (pages + 63) / 64 * sizeof(*log));
    if (ioctl(d->kvm->vm_fd, KVM_GET_DIRTY_LOG, &req) < 0) {
        int rc = neg_errno();

        return err_set(err, rc, "reading the log of written pages failed: %s",
                       err_reason(rc));
    }
    dirty_merge(d, r->fd_offset_bytes / DIRTY_PAGE, log, pages);
    return 0;
}

int dirty_collect(struct dirty *d, bool own, struct errmsg *err)
{
    uint64_t *log = calloc(d->words + 1, sizeof(*log));
    int rc = 0;

    if (!log)
        return err_set(err, -ENOMEM, "tracking writes: out of memory");
    for (size_t i = 0; i < gm_region_count(d->mem) && rc == 0; i++)
        rc = dirty_collect_region(d, (uint32_t)i, gm_region(d->mem, i), log,
                                  err);
    if (rc == 0 && own)
        gm_take_dirty(d->mem, d->bits);
    free(log);
    return rc;
}

void dirty_clear(struct dirty *d)
{
    if (d->bits)
        memset(d->bits, 0, d->words * sizeof(*d->bits));
}
