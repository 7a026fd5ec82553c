/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/uart.h"

#include "tests/harness/loop_run.h"
#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <linux/serial_reg.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

struct fixture {
    struct evloop *loop;
    struct log log;
    struct uart *u;
    int irq_fd;
    int in[2];  /* the test writes in[1] */
    int out[2]; /* the test reads out[0] */
    uint8_t got[256 * 1024];
    size_t num_got;
    size_t want;
};

static int setup_backend(void **state, enum evloop_backend backend)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    (void)signal(SIGPIPE, SIG_IGN);
    assert_int_equal(evloop_new(backend, &f->loop), 0);
    log_init(&f->log, memfd_create("log", 0), LOG_INFO, "test");
    f->irq_fd = eventfd(0, EFD_NONBLOCK);
    assert_int_equal(pipe2(f->in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(f->out, O_CLOEXEC), 0);
    assert_int_equal(fcntl(f->in[1], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(fcntl(f->out[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(
        uart_new(f->loop, &f->log, f->irq_fd, f->in[0], f->out[1], &f->u), 0);
    *state = f;
    return 0;
}

static int setup(void **state)
{
    return setup_backend(state, EVLOOP_AUTO);
}

static int setup_epoll(void **state)
{
    return setup_backend(state, EVLOOP_EPOLL);
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    uart_free(f->u);
    evloop_free(f->loop);
    for (int i = 0; i < 2; i++) {
        drop_fd(&f->in[i]);
        drop_fd(&f->out[i]);
    }
    close(f->irq_fd);
    close(f->log.fd);
    free(f);
    return 0;
}

static uint8_t in(struct fixture *f, uint64_t off)
{
    uint8_t v = 0;

    uart_bus_ops.read(f->u, off, &v, 1);
    return v;
}

static void out(struct fixture *f, uint64_t off, uint8_t v)
{
    uart_bus_ops.write(f->u, off, &v, 1);
}

static void print(struct fixture *f, const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        out(f, UART_TX, (uint8_t)s[i]);
}

static uint64_t irqs(struct fixture *f)
{
    uint64_t n = 0;

    return read(f->irq_fd, &n, sizeof(n)) == sizeof(n) ? n : 0;
}

/* Takes what is in the output pipe; true when f->want bytes have come. */
static bool take_output(void *arg)
{
    struct fixture *f = arg;
    ssize_t n =
        read(f->out[0], f->got + f->num_got, sizeof(f->got) - f->num_got);

    if (n > 0)
        f->num_got += (size_t)n;
    return f->num_got >= f->want;
}

static bool output_reaches(struct fixture *f, size_t want)
{
    f->want = want;
    return loop_run_until(f->loop, take_output, f);
}

static bool has_data(void *arg)
{
    return in(arg, UART_LSR) & UART_LSR_DR;
}

static int log_lines(struct fixture *f)
{
    char buf[8192];
    ssize_t n = pread(f->log.fd, buf, sizeof(buf), 0);
    int lines = 0;

    for (ssize_t i = 0; i < n; i++)
        lines += buf[i] == '\n';
    return lines;
}

/* --- registers ----------------------------------------------------------- */

static void test_uart_is_recognised_as_16550a(void **state)
{
    struct fixture *f = *state;

    out(f, UART_IER, 0xff);
    assert_int_equal(in(f, UART_IER), 0x0f);
    out(f, UART_IER, 0);
    assert_int_equal(in(f, UART_IER), 0);
    out(f, UART_FCR, UART_FCR_ENABLE_FIFO);
    assert_int_equal(in(f, UART_IIR), 0xc0 | UART_IIR_NO_INT);
    out(f, UART_FCR, 0);
    assert_int_equal(in(f, UART_IIR), UART_IIR_NO_INT);
    assert_int_equal(in(f, UART_LSR), UART_LSR_THRE | UART_LSR_TEMT);
    assert_int_equal(in(f, UART_MSR),
                     UART_MSR_DCD | UART_MSR_DSR | UART_MSR_CTS);
}

static void test_uart_loopback_mirrors_lines_and_data(void **state)
{
    struct fixture *f = *state;

    out(f, UART_MCR, UART_MCR_LOOP | UART_MCR_OUT2 | UART_MCR_RTS);
    assert_int_equal(in(f, UART_MSR) & 0xf0, UART_MSR_DCD | UART_MSR_CTS);
    out(f, UART_MCR, UART_MCR_LOOP | UART_MCR_OUT1 | UART_MCR_DTR);
    assert_int_equal(in(f, UART_MSR) & 0xf0, UART_MSR_RI | UART_MSR_DSR);
    out(f, UART_TX, 'x');
    assert_true(has_data(f));
    assert_int_equal(in(f, UART_RX), 'x');
    assert_false(has_data(f));
    /* it does not get out */
    out(f, UART_MCR, 0);
    out(f, UART_TX, 'y');
    assert_true(output_reaches(f, 1));
    assert_int_equal(f->num_got, 1);
    assert_int_equal(f->got[0], 'y');
}

static void test_uart_loopback_overrun_is_told_once(void **state)
{
    struct fixture *f = *state;
    struct uart_stats s;

    out(f, UART_MCR, UART_MCR_LOOP);
    for (int i = 0; i < 65; i++)
        out(f, UART_TX, (uint8_t)i);
    uart_get_stats(f->u, &s);
    assert_int_equal(s.lost_input, 1);
    assert_true(in(f, UART_LSR) & UART_LSR_OE);
    assert_false(in(f, UART_LSR) & UART_LSR_OE);
    for (int i = 0; i < 64; i++)
        assert_int_equal(in(f, UART_RX), i);
    assert_false(has_data(f));
}

static void test_uart_scratch_and_divisor_latch(void **state)
{
    struct fixture *f = *state;

    out(f, UART_SCR, 0xa5);
    assert_int_equal(in(f, UART_SCR), 0xa5);
    out(f, UART_IER, UART_IER_RDI);
    out(f, UART_LCR, UART_LCR_DLAB | UART_LCR_WLEN8);
    out(f, UART_DLL, 0x12);
    out(f, UART_DLM, 0x34);
    assert_int_equal(in(f, UART_DLL), 0x12);
    assert_int_equal(in(f, UART_DLM), 0x34);
    out(f, UART_LCR, UART_LCR_WLEN8);
    assert_int_equal(in(f, UART_LCR), UART_LCR_WLEN8);
    assert_int_equal(in(f, UART_IER), UART_IER_RDI);
    loop_run_for(f->loop, 5);
    assert_false(take_output(f) && f->num_got > 0);
}

static void test_uart_other_widths_do_nothing(void **state)
{
    static const uint8_t data[8] = {'a', 1, 'a', 'a', 'a', 'a', 'a', 'a'};
    struct fixture *f = *state;
    struct uart_stats s;
    uint8_t b[4] = {0};

    uart_bus_ops.write(f->u, 0, data, 2);
    uart_bus_ops.write(f->u, 0, data, 4);
    uart_bus_ops.write(f->u, 0, data, 8);
    uart_bus_ops.read(f->u, 0, b, 4);
    assert_memory_equal(b, "\xff\xff\xff\xff", 4);
    assert_int_equal(in(f, UART_IER), 0);
    out(f, UART_LSR, 0xff);
    out(f, UART_MSR, 0xff);
    assert_int_equal(in(f, UART_LSR), UART_LSR_THRE | UART_LSR_TEMT);
    uart_get_stats(f->u, &s);
    assert_int_equal(s.missed_writes, 3);
    assert_int_equal(s.missed_reads, 1);
    assert_int_equal(s.writes, 2);
    assert_int_equal(s.reads, 2);
}

/* --- the transmitter's interrupt ----------------------------------------- */

static void test_uart_thre_interrupt_when_enabled(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(irqs(f), 0);
    out(f, UART_IER, UART_IER_THRI);
    assert_int_equal(irqs(f), 1);
    assert_int_equal(in(f, UART_IIR), UART_IIR_THRI);
    assert_int_equal(in(f, UART_IIR), UART_IIR_NO_INT); /* reading clears it */
    out(f, UART_IER, UART_IER_THRI);
    assert_int_equal(irqs(f), 0); /* it was on already */
    out(f, UART_IER, 0);
    out(f, UART_IER, UART_IER_THRI);
    assert_int_equal(irqs(f), 1);
    assert_int_equal(in(f, UART_IIR), UART_IIR_THRI);
}

static void test_uart_thre_interrupt_after_each_byte(void **state)
{
    struct fixture *f = *state;

    out(f, UART_IER, UART_IER_THRI);
    (void)in(f, UART_IIR);
    (void)irqs(f);
    for (int i = 0; i < 3; i++) {
        out(f, UART_TX, 'a');
        assert_int_equal(irqs(f), 1);
        assert_int_equal(in(f, UART_IIR), UART_IIR_THRI);
        assert_int_equal(in(f, UART_IIR), UART_IIR_NO_INT);
    }
    out(f, UART_IER, 0);
    out(f, UART_TX, 'a');
    assert_int_equal(irqs(f), 0);
    assert_int_equal(in(f, UART_IIR), UART_IIR_NO_INT);
}

static void test_uart_received_data_goes_before_thre(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(write(f->in[1], "k", 1), 1);
    assert_true(loop_run_until(f->loop, has_data, f));
    out(f, UART_IER, UART_IER_THRI | UART_IER_RDI);
    assert_int_equal(irqs(f), 1);
    assert_int_equal(in(f, UART_IIR), UART_IIR_RDI);
    assert_int_equal(in(f, UART_IIR), UART_IIR_RDI);
    assert_int_equal(in(f, UART_RX), 'k');
    assert_int_equal(in(f, UART_IIR), UART_IIR_THRI);
    assert_int_equal(in(f, UART_IIR), UART_IIR_NO_INT);
}

/* --- input --------------------------------------------------------------- */

static void test_uart_input_arrives_with_an_interrupt(void **state)
{
    struct fixture *f = *state;

    out(f, UART_IER, UART_IER_RDI);
    assert_int_equal(irqs(f), 0);
    assert_int_equal(write(f->in[1], "abc", 3), 3);
    assert_true(loop_run_until(f->loop, has_data, f));
    assert_int_equal(irqs(f), 1);
    assert_int_equal(in(f, UART_IIR), UART_IIR_RDI);
    assert_int_equal(in(f, UART_RX), 'a');
    assert_int_equal(in(f, UART_RX), 'b');
    assert_int_equal(in(f, UART_RX), 'c');
    assert_int_equal(in(f, UART_IIR), UART_IIR_NO_INT);
    assert_int_equal(in(f, UART_RX), 0);
}

static void test_uart_fifo_clear_drops_what_was_received(void **state)
{
    struct fixture *f = *state;

    out(f, UART_FCR, UART_FCR_ENABLE_FIFO);
    assert_int_equal(write(f->in[1], "abc", 3), 3);
    assert_true(loop_run_until(f->loop, has_data, f));
    out(f, UART_FCR, UART_FCR_ENABLE_FIFO | UART_FCR_CLEAR_XMIT);
    assert_true(has_data(f));
    out(f, UART_FCR, UART_FCR_ENABLE_FIFO | UART_FCR_CLEAR_RCVR);
    assert_false(has_data(f));
}

static size_t fill(int fd)
{
    static const char zeroes[4096];
    size_t total = 0;
    ssize_t n;

    while ((n = write(fd, zeroes, sizeof(zeroes))) > 0)
        total += (size_t)n;
    return total;
}

static size_t waiting_in(int fd)
{
    int n = -1;

    assert_int_equal(ioctl(fd, FIONREAD, &n), 0);
    return (size_t)n;
}

static void test_BL_018_fast_input_is_not_buffered(void **state)
{
    struct fixture *f = *state;
    size_t total = fill(f->in[1]);

    loop_run_for(f->loop, 50);
    /* one FIFO's worth is taken, the rest stays with its writer */
    assert_int_equal(waiting_in(f->in[0]), total - 64);
    (void)in(f, UART_RX);
    loop_run_for(f->loop, 20);
    assert_int_equal(waiting_in(f->in[0]), total - 64);
    for (int i = 0; i < 40; i++)
        (void)in(f, UART_RX);
    loop_run_for(f->loop, 50);
    assert_int_equal(waiting_in(f->in[0]), total - 64 - 41);
}

static void test_uart_paused_input_loses_nothing(void **state)
{
    struct fixture *f = *state;
    uint8_t sent[1000];

    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (uint8_t)(i * 7);
    assert_int_equal(write(f->in[1], sent, sizeof(sent)), sizeof(sent));
    for (size_t i = 0; i < sizeof(sent); i++) {
        if (!has_data(f))
            assert_true(loop_run_until(f->loop, has_data, f));
        assert_int_equal(in(f, UART_RX), sent[i]);
    }
    assert_false(in(f, UART_LSR) & UART_LSR_OE);
}

/* Emptying the FIFO by FCR makes room as well. */
static void test_uart_fifo_clear_lets_input_go_on(void **state)
{
    struct fixture *f = *state;
    size_t total = fill(f->in[1]);

    loop_run_for(f->loop, 20);
    assert_int_equal(waiting_in(f->in[0]), total - 64);
    out(f, UART_FCR, UART_FCR_ENABLE_FIFO | UART_FCR_CLEAR_RCVR);
    loop_run_for(f->loop, 20);
    assert_int_equal(waiting_in(f->in[0]), total - 128);
}

static void test_BL_017_hang_up_of_the_input_does_not_spin(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(write(f->in[1], "last", 4), 4);
    drop_fd(&f->in[1]);
    assert_true(loop_run_until(f->loop, has_data, f));
    assert_true(loop_run_is_idle(f->loop));
    assert_int_equal(in(f, UART_RX), 'l');
    assert_int_equal(in(f, UART_RX), 'a');
    assert_int_equal(in(f, UART_RX), 's');
    assert_int_equal(in(f, UART_RX), 't');
    assert_true(log_lines(f) <= 1);
    /* output still works */
    print(f, "on", 2);
    assert_true(output_reaches(f, 2));
}

static void test_BL_017_hang_up_while_the_fifo_is_full_does_not_spin(void **s)
{
    struct fixture *f = *s;

    (void)fill(f->in[1]);
    drop_fd(&f->in[1]);
    assert_true(loop_run_is_idle(f->loop));
    while (has_data(f)) {
        (void)in(f, UART_RX);
        loop_run_for(f->loop, 0);
    }
    assert_true(loop_run_is_idle(f->loop));
}

static void with_input(struct fixture *f, int fd)
{
    struct uart *u = NULL;

    assert_int_equal(uart_new(f->loop, &f->log, f->irq_fd, fd, -1, &u), 0);
    assert_true(loop_run_is_idle(f->loop));
    uart_bus_ops.write(u, 0, "x", 1); /* goes nowhere */
    assert_int_equal(uart_dropped(u), 0);
    uart_flush(u);
    uart_free(u);
}

static void test_BL_017_null_device_and_closed_input_do_not_spin(void **state)
{
    struct fixture *f = *state;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int closed = dup(fd);

    with_input(f, fd);
    close(closed);
    with_input(f, closed);
    with_input(f, -1);
    close(fd);
    assert_true(log_lines(f) <= 1);
}

/* --- output -------------------------------------------------------------- */

static void test_uart_output_keeps_its_order(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 50000; i++) {
        out(f, UART_TX, (uint8_t)(i % 251));
        if (i % 10000 == 0)
            assert_true(output_reaches(f, (size_t)i + 1));
    }
    assert_true(output_reaches(f, 50000));
    assert_int_equal(f->num_got, 50000);
    for (int i = 0; i < 50000; i++)
        assert_int_equal(f->got[i], i % 251);
    assert_int_equal(uart_dropped(f->u), 0);
}

static void test_uart_stuck_reader_never_stalls_the_guest(void **state)
{
    struct fixture *f = *state;
    const size_t total = 1000000;
    size_t lost;

    for (size_t i = 0; i < total; i++) {
        out(f, UART_TX, 'x');
        if (i % 100000 == 0)
            loop_run_for(f->loop, 5);
    }
    loop_run_for(f->loop, 20);
    lost = uart_dropped(f->u);
    assert_true(lost > total / 2);
    assert_int_equal(log_lines(f), 1);
    /* the reader wakes up: what was kept arrives, and so does what follows */
    assert_true(output_reaches(f, total - lost));
    loop_run_for(f->loop, 10);
    assert_int_equal(f->num_got, total - lost);
    print(f, "again", 5);
    assert_true(output_reaches(f, total - lost + 5));
    assert_memory_equal(f->got + f->num_got - 5, "again", 5);
    assert_int_equal(uart_dropped(f->u), lost);
    assert_int_equal(log_lines(f), 1);
}

/* Fills the pipe, then the buffer. */
static void fall_behind(struct fixture *f)
{
    for (int i = 0; i < 200000; i++) {
        out(f, UART_TX, 'x');
        if (i % 50000 == 0)
            loop_run_for(f->loop, 5);
    }
    loop_run_for(f->loop, 5);
    assert_true(uart_dropped(f->u) > 0);
}

static void test_uart_stuck_reader_does_not_spin(void **state)
{
    struct fixture *f = *state;

    fall_behind(f);
    assert_true(loop_run_is_idle(f->loop));
}

static void test_uart_reader_that_leaves_is_told_once(void **state)
{
    struct fixture *f = *state;

    drop_fd(&f->out[0]);
    for (int i = 0; i < 5; i++) {
        print(f, "hello", 5);
        loop_run_for(f->loop, 10);
    }
    assert_int_equal(uart_dropped(f->u), 25);
    assert_int_equal(log_lines(f), 1);
    assert_true(loop_run_is_idle(f->loop));
}

static void test_uart_reader_that_leaves_while_behind(void **state)
{
    struct fixture *f = *state;

    fall_behind(f);
    drop_fd(&f->out[0]);
    loop_run_for(f->loop, 20);
    assert_true(loop_run_is_idle(f->loop));
    assert_int_equal(log_lines(f), 2);
}

static void test_uart_callers_descriptors_keep_their_flags(void **state)
{
    struct fixture *f = *state;

    print(f, "x", 1);
    assert_true(output_reaches(f, 1));
    assert_false(fcntl(f->out[1], F_GETFL) & O_NONBLOCK);
    assert_false(fcntl(f->in[0], F_GETFL) & O_NONBLOCK);
}

/* A stopping VM: the loop runs no more, the last words still come out. */
static void test_uart_flush_writes_the_rest(void **state)
{
    struct fixture *f = *state;

    print(f, "the end", 7);
    uart_flush(f->u);
    assert_false(take_output(f) && f->num_got < 7);
    assert_int_equal(f->num_got, 7);
    assert_memory_equal(f->got, "the end", 7);
}

static void test_uart_flush_does_not_wait_for_ever(void **state)
{
    struct fixture *f = *state;
    uint64_t start = util_now_ns();

    fall_behind(f);
    uart_flush(f->u);
    assert_true(util_now_ns() - start < 10000000000ull);
}

/* The VM's own shape: registers on one thread, the loop on another. */
static void test_uart_two_threads(void **state)
{
    struct fixture *f = *state;
    struct loop_thread *t = loop_thread_start(f->loop);
    uint64_t end = util_now_ns() + 20000000000ull;
    size_t echoed = 0;

    f->want = SIZE_MAX;
    for (size_t sent = 0; echoed < 5000 && util_now_ns() < end;) {
        if (sent < 5000)
            sent += write(f->in[1], "e", 1) == 1;
        if (in(f, UART_LSR) & UART_LSR_DR) {
            out(f, UART_TX, in(f, UART_RX));
            echoed++;
        }
        (void)take_output(f);
    }
    while (f->num_got < 5000 && util_now_ns() < end)
        (void)take_output(f);
    loop_thread_stop(t);
    assert_int_equal(echoed, 5000);
    assert_int_equal(f->num_got, 5000);
}

#define T(t)                                                                   \
    cmocka_unit_test_setup_teardown(t, setup, teardown),                       \
        cmocka_unit_test_setup_teardown(t, setup_epoll, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_uart_is_recognised_as_16550a),
        T(test_uart_loopback_mirrors_lines_and_data),
        T(test_uart_loopback_overrun_is_told_once),
        T(test_uart_scratch_and_divisor_latch),
        T(test_uart_other_widths_do_nothing),
        T(test_uart_thre_interrupt_when_enabled),
        T(test_uart_thre_interrupt_after_each_byte),
        T(test_uart_received_data_goes_before_thre),
        T(test_uart_input_arrives_with_an_interrupt),
        T(test_uart_fifo_clear_drops_what_was_received),
        T(test_BL_018_fast_input_is_not_buffered),
        T(test_uart_paused_input_loses_nothing),
        T(test_uart_fifo_clear_lets_input_go_on),
        T(test_BL_017_hang_up_of_the_input_does_not_spin),
        T(test_BL_017_hang_up_while_the_fifo_is_full_does_not_spin),
        T(test_BL_017_null_device_and_closed_input_do_not_spin),
        T(test_uart_output_keeps_its_order),
        T(test_uart_stuck_reader_never_stalls_the_guest),
        T(test_uart_stuck_reader_does_not_spin),
        T(test_uart_reader_that_leaves_is_told_once),
        T(test_uart_reader_that_leaves_while_behind),
        T(test_uart_callers_descriptors_keep_their_flags),
        T(test_uart_flush_writes_the_rest),
        T(test_uart_flush_does_not_wait_for_ever),
        T(test_uart_two_threads),
    };

    return cmocka_run_group_tests_name("uart", tests, NULL, NULL);
}
