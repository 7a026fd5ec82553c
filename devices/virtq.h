/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VIRTQ_H
#define DEVICES_VIRTQ_H

/*
 * The device side of one split virtqueue, with indirect descriptors and
 * EVENT_IDX. Everything in the rings is hostile: each field is read once,
 * checked, and the copy used.
 *
 * Ownership: embedded in the device; the guest memory is borrowed.
 * Threads: the loop's thread.
 * Errors: once a ring rule is broken the queue is `broken` and every call
 * fails or does nothing until the next vq_setup(); the caller tells the
 * transport (virtio_needs_reset()).
 * spec: virtio-1.2 2.7
 */

#include "vmm/guest_mem.h"
#include "vmm/util.h"

#include <sys/uio.h>

#define VQ_MAX_SIZE 1024u
/* Buffers in one chain: what a device takes; more is a broken request. */
#define VQ_MAX_SEGS 256u

struct virtq {
    const struct guest_mem *mem;
    uint16_t size;  /* 0: not set up */
    bool event_idx; /* VIRTIO_F_EVENT_IDX negotiated */
    bool indirect;  /* VIRTIO_F_INDIRECT_DESC negotiated */
    bool broken;
    bool stopped;        /* vq_stop(): gives and takes nothing */
    uint16_t next_avail; /* next head to take, free running */
    uint16_t next_used;  /* next used entry to write, free running */
    uint16_t signalled;  /* used index at the last signal decision */
    bool signalled_valid;
    const void *desc; /* host addresses, checked for the whole ring */
    const void *avail;
    void *used;
};

/*
 * One request: the readable buffers first, then the writable ones, as host
 * iovecs into guest memory. Every buffer lies inside RAM. An iovec never has
 * length 0.
 */
struct vq_chain {
    uint16_t head;
    uint16_t num_readable; /* iov[0 .. num_readable) */
    uint16_t num_writable; /* iov[num_readable .. num_readable+num_writable) */
    uint64_t readable_bytes;
    uint64_t writable_bytes;
    struct iovec iov[VQ_MAX_SEGS];
};

struct vq_setup_args {
    uint16_t size; /* a power of two, 1 .. VQ_MAX_SIZE */
    gpa_t desc;    /* 16-byte aligned */
    gpa_t avail;   /* 2-byte aligned */
    gpa_t used;    /* 4-byte aligned */
    bool event_idx;
    bool indirect;
};

/* -EINVAL bad size or alignment, -EFAULT a ring that is not in RAM. */
int vq_setup(struct virtq *vq, const struct guest_mem *mem,
             const struct vq_setup_args *args) MUST_CHECK;
void vq_teardown(struct virtq *vq); /* idempotent */
/*
 * The driver uses the queue no more: from now on it is empty, and pushes go
 * nowhere, until the next vq_setup().
 */
void vq_stop(struct virtq *vq);

/* What a device writes of a ring of `size` entries, from its used address on:
 * flags, index, entries and avail_event. */
uint64_t vq_used_bytes(uint16_t size);

/* Where the device is in a ring, as a saved machine remembers it. */
struct vq_position {
    uint16_t next_avail;
    uint16_t next_used;
    uint16_t signalled;
    bool signalled_valid;
};
struct vq_position vq_position(const struct virtq *vq);
/*
 * Goes on from `p`, which is hostile, after a vq_setup() on the same memory.
 * -EPROTO: more requests would be taken, or wait in the ring, than it has
 * entries; for a queue that is stopped or broken only the first counts.
 */
int vq_restore(struct virtq *vq, const struct vq_position *p) MUST_CHECK;

/*
 * Takes the next request. 1: `out` is filled and vq_push() must follow exactly
 * once for out->head. 0: nothing waits. -EPROTO: the ring is broken (and
 * stays so). A chain whose buffers are bad breaks the queue.
 */
int vq_pop(struct virtq *vq, struct vq_chain *out) MUST_CHECK;

/* Puts the last popped chain back, to be popped again (only the last one). */
void vq_unpop(struct virtq *vq);

/*
 * A chain that was popped once, by this device or the one that was saved, and
 * not pushed since: looked at anew, as all of it may have changed. Returns as
 * vq_pop() does.
 */
int vq_pop_again(struct virtq *vq, uint16_t head,
                 struct vq_chain *out) MUST_CHECK;

/* Completes a request; `used_bytes` were written to its writable part. */
void vq_push(struct virtq *vq, uint16_t head, uint32_t used_bytes);

/*
 * Completes several requests that the driver must see together, such as the
 * buffers of one frame: their used entries appear with one store of the index.
 */
struct vq_used {
    uint16_t head;
    uint32_t bytes;
};
void vq_push_all(struct virtq *vq, const struct vq_used *list, uint16_t n);

/* After one or more vq_push(): whether the driver wants an interrupt. */
bool vq_should_signal(struct virtq *vq);

/*
 * Asks for a kick at the next request. True when requests arrived meanwhile:
 * then go on popping, the kick may not come. vq_disable_kicks() is a hint.
 */
bool vq_enable_kicks(struct virtq *vq);
void vq_disable_kicks(struct virtq *vq);
/*
 * Asks for a kick at the next request behind all those that wait, which stay
 * where they are. Returns how many the driver has made available since its
 * ring is there, free running; its word for it. 0 for a queue that is not up.
 */
uint16_t vq_enable_kicks_behind(struct virtq *vq);

/*
 * Copies between a chain's readable or writable part and a flat buffer, from
 * byte `off` of that part. Return the bytes copied (short at its end).
 */
size_t vq_chain_read(const struct vq_chain *c, size_t off, void *dst,
                     size_t len);
size_t vq_chain_write(const struct vq_chain *c, size_t off, const void *src,
                      size_t len);
/*
 * The part's bytes [off, off+len) as iovecs into `out` (room for max); returns
 * the count, or -EINVAL when the range is not inside or needs more than max.
 */
int vq_chain_slice(const struct vq_chain *c, bool writable, size_t off,
                   size_t len, struct iovec *out, int max) MUST_CHECK;

#endif
