/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_UART_H
#define DEVICES_UART_H

/*
 * A 16550A serial port: eight registers, both FIFOs, interrupts for received
 * data and for an empty transmitter. No guest output is ever waited for, and
 * host input is taken only while there is room for it.
 *
 * Ownership: the fds stay the caller's. Threads: registers from vCPU threads
 * under a lock of its own; input and output on the loop's thread.
 * spec: PC16550D data sheet
 */

#include "vmm/bus.h"
#include "vmm/counter.h"
#include "vmm/evloop.h"
#include "vmm/log.h"
#include "vmm/state.h"

#define UART_NUM_PORTS 8u

struct uart;

extern const struct bus_ops uart_bus_ops; /* dev = struct uart */

/*
 * `irq_fd`: an eventfd whose write raises the (edge triggered) interrupt.
 * `in_fd`, `out_fd`: -1 for none. Before the loop runs. 0 or -errno.
 */
int uart_new(struct evloop *loop, struct log *log, int irq_fd, int in_fd,
             int out_fd, struct uart **out_uart) MUST_CHECK;

struct uart_stats {
    uint64_t reads; /* of registers */
    uint64_t writes;
    uint64_t missed_reads; /* of more than a byte: nothing was done */
    uint64_t missed_writes;
    uint64_t lost_input; /* bytes that found the FIFO full */
};
/* Thread: any. */
void uart_get_stats(const struct uart *u, struct uart_stats *out);

/* Bytes of output that were dropped. Thread: any. */
uint64_t uart_dropped(struct uart *u);

/*
 * A machine that pauses: no input is taken while resting. Output that the guest
 * has written goes on to its reader. Each idempotent. thread: io
 */
void uart_rest(struct uart *u);
void uart_wake(struct uart *u);

/*
 * Registers, unread input and what is pending: all of a section, saved at rest,
 * the vCPUs stopped. A loaded port rests; the interrupt of what is pending is
 * raised again by uart_wake(). -EBADMSG: nothing was taken over. thread: io
 */
#define UART_STATE_VERSION 1u
void uart_save(struct uart *u, struct state_out *out);
int uart_load(struct uart *u, struct state_in *in) MUST_CHECK;

/*
 * At the end of a VM, the vCPUs stopped: writes what output is left, waiting a
 * moment at most. thread: io, or any once the loop has ended.
 */
void uart_flush(struct uart *u);

/* thread: io, or any once the loop has ended. NULL is fine. */
void uart_free(struct uart *u);

#endif
