/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/rate_limit.h"

#define NS_PER_MS 1000000u
/* Keeps sizes and debts well inside int64_t. */
#define BUCKET_MAX_SIZE (UINT64_C(1) << 61)

static bool bucket_limits(const struct bucket *b)
{
    return b->config.size > 0 && b->config.refill_ms > 0;
}

/* a * b / c, or UINT64_MAX where it does not fit; c > 0 */
static uint64_t mul_div(uint64_t a, uint64_t b, uint64_t c)
{
    unsigned __int128 v = (unsigned __int128)a * b / c;

    return v > UINT64_MAX ? UINT64_MAX : (uint64_t)v;
}

static void bucket_set(struct bucket *b, const struct bucket_config *c,
                       uint64_t now_ns)
{
    b->config = *c;
    b->config.size = min_u64(c->size, BUCKET_MAX_SIZE);
    /* Beyond this a refill takes longer than a clock of 64 bits counts. */
    b->config.refill_ms = min_u64(c->refill_ms, UINT64_MAX / NS_PER_MS);
    b->burst = c->one_time_burst;
    b->tokens = (int64_t)b->config.size;
    b->last_ns = now_ns;
}

static void bucket_refill(struct bucket *b, uint64_t now_ns)
{
    uint64_t refill_ns = b->config.refill_ms * NS_PER_MS;
    uint64_t gained;

    if (now_ns <= b->last_ns)
        return;
    gained = mul_div(now_ns - b->last_ns, b->config.size, refill_ns);
    if (gained >= (uint64_t)((int64_t)b->config.size - b->tokens)) {
        b->tokens = (int64_t)b->config.size;
        b->last_ns = now_ns;
        return;
    }
    b->tokens += (int64_t)gained;
    /* Only the time that these tokens took: the rest of it is not lost. */
    b->last_ns += mul_div(gained, refill_ns, b->config.size);
}

/* Tokens that must be there before `need` may be taken. */
static uint64_t bucket_threshold(const struct bucket *b, uint64_t need)
{
    return min_u64(need > b->burst ? need - b->burst : 0, b->config.size);
}

/* When `need` may be taken; 0: now. */
static uint64_t bucket_wait(struct bucket *b, uint64_t need, uint64_t now_ns)
{
    uint64_t refill_ns = b->config.refill_ms * NS_PER_MS;
    uint64_t missing;
    uint64_t wait;
    int64_t want;

    if (!bucket_limits(b))
        return 0;
    bucket_refill(b, now_ns);
    want = (int64_t)bucket_threshold(b, need);
    if (b->tokens >= want)
        return 0;
    missing = (uint64_t)(want - b->tokens);
    wait = mul_div(missing, refill_ns, b->config.size);
    if (wait >= UINT64_MAX - b->last_ns - 1)
        return UINT64_MAX;
    wait += b->last_ns + 1; /* rounded up: the token is whole by then */
    return wait > now_ns ? wait : now_ns + 1;
}

static void bucket_take(struct bucket *b, uint64_t need)
{
    uint64_t from_burst = min_u64(need, b->burst);
    int64_t after;

    if (!bucket_limits(b))
        return;
    b->burst -= from_burst;
    need -= from_burst;
    if (need > BUCKET_MAX_SIZE ||
        __builtin_sub_overflow(b->tokens, (int64_t)need, &after) ||
        after < -(int64_t)BUCKET_MAX_SIZE)
        after = -(int64_t)BUCKET_MAX_SIZE;
    b->tokens = after;
}

void rate_limit_set(struct rate_limit *r, const struct rate_limit_config *c,
                    uint64_t now_ns)
{
    bucket_set(&r->bandwidth, &c->bandwidth, now_ns);
    bucket_set(&r->ops, &c->ops, now_ns);
}

uint64_t rate_limit_take(struct rate_limit *r, uint64_t bytes, uint64_t now_ns)
{
    uint64_t by_bytes = bucket_wait(&r->bandwidth, bytes, now_ns);
    uint64_t by_ops = bucket_wait(&r->ops, 1, now_ns);

    if (by_bytes || by_ops)
        return by_bytes > by_ops ? by_bytes : by_ops;
    bucket_take(&r->bandwidth, bytes);
    bucket_take(&r->ops, 1);
    return 0;
}

/* --- a machine that pauses ------------------------------------------------ */

void rate_limit_settle(struct rate_limit *r, uint64_t now_ns)
{
    if (bucket_limits(&r->bandwidth))
        bucket_refill(&r->bandwidth, now_ns);
    if (bucket_limits(&r->ops))
        bucket_refill(&r->ops, now_ns);
}

static void bucket_save(const struct bucket *b, struct state_out *out)
{
    state_put_u64(out, b->config.size);
    state_put_u64(out, b->config.one_time_burst);
    state_put_u64(out, b->config.refill_ms);
    state_put_u64(out, b->burst);
    state_put_u64(out, (uint64_t)b->tokens);
}

static int bucket_load(struct bucket *b, struct state_in *in, uint64_t now_ns)
{
    struct bucket_config c;
    uint64_t burst;
    int64_t tokens;

    c.size = state_get_u64(in);
    c.one_time_burst = state_get_u64(in);
    c.refill_ms = state_get_u64(in);
    burst = state_get_u64(in);
    tokens = (int64_t)state_get_u64(in);
    bucket_set(b, &c, now_ns);
    if (in->bad || c.size != b->config.size ||
        c.refill_ms != b->config.refill_ms || burst > c.one_time_burst ||
        tokens > (int64_t)c.size || tokens < -(int64_t)BUCKET_MAX_SIZE)
        return -EBADMSG;
    b->burst = burst;
    b->tokens = tokens;
    return 0;
}

void rate_limit_save(const struct rate_limit *r, struct state_out *out)
{
    bucket_save(&r->bandwidth, out);
    bucket_save(&r->ops, out);
}

int rate_limit_load(struct rate_limit *r, struct state_in *in, uint64_t now_ns)
{
    struct rate_limit loaded;
    int rc = bucket_load(&loaded.bandwidth, in, now_ns);

    if (rc == 0)
        rc = bucket_load(&loaded.ops, in, now_ns);
    if (rc == 0)
        *r = loaded;
    return rc;
}
