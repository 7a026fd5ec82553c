/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_MMIO_TEST_H
#define TESTS_HARNESS_MMIO_TEST_H

/*
 * A virtio-mmio transport with a device that notes what is asked of it, and
 * the driver of a guest. The transport is about two threads: a test plays the
 * vCPU, the loop runs on a thread of its own.
 */

#include "devices/virtio_mmio.h"
#include "tests/harness/fake_driver.h"

#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <semaphore.h>

#define MT_RAM        (4 * MIB)
#define MT_CONFIG_LEN 10u
#define MT_OFFERED    ((1ull << 5) | (1ull << 40))
#define MT_VERSION_1  (1ull << VIRTIO_F_VERSION_1)
#define MT_EVENT_IDX  (1ull << VIRTIO_RING_F_EVENT_IDX)
#define MT_INDIRECT   (1ull << VIRTIO_RING_F_INDIRECT_DESC)
#define MT_ST_ACK     VIRTIO_CONFIG_S_ACKNOWLEDGE
#define MT_ST_DRV     (MT_ST_ACK | VIRTIO_CONFIG_S_DRIVER)
#define MT_ST_FEAT    (MT_ST_DRV | VIRTIO_CONFIG_S_FEATURES_OK)
#define MT_ST_OK      (MT_ST_FEAT | VIRTIO_CONFIG_S_DRIVER_OK)
#define MT_ST_NEEDS   VIRTIO_CONFIG_S_NEEDS_RESET

/* A device that notes what is asked of it. */
struct mmio_test_dev {
    struct virtio_dev dev;
    int activations;
    int resets;
    int frees;
    int activate_rc;
    int rests;
    int wakes;
    int load_rc;
    uint32_t extra;  /* what save and load carry */
    bool hold_rest;  /* a request stays in flight until virtio_rested() */
    bool hold_reset; /* a request stays in flight until mt_release_reset() */
    _Atomic uint16_t last_kick;
    sem_t kicked;
    sem_t resetting;
    struct ev_call release;
    uint8_t config[MT_CONFIG_LEN];
};

struct mmio_test {
    enum evloop_backend backend;
    struct fdrv d;
    struct log log;
    int log_fd;
    int irq_fd;
    struct evloop *loop;
    struct loop_thread *thread;
    struct mmio_test_dev t;
    struct virtio_mmio *m;
    sem_t done;
    bool is_second;
    bool is_down; /* the test has shut it down */
    uint64_t irqs_at_rest;
    struct ev_later late;
};

/*
 * A second transport with a device, log and loop of its own on the memory of
 * `f`: where a saved machine goes on. `words`: the registers shown, or NULL.
 */
struct mmio_test *mt_second(struct mmio_test *f, void *words);
void mt_second_end(struct mmio_test *s);

/* Lets the held reset end. */
void mt_release_reset(struct mmio_test *f);
/* cmocka's set-up and tear-down, on either back end of the loop. */
int mt_setup(void **state);
int mt_setup_epoll(void **state);
int mt_teardown(void **state);

/* The registers. */
uint32_t mt_rd(struct mmio_test *f, uint32_t off);
void mt_wr(struct mmio_test *f, uint32_t off, uint32_t v);
uint32_t mt_status(struct mmio_test *f);
void mt_set_status(struct mmio_test *f, uint32_t v);
void mt_set_features(struct mmio_test *f, uint64_t v);
void mt_negotiate(struct mmio_test *f, uint64_t features);
void mt_write_queue(struct mmio_test *f, const struct vq_setup_args *a);
void mt_setup_queue(struct mmio_test *f, uint16_t q, uint16_t size);
/* The driver: all of its way up to DRIVER_OK. */
void mt_start(struct mmio_test *f);

/* An ev_call with arg = the test: shuts the transport down, posts f->done. */
void mt_do_shutdown(struct ev_call *c);

/* Runs `fn` on the loop's thread. */
void mt_on_loop(struct mmio_test *f, void (*fn)(struct mmio_test *f));
void mt_poke_nothing(struct mmio_test *f);
void mt_poke_config(struct mmio_test *f); /* virtio_config_changed() */
void mt_poke_broken(struct mmio_test *f); /* virtio_needs_reset() */
/* Interrupts since the last call, once the loop has done what it was told. */
uint64_t mt_irqs(struct mmio_test *f);
/* Lines that the device has logged. */
int mt_log_lines(struct mmio_test *f);

#endif
