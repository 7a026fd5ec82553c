/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/hostile_guest.h"

#include "devices/disk_raw.h"
#include "devices/net_stream.h"
#include "devices/virtio_balloon.h"
#include "devices/virtio_blk.h"
#include "devices/virtio_console.h"
#include "devices/virtio_net.h"
#include "devices/virtio_rng.h"
#include "devices/virtio_vsock.h"
#include "tests/harness/loop_run.h"
#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- the devices --------------------------------------------------------- */

static struct virtio_dev *make_blk(struct hostile_guest *f)
{
    CLEANUP_FD int fd = open(f->path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    const struct vblk_args args = {.id = "d"};
    struct disk *disk = NULL;
    struct virtio_dev *dev = NULL;

    assert_int_equal(ftruncate(fd, 65536), 0);
    assert_int_equal(disk_raw_open(f->path, 0, &f->log, &disk, NULL), 0);
    assert_int_equal(vblk_new(&f->env, disk, &args, &dev), 0);
    return dev;
}

static struct virtio_dev *make_rng(struct hostile_guest *f)
{
    struct virtio_dev *dev = NULL;

    assert_int_equal(vrng_new(&f->env, &dev), 0);
    return dev;
}

static struct virtio_dev *make_console(struct hostile_guest *f)
{
    struct vcon_args args = {
        .in_fd = -1, .out_fd = -1, .cols = 80, .rows = 25, .num_ports = 1};
    struct virtio_dev *dev = NULL;

    args.ports[0] = (struct vcon_port_args){"p", f->path};
    assert_int_equal(vcon_new(&f->env, &args, &dev, NULL), 0);
    return dev;
}

static struct virtio_dev *make_balloon(struct hostile_guest *f)
{
    const struct vballoon_args args = {.stats_interval_s = 3600,
                                       .deflate_on_oom = true,
                                       .hinting = true,
                                       .reporting = true};
    struct virtio_dev *dev = NULL;

    assert_int_equal(vballoon_new(&f->env, &args, &dev), 0);
    return dev;
}

static struct virtio_dev *make_vsock(struct hostile_guest *f)
{
    struct virtio_dev *dev = NULL;

    assert_int_equal(vvsock_new(&f->env, 3, f->path, &dev, NULL), 0);
    return dev;
}

static struct virtio_dev *make_net(struct hostile_guest *f)
{
    const struct vnet_args args = {.id = "n", .mac = {2, 0, 0, 0, 0, 1}};
    struct net_back *back = NULL;
    struct virtio_dev *dev = NULL;
    int s[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
    f->peer = s[1]; /* a network that never takes a frame away */
    assert_int_equal(net_stream_adopt(s[0], &back, NULL), 0);
    assert_int_equal(vnet_new(&f->env, back, &args, &dev), 0);
    return dev;
}

const struct hg_device hg_devices[HG_NUM_DEVICES] = {
    {"blk", make_blk, 0x1, 0, 0, 0},
    {"rng", make_rng, 0x1, 0x1, 0, 0},
    {"console", make_console, 0x2a, 0x2a, 0, 0},
    {"balloon", make_balloon, 0x1f, 0x1f, 0x4, 0xf0f0},
    {"vsock", make_vsock, 0x2, 0x2, 0, 0},
    {"net", make_net, 0x6, 0x6, 0, 0},
};

/* --- fixture ------------------------------------------------------------- */

void hg_begin(struct hostile_guest *f, const struct hg_device *dev,
              uint64_t ring_features)
{
    memset(f, 0, sizeof(*f));
    f->peer = -1;
    fdrv_init(&f->d, HG_RAM);
    log_init(&f->log, -1, LOG_WARN, "test");
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    f->env = (struct vdev_env){f->d.mem, f->loop, &f->log};
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/mote-hg-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof(f->path), "%s/x", f->dir);
    f->dev = dev->make(f);
    assert_int_equal(
        fdrv_attach(&f->d, f->dev, HG_QSIZE, f->dev->offered | ring_features),
        0);
    f->buf = fdrv_alloc(&f->d, MIB, 4096);
}

static bool reset_is_done(void *arg)
{
    return ((struct hostile_guest *)arg)->d.reset_dones > 0;
}

/* At once, or when the last request has ended. */
void hg_reset(struct hostile_guest *f)
{
    int rc;

    f->d.reset_dones = 0;
    rc = fdrv_reset(&f->d);
    if (rc == -EINPROGRESS)
        assert_true(loop_run_until(f->loop, reset_is_done, f));
    else
        assert_int_equal(rc, 0);
}

void hg_end(struct hostile_guest *f)
{
    hg_reset(f);
    f->dev->ops->free(f->dev);
    drop_fd(&f->peer);
    evloop_free(f->loop);
    (void)unlink(f->path);
    assert_int_equal(rmdir(f->dir), 0);
    fdrv_fini(&f->d);
}
