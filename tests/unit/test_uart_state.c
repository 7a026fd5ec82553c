/* SPDX-License-Identifier: Apache-2.0 */
/* A serial port whose machine pauses, is saved and loaded. */
#include "devices/uart.h"

#include "tests/harness/loop_run.h"
#include "tests/harness/state_box.h"
#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <linux/serial_reg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct port {
    struct uart *u;
    int irq_fd;
    int in[2];
    int out[2];
};

struct fixture {
    struct evloop *loop;
    struct log log;
    struct port a; /* the source */
    struct port b; /* the clone */
};

static void port_open(struct fixture *f, struct port *p)
{
    p->irq_fd = eventfd(0, EFD_NONBLOCK);
    assert_int_equal(pipe2(p->in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(p->out, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(
        uart_new(f->loop, &f->log, p->irq_fd, p->in[0], p->out[1], &p->u), 0);
}

static void port_close(struct port *p)
{
    uart_free(p->u);
    close(p->irq_fd);
    for (int i = 0; i < 2; i++) {
        drop_fd(&p->in[i]);
        drop_fd(&p->out[i]);
    }
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    log_init(&f->log, -1, LOG_OFF, "test");
    port_open(f, &f->a);
    port_open(f, &f->b);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    port_close(&f->a);
    port_close(&f->b);
    evloop_free(f->loop);
    free(f);
    return 0;
}

static uint8_t in(struct port *p, uint64_t off)
{
    uint8_t v = 0;

    uart_bus_ops.read(p->u, off, &v, 1);
    return v;
}

static void out(struct port *p, uint64_t off, uint8_t v)
{
    uart_bus_ops.write(p->u, off, &v, 1);
}

static uint64_t irqs(struct port *p)
{
    uint64_t n = 0;

    (void)!read(p->irq_fd, &n, sizeof(n));
    return n;
}

static bool has_irq(void *arg)
{
    return irqs(arg) > 0;
}

static void save(struct port *p, struct state_box *box)
{
    uart_save(p->u, sbox_begin(box, UART_STATE_VERSION));
    sbox_end(box);
}

static int load(struct port *p, const struct state_box *box)
{
    struct state_in s = sbox_in(box);

    return uart_load(p->u, &s);
}

static void test_uart_rest_takes_no_input_and_loses_none(void **state)
{
    struct fixture *f = *state;

    out(&f->a, UART_IER, UART_IER_RDI);
    uart_rest(f->a.u);
    uart_rest(f->a.u);
    assert_int_equal(write(f->a.in[1], "xy", 2), 2);
    assert_true(loop_run_is_idle(f->loop));
    assert_int_equal(irqs(&f->a), 0);
    assert_int_equal(in(&f->a, UART_LSR) & UART_LSR_DR, 0);
    uart_wake(f->a.u);
    uart_wake(f->a.u);
    assert_true(loop_run_until(f->loop, has_irq, &f->a));
    assert_int_equal(in(&f->a, UART_RX), 'x');
    assert_int_equal(in(&f->a, UART_RX), 'y');
}

/* A full FIFO that the guest empties while the port rests. */
static void test_uart_rest_with_paused_input_goes_on(void **state)
{
    struct fixture *f = *state;
    char many[100];

    memset(many, 'm', sizeof(many));
    out(&f->a, UART_IER, UART_IER_RDI);
    assert_int_equal(write(f->a.in[1], many, sizeof(many)), sizeof(many));
    loop_run_for(f->loop, 20);
    uart_rest(f->a.u);
    for (int i = 0; i < 64; i++)
        assert_int_equal(in(&f->a, UART_RX), 'm');
    loop_run_for(f->loop, 5);
    assert_int_equal(in(&f->a, UART_LSR) & UART_LSR_DR, 0);
    (void)irqs(&f->a);
    uart_wake(f->a.u);
    assert_true(loop_run_until(f->loop, has_irq, &f->a));
    for (int i = 0; i < 36; i++)
        assert_int_equal(in(&f->a, UART_RX), 'm');
    assert_int_equal(in(&f->a, UART_LSR) & UART_LSR_DR, 0);
}

static bool got_z(void *arg)
{
    struct port *p = arg;
    char c = 0;

    return read(p->out[0], &c, 1) == 1 && c == 'z';
}

static void test_uart_rest_still_writes_what_was_printed(void **state)
{
    struct fixture *f = *state;

    out(&f->a, UART_TX, 'z');
    uart_rest(f->a.u);
    assert_true(loop_run_until(f->loop, got_z, &f->a));
}

static void test_uart_load_has_all_registers(void **state)
{
    struct fixture *f = *state;
    struct state_box box;

    out(&f->a, UART_LCR, UART_LCR_DLAB | UART_LCR_WLEN8);
    out(&f->a, UART_TX, 0x12);
    out(&f->a, UART_IER, 0x34);
    out(&f->a, UART_LCR, UART_LCR_WLEN8);
    out(&f->a, UART_FCR, UART_FCR_ENABLE_FIFO);
    out(&f->a, UART_MCR, UART_MCR_OUT2 | UART_MCR_RTS);
    out(&f->a, UART_SCR, 0x5a);
    out(&f->a, UART_IER, UART_IER_RLSI);
    uart_rest(f->a.u);
    save(&f->a, &box);
    assert_int_equal(load(&f->b, &box), 0);
    uart_wake(f->b.u);
    assert_int_equal(in(&f->b, UART_LCR), UART_LCR_WLEN8);
    assert_int_equal(in(&f->b, UART_MCR), UART_MCR_OUT2 | UART_MCR_RTS);
    assert_int_equal(in(&f->b, UART_SCR), 0x5a);
    assert_int_equal(in(&f->b, UART_IER), UART_IER_RLSI);
    assert_int_equal(in(&f->b, UART_IIR), 0xc0 | UART_IIR_NO_INT);
    out(&f->b, UART_LCR, UART_LCR_DLAB);
    assert_int_equal(in(&f->b, UART_TX), 0x12);
    assert_int_equal(in(&f->b, UART_IER), 0x34);
    assert_int_equal(irqs(&f->b), 0);
    sbox_free(&box);
}

/* User space's output stops for ever when this one is lost. */
static void test_uart_load_raises_transmitter_empty_again(void **state)
{
    struct fixture *f = *state;
    struct state_box box;

    out(&f->a, UART_IER, UART_IER_THRI);
    out(&f->a, UART_TX, 'q');
    uart_rest(f->a.u);
    save(&f->a, &box);
    assert_int_equal(load(&f->b, &box), 0);
    assert_int_equal(irqs(&f->b), 0); /* not before it wakes */
    uart_wake(f->b.u);
    assert_int_equal(irqs(&f->b), 1);
    assert_int_equal(in(&f->b, UART_IIR) & 0x0f, UART_IIR_THRI);
    assert_int_equal(in(&f->b, UART_IIR) & 0x0f, UART_IIR_NO_INT);
    sbox_free(&box);
}

/* Typed before the save, read behind it; a FIFO that wrapped, and full. */
static void test_uart_load_keeps_unread_input(void **state)
{
    struct fixture *f = *state;
    struct state_box box;
    char text[80];

    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)('0' + i);
    out(&f->a, UART_IER, UART_IER_RDI);
    assert_int_equal(write(f->a.in[1], text, 16), 16);
    assert_true(loop_run_until(f->loop, has_irq, &f->a));
    for (int i = 0; i < 16; i++)
        (void)in(&f->a, UART_RX);
    assert_int_equal(write(f->a.in[1], text + 16, 64), 64);
    assert_true(loop_run_until(f->loop, has_irq, &f->a));
    uart_rest(f->a.u);
    save(&f->a, &box);
    assert_int_equal(load(&f->b, &box), 0);
    assert_int_equal(write(f->b.in[1], "!", 1), 1);
    assert_true(loop_run_is_idle(f->loop)); /* it rests */
    uart_wake(f->b.u);
    assert_true(irqs(&f->b) > 0);
    loop_run_for(f->loop, 5); /* it is full: nothing is taken */
    for (int i = 16; i < 80; i++)
        assert_int_equal(in(&f->b, UART_RX), text[i]);
    assert_true(loop_run_until(f->loop, has_irq, &f->b));
    assert_int_equal(in(&f->b, UART_RX), '!');
    sbox_free(&box);
}

enum { AT_IER = 0, AT_MCR = 2, AT_FIFO_ON = 6, AT_THR = 8, AT_RX_USED = 9 };

static void test_uart_load_refuses_impossible_values(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
    } bad[] = {{AT_IER, 0x10},    {AT_MCR, 0x20},     {AT_FIFO_ON, 2},
               {AT_THR, 0xff},    {AT_RX_USED, 1},    {AT_RX_USED, 65},
               {AT_RX_USED, 255}, {AT_FIFO_ON + 1, 9}};
    struct fixture *f = *state;
    struct state_box box;

    out(&f->b, UART_SCR, 7);
    out(&f->a, UART_SCR, 8);
    uart_rest(f->a.u);
    save(&f->a, &box);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        uint8_t old = box.bytes[bad[i].at];

        box.bytes[bad[i].at] = bad[i].value;
        assert_int_equal(load(&f->b, &box), -EBADMSG);
        box.bytes[bad[i].at] = old;
    }
    for (size_t len = 0; len < box.len; len++) {
        struct state_in s = sbox_in_part(&box, len);

        assert_int_equal(uart_load(f->b.u, &s), -EBADMSG);
    }
    assert_int_equal(in(&f->b, UART_SCR), 7); /* as if nothing had been */
    assert_int_equal(load(&f->b, &box), 0);
    assert_int_equal(in(&f->b, UART_SCR), 8);
    sbox_free(&box);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_uart_rest_takes_no_input_and_loses_none),
        T(test_uart_rest_with_paused_input_goes_on),
        T(test_uart_rest_still_writes_what_was_printed),
        T(test_uart_load_has_all_registers),
        T(test_uart_load_raises_transmitter_empty_again),
        T(test_uart_load_keeps_unread_input),
        T(test_uart_load_refuses_impossible_values),
    };

    return cmocka_run_group_tests_name("uart_state", tests, NULL, NULL);
}
