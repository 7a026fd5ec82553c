/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/console_guest.h"

#include "tests/harness/loop_run.h"
#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <linux/virtio_console.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

int cg_setup(void **state)
{
    struct console_guest *f = calloc(1, sizeof(*f));
    struct vcon_args args = {.in_fd = -1, .out_fd = -1, .num_ports = 2};
    struct vdev_env env;

    assert_non_null(f);
    (void)signal(SIGPIPE, SIG_IGN);
    fdrv_init(&f->d, CG_RAM);
    log_init(&f->log, -1, LOG_WARN, "test");
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/mote-con-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    for (int i = 0; i < 2; i++)
        (void)snprintf(f->path[i], sizeof(f->path[i]), "%s/%d", f->dir, i + 1);
    args.ports[0] = (struct vcon_port_args){"one", f->path[0]};
    args.ports[1] = (struct vcon_port_args){"two", f->path[1]};
    env = (struct vdev_env){f->d.mem, f->loop, &f->log};
    assert_int_equal(vcon_new(&env, &args, &f->dev, NULL), 0);
    assert_int_equal(fdrv_attach(&f->d, f->dev, CG_QSIZE, ~0ull), 0);
    f->buf = fdrv_alloc(&f->d, 16 * MIB, 4096);
    f->ctl = fdrv_alloc(&f->d, 64, 16);
    f->msgs = fdrv_alloc(&f->d, CG_QSIZE * 128u, 16);
    f->client = -1;
    f->got = calloc(1, 16 * MIB);
    assert_non_null(f->got);
    *state = f;
    return 0;
}

int cg_teardown(void **state)
{
    struct console_guest *f = *state;
    struct stat st;

    assert_int_equal(fdrv_reset(&f->d), 0);
    f->dev->ops->free(f->dev);
    drop_fd(&f->client);
    evloop_free(f->loop);
    assert_int_equal(stat(f->path[0], &st), -1); /* removed */
    assert_int_equal(rmdir(f->dir), 0);
    fdrv_fini(&f->d);
    free(f->got);
    free(f);
    return 0;
}

/* --- what the driver does ------------------------------------------------ */

bool cg_used_reaches(void *arg)
{
    struct console_guest *f = arg;

    return fdrv_used_idx(&f->d, f->q) == f->want_used;
}

bool cg_wait_used(struct console_guest *f, uint16_t q, uint16_t n)
{
    f->q = q;
    f->want_used = n;
    return loop_run_until(f->loop, cg_used_reaches, f);
}

/* A control message of `len` bytes to the device. */
void cg_say_raw(struct console_guest *f, uint32_t id, uint16_t event,
                uint16_t value, uint32_t len)
{
    struct fdrv_seg seg = {f->ctl, len, false};
    uint8_t m[8];
    uint32_t head;
    uint32_t used;

    put_le32(m, id);
    put_le16(m + 4, event);
    put_le16(m + 6, value);
    fdrv_write(&f->d, f->ctl, m, sizeof(m));
    (void)fdrv_add(&f->d, CG_CTL_TX, &seg, 1);
    fdrv_kick(&f->d, CG_CTL_TX);
    assert_true(fdrv_used(&f->d, CG_CTL_TX, &head, &used));
    assert_int_equal(used, 0);
}

void cg_say(struct console_guest *f, uint32_t id, uint16_t event,
            uint16_t value)
{
    cg_say_raw(f, id, event, value, 8);
}

void cg_offer_ctl(struct console_guest *f, uint16_t n, uint32_t len)
{
    for (uint16_t i = 0; i < n; i++) {
        struct fdrv_seg seg = {f->msgs + 128ull * i, len, true};

        (void)fdrv_add(&f->d, CG_CTL_RX, &seg, 1);
    }
    fdrv_kick(&f->d, CG_CTL_RX);
}

/*
 * The next control message must be this one. Each comes in a buffer of its
 * own, whose index tests keep by offering all at once and in order.
 */
void cg_hears(struct console_guest *f, uint16_t slot, uint32_t id,
              uint16_t event, uint16_t value, const char *more)
{
    uint32_t head;
    uint32_t len;
    const uint8_t *m = fdrv_ptr(&f->d, f->msgs + 128ull * slot, 128);

    assert_true(fdrv_used(&f->d, CG_CTL_RX, &head, &len));
    assert_int_equal(len, 8 + strlen(more));
    assert_int_equal(get_le32(m), id);
    assert_int_equal(get_le16(m + 4), event);
    assert_int_equal(get_le16(m + 6), value);
    assert_memory_equal(m + 8, more, strlen(more));
}

void cg_hears_nothing(struct console_guest *f)
{
    uint32_t head;
    uint32_t len;

    assert_false(fdrv_used(&f->d, CG_CTL_RX, &head, &len));
}

/* All ports known, opened by the guest, and the messages so far thrown away. */
void cg_bring_up(struct console_guest *f)
{
    uint32_t head;
    uint32_t len;

    cg_offer_ctl(f, CG_QSIZE, 128);
    cg_say(f, 0, VIRTIO_CONSOLE_DEVICE_READY, 1);
    for (uint32_t i = 0; i < CG_PORTS; i++) {
        cg_say(f, i, VIRTIO_CONSOLE_PORT_READY, 1);
        cg_say(f, i, VIRTIO_CONSOLE_PORT_OPEN, 1);
    }
    while (fdrv_used(&f->d, CG_CTL_RX, &head, &len))
        ;
}

void cg_offer(struct console_guest *f, uint16_t q, gpa_t gpa, uint32_t len)
{
    struct fdrv_seg seg = {gpa, len, true};

    (void)fdrv_add(&f->d, q, &seg, 1);
    fdrv_kick(&f->d, q);
}

/* --- what the host's client does ----------------------------------------- */

int cg_dial(struct console_guest *f, int i)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", f->path[i]);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

bool cg_client_reads(void *arg)
{
    struct console_guest *f = arg;
    ssize_t n = read(f->client, f->got + f->num_got, 16 * MIB - f->num_got);

    if (n > 0)
        f->num_got += (size_t)n;
    return f->num_got >= f->want;
}

bool cg_client_gets(struct console_guest *f, size_t want)
{
    f->want = want;
    return loop_run_until(f->loop, cg_client_reads, f);
}

bool cg_client_is_closed(void *arg)
{
    struct console_guest *f = arg;
    char b;

    return read(f->client, &b, 1) == 0;
}
