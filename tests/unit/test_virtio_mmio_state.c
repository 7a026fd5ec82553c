/* SPDX-License-Identifier: Apache-2.0 */
/* Rest, wake, save and load of a transport. */
#include "devices/virtio_mmio.h"

#include "tests/harness/mmio_test.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const uint8_t some_id[STATE_ID_BYTES] = {1, 2, 3};

/* --- on the loop ---------------------------------------------------------- */

static void on_rested(void *arg)
{
    struct mmio_test *f = arg;

    sem_post(&f->done);
}

static void do_rest(struct mmio_test *f)
{
    virtio_mmio_rest(f->m, on_rested, f);
}

static void do_wake(struct mmio_test *f)
{
    virtio_mmio_wake(f->m);
}

static void do_rested(struct mmio_test *f)
{
    virtio_rested(&f->t.dev);
}

static void rest(struct mmio_test *f)
{
    mt_on_loop(f, do_rest);
    sem_wait(&f->done);
}

static void wake(struct mmio_test *f)
{
    mt_on_loop(f, do_wake);
}

static bool is_done(struct mmio_test *f)
{
    for (int i = 0; i < 4; i++)
        mt_on_loop(f, mt_poke_nothing);
    return sem_trywait(&f->done) == 0;
}

static int kicks(struct mmio_test *f)
{
    int n = 0;

    mt_on_loop(f, mt_poke_nothing);
    while (sem_trywait(&f->t.kicked) == 0)
        n++;
    return n;
}

static void save(struct mmio_test *f, struct state_out *out)
{
    state_out_init(out);
    virtio_mmio_save(f->m, "t", out);
    assert_int_equal(state_finish(out, some_id), 0);
}

struct loading {
    struct ev_call call;
    struct mmio_test *f;
    const struct state_out *from;
    struct errmsg err;
    int rc;
    sem_t done;
};

static void on_load(struct ev_call *c)
{
    struct loading *l = c->arg;
    struct state_file file;

    l->rc = state_open(&file, l->from->data, l->from->len_bytes, &l->err);
    if (l->rc == 0)
        l->rc = virtio_mmio_load(l->f->m, "t", &file, &l->err);
    sem_post(&l->done);
}

static int load(struct mmio_test *f, const struct state_out *from,
                struct errmsg *err)
{
    struct loading l = {.f = f, .from = from};

    l.call = (struct ev_call){.fn = on_load, .arg = &l};
    sem_init(&l.done, 0, 0);
    evloop_post(f->loop, &l.call);
    sem_wait(&l.done);
    if (err)
        *err = l.err;
    return l.rc;
}

/* --- rest and wake -------------------------------------------------------- */

static void test_mmio_rest_hears_no_kick_and_wake_replays_all(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    rest(f);
    assert_true(f->t.dev.resting);
    assert_int_equal(f->t.rests, 1);
    assert_int_equal(kicks(f), 0);
    assert_int_equal(eventfd_write(virtio_mmio_kick_fd(f->m, 1), 1), 0);
    assert_int_equal(kicks(f), 0);
    wake(f);
    assert_false(f->t.dev.resting);
    assert_int_equal(f->t.wakes, 1);
    assert_true(kicks(f) >= 2); /* one for each queue, whatever was told */
    assert_int_equal(eventfd_write(virtio_mmio_kick_fd(f->m, 1), 1), 0);
    sem_wait(&f->t.kicked);
    assert_int_equal(f->t.last_kick, 1);
}

static void test_mmio_wake_twice_is_once(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    wake(f); /* was never at rest */
    assert_int_equal(f->t.wakes, 0);
    rest(f);
    wake(f);
    (void)kicks(f);
    wake(f);
    assert_int_equal(f->t.wakes, 1);
    assert_int_equal(kicks(f), 0);
}

static void test_mmio_rest_waits_for_requests_in_flight(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    f->t.hold_rest = true;
    mt_on_loop(f, do_rest);
    assert_false(is_done(f));
    mt_on_loop(f, do_rested);
    sem_wait(&f->done);
    wake(f);
    assert_int_equal(f->t.wakes, 1);
}

static void test_mmio_rest_of_a_device_that_does_not_run(void **state)
{
    struct mmio_test *f = *state;

    rest(f);
    assert_int_equal(f->t.rests, 0);
    rest(f); /* again, as for a second snapshot */
    wake(f);
    assert_int_equal(f->t.wakes, 0);
    mt_start(f);
    assert_int_equal(f->t.activations, 1);
}

static void test_mmio_second_rest_tells_the_device_nothing(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    rest(f);
    rest(f);
    assert_int_equal(f->t.rests, 1);
    wake(f);
}

static void test_mmio_wake_overtakes_a_rest(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    f->t.hold_rest = true;
    mt_on_loop(f, do_rest);
    wake(f);
    mt_on_loop(f, do_rested); /* too late: nobody waits for it */
    assert_false(is_done(f));
    f->t.hold_rest = false;
    rest(f);
    wake(f);
}

static void test_mmio_shutdown_overtakes_a_rest(void **state)
{
    struct mmio_test *f = *state;
    struct mmio_test *s = mt_second(f, NULL);

    mt_start(s);
    s->t.hold_rest = true;
    mt_on_loop(s, do_rest);
    mt_second_end(s); /* one post of `done`, that of the end */
}

static void down_at_once(struct mmio_test *f)
{
    struct ev_call c = {.arg = f};

    virtio_mmio_rest(f->m, on_rested, f);
    mt_do_shutdown(&c);
}

static void test_mmio_shutdown_right_after_a_rest(void **state)
{
    struct mmio_test *f = *state;
    int posts = 0;

    mt_start(f);
    mt_on_loop(f, down_at_once);
    for (int i = 0; i < 4; i++)
        mt_on_loop(f, mt_poke_nothing);
    sem_getvalue(&f->done, &posts);
    assert_int_equal(posts, 1);
    assert_int_equal(f->t.resets, 1);
    assert_false(f->t.dev.resting);
    f->is_down = true;
}

static void test_mmio_shutdown_at_rest(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    rest(f); /* and the fixture ends it */
}

static void on_rested_look(void *arg)
{
    struct mmio_test *f = arg;
    uint64_t n = 0;

    f->irqs_at_rest = read(f->irq_fd, &n, sizeof(n)) == sizeof(n) ? n : 0;
    sem_post(&f->done);
}

static void signal_and_rest(struct mmio_test *f)
{
    f->t.dev.transport_ops->signal_queue(f->t.dev.transport, 0);
    virtio_mmio_rest(f->m, on_rested_look, f);
}

static void on_late(struct ev_later *l)
{
    struct mmio_test *f = l->arg;

    f->t.dev.transport_ops->signal_queue(f->t.dev.transport, 0);
    virtio_rested(&f->t.dev);
}

static void rest_look(struct mmio_test *f)
{
    /* the last request ends, and is signalled, at the end of this turn */
    evloop_later(f->loop, &f->late, on_late, f);
    virtio_mmio_rest(f->m, on_rested_look, f);
}

/* What is to be in the interrupt controller before it is saved. */
static void test_mmio_rest_is_told_after_the_last_interrupt(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    for (int i = 0; i < 50; i++) {
        mt_on_loop(f, signal_and_rest);
        sem_wait(&f->done);
        assert_int_equal(f->irqs_at_rest, 1);
        wake(f);
    }
    f->t.hold_rest = true;
    for (int i = 0; i < 50; i++) {
        mt_on_loop(f, rest_look);
        sem_wait(&f->done);
        assert_int_equal(f->irqs_at_rest, 1);
        wake(f);
    }
}

static void test_mmio_broken_device_rests_and_wakes_without_kicks(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    mt_on_loop(f, mt_poke_broken);
    rest(f);
    wake(f);
    assert_int_equal(kicks(f), 0);
    assert_true(mt_status(f) & MT_ST_NEEDS);
}

static void test_mmio_stopped_queue_gets_no_kick_at_wake(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    mt_wr(f, VIRTIO_MMIO_QUEUE_SEL, 1);
    mt_wr(f, VIRTIO_MMIO_QUEUE_READY, 0);
    rest(f);
    wake(f);
    assert_int_equal(kicks(f), 1);
    assert_int_equal(f->t.last_kick, 0);
}

/* --- save and load -------------------------------------------------------- */

static void assert_same(const struct state_out *a, const struct state_out *b)
{
    assert_int_equal(a->len_bytes, b->len_bytes);
    assert_memory_equal(a->data, b->data, a->len_bytes);
}

/* Saves `f`, loads it into another, saves that and returns it, at rest. */
static struct mmio_test *carry(struct mmio_test *f, void *words)
{
    struct mmio_test *s = mt_second(f, words);
    struct errmsg err = {""};
    struct state_out a;
    struct state_out b;

    save(f, &a);
    if (load(s, &a, &err) != 0)
        fail_msg("%s", err.text);
    assert_true(s->t.dev.resting);
    save(s, &b);
    assert_same(&a, &b);
    state_out_fini(&a);
    state_out_fini(&b);
    return s;
}

static void use_one(struct mmio_test *f)
{
    struct virtq *vq = &f->t.dev.vq[0];
    struct vq_chain c;

    assert_int_equal(vq_pop(vq, &c), 1);
    vq_push(vq, c.head, 7);
    virtio_signal(&f->t.dev, 0);
}

static void add_one(struct mmio_test *f)
{
    struct fdrv_seg seg = {fdrv_alloc(&f->d, 16, 16), 16, true};

    (void)fdrv_add(&f->d, 0, &seg, 1);
    fdrv_publish(&f->d, 0);
}

static void
test_mmio_loaded_device_goes_on_where_the_saved_one_was(void **state)
{
    struct mmio_test *f = *state;
    struct mmio_test *s;

    mt_start(f);
    f->t.extra = 0xcafe;
    for (int i = 0; i < 3; i++)
        add_one(f);
    mt_on_loop(f, use_one);
    mt_on_loop(f, mt_poke_config);
    rest(f);
    s = carry(f, NULL);
    assert_int_equal(s->t.activations, 1);
    assert_int_equal(s->t.extra, 0xcafe);
    assert_int_equal(s->t.dev.features, f->t.dev.features);
    assert_int_equal(mt_status(s), MT_ST_OK);
    assert_int_equal(mt_rd(s, VIRTIO_MMIO_CONFIG_GENERATION),
                     mt_rd(f, VIRTIO_MMIO_CONFIG_GENERATION));
    assert_int_equal(mt_rd(s, VIRTIO_MMIO_INTERRUPT_STATUS),
                     VIRTIO_MMIO_INT_VRING | VIRTIO_MMIO_INT_CONFIG);
    assert_int_equal(kicks(s), 0);
    assert_int_equal(mt_irqs(s), 0);
    wake(s);
    assert_int_equal(kicks(s), 2);
    /* its interrupt may have been lost with the old machine */
    assert_int_equal(mt_irqs(s), 1);
    mt_on_loop(s, use_one);
    mt_on_loop(s, use_one);
    assert_int_equal(fdrv_used_idx(&s->d, 0), 3);
    rest(s);
    wake(s);
    mt_second_end(s);
}

static void test_mmio_interrupt_is_not_repeated_for_a_mere_pause(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    mt_on_loop(f, mt_poke_config);
    assert_int_equal(mt_irqs(f), 1);
    rest(f);
    wake(f);
    assert_int_equal(mt_irqs(f), 0);
}

/* Nobody counts what is written through the pointers into a ring. */
static void test_BL_077_a_save_counts_the_rings_as_written(void **state)
{
    struct mmio_test *f = *state;
    uint64_t bits[MT_RAM / 4096 / 64] = {0};
    uint64_t page;
    struct state_out out;

    mt_start(f);
    page = f->d.q[0].used / 4096;
    assert_int_equal(gm_track_writes(f->d.mem), 0);
    gm_take_dirty(f->d.mem, bits);
    memset(bits, 0, sizeof(bits));
    rest(f);
    save(f, &out);
    gm_take_dirty(f->d.mem, bits);
    assert_true(bits[page / 64] >> page % 64 & 1);
    state_out_fini(&out);
}

static void test_mmio_loaded_registers_show_in_their_page(void **state)
{
    uint32_t words[VIRTIO_MMIO_CONFIG / 4] = {0};
    struct mmio_test *f = *state;
    struct mmio_test *s;

    mt_start(f);
    mt_wr(f, VIRTIO_MMIO_QUEUE_SEL, 1);
    mt_on_loop(f, mt_poke_config);
    rest(f);
    s = carry(f, words);
    assert_int_equal(words[VIRTIO_MMIO_STATUS / 4], MT_ST_OK);
    assert_int_equal(words[VIRTIO_MMIO_QUEUE_NUM_MAX / 4], 256);
    assert_int_equal(words[VIRTIO_MMIO_QUEUE_READY / 4], 1);
    assert_int_equal(words[VIRTIO_MMIO_CONFIG_GENERATION / 4], 1);
    assert_int_equal(words[VIRTIO_MMIO_INTERRUPT_STATUS / 4],
                     VIRTIO_MMIO_INT_CONFIG);
    mt_second_end(s);
}

/* Saved in the middle of its set-up, a driver goes on with it. */
static void test_mmio_negotiation_goes_on_after_a_load(void **state)
{
    struct mmio_test *f = *state;
    struct mmio_test *s;

    mt_set_status(f, MT_ST_ACK);
    mt_set_status(f, MT_ST_DRV);
    mt_wr(f, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
    mt_wr(f, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)(MT_VERSION_1 >> 32));
    mt_wr(f, VIRTIO_MMIO_QUEUE_SEL, 1);
    mt_wr(f, VIRTIO_MMIO_QUEUE_NUM, 64);
    rest(f);
    s = carry(f, NULL);
    assert_int_equal(s->t.activations, 0);
    wake(s);
    mt_set_status(s, MT_ST_FEAT);
    mt_setup_queue(s, 1, 64);
    mt_set_status(s, MT_ST_OK);
    assert_int_equal(mt_status(s), MT_ST_OK);
    assert_int_equal(s->t.activations, 1);
    mt_second_end(s);
}

static void test_mmio_broken_device_loads_broken(void **state)
{
    struct mmio_test *f = *state;
    struct mmio_test *s;

    mt_start(f);
    fdrv_set_avail_idx(&f->d, 0, 9); /* what broke it is still there */
    mt_on_loop(f, mt_poke_broken);
    rest(f);
    s = carry(f, NULL);
    assert_int_equal(mt_status(s), MT_ST_OK | MT_ST_NEEDS);
    assert_true(s->t.dev.vq[0].broken);
    wake(s);
    assert_int_equal(kicks(s), 0);
    mt_set_status(s, 0);
    assert_int_equal(mt_status(s), 0);
    mt_second_end(s);
}

static void test_mmio_broken_set_up_loads(void **state)
{
    struct vq_setup_args bad = {.size = 8, .desc = 1};
    struct mmio_test *f = *state;
    struct mmio_test *s;

    mt_negotiate(f, MT_VERSION_1);
    mt_wr(f, VIRTIO_MMIO_QUEUE_SEL, 0);
    mt_write_queue(f, &bad);
    assert_true(mt_status(f) & MT_ST_NEEDS);
    rest(f);
    s = carry(f, NULL);
    assert_int_equal(mt_status(s), MT_ST_FEAT | MT_ST_NEEDS);
    mt_second_end(s);
}

static void test_mmio_stopped_queue_loads_stopped(void **state)
{
    struct mmio_test *f = *state;
    struct mmio_test *s;

    mt_start(f);
    mt_wr(f, VIRTIO_MMIO_QUEUE_SEL, 0);
    mt_wr(f, VIRTIO_MMIO_QUEUE_READY, 0);
    fdrv_set_avail_idx(&f->d, 0, 5000); /* its memory is the driver's again */
    rest(f);
    s = carry(f, NULL);
    assert_true(s->t.dev.vq[0].stopped);
    assert_int_equal(mt_rd(s, VIRTIO_MMIO_QUEUE_READY), 0);
    wake(s);
    assert_int_equal(kicks(s), 1);
    mt_second_end(s);
}

/* --- refusals ------------------------------------------------------------- */

/* Offsets in the section, see virtio_mmio_save(). */
enum {
    AT_DEVICE = 0,
    AT_QUEUES = 4,
    AT_STATUS = 6,
    AT_FEATURES = 22,
    AT_UNOFFERED = 30,
    AT_INTERRUPT = 31,
    AT_QUEUE = 39,
    Q_NUM = 0,
    Q_DESC = 4,
    Q_AVAIL = 12,
    Q_USED = 20,
    Q_READY = 28,
    Q_STOPPED = 29,
    Q_NEXT_AVAIL = 30,
    Q_NEXT_USED = 32,
    Q_VALID = 36,
    Q_BYTES = 37,
};

/* The same sections once more with `len` bytes of section "t" replaced. */
static void forge(const struct state_out *from, struct state_out *to, size_t at,
                  uint64_t value, size_t len)
{
    struct state_file f;
    struct state_in in;
    uint8_t b[512];
    size_t n;

    assert_int_equal(state_open(&f, from->data, from->len_bytes, NULL), 0);
    assert_int_equal(state_section(&f, "t", 1, &in, NULL), 0);
    n = (size_t)(in.end - in.at);
    assert_true(n <= sizeof(b) && at + len <= n);
    memcpy(b, in.at, n);
    for (size_t i = 0; i < len; i++)
        b[at + i] = (uint8_t)(value >> (8 * i));
    state_out_init(to);
    state_begin(to, "t", 1);
    state_put_bytes(to, b, n);
    state_end(to);
    state_begin(to, "t/state", 3);
    state_put_u32(to, 0);
    state_end(to);
    assert_int_equal(state_finish(to, some_id), 0);
}

/* Loads a forged copy of the state of `f`, which is at rest. */
static int load_forged(struct mmio_test *f, size_t at, uint64_t value,
                       size_t len, const char *says)
{
    struct mmio_test *s = mt_second(f, NULL);
    struct errmsg err = {""};
    struct state_out good;
    struct state_out bad;
    int rc;

    save(f, &good);
    forge(&good, &bad, at, value, len);
    rc = load(s, &bad, &err);
    if (rc && !strstr(err.text, says))
        fail_msg("\"%s\" does not say \"%s\"", err.text, says);
    state_out_fini(&good);
    state_out_fini(&bad);
    mt_second_end(s); /* fit for a shutdown, whatever came of it */
    return rc;
}

struct forgery {
    size_t at;
    uint64_t value;
    size_t len;
    const char *says;
};

static void expect_refusals(struct mmio_test *f, const struct forgery *list,
                            size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int rc = load_forged(f, list[i].at, list[i].value, list[i].len,
                             list[i].says);

        if (rc != -EBADMSG)
            fail_msg("forgery %zu gives %d", i, rc);
    }
}

#define Q1 (AT_QUEUE + Q_BYTES)

static void test_mmio_load_refuses_impossible_registers(void **state)
{
    static const struct forgery list[] = {
        {AT_DEVICE, 43, 4, "type 43"},
        {AT_QUEUES, 1, 2, "cut"},
        {AT_QUEUES, 0xffff, 2, "cut"},
        {AT_STATUS, 0x1f, 4, "unknown bits"},
        {AT_STATUS, 0x10f, 4, "unknown bits"},
        {AT_STATUS, 0x0e, 4, "lacks a step"},
        {AT_STATUS, 0x0d, 4, "lacks a step"},
        {AT_STATUS, 0x07, 4, "lacks a step"},
        {AT_STATUS, 0x01, 4, "ready before"},
        {AT_FEATURES, MT_VERSION_1 | 1, 8, "not offered"},
        {AT_FEATURES, UINT64_MAX, 8, "not offered"},
        {AT_FEATURES, MT_EVENT_IDX, 8, "never negotiated"},
        {AT_UNOFFERED, 1, 1, "never negotiated"},
        {AT_UNOFFERED, 8, 1, "never negotiated"},
        {AT_INTERRUPT, 4, 4, "InterruptStatus"},
        {AT_QUEUE + Q_READY, 2, 1, "impossible values"},
        {AT_QUEUE + Q_VALID, 2, 1, "impossible values"},
        {AT_QUEUE + Q_STOPPED, 1, 1, "stopped that is in use"},
        {AT_QUEUE + Q_NUM, 0x10008, 4, "bad size"},
        {AT_QUEUE + Q_NUM, 32, 4, "bad size"}, /* its maximum is 16 */
        {AT_QUEUE + Q_NUM, 7, 4, "bad size"},
        {AT_QUEUE + Q_NUM, 0, 4, "bad size"},
    };
    struct mmio_test *f = *state;

    mt_start(f);
    rest(f);
    expect_refusals(f, list, ARRAY_SIZE(list));
}

static void test_BL_044_queue_addresses_outside_memory(void **state)
{
    static const uint64_t addresses[] = {
        MT_RAM - 1,     MT_RAM - 16, MT_RAM,     1ull << 32, UINT64_MAX - 15,
        -(uint64_t)256, UINT64_MAX,  1ull << 63, 1,
    };
    static const size_t fields[] = {Q_DESC, Q_AVAIL, Q_USED};
    struct mmio_test *f = *state;

    mt_start(f);
    rest(f);
    for (size_t a = 0; a < ARRAY_SIZE(addresses); a++) {
        for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
            assert_int_equal(load_forged(f, Q1 + fields[i], addresses[a], 8,
                                         "bad size or address"),
                             -EBADMSG);
    }
}

static void test_BL_044_addresses_of_a_stopped_queue(void **state)
{
    static const struct forgery list[] = {
        {AT_QUEUE + Q_USED, -(uint64_t)256, 8, "stopped queue"},
        {AT_QUEUE + Q_NUM, 0x10008, 4, "stopped queue"},
        {AT_QUEUE + Q_NEXT_AVAIL, 9, 2, "not where its ring says"},
    };
    struct mmio_test *f = *state;

    mt_start(f);
    mt_wr(f, VIRTIO_MMIO_QUEUE_SEL, 0);
    mt_wr(f, VIRTIO_MMIO_QUEUE_READY, 0);
    rest(f);
    expect_refusals(f, list, ARRAY_SIZE(list));
}

/* Queue 0 has 8 entries, of which 3 wait. */
static void test_mmio_load_refuses_a_position_beyond_the_ring(void **state)
{
    static const struct forgery list[] = {
        {AT_QUEUE + Q_NEXT_AVAIL, 4, 2, "not where"}, /* ahead of the driver */
        {AT_QUEUE + Q_NEXT_AVAIL, 0xfffa, 2, "not where"},
        {AT_QUEUE + Q_NEXT_USED, 1, 2, "not where"}, /* ahead of ourselves */
        {AT_QUEUE + Q_NEXT_USED, 0xfffa, 2, "not where"}, /* 6 taken, 3 wait */
        {AT_QUEUE + Q_NEXT_USED, 0xfff7, 2, "not where"}, /* 9 taken */
    };
    struct mmio_test *f = *state;

    mt_start(f);
    for (int i = 0; i < 3; i++)
        add_one(f);
    rest(f);
    expect_refusals(f, list, ARRAY_SIZE(list));
    assert_int_equal(
        load_forged(f, AT_QUEUE + Q_NEXT_USED, 0xfffb, 2, "nothing"), 0);
}

static void
test_mmio_load_refuses_a_stopped_queue_of_an_idle_device(void **state)
{
    static const struct forgery list[] = {
        {AT_QUEUE + Q_STOPPED, 1, 1, "never was"},
    };
    struct mmio_test *f = *state;

    mt_negotiate(f, MT_VERSION_1);
    rest(f);
    expect_refusals(f, list, ARRAY_SIZE(list));
}

/* A driver keeps what it was given by a host that could do more. */
static void test_mmio_load_takes_features_that_are_loadable(void **state)
{
    struct mmio_test *f = *state;
    struct mmio_test *s = mt_second(f, NULL);
    struct state_out good;
    struct state_out more;

    mt_start(f);
    rest(f);
    save(f, &good);
    forge(&good, &more, AT_FEATURES, f->t.dev.features | 1u << 3, 8);
    s->t.dev.loadable = 1u << 3;
    assert_int_equal(load(s, &more, NULL), 0);
    assert_int_equal(s->t.dev.features, f->t.dev.features | 1u << 3);
    wake(s);
    mt_wr(s, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 0);
    assert_false(mt_rd(s, VIRTIO_MMIO_DEVICE_FEATURES) & 1u << 3);
    state_out_fini(&good);
    state_out_fini(&more);
    mt_second_end(s);
}

/* Each write of a selector is a guest's right. */
static void test_mmio_load_takes_any_selector(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    rest(f);
    for (size_t at = AT_STATUS + 4; at < AT_FEATURES; at += 4)
        assert_int_equal(load_forged(f, at, UINT32_MAX, 4, "nothing"), 0);
}

static void test_mmio_load_without_its_sections(void **state)
{
    struct mmio_test *f = *state;
    struct mmio_test *s = mt_second(f, NULL);
    struct errmsg err;
    struct state_out out;

    mt_start(f);
    rest(f);
    state_out_init(&out);
    virtio_mmio_save(f->m, "u", &out);
    assert_int_equal(state_finish(&out, some_id), 0);
    assert_int_equal(load(s, &out, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "no section t"));
    state_out_fini(&out);
    mt_second_end(s);
}

static void test_mmio_load_of_a_newer_section(void **state)
{
    struct mmio_test *f = *state;
    struct mmio_test *s = mt_second(f, NULL);
    struct errmsg err;
    struct state_out out;

    state_out_init(&out);
    state_begin(&out, "t", 2);
    state_end(&out);
    assert_int_equal(state_finish(&out, some_id), 0);
    assert_int_equal(load(s, &out, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "version 2"));
    state_out_fini(&out);
    mt_second_end(s);
}

static int load_with(struct mmio_test *f, int activate_rc, int load_rc,
                     const char *says)
{
    struct mmio_test *s = mt_second(f, NULL);
    struct errmsg err = {""};
    struct state_out out;
    int rc;

    s->t.activate_rc = activate_rc;
    s->t.load_rc = load_rc;
    save(f, &out);
    rc = load(s, &out, &err);
    assert_non_null(strstr(err.text, says));
    state_out_fini(&out);
    mt_second_end(s);
    return rc;
}

static void test_mmio_load_that_the_device_refuses(void **state)
{
    struct mmio_test *f = *state;

    mt_start(f);
    rest(f);
    assert_int_equal(load_with(f, 0, -EBADMSG, "section t/state"), -EBADMSG);
    assert_int_equal(load_with(f, 0, -ENOMEM, "section t/state"), -ENOMEM);
    assert_int_equal(load_with(f, -EIO, 0, "does not start"), -EIO);
}

/* A device that did not start then need not start now. */
static void test_mmio_load_of_a_device_that_never_started(void **state)
{
    struct mmio_test *f = *state;
    struct mmio_test *s;

    f->t.activate_rc = -EIO;
    mt_negotiate(f, MT_VERSION_1);
    mt_setup_queue(f, 0, 8);
    mt_set_status(f, MT_ST_OK);
    mt_on_loop(f, mt_poke_nothing); /* the failure shows a moment later */
    assert_int_equal(mt_status(f), MT_ST_OK | MT_ST_NEEDS);
    rest(f);
    assert_int_equal(load_with(f, -EIO, 0, ""), 0);
    s = carry(f, NULL);
    wake(s);
    mt_second_end(s);
}

#define T(t)                                                                   \
    cmocka_unit_test_setup_teardown(t, mt_setup, mt_teardown),                 \
        cmocka_unit_test_setup_teardown(t, mt_setup_epoll, mt_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_mmio_rest_hears_no_kick_and_wake_replays_all),
        T(test_mmio_wake_twice_is_once),
        T(test_mmio_rest_waits_for_requests_in_flight),
        T(test_mmio_rest_of_a_device_that_does_not_run),
        T(test_mmio_second_rest_tells_the_device_nothing),
        T(test_mmio_wake_overtakes_a_rest),
        T(test_mmio_shutdown_overtakes_a_rest),
        T(test_mmio_shutdown_right_after_a_rest),
        T(test_mmio_shutdown_at_rest),
        T(test_mmio_rest_is_told_after_the_last_interrupt),
        T(test_mmio_broken_device_rests_and_wakes_without_kicks),
        T(test_mmio_stopped_queue_gets_no_kick_at_wake),
        T(test_mmio_loaded_device_goes_on_where_the_saved_one_was),
        T(test_mmio_interrupt_is_not_repeated_for_a_mere_pause),
        T(test_BL_077_a_save_counts_the_rings_as_written),
        T(test_mmio_loaded_registers_show_in_their_page),
        T(test_mmio_negotiation_goes_on_after_a_load),
        T(test_mmio_broken_device_loads_broken),
        T(test_mmio_broken_set_up_loads),
        T(test_mmio_stopped_queue_loads_stopped),
        T(test_mmio_load_refuses_impossible_registers),
        T(test_BL_044_queue_addresses_outside_memory),
        T(test_BL_044_addresses_of_a_stopped_queue),
        T(test_mmio_load_refuses_a_position_beyond_the_ring),
        T(test_mmio_load_refuses_a_stopped_queue_of_an_idle_device),
        T(test_mmio_load_takes_any_selector),
        T(test_mmio_load_takes_features_that_are_loadable),
        T(test_mmio_load_without_its_sections),
        T(test_mmio_load_of_a_newer_section),
        T(test_mmio_load_that_the_device_refuses),
        T(test_mmio_load_of_a_device_that_never_started),
    };

    return cmocka_run_group_tests_name("virtio_mmio_state", tests, NULL, NULL);
}
