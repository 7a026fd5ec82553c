/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_UART_INT_H
#define DEVICES_UART_INT_H

/* Between uart.c (the device) and uart_state.c (its bytes in a saved machine).
 */

#include "devices/char_out.h"
#include "devices/uart.h"

#include <pthread.h>

#define UART_RX_BYTES 64u /* deeper than the 16 of the real one */
#define UART_IER_MASK 0x0fu
#define UART_MCR_MASK 0x1fu

struct uart {
    /* immutable */
    struct evloop *loop;
    struct log *log;
    int irq_fd; /* borrowed */
    int in_fd;  /* borrowed */
    int room_fd;
    struct char_out *out; /* NULL: nowhere */

    /* io thread */
    struct ev_fd in;
    struct ev_counter room;
    bool in_gone;
    bool resting; /* no input is taken */

    /* guarded by lock */
    pthread_mutex_t lock;
    uint8_t ier;
    uint8_t lcr;
    uint8_t mcr;
    uint8_t scr;
    uint8_t divisor[2];
    bool fifo_on;
    bool overrun;
    bool thr_pending; /* "transmitter empty" not yet seen in IIR */
    bool in_paused;   /* the FIFO was full: the input is not watched */
    uint32_t rx_start;
    uint32_t rx_used;
    uint8_t rx[UART_RX_BYTES];
    struct uart_stats stats; /* read by any */
};

/* Whether an interrupt is enabled and its cause pending. */
bool uart_has_cause_locked(const struct uart *u);

#endif
