/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_CONSOLE_GUEST_H
#define TESTS_HARNESS_CONSOLE_GUEST_H

/*
 * A console with two named ports, the driver of its guest, and the host's
 * client of a port, for unit tests.
 */

#include "devices/virtio_console.h"
#include "tests/harness/fake_driver.h"

#define CG_RAM    (32 * MIB)
#define CG_QSIZE  16u
#define CG_CTL_RX 2u
#define CG_CTL_TX 3u
#define CG_RX1    4u
#define CG_TX1    5u
#define CG_RX2    6u
#define CG_PORTS  3u /* 0, "one", "two" */

struct console_guest {
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct virtio_dev *dev;
    gpa_t buf;  /* 16 MiB */
    gpa_t ctl;  /* a control message to the device */
    gpa_t msgs; /* CG_QSIZE control buffers of 128 bytes */
    char dir[32];
    char path[2][64];
    int client;
    uint16_t q; /* of the conditions below */
    uint16_t want_used;
    uint8_t *got;
    size_t num_got;
    size_t want;
};

/* cmocka's set-up and tear-down. */
int cg_setup(void **state);
int cg_teardown(void **state);

/* Conditions for loop_run_until(), arg = the guest. */
bool cg_used_reaches(void *arg);

/* Until queue `q` has given back `n` buffers in all. */
bool cg_wait_used(struct console_guest *f, uint16_t q, uint16_t n);
/* A control message to the device, of `len` bytes or 8. */
void cg_say_raw(struct console_guest *f, uint32_t id, uint16_t event,
                uint16_t value, uint32_t len);
void cg_say(struct console_guest *f, uint32_t id, uint16_t event,
            uint16_t value);
/* `n` control buffers of `len` bytes, slots 0 to n - 1 of f->msgs. */
void cg_offer_ctl(struct console_guest *f, uint16_t n, uint32_t len);
/*
 * The next control message, in this slot, must be this one. `more` follows its
 * header.
 */
void cg_hears(struct console_guest *f, uint16_t slot, uint32_t id,
              uint16_t event, uint16_t value, const char *more);
void cg_hears_nothing(struct console_guest *f);
/* All ports known and opened; the messages so far thrown away. */
void cg_bring_up(struct console_guest *f);
void cg_offer(struct console_guest *f, uint16_t q, gpa_t gpa, uint32_t len);

/* The host: a client of port i + 1. */
int cg_dial(struct console_guest *f, int i);
bool cg_client_reads(void *arg);
/* Until f->client has read `want` bytes into f->got. */
bool cg_client_gets(struct console_guest *f, size_t want);
bool cg_client_is_closed(void *arg);

#endif
