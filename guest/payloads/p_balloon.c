/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages that the guest gives up, do=inflate or do=report: they read zero
 * afterwards, those beside them do not, and they can be used again. Between
 * "full" and "empty" the host sees its memory come back (tests/kvm).
 */
#include "guest/payloads/virtio.h"

#include <linux/serial_reg.h>
#include <linux/virtio_balloon.h>

#define PAGE   4096u
#define SPARE  (32ull << 20) /* memory that nothing else uses */
#define PAGES  2048u
#define MARK   0x6b72616du
#define LISTED 1024u /* in one request */

static volatile uint32_t *word(uint32_t page)
{
    return (volatile uint32_t *)(uintptr_t)(SPARE + (uint64_t)page * PAGE);
}

/* The byte that tests/kvm sends when it has looked. */
static void wait_for_host(const char *text)
{
    uint64_t deadline = patience();

    print(text);
    while (!(inb(PORT_UART + UART_LSR) & UART_LSR_DR))
        check(!over(deadline), "the host says nothing");
    (void)inb(PORT_UART + UART_RX);
}

static void inflate(struct vdev *d)
{
    static uint32_t pfns[LISTED];
    struct vd_seg seg = {pfns, sizeof(pfns), false};

    vd_start(d, 0, 0);
    for (uint32_t first = 0; first < PAGES; first += LISTED) {
        for (uint32_t i = 0; i < LISTED; i++)
            pfns[i] = (uint32_t)(SPARE / PAGE) + first + LISTED - 1 - i;
        vd_post(d, &seg, 1);
        vd_kick(d);
        check_eq(vd_wait(d), 0, "bytes written");
    }
}

static void report(struct vdev *d)
{
    struct vd_seg seg = {word(0), PAGES * PAGE, true};

    /* With this feature alone its queue is the third. */
    vd_start(d, 1u << VIRTIO_BALLOON_F_REPORTING, 2);
    vd_post(d, &seg, 1);
    vd_kick(d);
    check_eq(vd_wait(d), 0, "bytes written");
}

void payload_main(void)
{
    struct vdev *d;

    (void)vd_find_all();
    d = vd_find(VIRTIO_ID_BALLOON, 0);
    check(d != NULL, "this test needs a balloon");
    for (uint32_t i = 0; i <= PAGES; i++)
        *word(i) = MARK;
    wait_for_host("full\n");
    if (payload_is("do=", "report"))
        report(d);
    else
        inflate(d);
    for (uint32_t i = 0; i < PAGES; i += 64)
        check_eq(*word(i), 0, "a page that was given up");
    check_eq(*word(PAGES), MARK, "the page behind");
    *word(5) = MARK;
    check_eq(*word(5), MARK, "a page used again");
    wait_for_host("empty\n");
}
