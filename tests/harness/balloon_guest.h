/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_BALLOON_GUEST_H
#define TESTS_HARNESS_BALLOON_GUEST_H

/*
 * A balloon with all its features and the driver of its guest, for unit tests.
 * 32 MiB of the guest's memory are written, so that giving them back shows.
 */

#include "devices/virtio_balloon.h"
#include "tests/harness/fake_driver.h"

#define BG_RAM     (64 * MIB)
#define BG_PAGES   (32 * MIB)
#define BG_PAGE    4096u
#define BG_QSIZE   16u
#define BG_INFLATE 0u
#define BG_DEFLATE 1u
#define BG_STATS   2u
#define BG_HINT    3u
#define BG_REPORT  4u

struct balloon_guest {
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct virtio_dev *dev;
    gpa_t list;  /* 64 KiB for page numbers and the like */
    gpa_t pages; /* BG_PAGES, all 'p' */
    uint16_t want_used;
    uint16_t q;
};

/* cmocka's set-up: a guest that does not poison free pages, or one that does.
 */
int bg_setup(void **state);
int bg_setup_poison(void **state);
int bg_teardown(void **state);
/* The driver is gone, and comes back with these features. */
void bg_restart(struct balloon_guest *f, uint64_t features);
#define BG_NO_POISON (~(1ull << 4))

/* Bytes of guest memory that the host has pages for. */
uint64_t bg_resident(const struct balloon_guest *f);
struct vballoon_info bg_info(struct balloon_guest *f);
uint32_t bg_config(struct balloon_guest *f, uint32_t off);
void bg_config_set(struct balloon_guest *f, uint32_t off, uint32_t v);
/* Condition for loop_run_until(): queue f->q has given back f->want_used. */
bool bg_used_reaches(void *arg);
/* One request, waited for; checks that it says 0 bytes were written. */
void bg_request(struct balloon_guest *f, uint16_t q,
                const struct fdrv_seg *segs, uint16_t n);
void bg_put_pfns(struct balloon_guest *f, const uint32_t *pfns, uint32_t n);
void bg_inflate(struct balloon_guest *f, const uint32_t *pfns, uint32_t n);
/* The number and the first byte of the i-th page of f->pages. */
uint32_t bg_pfn(const struct balloon_guest *f, uint32_t i);
uint8_t bg_byte(const struct balloon_guest *f, uint32_t i);

#endif
