/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/balloon_guest.h"

#include "tests/harness/loop_run.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int bg_setup_with(void **state, uint64_t features)
{
    struct balloon_guest *f = calloc(1, sizeof(*f));
    const struct vballoon_args args = {.target_bytes = 8 * MIB,
                                       .stats_interval_s = 1,
                                       .deflate_on_oom = true,
                                       .hinting = true,
                                       .reporting = true};
    struct vdev_env env;

    assert_non_null(f);
    fdrv_init(&f->d, BG_RAM);
    log_init(&f->log, -1, LOG_WARN, "test");
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    env = (struct vdev_env){f->d.mem, f->loop, &f->log};
    assert_int_equal(vballoon_new(&env, &args, &f->dev), 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, BG_QSIZE, features), 0);
    f->list = fdrv_alloc(&f->d, 64 * KIB, BG_PAGE);
    f->pages = fdrv_alloc(&f->d, BG_PAGES, BG_PAGE);
    memset(fdrv_ptr(&f->d, f->pages, BG_PAGES), 'p', BG_PAGES);
    *state = f;
    return 0;
}

/* As a guest that does not poison its pages. */
int bg_setup(void **state)
{
    return bg_setup_with(state, BG_NO_POISON);
}

int bg_setup_poison(void **state)
{
    return bg_setup_with(state, ~0ull);
}

int bg_teardown(void **state)
{
    struct balloon_guest *f = *state;

    assert_int_equal(fdrv_reset(&f->d), 0);
    f->dev->ops->free(f->dev);
    evloop_free(f->loop);
    fdrv_fini(&f->d);
    free(f);
    return 0;
}

/* Bytes of guest memory that the host has pages for. */
uint64_t bg_resident(const struct balloon_guest *f)
{
    struct stat st;

    assert_int_equal(fstat(gm_fd(f->d.mem), &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

struct vballoon_info bg_info(struct balloon_guest *f)
{
    struct vballoon_info i;

    vballoon_get(f->dev, &i);
    return i;
}

uint32_t bg_config(struct balloon_guest *f, uint32_t off)
{
    uint8_t b[4] = {0};

    f->dev->ops->config_read(f->dev, off, b, 4);
    return get_le32(b);
}

void bg_config_set(struct balloon_guest *f, uint32_t off, uint32_t v)
{
    uint8_t b[4];

    put_le32(b, v);
    f->dev->ops->config_write(f->dev, off, b, 4);
}

bool bg_used_reaches(void *arg)
{
    struct balloon_guest *f = arg;

    return fdrv_used_idx(&f->d, f->q) == f->want_used;
}

/* One request, waited for. Every balloon request says that 0 were written. */
void bg_request(struct balloon_guest *f, uint16_t q,
                const struct fdrv_seg *segs, uint16_t n)
{
    uint16_t h = fdrv_add(&f->d, q, segs, n);
    uint32_t head = 0;
    uint32_t len = 99;

    f->q = q;
    f->want_used = (uint16_t)(fdrv_used_idx(&f->d, q) + 1);
    fdrv_kick(&f->d, q);
    assert_true(loop_run_until(f->loop, bg_used_reaches, f));
    assert_true(fdrv_used(&f->d, q, &head, &len));
    assert_int_equal(head, h);
    assert_int_equal(len, 0);
}

void bg_put_pfns(struct balloon_guest *f, const uint32_t *pfns, uint32_t n)
{
    uint8_t *p = fdrv_ptr(&f->d, f->list, 4ull * n);

    for (uint32_t i = 0; i < n; i++)
        put_le32(p + 4ull * i, pfns[i]);
}

void bg_inflate(struct balloon_guest *f, const uint32_t *pfns, uint32_t n)
{
    struct fdrv_seg seg = {f->list, 4 * n, false};

    bg_put_pfns(f, pfns, n);
    bg_request(f, BG_INFLATE, &seg, 1);
}

uint32_t bg_pfn(const struct balloon_guest *f, uint32_t i)
{
    return (uint32_t)(f->pages / BG_PAGE) + i;
}

uint8_t bg_byte(const struct balloon_guest *f, uint32_t page)
{
    return *(uint8_t *)fdrv_ptr(&f->d, f->pages + (gpa_t)page * BG_PAGE, 1);
}

void bg_restart(struct balloon_guest *f, uint64_t features)
{
    assert_int_equal(fdrv_reset(&f->d), 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, BG_QSIZE, features), 0);
}
