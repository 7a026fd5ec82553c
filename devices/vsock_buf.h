/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_VSOCK_BUF_H
#define DEVICES_VSOCK_BUF_H

/*
 * A queue of bytes that grows in powers of two and holds no memory while it is
 * empty: what a guest sent and its host peer has not taken yet. Pure.
 *
 * Ownership: embedded; the bytes are its own. Threads: the caller's.
 */

#include "vmm/util.h"

#include <sys/uio.h>

struct vsock_buf {
    uint8_t *mem; /* NULL while empty */
    uint32_t cap; /* 0 or a power of two */
    uint32_t head;
    uint32_t len;
};

/* Appends all the bytes, or none: -ENOMEM. The sum is the caller's limit. */
int vsock_buf_append(struct vsock_buf *b, const struct iovec *iov,
                     int num_iov) MUST_CHECK;
/* The bytes in order as one or two iovecs; returns their number (0: empty). */
int vsock_buf_peek(const struct vsock_buf *b, struct iovec out_iov[2]);
/* Drops `n` <= len bytes from the front; frees the memory when empty. */
void vsock_buf_consume(struct vsock_buf *b, uint32_t n);
void vsock_buf_clear(struct vsock_buf *b); /* idempotent */

#endif
