/* SPDX-License-Identifier: Apache-2.0 */
/* Several ports: their bytes and their clients. */
#include "devices/virtio_console.h"

#include "tests/harness/console_guest.h"
#include "tests/harness/loop_run.h"
#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <linux/virtio_console.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- bytes --------------------------------------------------------------- */

static void test_vcon_port_carries_bytes_both_ways(void **state)
{
    struct console_guest *f = *state;
    struct fdrv_seg seg = {f->buf, 5, false};
    uint32_t head;
    uint32_t len;

    cg_bring_up(f);
    f->client = cg_dial(f, 0);
    cg_offer_ctl(f, 8, 128);
    assert_true(cg_wait_used(f, CG_CTL_RX, 9 + 1));
    fdrv_write(&f->d, f->buf, "guest", 5);
    (void)fdrv_add(&f->d, CG_TX1, &seg, 1);
    fdrv_kick(&f->d, CG_TX1);
    assert_true(cg_client_gets(f, 5));
    assert_memory_equal(f->got, "guest", 5);
    assert_int_equal(write(f->client, "host", 4), 4);
    cg_offer(f, CG_RX1, f->buf + 100, 2);
    cg_offer(f, CG_RX1, f->buf + 200, 100);
    assert_true(cg_wait_used(f, CG_RX1, 2));
    assert_true(fdrv_used(&f->d, CG_RX1, &head, &len));
    assert_int_equal(len, 2);
    assert_true(fdrv_used(&f->d, CG_RX1, &head, &len));
    assert_int_equal(len, 2);
    assert_memory_equal(fdrv_ptr(&f->d, f->buf + 100, 2), "ho", 2);
    assert_memory_equal(fdrv_ptr(&f->d, f->buf + 200, 2), "st", 2);
    assert_int_equal(fdrv_used_idx(&f->d, CG_RX2), 0);
}

static void test_vcon_client_comes_and_goes(void **state)
{
    struct console_guest *f = *state;

    cg_bring_up(f);
    assert_int_equal(fdrv_used_idx(&f->d, CG_CTL_RX), 9);
    f->client = cg_dial(f, 0);
    assert_true(cg_wait_used(f, CG_CTL_RX, 10));
    cg_hears(f, 9, 1, VIRTIO_CONSOLE_PORT_OPEN, 1, "");
    drop_fd(&f->client);
    assert_true(cg_wait_used(f, CG_CTL_RX, 11));
    cg_hears(f, 10, 1, VIRTIO_CONSOLE_PORT_OPEN, 0, "");
    assert_true(loop_run_is_idle(f->loop));
    f->client = cg_dial(f, 0);
    assert_true(cg_wait_used(f, CG_CTL_RX, 12));
    cg_hears(f, 11, 1, VIRTIO_CONSOLE_PORT_OPEN, 1, "");
    assert_true(loop_run_is_idle(f->loop));
}

static void test_vcon_second_client_waits_for_the_first_to_go(void **state)
{
    struct console_guest *f = *state;
    struct fdrv_seg seg = {f->buf, 3, false};
    int first = -1;

    cg_bring_up(f);
    first = cg_dial(f, 0);
    loop_run_for(f->loop, 5);
    f->client = cg_dial(f, 0);
    assert_true(loop_run_is_idle(f->loop));
    (void)fdrv_add(&f->d, CG_TX1, &seg, 1);
    fdrv_kick(&f->d, CG_TX1);
    loop_run_for(f->loop, 5);
    (void)cg_client_reads(f);
    assert_int_equal(f->num_got, 0);
    drop_fd(&first);
    assert_true(cg_wait_used(f, CG_CTL_RX, 9 + 3));
    (void)fdrv_add(&f->d, CG_TX1, &seg, 1);
    fdrv_kick(&f->d, CG_TX1);
    assert_true(cg_client_gets(f, 3));
}

/* The guest waits for a slow reader and loses nothing. */
static void test_vcon_slow_client_gets_everything(void **state)
{
    struct console_guest *f = *state;
    struct fdrv_seg seg = {f->buf, 8 * MIB, false};
    uint8_t *p = fdrv_ptr(&f->d, f->buf, 8 * MIB);

    for (size_t i = 0; i < 8 * MIB; i++)
        p[i] = (uint8_t)(i * 7 + (i >> 11));
    cg_bring_up(f);
    f->client = cg_dial(f, 0);
    loop_run_for(f->loop, 5);
    (void)fdrv_add(&f->d, CG_TX1, &seg, 1);
    fdrv_kick(&f->d, CG_TX1);
    assert_true(loop_run_is_idle(f->loop)); /* it waits without spinning */
    assert_int_equal(fdrv_used_idx(&f->d, CG_TX1), 0);
    assert_true(cg_client_gets(f, 8 * MIB));
    assert_memory_equal(f->got, p, 8 * MIB);
    assert_true(cg_wait_used(f, CG_TX1, 1));
}

/* What had not gone yet is the driver's memory, and nobody's to read. */
static void test_vcon_stopped_queue_sends_nothing_more(void **state)
{
    struct console_guest *f = *state;
    struct fdrv_seg seg = {f->buf, 8 * MIB, false};
    uint8_t *p = fdrv_ptr(&f->d, f->buf, 8 * MIB);
    ssize_t n;

    memset(p, 'a', 8 * MIB);
    cg_bring_up(f);
    f->client = cg_dial(f, 0);
    loop_run_for(f->loop, 5);
    (void)fdrv_add(&f->d, CG_TX1, &seg, 1);
    fdrv_kick(&f->d, CG_TX1);
    loop_run_for(f->loop, 5);
    assert_int_equal(fdrv_used_idx(&f->d, CG_TX1), 0);
    vq_stop(&f->dev->vq[CG_TX1]);
    memset(p, 'u', 8 * MIB);
    while ((n = recv(f->client, f->got, MIB, MSG_DONTWAIT)) > 0) {
        assert_null(memchr(f->got, 'u', (size_t)n));
        loop_run_for(f->loop, 2);
    }
    assert_int_equal(n, -1);
    assert_int_equal(fdrv_used_idx(&f->d, CG_TX1), 0);
}

/* Many pieces in one chain; more than fit into one call. */
static void test_vcon_port_output_in_many_pieces(void **state)
{
    struct console_guest *f = *state;
    struct fdrv_seg segs[200];
    struct vq_setup_args a = fdrv_setup_args(&f->d, CG_TX1, true);

    assert_int_equal(vq_setup(&f->dev->vq[CG_TX1], f->d.mem, &a), 0);
    cg_bring_up(f);
    f->client = cg_dial(f, 0);
    loop_run_for(f->loop, 5);
    for (uint16_t i = 0; i < 200; i++) {
        segs[i] = (struct fdrv_seg){f->buf + 16u * i, 1, false};
        fdrv_write(&f->d, f->buf + 16u * i, &(uint8_t){(uint8_t)i}, 1);
    }
    (void)fdrv_add_indirect(&f->d, CG_TX1, segs, 200);
    fdrv_kick(&f->d, CG_TX1);
    assert_true(cg_client_gets(f, 200));
    for (int i = 0; i < 200; i++)
        assert_int_equal(f->got[i], i);
}

static void test_vcon_output_without_a_client_is_dropped(void **state)
{
    struct console_guest *f = *state;
    struct fdrv_seg seg = {f->buf, 8 * MIB, false};

    cg_bring_up(f);
    (void)fdrv_add(&f->d, CG_TX1, &seg, 1);
    fdrv_kick(&f->d, CG_TX1);
    assert_int_equal(fdrv_used_idx(&f->d, CG_TX1), 1);
}

static void test_vcon_stuck_client_that_goes_frees_the_guest(void **state)
{
    struct console_guest *f = *state;
    struct fdrv_seg seg = {f->buf, 8 * MIB, false};

    cg_bring_up(f);
    f->client = cg_dial(f, 0);
    loop_run_for(f->loop, 5);
    (void)fdrv_add(&f->d, CG_TX1, &seg, 1);
    fdrv_kick(&f->d, CG_TX1);
    loop_run_for(f->loop, 5);
    assert_int_equal(fdrv_used_idx(&f->d, CG_TX1), 0);
    drop_fd(&f->client);
    assert_true(cg_wait_used(f, CG_TX1, 1));
    assert_true(loop_run_is_idle(f->loop));
}

static void test_vcon_input_waits_until_the_guest_opens_the_port(void **state)
{
    struct console_guest *f = *state;

    cg_bring_up(f);
    cg_say(f, 1, VIRTIO_CONSOLE_PORT_OPEN, 0);
    f->client = cg_dial(f, 0);
    assert_int_equal(write(f->client, "x", 1), 1);
    cg_offer(f, CG_RX1, f->buf, 16);
    assert_true(loop_run_is_idle(f->loop));
    assert_int_equal(fdrv_used_idx(&f->d, CG_RX1), 0);
    cg_say(f, 1, VIRTIO_CONSOLE_PORT_OPEN, 1);
    assert_true(cg_wait_used(f, CG_RX1, 1));
}

static void test_vcon_last_bytes_of_a_client_that_left_arrive(void **state)
{
    struct console_guest *f = *state;

    cg_bring_up(f);
    f->client = cg_dial(f, 0);
    loop_run_for(f->loop, 5);
    assert_int_equal(write(f->client, "bye", 3), 3);
    drop_fd(&f->client);
    assert_true(loop_run_is_idle(f->loop)); /* no buffer is there */
    cg_offer(f, CG_RX1, f->buf, 16);
    cg_offer(f, CG_RX1, f->buf + 16, 16);
    assert_true(cg_wait_used(f, CG_RX1, 1));
    assert_memory_equal(fdrv_ptr(&f->d, f->buf, 3), "bye", 3);
    assert_true(cg_wait_used(f, CG_CTL_RX, 9 + 2)); /* then it is closed */
    assert_true(loop_run_is_idle(f->loop));
}

/* What it left does not keep the next one out. */
static void test_vcon_next_client_is_let_in_over_old_bytes(void **state)
{
    struct console_guest *f = *state;
    struct fdrv_seg seg = {f->buf, 3, false};

    cg_bring_up(f);
    f->client = cg_dial(f, 0);
    loop_run_for(f->loop, 5);
    assert_int_equal(write(f->client, "bye", 3), 3);
    drop_fd(&f->client);
    loop_run_for(f->loop, 5);
    f->client = cg_dial(f, 0);
    loop_run_for(f->loop, 5);
    (void)fdrv_add(&f->d, CG_TX1, &seg, 1);
    fdrv_kick(&f->d, CG_TX1);
    assert_true(cg_client_gets(f, 3));
}

static void test_vcon_client_that_sent_all_still_listens(void **state)
{
    struct console_guest *f = *state;
    struct fdrv_seg seg = {f->buf, 6, false};

    cg_bring_up(f);
    f->client = cg_dial(f, 0);
    assert_int_equal(write(f->client, "ask", 3), 3);
    assert_int_equal(shutdown(f->client, SHUT_WR), 0);
    cg_offer(f, CG_RX1, f->buf, 16);
    cg_offer(f, CG_RX1, f->buf + 16, 16);
    assert_true(cg_wait_used(f, CG_RX1, 1));
    assert_true(loop_run_is_idle(f->loop));
    (void)fdrv_add(&f->d, CG_TX1, &seg, 1);
    fdrv_kick(&f->d, CG_TX1);
    assert_true(cg_client_gets(f, 6));
    drop_fd(&f->client);
    assert_true(cg_wait_used(f, CG_CTL_RX, 9 + 2));
}

#define T(t) cmocka_unit_test_setup_teardown(t, cg_setup, cg_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_vcon_port_carries_bytes_both_ways),
        T(test_vcon_client_comes_and_goes),
        T(test_vcon_second_client_waits_for_the_first_to_go),
        T(test_vcon_slow_client_gets_everything),
        T(test_vcon_stopped_queue_sends_nothing_more),
        T(test_vcon_port_output_in_many_pieces),
        T(test_vcon_output_without_a_client_is_dropped),
        T(test_vcon_stuck_client_that_goes_frees_the_guest),
        T(test_vcon_input_waits_until_the_guest_opens_the_port),
        T(test_vcon_last_bytes_of_a_client_that_left_arrive),
        T(test_vcon_next_client_is_let_in_over_old_bytes),
        T(test_vcon_client_that_sent_all_still_listens),
    };

    return cmocka_run_group_tests_name("virtio_console_ports", tests, NULL,
                                       NULL);
}
