/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/vsock_buf.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define VSOCK_BUF_MIN 4096u
#define VSOCK_BUF_MAX (1u << 30)

void vsock_buf_clear(struct vsock_buf *b)
{
    free(b->mem);
    memset(b, 0, sizeof(*b));
}

int vsock_buf_peek(const struct vsock_buf *b, struct iovec out_iov[2])
{
    uint32_t to_end = b->cap - b->head;

    if (b->len == 0)
        return 0;
    out_iov[0].iov_base = b->mem + b->head;
    out_iov[0].iov_len = b->len < to_end ? b->len : to_end;
    if (b->len <= to_end)
        return 1;
    out_iov[1].iov_base = b->mem;
    out_iov[1].iov_len = b->len - to_end;
    return 2;
}

static int vsock_buf_grow(struct vsock_buf *b, uint64_t need)
{
    uint32_t cap = b->cap ? b->cap : VSOCK_BUF_MIN;
    struct iovec old[2];
    uint8_t *mem;
    uint32_t done = 0;
    int n;

    if (need > VSOCK_BUF_MAX)
        return -ENOMEM;
    if (need <= b->cap)
        return 0;
    while (cap < need)
        cap *= 2;
    mem = malloc(cap);
    if (!mem)
        return -ENOMEM;
    n = vsock_buf_peek(b, old);
    for (int i = 0; i < n; i++) {
        memcpy(mem + done, old[i].iov_base, old[i].iov_len);
        done += (uint32_t)old[i].iov_len;
    }
    free(b->mem);
    b->mem = mem;
    b->cap = cap;
    b->head = 0;
    return 0;
}

static void vsock_buf_put(struct vsock_buf *b, const uint8_t *src, size_t n)
{
    uint32_t tail = (b->head + b->len) & (b->cap - 1);
    size_t first = n < b->cap - tail ? n : b->cap - tail;

    memcpy(b->mem + tail, src, first);
    memcpy(b->mem, src + first, n - first);
    b->len += (uint32_t)n;
}

int vsock_buf_append(struct vsock_buf *b, const struct iovec *iov, int num_iov)
{
    uint64_t need = b->len;
    int rc;

    for (int i = 0; i < num_iov; i++)
        need += iov[i].iov_len;
    if (need == b->len)
        return 0;
    rc = vsock_buf_grow(b, need);
    if (rc)
        return rc;
    for (int i = 0; i < num_iov; i++)
        vsock_buf_put(b, iov[i].iov_base, iov[i].iov_len);
    return 0;
}

void vsock_buf_consume(struct vsock_buf *b, uint32_t n)
{
    assert(n <= b->len);
    b->len -= n;
    if (b->len == 0) {
        vsock_buf_clear(b);
        return;
    }
    b->head = (b->head + n) & (b->cap - 1);
}
