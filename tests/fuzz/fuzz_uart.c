/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The UART under any register accesses, host input and output. Every byte that
 * the guest sends comes out or is counted as dropped; no more input is taken
 * than the FIFO holds.
 */
#include "devices/uart.h"

#include "tests/fuzz/inline_loop.h"
#include "tests/harness/fuzz_input.h"
#include "vmm/cleanup.h"

#include <fcntl.h>
#include <linux/serial_reg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_STEPS  400u
#define MAX_BURSTS 8u
#define FIFO       64u

struct target {
    struct evloop *loop;
    struct uart *u;
    int irq_fd;
    int in[2];
    int out[2];
    uint8_t lcr; /* what the guest has set: they change what THR means */
    uint8_t mcr;
    uint32_t bursts;
    uint64_t sent;
    uint64_t came;
};

static void take_output(struct target *t)
{
    char buf[4096];
    ssize_t n;

    while ((n = read(t->out[0], buf, sizeof(buf))) > 0)
        t->came += (uint64_t)n;
}

static void write_reg(struct target *t, uint8_t off, uint8_t v)
{
    if (off == UART_LCR)
        t->lcr = v;
    if (off == UART_MCR)
        t->mcr = v;
    if (off == UART_TX && !(t->lcr & UART_LCR_DLAB) &&
        !(t->mcr & UART_MCR_LOOP))
        t->sent++;
    uart_bus_ops.write(t->u, off, &v, 1);
}

static uint8_t read_reg(struct target *t, uint8_t off)
{
    uint8_t v = 0;

    uart_bus_ops.read(t->u, off, &v, 1);
    return v;
}

/* The guest reads until nothing is left: that may be one FIFO's worth. */
static void drain(struct target *t)
{
    uint32_t n = 0;

    write_reg(t, UART_LCR, 0);
    while (read_reg(t, UART_LSR) & UART_LSR_DR) {
        (void)read_reg(t, UART_RX);
        n++;
    }
    fuzz_must(n <= FIFO);
}

/* A few times so much that the buffer and the pipe run full. */
static void print(struct target *t, struct fuzz_in *in)
{
    uint32_t n = fuzz_below(in, 64);

    if (fuzz_rarely(in, 16) && t->bursts++ < MAX_BURSTS)
        n <<= 9;
    for (; n > 0; n--)
        write_reg(t, UART_TX, (uint8_t)n);
}

static void step(struct target *t, struct fuzz_in *in)
{
    uint8_t b[8] = {0};
    uint8_t off;

    switch (fuzz_below(in, 10)) {
    case 0:
    case 1:
        (void)read_reg(t, (uint8_t)fuzz_below(in, UART_NUM_PORTS));
        break;
    case 2:
    case 3:
        off = (uint8_t)fuzz_below(in, UART_NUM_PORTS);
        write_reg(t, off, fuzz_u8(in));
        break;
    case 4:
        print(t, in);
        break;
    case 5:
        if (t->in[1] >= 0)
            (void)!write(t->in[1], in->p, min_u64(in->left, 100));
        break;
    case 6:
        inline_loop_turn(t->loop);
        uart_rest(t->u);
        inline_loop_turn(t->loop);
        uart_wake(t->u);
        break;
    case 7:
        take_output(t);
        break;
    case 8:
        if (fuzz_rarely(in, 8))
            drop_fd(&t->in[1]);
        else
            drain(t);
        break;
    default:
        off = (uint8_t)fuzz_below(in, 4);
        uart_bus_ops.read(t->u, off, b, 2u << fuzz_below(in, 2));
        uart_bus_ops.write(t->u, off, b, 2u << fuzz_below(in, 2));
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, len};
    struct target t = {.irq_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};

    fuzz_must(t.irq_fd >= 0);
    fuzz_must(pipe2(t.in, O_CLOEXEC | O_NONBLOCK) == 0);
    fuzz_must(pipe2(t.out, O_CLOEXEC | O_NONBLOCK) == 0);
    fuzz_must(evloop_new(EVLOOP_AUTO, &t.loop) == 0);
    fuzz_must(uart_new(t.loop, NULL, t.irq_fd, t.in[0], t.out[1], &t.u) == 0);
    for (uint32_t i = 0; i < MAX_STEPS && in.left > 0; i++)
        step(&t, &in);
    /* What waits may be more than the pipe takes at once. */
    for (int i = 0; i < 4; i++) {
        take_output(&t);
        inline_loop_turn(t.loop);
    }
    take_output(&t);
    uart_flush(t.u);
    take_output(&t);
    fuzz_must(t.came + uart_dropped(t.u) == t.sent);
    uart_free(t.u);
    evloop_free(t.loop);
    for (int i = 0; i < 2; i++) {
        drop_fd(&t.in[i]);
        drop_fd(&t.out[i]);
    }
    drop_fd(&t.irq_fd);
    return 0;
}
