/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/fake_net.h"

#include <stdlib.h>
#include <string.h>

static void fnet_must(bool ok)
{
    if (!ok)
        abort();
}

static struct fnet *fnet_of(struct net_back *b)
{
    return container_of(b, struct fnet, base);
}

static struct net_frame *fnet_shift(struct net_frame **list, uint32_t *num)
{
    struct net_frame *f = list[0];

    (*num)--;
    memmove(list, list + 1, *num * sizeof(struct net_frame *));
    return f;
}

static void fnet_end(struct net_frame *f)
{
    f->done(f, -ECANCELED);
}

static int fnet_start(struct net_back *b, struct evloop *loop,
                      const struct net_events *events, void *arg)
{
    (void)loop;
    fnet_of(b)->events = events;
    fnet_of(b)->arg = arg;
    return 0;
}

static void fnet_rx_wait(struct net_back *b, uint16_t pair)
{
    fnet_of(b)->wait[pair] = true;
    fnet_of(b)->waits++;
}

static void fnet_rx(struct net_back *b, uint16_t pair, struct net_frame *f)
{
    struct fnet *n = fnet_of(b);
    uint32_t sum = 0;

    fnet_must(n->num_rx[pair] < FNET_MAX_FRAMES);
    for (uint32_t i = 1; i <= f->iovcnt; i++) {
        fnet_must(f->iov[i].iov_len > 0);
        sum += (uint32_t)f->iov[i].iov_len;
    }
    fnet_must(sum == f->bytes);
    memset(&f->hdr, 0, sizeof(f->hdr));
    /* These two are ours. */
    f->iov[0] = f->iov[f->iovcnt + 1] = (struct iovec){NULL, 0};
    n->rx[pair][n->num_rx[pair]++] = f;
}

static void fnet_tx(struct net_back *b, uint16_t pair, struct net_frame *f)
{
    struct fnet *n = fnet_of(b);

    (void)pair;
    fnet_must(n->num_tx < FNET_MAX_FRAMES);
    f->iov[0] = (struct iovec){NULL, 0};
    n->tx[n->num_tx++] = f;
}

static void fnet_tx_flush(struct net_back *b, uint16_t pair)
{
    (void)pair;
    fnet_of(b)->flushes++;
}

static void fnet_cancel(struct net_back *b)
{
    struct fnet *n = fnet_of(b);

    n->cancels++;
    memset(n->wait, 0, sizeof(n->wait));
    if (!n->cancel_keeps)
        fnet_give_back(n, -ECANCELED);
}

/* In the order of the calls, as no frame is ever begun here. */
static void fnet_rest(struct net_back *b)
{
    struct fnet *n = fnet_of(b);

    n->rests++;
    memset(n->wait, 0, sizeof(n->wait));
    while (!n->rest_keeps && n->num_tx > 0)
        fnet_end(fnet_shift(n->tx, &n->num_tx));
    for (uint16_t p = 0; p < NET_MAX_PAIRS && !n->rest_keeps; p++) {
        while (n->num_rx[p] > 0)
            fnet_end(fnet_shift(n->rx[p], &n->num_rx[p]));
    }
}

static int fnet_set_offloads(struct net_back *b, uint32_t offloads)
{
    if (fnet_of(b)->set_result == 0)
        fnet_of(b)->offloads = offloads;
    return fnet_of(b)->set_result;
}

static int fnet_set_pairs(struct net_back *b, uint16_t pairs)
{
    if (fnet_of(b)->set_result == 0)
        fnet_of(b)->active_pairs = pairs;
    return fnet_of(b)->set_result;
}

static void fnet_free(struct net_back *b)
{
    fnet_of(b)->freed = true;
}

static const struct net_back_ops fnet_ops = {
    .start = fnet_start,
    .rx_wait = fnet_rx_wait,
    .rx = fnet_rx,
    .tx = fnet_tx,
    .tx_flush = fnet_tx_flush,
    .cancel = fnet_cancel,
    .rest = fnet_rest,
    .set_offloads = fnet_set_offloads,
    .set_pairs = fnet_set_pairs,
    .free = fnet_free,
};

void fnet_init(struct fnet *n, uint16_t pairs, bool vnet_hdr, uint32_t mtu)
{
    memset(n, 0, sizeof(*n));
    n->base.ops = &fnet_ops;
    n->base.max_pairs = pairs;
    n->base.vnet_hdr = vnet_hdr;
    n->base.mtu = mtu;
}

void fnet_fini(struct fnet *n)
{
    for (uint32_t i = 0; i < n->num_out; i++)
        free(n->out[i].data);
    for (uint16_t p = 0; p < NET_MAX_PAIRS; p++) {
        for (uint32_t i = 0; i < n->num_in[p]; i++)
            free(n->in[p][i].data);
    }
}

void fnet_feed(struct fnet *n, uint16_t pair, uint32_t bytes, uint8_t seed,
               const struct virtio_net_hdr_v1 *hdr)
{
    struct fnet_frame *f = &n->in[pair][n->num_in[pair]];

    fnet_must(n->num_in[pair] < FNET_MAX_FRAMES);
    n->num_in[pair]++;
    memset(f, 0, sizeof(*f));
    f->bytes = bytes;
    f->data = malloc(bytes + 1);
    fnet_must(f->data != NULL);
    for (uint32_t i = 0; i < bytes; i++)
        f->data[i] = (uint8_t)(seed + i);
    if (hdr)
        f->hdr = *hdr;
}

static int32_t fnet_fill(struct net_frame *f, const struct fnet_frame *in)
{
    uint32_t done = 0;

    if (in->bytes > f->bytes)
        return -EMSGSIZE;
    f->hdr = in->hdr;
    for (uint32_t i = 1; done < in->bytes; i++) {
        uint32_t take = (uint32_t)min_u64(f->iov[i].iov_len, in->bytes - done);

        memcpy(f->iov[i].iov_base, in->data + done, take);
        done += take;
    }
    return (int32_t)in->bytes;
}

bool fnet_step_rx(struct fnet *n, uint16_t pair)
{
    struct net_frame *f = n->rx[pair][0];
    int32_t result = -EAGAIN;

    if (n->num_rx[pair] == 0)
        return false;
    n->num_rx[pair]--;
    memmove(&n->rx[pair][0], &n->rx[pair][1],
            n->num_rx[pair] * sizeof(struct net_frame *));
    if (n->num_in[pair] > 0) {
        result = fnet_fill(f, &n->in[pair][0]);
        free(n->in[pair][0].data);
        n->num_in[pair]--;
        memmove(&n->in[pair][0], &n->in[pair][1],
                n->num_in[pair] * sizeof(n->in[pair][0]));
    }
    f->done(f, result);
    return true;
}

bool fnet_step_tx(struct fnet *n)
{
    struct net_frame *f = n->tx[0];
    struct fnet_frame *out = &n->out[n->num_out];
    uint32_t done = 0;

    if (n->num_tx == 0)
        return false;
    n->num_tx--;
    memmove(&n->tx[0], &n->tx[1], n->num_tx * sizeof(struct net_frame *));
    if (n->tx_result == 0) {
        fnet_must(n->num_out < FNET_MAX_FRAMES);
        n->num_out++;
        out->hdr = f->hdr;
        out->bytes = f->bytes;
        out->data = malloc(f->bytes);
        fnet_must(out->data != NULL);
        for (uint32_t i = 1; i <= f->iovcnt; i++) {
            memcpy(out->data + done, f->iov[i].iov_base, f->iov[i].iov_len);
            done += (uint32_t)f->iov[i].iov_len;
        }
        fnet_must(done == f->bytes);
    }
    f->done(f, n->tx_result);
    return true;
}

void fnet_run(struct fnet *n)
{
    bool more = true;

    for (int guard = 0; more && guard < 100000; guard++) {
        more = fnet_step_tx(n);
        for (uint16_t p = 0; p < n->base.max_pairs; p++) {
            more |= fnet_step_rx(n, p);
            if (!more && n->wait[p] && n->num_in[p] > 0) {
                n->wait[p] = false;
                n->events->readable(n->arg, p);
                more = true;
            }
        }
    }
    fnet_must(!more);
}

void fnet_give_back(struct fnet *n, int32_t result)
{
    for (uint16_t p = 0; p < NET_MAX_PAIRS; p++) {
        while (n->num_rx[p] > 0) {
            struct net_frame *f = n->rx[p][--n->num_rx[p]];

            f->done(f, result);
        }
    }
    while (n->num_tx > 0) {
        struct net_frame *f = n->tx[--n->num_tx];

        f->done(f, result);
    }
}

void fnet_link_down(struct fnet *n)
{
    n->events->link_down(n->arg, "the test says so");
    fnet_give_back(n, -ENETDOWN);
}
