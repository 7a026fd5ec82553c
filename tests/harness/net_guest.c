/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/net_guest.h"

#include "tests/harness/loop_run.h"

#include <stdlib.h>
#include <string.h>

#define NG_RAM (24 * MIB)

static void ng_must(bool ok)
{
    if (!ok)
        abort();
}

void ng_attach(struct net_guest *g, uint16_t qsize, uint64_t features)
{
    ng_must(fdrv_attach(&g->d, g->dev, qsize ? qsize : NG_QSIZE, features) ==
            0);
}

struct net_guest *ng_new(const struct ng_args *args)
{
    struct net_guest *g = calloc(1, sizeof(*g));
    struct vnet_args va = args->vnet;
    struct vdev_env env;

    ng_must(g != NULL);
    fdrv_init(&g->d, NG_RAM);
    log_init(&g->log, -1, LOG_OFF, "test");
    ng_must(evloop_new(EVLOOP_AUTO, &g->loop) == 0);
    fnet_init(&g->net, args->pairs ? args->pairs : 1, !args->plain, args->mtu);
    env = (struct vdev_env){g->d.mem, g->loop, &g->log};
    va.id = "eth0";
    ng_must(vnet_new(&env, &g->net.base, &va, &g->dev) == 0);
    ng_attach(g, args->qsize, args->features);
    return g;
}

void ng_free(struct net_guest *g)
{
    if (fdrv_reset(&g->d) == -EINPROGRESS)
        fnet_give_back(&g->net, -ECANCELED);
    g->dev->ops->free(g->dev);
    ng_must(g->net.freed);
    fnet_fini(&g->net);
    evloop_free(g->loop);
    fdrv_fini(&g->d);
    free(g);
}

gpa_t ng_add_rx(struct net_guest *g, uint16_t q, uint32_t n, uint32_t bytes)
{
    gpa_t base = fdrv_alloc(&g->d, (uint64_t)n * bytes, 64);

    for (uint32_t i = 0; i < n; i++) {
        struct fdrv_seg s = {base + (uint64_t)i * bytes, bytes, true};

        fdrv_add(&g->d, q, &s, 1);
    }
    fdrv_kick(&g->d, q);
    return base;
}

uint16_t ng_add_tx(struct net_guest *g, uint16_t q, uint32_t bytes,
                   uint8_t seed)
{
    struct fdrv_seg s = {fdrv_alloc(&g->d, NG_HDR + bytes, 64), NG_HDR + bytes,
                         false};
    uint8_t *p = fdrv_ptr(&g->d, s.gpa + NG_HDR, bytes);

    for (uint32_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)(seed + i);
    return fdrv_add(&g->d, q, &s, 1);
}

void ng_settle(struct net_guest *g)
{
    fnet_run(&g->net);
    loop_run_for(g->loop, 2);
    fnet_run(&g->net);
    loop_run_for(g->loop, 2);
}

struct vnet_stats ng_stats(struct net_guest *g)
{
    struct vnet_stats s;

    vnet_get_stats(g->dev, &s);
    return s;
}

void ng_take(struct net_guest *g, uint16_t q, uint32_t n, uint32_t *out_len)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t head;

        ng_must(fdrv_used(&g->d, q, &head, &out_len[i]));
    }
}

bool ng_none_used(struct net_guest *g, uint16_t q)
{
    return fdrv_used_idx(&g->d, q) == g->d.q[q].used_idx;
}

uint8_t ng_ctrl(struct net_guest *g, uint16_t q, const void *bytes,
                uint32_t len)
{
    gpa_t ack = fdrv_alloc(&g->d, 1, 1);
    struct fdrv_seg segs[2] = {{fdrv_put(&g->d, bytes, len, 8), len, false},
                               {ack, 1, true}};
    uint8_t answer = 0xee;
    uint32_t used;

    fdrv_write(&g->d, ack, &answer, 1);
    fdrv_add(&g->d, q, segs, 2);
    fdrv_kick(&g->d, q);
    ng_take(g, q, 1, &used);
    fdrv_read(&g->d, ack, &answer, 1);
    ng_must(used == (answer != 0xee));
    return answer;
}
