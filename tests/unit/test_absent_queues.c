/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver that sets up some of a device's queues and not the others, in every
 * combination: the device works with what is there and comes to rest.
 */
#include "devices/virtio_balloon.h"
#include "devices/virtio_console.h"
#include "devices/virtio_net.h"
#include "devices/virtio_rng.h"
#include "devices/virtio_vsock.h"
#include "tests/harness/fake_driver.h"
#include "tests/harness/fake_net.h"
#include "tests/harness/loop_run.h"
#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define RAM     (16 * MIB)
#define QSIZE   16u
#define RUN_MS  20u
#define BUSY_NS (RUN_MS * 200000u) /* of the thread's time: it spins */

struct fixture {
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct vdev_env env;
    struct fnet net;
    char dir[32];
    char path[64];
    struct virtio_dev *dev;
    gpa_t buf;
};

/* --- the devices --------------------------------------------------------- */

static struct virtio_dev *make_rng(struct fixture *f)
{
    struct virtio_dev *dev = NULL;

    assert_int_equal(vrng_new(&f->env, &dev), 0);
    return dev;
}

static struct virtio_dev *make_console(struct fixture *f)
{
    struct vcon_args args = {
        .in_fd = -1, .out_fd = -1, .cols = 80, .rows = 25, .num_ports = 1};
    struct virtio_dev *dev = NULL;

    args.ports[0] = (struct vcon_port_args){"p", f->path};
    assert_int_equal(vcon_new(&f->env, &args, &dev, NULL), 0);
    return dev;
}

static struct virtio_dev *make_balloon(struct fixture *f)
{
    const struct vballoon_args args = {.stats_interval_s = 3600,
                                       .deflate_on_oom = true,
                                       .hinting = true,
                                       .reporting = true};
    struct virtio_dev *dev = NULL;

    assert_int_equal(vballoon_new(&f->env, &args, &dev), 0);
    return dev;
}

static struct virtio_dev *make_vsock(struct fixture *f)
{
    struct virtio_dev *dev = NULL;

    assert_int_equal(vvsock_new(&f->env, 3, f->path, &dev, NULL), 0);
    return dev;
}

static struct virtio_dev *make_net(struct fixture *f)
{
    const struct vnet_args args = {.id = "eth0"};
    struct virtio_dev *dev = NULL;

    fnet_init(&f->net, 2, true, 1500);
    assert_int_equal(vnet_new(&f->env, &f->net.base, &args, &dev), 0);
    return dev;
}

static const struct device {
    const char *name;
    struct virtio_dev *(*make)(struct fixture *f);
    bool has_socket;
} devices[] = {
    {"rng", make_rng, false},         {"console", make_console, true},
    {"balloon", make_balloon, false}, {"vsock", make_vsock, true},
    {"net", make_net, false},
};

/* --- one driver ---------------------------------------------------------- */

static void begin(struct fixture *f, const struct device *dev)
{
    memset(f, 0, sizeof(*f));
    fdrv_init(&f->d, RAM);
    log_init(&f->log, -1, LOG_OFF, "test");
    assert_int_equal(evloop_new(EVLOOP_AUTO, &f->loop), 0);
    f->env = (struct vdev_env){f->d.mem, f->loop, &f->log};
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/mote-aq-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof(f->path), "%s/x", f->dir);
    f->dev = dev->make(f);
}

static void end(struct fixture *f)
{
    if (fdrv_reset(&f->d) == -EINPROGRESS)
        fnet_give_back(&f->net, -ECANCELED);
    f->dev->ops->free(f->dev);
    if (f->net.freed)
        fnet_fini(&f->net);
    evloop_free(f->loop);
    assert_int_equal(rmdir(f->dir), 0);
    fdrv_fini(&f->d);
}

/* One request that is also the console's "device ready". */
static void say(struct fixture *f, uint16_t q)
{
    static const uint8_t ready[8] = {0, 0, 0, 0, 0, 0, 1, 0};
    struct fdrv_seg segs[] = {{f->buf, 64, false}, {f->buf + 64, 64, true}};

    fdrv_write(&f->d, f->buf, ready, sizeof(ready));
    (void)fdrv_add(&f->d, q, segs, 1);
    (void)fdrv_add(&f->d, q, segs + 1, 1);
    fdrv_kick(&f->d, q);
}

/* A client that comes and goes. */
static void visit(struct fixture *f)
{
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", f->path);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(write(fd, "CONNECT 5\n", 10), 10);
    loop_run_for(f->loop, 2);
}

static bool comes_to_rest(struct fixture *f)
{
    /* A second and a third look: the first turns may have had work to do. */
    for (int i = 0; i < 3; i++) {
        struct timespec a;
        struct timespec b;

        assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a), 0);
        loop_run_for(f->loop, RUN_MS);
        assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b), 0);
        if ((b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec <
            BUSY_NS)
            return true;
    }
    return false;
}

static void one_driver(const struct device *dev, uint32_t mask)
{
    struct fixture f;

    begin(&f, dev);
    assert_int_equal(fdrv_attach_some(&f.d, f.dev, QSIZE, f.dev->offered, mask),
                     0);
    f.buf = fdrv_alloc(&f.d, 4096, 64);
    for (uint16_t q = 0; q < f.dev->num_queues; q++) {
        if (mask & 1u << q)
            say(&f, q);
    }
    if (dev->has_socket)
        visit(&f);
    loop_run_for(f.loop, 1);
    if (!comes_to_rest(&f))
        fail_msg("%s with the queues %#x spins", dev->name, mask);
    end(&f);
}

static void test_some_queues_are_absent(void **state)
{
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
        struct fixture f;
        uint32_t num_queues;

        begin(&f, &devices[i]);
        num_queues = f.dev->num_queues;
        assert_int_equal(fdrv_attach(&f.d, f.dev, QSIZE, f.dev->offered), 0);
        end(&f);
        for (uint32_t mask = 0; mask < 1u << num_queues; mask++)
            one_driver(&devices[i], mask);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_some_queues_are_absent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
