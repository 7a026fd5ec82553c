/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ticks for ever on cpus=N processors: each wakes by a timer and finds its
 * registers as they were; the first changes pages=N pages every time, finds
 * them as the last tick left them, and says so. It says a number only when
 * every other processor has ticked since the one before.
 */
#include "guest/payloads/cpu_marks.h"
#include "guest/payloads/intr.h"
#include "guest/payloads/smp.h"
#include "guest/payloads/ticker.h"

#include <linux/serial_reg.h>

#define MAX_PAGES    1024u
#define PAGE_WORDS   512u
#define STILL_PAGES  256u
#define BLINK_PAGES  4u
#define UART_SCRATCH 0xa5u

static volatile uint64_t live[MAX_PAGES][PAGE_WORDS]
    __attribute__((aligned(4096)));
static volatile uint64_t still[STILL_PAGES][PAGE_WORDS]
    __attribute__((aligned(4096)));
static volatile uint64_t blink[BLINK_PAGES][PAGE_WORDS]
    __attribute__((aligned(4096)));
static uint64_t ticks_of[MARKS_MAX_CPUS];

static void on_cpu(uint32_t apic_id)
{
    intr_load_here();
    ticker_start();
    cpu_marks_set(apic_id);
    for (;;) {
        ticker_wait();
        cpu_marks_check(apic_id);
        __atomic_fetch_add(&ticks_of[apic_id], 1, __ATOMIC_SEQ_CST);
    }
}

/* The first and the last word of each page that changes. */
static void live_step(uint64_t n, uint64_t pages)
{
    for (uint64_t i = 0; i < pages; i++) {
        if (n > 0) {
            check_eq(live[i][0], ticker_mix(n - 1, i), "a page's first word");
            check_eq(live[i][PAGE_WORDS - 1], ticker_mix(n - 1, ~i),
                     "a page's last word");
        }
        live[i][0] = ticker_mix(n, i);
        live[i][PAGE_WORDS - 1] = ticker_mix(n, ~i);
    }
}

/* Page i has a number while bit i of the tick is set, and else is all zero: a
 * page that becomes one of zeroes is no page that was not written. */
static void blink_step(uint64_t n)
{
    for (uint64_t i = 0; i < BLINK_PAGES; i++) {
        if (n > 0)
            check_eq(blink[i][i], (n - 1) >> i & 1 ? ticker_mix(n - 1, i) : 0,
                     "a page that is zero at times");
        blink[i][i] = n >> i & 1 ? ticker_mix(n, i) : 0;
    }
}

static void still_fill(void)
{
    for (uint64_t i = 0; i < STILL_PAGES; i++)
        still[i][i] = ticker_mix(0, i);
}

/* A few pages at each tick. */
static void still_check(uint64_t n)
{
    for (uint64_t k = 0; k < 8; k++) {
        uint64_t i = (n * 8 + k) % STILL_PAGES;

        check_eq(still[i][i], ticker_mix(0, i), "a page that never changes");
    }
}

static void wait_for_cpus(uint32_t cpus)
{
    static uint64_t last[MARKS_MAX_CPUS];

    for (uint32_t i = 1; i < cpus; i++) {
        uint64_t deadline = patience();

        while (__atomic_load_n(&ticks_of[i], __ATOMIC_SEQ_CST) == last[i])
            check(!over(deadline), "a processor stands still");
        last[i] = __atomic_load_n(&ticks_of[i], __ATOMIC_SEQ_CST);
    }
}

void payload_main(void)
{
    uint32_t cpus = (uint32_t)payload_number("cpus=", 1);
    uint64_t pages = payload_number("pages=", 64);

    check(cpus <= MARKS_MAX_CPUS && pages <= MAX_PAGES, "too much is asked");
    still_fill();
    outb(PORT_UART + UART_SCR, UART_SCRATCH);
    ticker_start();
    cpu_marks_set(0);
    if (cpus > 1)
        smp_launch(cpus, on_cpu);
    for (uint64_t n = 0;; n++) {
        ticker_wait();
        cpu_marks_check(0);
        check_eq(inb(PORT_UART + UART_SCR), UART_SCRATCH, "the UART's scratch");
        live_step(n, pages);
        blink_step(n);
        still_check(n);
        wait_for_cpus(cpus);
        ticker_say(n);
    }
}
