/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The block device on a real event loop behind its MMIO transport, driven the
 * way Linux drives it (EVENT_IDX both ways) from a second thread that stands
 * for the vCPU: a kick is an eventfd, as KVM's ioeventfd makes it, an interrupt
 * is read from the eventfd that would be KVM's irqfd. No guest, so that only
 * the monitor's own work and system calls are in the figure.
 *
 * usage: blk_ring FILE DEPTH BATCH COUNT read|write [direct]
 * The loop's thread is named "loop", for strace.
 */
#include "devices/disk_open.h"
#include "devices/virtio_blk.h"
#include "devices/virtio_mmio.h"
#include "tests/harness/fake_driver.h"
#include "vmm/le.h"

#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#define RAM        (64 * MIB)
#define QSIZE      256u
#define BLOCK      4096u
#define MAX_DEPTH  64u
#define MAX_BLOCKS 16384u

struct bench {
    struct fdrv d;
    struct evloop *loop;
    struct log log;
    struct virtio_dev *dev;
    struct virtio_mmio *m;
    int irq_fd;
    uint64_t blocks;
    uint32_t type;
    gpa_t header[MAX_DEPTH];
    gpa_t data[MAX_DEPTH];
    gpa_t status[MAX_DEPTH];
    uint8_t slot_of_head[QSIZE];
    uint32_t free_slots[MAX_DEPTH];
    uint32_t num_free;
    uint64_t kicks;
    uint64_t interrupts;
    uint64_t seed;
};

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "blk_ring: %s\n", what);
    exit(1);
}

static void wr(struct bench *b, uint32_t off, uint32_t v)
{
    uint8_t x[4];

    put_le32(x, v);
    virtio_mmio_bus_ops.write(b->m, off, x, 4);
}

static void wr64(struct bench *b, uint32_t low, uint64_t v)
{
    wr(b, low, (uint32_t)v);
    wr(b, low + 4, (uint32_t)(v >> 32));
}

static void start_device(struct bench *b)
{
    struct vq_setup_args a;

    wr(b, VIRTIO_MMIO_STATUS, 1);
    wr(b, VIRTIO_MMIO_STATUS, 3);
    wr(b, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
    wr(b, VIRTIO_MMIO_DRIVER_FEATURES,
       1u << VIRTIO_RING_F_EVENT_IDX | 1u << VIRTIO_BLK_F_FLUSH);
    wr(b, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
    wr(b, VIRTIO_MMIO_DRIVER_FEATURES, 1);
    wr(b, VIRTIO_MMIO_STATUS, 11);
    fdrv_queue_init(&b->d, 0, QSIZE, true);
    a = fdrv_setup_args(&b->d, 0, false);
    wr(b, VIRTIO_MMIO_QUEUE_SEL, 0);
    wr(b, VIRTIO_MMIO_QUEUE_NUM, a.size);
    wr64(b, VIRTIO_MMIO_QUEUE_DESC_LOW, a.desc);
    wr64(b, VIRTIO_MMIO_QUEUE_AVAIL_LOW, a.avail);
    wr64(b, VIRTIO_MMIO_QUEUE_USED_LOW, a.used);
    wr(b, VIRTIO_MMIO_QUEUE_READY, 1);
    wr(b, VIRTIO_MMIO_STATUS, 15);
}

static void add_one(struct bench *b)
{
    uint32_t s = b->free_slots[--b->num_free];
    bool is_read = b->type == VIRTIO_BLK_T_IN;
    const struct fdrv_seg segs[3] = {
        {b->header[s], 16, false},
        {b->data[s], BLOCK, is_read},
        {b->status[s], 1, true},
    };
    uint8_t h[16] = {0};

    b->seed = b->seed * 6364136223846793005u + 1442695040888963407u;
    put_le32(h, b->type);
    put_le64(h + 8, (b->seed >> 33) % b->blocks * (BLOCK / 512));
    fdrv_write(&b->d, b->header[s], h, sizeof(h));
    b->slot_of_head[fdrv_add(&b->d, 0, segs, 3)] = (uint8_t)s;
}

static void kick(struct bench *b, uint16_t old)
{
    uint16_t now;

    fdrv_publish(&b->d, 0);
    now = b->d.q[0].avail_idx;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (!vring_need_event(fdrv_avail_event(&b->d, 0), now, old))
        return;
    b->kicks++;
    must(eventfd_write(virtio_mmio_kick_fd(b->m, 0), 1) == 0, "kick");
}

static uint32_t drain(struct bench *b)
{
    uint32_t head;
    uint32_t len;
    uint32_t n = 0;
    uint8_t status;

    for (; fdrv_used(&b->d, 0, &head, &len); n++) {
        uint32_t s = b->slot_of_head[head];

        fdrv_read(&b->d, b->status[s], &status, 1);
        must(status == VIRTIO_BLK_S_OK, "a request failed");
        b->free_slots[b->num_free++] = s;
    }
    return n;
}

/* Waits for an interrupt unless something came in meanwhile. */
static uint32_t wait_used(struct bench *b)
{
    struct pollfd p = {.fd = b->irq_fd, .events = POLLIN};
    uint32_t n = drain(b);
    uint64_t count;

    if (n > 0)
        return n;
    fdrv_set_used_event(&b->d, 0, b->d.q[0].used_idx);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    n = drain(b);
    if (n > 0)
        return n;
    must(poll(&p, 1, 20000) == 1, "no interrupt");
    must(read(b->irq_fd, &count, sizeof(count)) == sizeof(count), "irq");
    wr(b, VIRTIO_MMIO_INTERRUPT_ACK, 3);
    b->interrupts++;
    return drain(b);
}

static void drive(struct bench *b, uint32_t depth, uint32_t batch,
                  uint64_t count)
{
    uint64_t submitted = 0;
    uint64_t done = 0;

    while (done < count) {
        if (submitted < count && depth - (submitted - done) >= batch) {
            uint16_t old = b->d.q[0].avail_idx;

            for (uint32_t i = 0; i < batch; i++)
                add_one(b);
            submitted += batch;
            kick(b, old);
            if (depth - (submitted - done) >= batch)
                continue;
        }
        done += wait_used(b);
    }
}

static void *loop_main(void *arg)
{
    struct bench *b = arg;

    (void)prctl(PR_SET_NAME, "loop");
    must(evloop_run(b->loop) == 0, "loop");
    return NULL;
}

static void make(struct bench *b, const char *path, unsigned flags)
{
    struct vdev_env env;
    const struct vblk_args args = {.id = "bench"};
    struct errmsg err = {""};
    struct disk *disk = NULL;

    fdrv_init(&b->d, RAM);
    log_init(&b->log, 2, LOG_WARN, "bench");
    must(evloop_new(EVLOOP_AUTO, &b->loop) == 0, "event loop");
    must(disk_open(path, flags, &b->log, &disk, &err) == 0, err.text);
    b->blocks = min_u64(disk->size_bytes / BLOCK, MAX_BLOCKS);
    env = (struct vdev_env){b->d.mem, b->loop, &b->log};
    must(vblk_new(&env, disk, &args, &b->dev) == 0, "device");
    b->irq_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    must(virtio_mmio_new(b->dev, b->irq_fd, &b->m) == 0, "transport");
    for (uint32_t i = 0; i < MAX_DEPTH; i++) {
        b->header[i] = fdrv_alloc(&b->d, 16, 16);
        b->data[i] = fdrv_alloc(&b->d, BLOCK, BLOCK);
        b->status[i] = fdrv_alloc(&b->d, 1, 1);
        b->free_slots[b->num_free++] = i;
    }
}

static void stop(void *arg)
{
    evloop_stop(((struct bench *)arg)->loop);
}

static void on_shutdown(struct ev_call *c)
{
    struct bench *b = c->arg;

    virtio_mmio_shutdown(b->m, stop, b);
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct ev_call down = {.fn = on_shutdown, .arg = &b};
    uint32_t depth = argc > 5 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    uint32_t batch = argc > 5 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    uint64_t count = argc > 5 ? strtoull(argv[4], NULL, 10) : 0;
    pthread_t thread;
    uint64_t ns;

    must(depth > 0 && depth <= MAX_DEPTH && batch > 0 && batch <= depth &&
             count >= batch && count % batch == 0,
         "usage: blk_ring FILE DEPTH BATCH COUNT read|write [direct]");
    b.type = strcmp(argv[5], "write") ? VIRTIO_BLK_T_IN : VIRTIO_BLK_T_OUT;
    make(&b, argv[1], argc > 6 ? DISK_DIRECT : 0);
    must(pthread_create(&thread, NULL, loop_main, &b) == 0, "thread");
    start_device(&b);
    ns = util_now_ns();
    drive(&b, depth, batch, count);
    ns = util_now_ns() - ns;
    evloop_post(b.loop, &down);
    (void)pthread_join(thread, NULL);
    (void)printf("requests %llu us_each %.2f kicks %llu interrupts %llu\n",
                 (unsigned long long)count, (double)ns / 1e3 / (double)count,
                 (unsigned long long)b.kicks, (unsigned long long)b.interrupts);
    virtio_mmio_free(b.m);
    evloop_free(b.loop);
    close(b.irq_fd);
    fdrv_fini(&b.d);
    return 0;
}
