/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/uart_int.h"

#include <string.h>

/* What of a serial port is saved with its machine. thread: io, at rest */

void uart_save(struct uart *u, struct state_out *out)
{
    (void)pthread_mutex_lock(&u->lock);
    state_put_u8(out, u->ier);
    state_put_u8(out, u->lcr);
    state_put_u8(out, u->mcr);
    state_put_u8(out, u->scr);
    state_put_bytes(out, u->divisor, sizeof(u->divisor));
    state_put_u8(out, u->fifo_on);
    state_put_u8(out, u->overrun);
    state_put_u8(out, u->thr_pending);
    state_put_u8(out, (uint8_t)u->rx_used);
    for (uint32_t i = 0; i < u->rx_used; i++)
        state_put_u8(out, u->rx[(u->rx_start + i) % UART_RX_BYTES]);
    (void)pthread_mutex_unlock(&u->lock);
}

/* Registers of a port that is not there yet. */
struct uart_saved {
    uint8_t ier;
    uint8_t lcr;
    uint8_t mcr;
    uint8_t scr;
    uint8_t divisor[2];
    bool fifo_on;
    bool overrun;
    bool thr_pending;
    uint32_t rx_used;
    uint8_t rx[UART_RX_BYTES];
};

static int uart_get(struct uart_saved *s, struct state_in *in)
{
    s->ier = state_get_u8(in);
    s->lcr = state_get_u8(in);
    s->mcr = state_get_u8(in);
    s->scr = state_get_u8(in);
    state_get_bytes(in, s->divisor, sizeof(s->divisor));
    s->fifo_on = state_get_bool(in);
    s->overrun = state_get_bool(in);
    s->thr_pending = state_get_bool(in);
    s->rx_used = state_get_u8(in);
    if ((s->ier & ~UART_IER_MASK) || (s->mcr & ~UART_MCR_MASK) ||
        s->rx_used > UART_RX_BYTES)
        return -EBADMSG;
    state_get_bytes(in, s->rx, s->rx_used);
    return state_done(in);
}

int uart_load(struct uart *u, struct state_in *in)
{
    struct uart_saved s;
    int rc = uart_get(&s, in);

    if (rc)
        return rc;
    uart_rest(u);
    (void)pthread_mutex_lock(&u->lock);
    u->ier = s.ier;
    u->lcr = s.lcr;
    u->mcr = s.mcr;
    u->scr = s.scr;
    memcpy(u->divisor, s.divisor, sizeof(u->divisor));
    u->fifo_on = s.fifo_on;
    u->overrun = s.overrun;
    u->thr_pending = s.thr_pending;
    u->rx_start = 0;
    u->rx_used = s.rx_used;
    memcpy(u->rx, s.rx, s.rx_used);
    /* The guest makes room first; uart_wake() heeds it. */
    u->in_paused = s.rx_used == UART_RX_BYTES;
    (void)pthread_mutex_unlock(&u->lock);
    return 0;
}
