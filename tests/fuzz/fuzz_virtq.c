/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The split ring alone. Whatever a driver writes: no buffer outside RAM, no
 * more requests than the ring holds, no endless walk, and used entries only
 * for what was popped.
 */
#include "devices/virtq.h"

#include "tests/harness/ring_traffic.h"

#include <string.h>

#define RAM       (64 * KIB)
#define MAX_STEPS 200u

struct target {
    struct fdrv d;
    struct fring r;
    struct virtq vq;
    struct vq_chain c;
    gpa_t pool;
    uint16_t held[VQ_MAX_SIZE]; /* popped, not yet pushed */
    uint32_t num_held;
    uint16_t pushed;
    bool indirect;
};

static void check_chain(struct target *t)
{
    const char *ram = fdrv_ptr(&t->d, 0, RAM);
    uint64_t bytes[2] = {0, 0};
    char scratch[256];
    struct iovec v[4];

    fuzz_must(t->c.head < t->vq.size);
    fuzz_must(t->c.num_readable + t->c.num_writable <= (int)VQ_MAX_SEGS);
    for (uint32_t i = 0; i < (uint32_t)t->c.num_readable + t->c.num_writable;
         i++) {
        const char *p = t->c.iov[i].iov_base;

        fuzz_must(t->c.iov[i].iov_len > 0);
        fuzz_must(p >= ram && p < ram + RAM);
        fuzz_must(t->c.iov[i].iov_len <= (size_t)(ram + RAM - p));
        bytes[i >= t->c.num_readable] += t->c.iov[i].iov_len;
    }
    fuzz_must(bytes[0] == t->c.readable_bytes);
    fuzz_must(bytes[1] == t->c.writable_bytes);
    fuzz_must(vq_chain_read(&t->c, 0, scratch, sizeof(scratch)) ==
              min_u64(bytes[0], sizeof(scratch)));
    if (bytes[0] > 0)
        fuzz_must(vq_chain_slice(&t->c, false, bytes[0] - 1, 1, v, 4) == 1);
    fuzz_must(vq_chain_slice(&t->c, true, 0, bytes[1] + 1, v, 4) == -EINVAL);
}

static void pop(struct target *t, struct fuzz_in *in)
{
    int rc = vq_pop(&t->vq, &t->c);

    if (rc < 0) {
        fuzz_must(rc == -EPROTO && t->vq.broken);
        return;
    }
    if (rc == 0)
        return;
    check_chain(t);
    if (fuzz_rarely(in, 8)) {
        vq_unpop(&t->vq);
        return;
    }
    fuzz_must(t->num_held < t->vq.size);
    t->held[t->num_held++] = t->c.head;
    /* Data written by the device may land in the rings themselves. */
    if (fuzz_rarely(in, 8))
        (void)vq_chain_write(&t->c, 0, in->p, min_u64(in->left, 64));
}

static void push(struct target *t, struct fuzz_in *in)
{
    uint32_t i;

    if (t->num_held == 0)
        return;
    i = fuzz_below(in, t->num_held);
    vq_push(&t->vq, t->held[i], fuzz_u8(in));
    t->held[i] = t->held[--t->num_held];
    if (!t->vq.broken)
        t->pushed++;
    fuzz_must(t->vq.next_used == t->pushed);
}

static void add(struct target *t, struct fuzz_in *in)
{
    struct fdrv_seg segs[FRING_MAX_SEGS];
    uint16_t n = (uint16_t)(1 + fuzz_below(in, FRING_MAX_SEGS));
    uint16_t readable = (uint16_t)fuzz_below(in, n + 1u);

    for (uint16_t i = 0; i < n; i++)
        segs[i] = (struct fdrv_seg){t->pool + fuzz_below(in, 2048),
                                    fuzz_below(in, 512), i >= readable};
    fring_add(&t->r, in, segs, n, t->indirect);
}

static void step(struct target *t, struct fuzz_in *in)
{
    switch (fuzz_below(in, 10)) {
    case 0:
    case 1:
    case 2:
        add(t, in);
        break;
    case 3:
    case 4:
    case 5:
        pop(t, in);
        break;
    case 6:
    case 7:
        push(t, in);
        (void)vq_should_signal(&t->vq);
        break;
    case 8:
        (void)vq_enable_kicks(&t->vq);
        vq_disable_kicks(&t->vq);
        break;
    default:
        fring_disturb(&t->r, in);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, len};
    struct target *t = calloc(1, sizeof(*t));
    struct vq_setup_args args;

    fuzz_must(t != NULL);
    fdrv_init(&t->d, RAM);
    fdrv_queue_init(&t->d, 0, (uint16_t)(1u << fuzz_below(&in, 7)),
                    fuzz_below(&in, 2));
    fring_init(&t->r, &t->d, 0);
    t->pool = fdrv_alloc(&t->d, 4096, 1);
    t->indirect = fuzz_below(&in, 2);
    args = fdrv_setup_args(&t->d, 0, t->indirect);
    if (fuzz_rarely(&in, 16))
        args.used = fuzz_edge(&in, RAM);
    if (vq_setup(&t->vq, t->d.mem, &args) == 0) {
        for (uint32_t i = 0; i < MAX_STEPS && in.left > 0; i++)
            step(t, &in);
    }
    vq_teardown(&t->vq);
    fdrv_fini(&t->d);
    free(t);
    return 0;
}
