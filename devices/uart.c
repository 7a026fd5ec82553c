/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/uart.h"

#include "devices/char_out.h"
#include "devices/uart_int.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <linux/serial_reg.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

/* 16550A. spec: PC16550D data sheet. threads: vcpu (registers), io (input) */

#define UART_RX_LOW        32u /* input goes on when no more than this waits */
#define UART_FLUSH_MS      500
#define UART_IIR_FIFO_ON   0xc0u
#define UART_LINES_PRESENT (UART_MSR_DCD | UART_MSR_DSR | UART_MSR_CTS)

/* What a register access leaves to do once the lock is free. */
struct uart_todo {
    bool irq;
    bool room; /* let input go on */
    bool send;
    uint8_t byte;
};

/* --- receive FIFO -------------------------------------------------------- */

static void uart_rx_put_locked(struct uart *u, uint8_t byte)
{
    if (u->rx_used == UART_RX_BYTES) {
        u->overrun = true;
        counter_add(&u->stats.lost_input, 1);
        return;
    }
    u->rx[(u->rx_start + u->rx_used) % UART_RX_BYTES] = byte;
    u->rx_used++;
}

static void uart_rx_freed_locked(struct uart *u, struct uart_todo *todo)
{
    if (u->in_paused && u->rx_used <= UART_RX_LOW) {
        u->in_paused = false;
        todo->room = true;
    }
}

static uint8_t uart_rx_get_locked(struct uart *u, struct uart_todo *todo)
{
    uint8_t byte = 0;

    if (u->rx_used > 0) {
        byte = u->rx[u->rx_start];
        u->rx_start = (u->rx_start + 1) % UART_RX_BYTES;
        u->rx_used--;
    }
    uart_rx_freed_locked(u, todo);
    return byte;
}

/* --- interrupts ---------------------------------------------------------- */

/* The highest cause that is enabled and pending, as IIR shows it. */
static uint8_t uart_cause_locked(const struct uart *u)
{
    if ((u->ier & UART_IER_RLSI) && u->overrun)
        return UART_IIR_RLSI;
    if ((u->ier & UART_IER_RDI) && u->rx_used > 0)
        return UART_IIR_RDI;
    if ((u->ier & UART_IER_THRI) && u->thr_pending)
        return UART_IIR_THRI;
    return UART_IIR_NO_INT;
}

bool uart_has_cause_locked(const struct uart *u)
{
    return uart_cause_locked(u) != UART_IIR_NO_INT;
}

static uint8_t uart_read_iir_locked(struct uart *u)
{
    uint8_t cause = uart_cause_locked(u);

    if (cause == UART_IIR_THRI)
        u->thr_pending = false;
    return (uint8_t)(cause | (u->fifo_on ? UART_IIR_FIFO_ON : 0));
}

/* --- reading ------------------------------------------------------------- */

static uint8_t uart_read_lsr_locked(struct uart *u)
{
    uint8_t v = UART_LSR_TEMT | UART_LSR_THRE;

    if (u->rx_used > 0)
        v |= UART_LSR_DR;
    if (u->overrun)
        v |= UART_LSR_OE;
    u->overrun = false;
    return v;
}

/* In a loop the modem lines show what the driver sets. */
static uint8_t uart_read_msr_locked(const struct uart *u)
{
    uint8_t v = 0;

    if (!(u->mcr & UART_MCR_LOOP))
        return UART_LINES_PRESENT;
    if (u->mcr & UART_MCR_RTS)
        v |= UART_MSR_CTS;
    if (u->mcr & UART_MCR_DTR)
        v |= UART_MSR_DSR;
    if (u->mcr & UART_MCR_OUT1)
        v |= UART_MSR_RI;
    if (u->mcr & UART_MCR_OUT2)
        v |= UART_MSR_DCD;
    return v;
}

static uint8_t uart_read_locked(struct uart *u, uint64_t off,
                                struct uart_todo *todo)
{
    bool dlab = u->lcr & UART_LCR_DLAB;

    switch (off) {
    case UART_RX:
        return dlab ? u->divisor[0] : uart_rx_get_locked(u, todo);
    case UART_IER:
        return dlab ? u->divisor[1] : u->ier;
    case UART_IIR:
        return uart_read_iir_locked(u);
    case UART_LCR:
        return u->lcr;
    case UART_MCR:
        return u->mcr;
    case UART_LSR:
        return uart_read_lsr_locked(u);
    case UART_MSR:
        return uart_read_msr_locked(u);
    default:
        return u->scr;
    }
}

/* --- writing ------------------------------------------------------------- */

static void uart_write_thr_locked(struct uart *u, uint8_t v,
                                  struct uart_todo *todo)
{
    if (u->mcr & UART_MCR_LOOP) {
        uart_rx_put_locked(u, v);
    } else {
        todo->send = true;
        todo->byte = v;
    }
    /* Sent at once, as far as the guest can tell: the holding register is
     * empty again, and user space's output waits for just this interrupt. */
    u->thr_pending = true;
    todo->irq = uart_has_cause_locked(u);
}

static void uart_write_ier_locked(struct uart *u, uint8_t v,
                                  struct uart_todo *todo)
{
    if ((v & UART_IER_THRI) && !(u->ier & UART_IER_THRI))
        u->thr_pending = true; /* the transmitter is empty */
    u->ier = v & UART_IER_MASK;
    todo->irq = uart_has_cause_locked(u);
}

static void uart_write_fcr_locked(struct uart *u, uint8_t v,
                                  struct uart_todo *todo)
{
    bool on = v & UART_FCR_ENABLE_FIFO;

    if (on != u->fifo_on || (on && (v & UART_FCR_CLEAR_RCVR))) {
        u->rx_used = 0;
        uart_rx_freed_locked(u, todo);
    }
    u->fifo_on = on;
}

static void uart_write_locked(struct uart *u, uint64_t off, uint8_t v,
                              struct uart_todo *todo)
{
    bool dlab = u->lcr & UART_LCR_DLAB;

    switch (off) {
    case UART_TX:
        if (dlab)
            u->divisor[0] = v;
        else
            uart_write_thr_locked(u, v, todo);
        break;
    case UART_IER:
        if (dlab)
            u->divisor[1] = v;
        else
            uart_write_ier_locked(u, v, todo);
        break;
    case UART_FCR:
        uart_write_fcr_locked(u, v, todo);
        break;
    case UART_LCR:
        u->lcr = v;
        break;
    case UART_MCR:
        u->mcr = v & UART_MCR_MASK;
        break;
    case UART_SCR:
        u->scr = v;
        break;
    default:
        break; /* LSR and MSR cannot be written */
    }
}

/* --- the bus ------------------------------------------------------------- */

static void uart_do(const struct uart *u, const struct uart_todo *todo)
{
    if (todo->send && u->out)
        char_out_write(u->out, &todo->byte, 1);
    if (todo->irq)
        (void)eventfd_write(u->irq_fd, 1); /* full: it is pending anyway */
    if (todo->room)
        (void)eventfd_write(u->room_fd, 1);
}

static void uart_missed(struct uart *u, uint64_t *count)
{
    (void)pthread_mutex_lock(&u->lock);
    counter_add(count, 1);
    (void)pthread_mutex_unlock(&u->lock);
}

static void uart_bus_read(void *dev, uint64_t off, void *data, uint32_t len)
{
    struct uart *u = dev;
    struct uart_todo todo = {0};
    uint8_t v;

    if (len != 1) {
        uart_missed(u, &u->stats.missed_reads);
        memset(data, 0xff, len);
        return;
    }
    (void)pthread_mutex_lock(&u->lock);
    v = uart_read_locked(u, off, &todo);
    counter_add(&u->stats.reads, 1);
    (void)pthread_mutex_unlock(&u->lock);
    memcpy(data, &v, 1);
    uart_do(u, &todo);
}

static void uart_bus_write(void *dev, uint64_t off, const void *data,
                           uint32_t len)
{
    struct uart *u = dev;
    struct uart_todo todo = {0};
    uint8_t v;

    if (len != 1) {
        uart_missed(u, &u->stats.missed_writes);
        return;
    }
    memcpy(&v, data, 1);
    (void)pthread_mutex_lock(&u->lock);
    counter_add(&u->stats.writes, 1);
    uart_write_locked(u, off, v, &todo);
    (void)pthread_mutex_unlock(&u->lock);
    uart_do(u, &todo);
}

const struct bus_ops uart_bus_ops = {
    .name = "uart",
    .read = uart_bus_read,
    .write = uart_bus_write,
};

/* --- host input ---------------------------------------------------------- */

/* The far end has closed: a hang-up would be told again and again. */
static void uart_end_input(struct uart *u, int rc)
{
    evloop_fd_del(u->loop, &u->in);
    u->in_gone = true;
    if (rc)
        log_msg(u->log, LOG_INFO, "console input ended: %s", err_reason(rc));
}

static void uart_receive(struct uart *u, const uint8_t *data, size_t len)
{
    bool irq;
    bool full;

    (void)pthread_mutex_lock(&u->lock);
    /* A line in loop-back is not connected to the outside. */
    for (size_t i = 0; i < len && !(u->mcr & UART_MCR_LOOP); i++)
        uart_rx_put_locked(u, data[i]);
    full = u->rx_used == UART_RX_BYTES;
    u->in_paused = full;
    irq = (u->ier & UART_IER_RDI) && u->rx_used > 0;
    (void)pthread_mutex_unlock(&u->lock);
    if (full)
        evloop_fd_del(u->loop, &u->in);
    if (irq)
        (void)eventfd_write(u->irq_fd, 1);
}

static void uart_on_input(struct ev_fd *w, uint32_t revents)
{
    struct uart *u = w->arg;
    uint8_t buf[UART_RX_BYTES];
    size_t room;
    ssize_t n;

    (void)revents; /* a hang-up reads as end of file or as an error */
    (void)pthread_mutex_lock(&u->lock);
    room = UART_RX_BYTES - u->rx_used;
    u->in_paused = room == 0; /* filled by a loop-back meanwhile */
    (void)pthread_mutex_unlock(&u->lock);
    if (room == 0) {
        evloop_fd_del(u->loop, &u->in);
        return;
    }
    n = read(u->in_fd, buf, room);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0)
        uart_end_input(u, n < 0 ? neg_errno() : 0);
    else
        uart_receive(u, buf, (size_t)n);
}

/* Unless there is a reason not to. */
static void uart_watch_input(struct uart *u)
{
    bool paused;
    int rc;

    (void)pthread_mutex_lock(&u->lock);
    paused = u->in_paused;
    (void)pthread_mutex_unlock(&u->lock);
    if (paused || u->resting || u->in_gone || u->in.slot_ != 0)
        return;
    rc = evloop_fd_add(u->loop, &u->in, u->in_fd, POLLIN, uart_on_input, u);
    if (rc)
        uart_end_input(u, rc);
}

static void uart_on_room(struct ev_counter *c, uint64_t count)
{
    (void)count;
    uart_watch_input(c->arg);
}

/* --- rest ---------------------------------------------------------------- */

void uart_rest(struct uart *u)
{
    u->resting = true;
    evloop_fd_del(u->loop, &u->in);
    /* A copy goes on behind what the guest has said: that is out by now,
     * as far as its reader has room. */
    if (u->out)
        char_out_flush(u->out, 0);
}

void uart_wake(struct uart *u)
{
    bool irq;

    u->resting = false;
    (void)pthread_mutex_lock(&u->lock);
    irq = uart_has_cause_locked(u);
    (void)pthread_mutex_unlock(&u->lock);
    /* Whether the edge for it was seen before a save cannot be known. */
    if (irq)
        (void)eventfd_write(u->irq_fd, 1);
    uart_watch_input(u);
}

/* --- life ---------------------------------------------------------------- */

static int uart_start_input(struct uart *u, int in_fd)
{
    int rc;

    u->in_gone = true;
    if (in_fd < 0 || fcntl(in_fd, F_GETFD) < 0)
        return 0; /* started with standard input closed */
    u->in_fd = in_fd;
    u->room_fd = eventfd(0, EFD_CLOEXEC);
    if (u->room_fd < 0)
        return neg_errno();
    rc = evloop_counter_add(u->loop, &u->room, u->room_fd, uart_on_room, u);
    if (rc == 0)
        rc = evloop_fd_add(u->loop, &u->in, in_fd, POLLIN, uart_on_input, u);
    u->in_gone = rc != 0;
    return rc;
}

int uart_new(struct evloop *loop, struct log *log, int irq_fd, int in_fd,
             int out_fd, struct uart **out_uart)
{
    struct uart *u = calloc(1, sizeof(*u));
    int rc = 0;

    if (!u)
        return -ENOMEM;
    u->loop = loop;
    u->log = log;
    u->irq_fd = irq_fd;
    u->room_fd = -1;
    (void)pthread_mutex_init(&u->lock, NULL); /* never fails on Linux */
    if (out_fd >= 0)
        rc = char_out_new(loop, log, "console", out_fd, &u->out);
    if (rc == 0)
        rc = uart_start_input(u, in_fd);
    if (rc) {
        uart_free(u);
        return rc;
    }
    *out_uart = u;
    return 0;
}

void uart_get_stats(const struct uart *u, struct uart_stats *out)
{
    counters_copy(out, &u->stats, sizeof(*out));
}

uint64_t uart_dropped(struct uart *u)
{
    return u->out ? char_out_dropped(u->out) : 0;
}

void uart_flush(struct uart *u)
{
    if (u->out)
        char_out_flush(u->out, UART_FLUSH_MS);
}

void uart_free(struct uart *u)
{
    if (!u)
        return;
    evloop_fd_del(u->loop, &u->in);
    evloop_counter_del(u->loop, &u->room);
    char_out_free(u->out);
    drop_fd(&u->room_fd);
    (void)pthread_mutex_destroy(&u->lock);
    free(u);
}
