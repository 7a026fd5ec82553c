/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/boot_timer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct boot_timer {
    struct boot_timer_args args; /* immutable */
    pthread_mutex_t lock;
    struct log_limit log_limit; /* guarded by lock: a guest may go on writing */
};

static uint64_t boot_timer_cpu_us(const struct boot_timer *t)
{
    struct timespec ts = {0, 0};
    int64_t us;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts); /* cannot fail */
    us = (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000 + t->args.cpu_offset;
    return us > 0 ? (uint64_t)us : 0;
}

/* The form of the line is Firecracker's: tools look for it. */
static void boot_timer_tell(struct boot_timer *t)
{
    uint64_t us = (util_now_ns() - t->args.start_ns) / 1000;
    uint64_t cpu_us = boot_timer_cpu_us(t);

    (void)pthread_mutex_lock(&t->lock);
    log_limited(t->args.log, &t->log_limit, LOG_INFO,
                "Guest-boot-time = %6llu us %llu ms, %6llu CPU us %llu CPU ms",
                (unsigned long long)us, (unsigned long long)(us / 1000),
                (unsigned long long)cpu_us,
                (unsigned long long)(cpu_us / 1000));
    (void)pthread_mutex_unlock(&t->lock);
}

static void boot_timer_write(void *dev, uint64_t off, const void *data,
                             uint32_t len)
{
    uint64_t g_value = 0;

    memcpy(&g_value, data, min_u64(len, sizeof(g_value)));
    if (off == 0 && g_value == BOOT_TIMER_VALUE)
        boot_timer_tell(dev);
}

static void boot_timer_read(void *dev, uint64_t off, void *data, uint32_t len)
{
    /* It came zeroed. */
    (void)dev;
    (void)off;
    (void)data;
    (void)len;
}

const struct bus_ops boot_timer_bus_ops = {
    .name = "boot timer",
    .read = boot_timer_read,
    .write = boot_timer_write,
};

int boot_timer_new(const struct boot_timer_args *args,
                   struct boot_timer **out_timer)
{
    struct boot_timer *t = calloc(1, sizeof(*t));

    if (!t)
        return -ENOMEM;
    t->args = *args;
    (void)pthread_mutex_init(&t->lock, NULL); /* never fails on Linux */
    *out_timer = t;
    return 0;
}

void boot_timer_free(struct boot_timer *t)
{
    if (!t)
        return;
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}
