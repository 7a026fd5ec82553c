/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/i8042.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KBC_DATA   0u
#define KBC_STATUS 4u /* read; the command register when written */

#define KBC_STATUS_OUTPUT_FULL 0x01u
#define KBC_STATUS_SYSTEM      0x04u /* passed its self-test */
#define KBC_STATUS_UNLOCKED    0x10u

/* Commands; those not named here are taken and do nothing. */
#define KBC_READ_CONFIG  0x20u
#define KBC_WRITE_CONFIG 0x60u
#define KBC_TEST         0xaau
#define KBC_TEST_PORT    0xabu
#define KBC_READ_OUTPUT  0xd0u
#define KBC_WRITE_OUTPUT 0xd1u
#define KBC_RESET        0xfeu

#define KBC_CONFIG_AT_START                                                    \
    0x74u /* both ports off, translation, system flag                          \
           */
#define KBC_OUTPUT_NO_RESET 0x01u
#define KBC_OUTPUT_AT_START 0x03u /* not in reset, gate A20 open */

#define KBC_CONFIG_KEY_IRQ   0x01u /* interrupt when a key's byte is there */
#define KBC_CONFIG_KEYS_OFF  0x10u
#define KBC_CONFIG_TRANSLATE 0x40u /* key codes of set 2 become set 1 */

#define KBC_KEYS_MAX 16u

struct i8042 {
    struct stop_hook stop; /* immutable */
    int irq_fd;            /* immutable once the guest runs */
    /* guarded by lock */
    pthread_mutex_t lock;
    uint8_t config;
    uint8_t output;
    bool output_full;
    uint8_t pending; /* a command that waits for its data byte, or 0 */
    /* Bytes of keys, read after what a command answers. */
    size_t num_keys;
    size_t next_key;
    uint8_t keys[KBC_KEYS_MAX];
    struct i8042_stats stats; /* read by any */
};

static bool kbc_keys_ready_locked(const struct i8042 *k)
{
    return k->next_key < k->num_keys && !(k->config & KBC_CONFIG_KEYS_OFF);
}

/* One edge for each byte that is to be read. */
static void kbc_raise_locked(struct i8042 *k)
{
    const uint64_t one = 1;

    if (k->irq_fd >= 0 && kbc_keys_ready_locked(k) &&
        (k->config & KBC_CONFIG_KEY_IRQ))
        /* An eventfd takes it unless it is full, and then it is raised. */
        (void)!write(k->irq_fd, &one, sizeof(one));
}

static uint8_t kbc_take_locked(struct i8042 *k)
{
    if (k->output_full || !kbc_keys_ready_locked(k)) {
        k->output_full = false;
    } else {
        k->output = k->keys[k->next_key++];
        kbc_raise_locked(k);
    }
    return k->output;
}

static void kbc_answer_locked(struct i8042 *k, uint8_t byte)
{
    k->output = byte;
    k->output_full = true;
}

/* True when the machine is to be reset. */
static bool kbc_command_locked(struct i8042 *k, uint8_t cmd)
{
    k->pending = 0;
    switch (cmd) {
    case KBC_RESET:
        return true;
    case KBC_WRITE_CONFIG:
    case KBC_WRITE_OUTPUT:
        k->pending = cmd;
        break;
    case KBC_READ_CONFIG:
        kbc_answer_locked(k, k->config);
        break;
    case KBC_TEST:
        kbc_answer_locked(k, 0x55);
        break;
    case KBC_TEST_PORT:
        kbc_answer_locked(k, 0);
        break;
    case KBC_READ_OUTPUT:
        kbc_answer_locked(k, KBC_OUTPUT_AT_START);
        break;
    default:
        break;
    }
    return false;
}

static bool kbc_data_locked(struct i8042 *k, uint8_t v)
{
    uint8_t cmd = k->pending;

    k->pending = 0;
    if (cmd == KBC_WRITE_CONFIG) {
        k->config = v;
        kbc_raise_locked(k);
    }
    return cmd == KBC_WRITE_OUTPUT && !(v & KBC_OUTPUT_NO_RESET);
}

static void kbc_missed(struct i8042 *k, uint64_t *count)
{
    (void)pthread_mutex_lock(&k->lock);
    counter_add(count, 1);
    (void)pthread_mutex_unlock(&k->lock);
}

static void kbc_read(void *dev, uint64_t off, void *data, uint32_t len)
{
    struct i8042 *k = dev;
    uint8_t v = 0;

    if (len != 1 || (off != KBC_DATA && off != KBC_STATUS)) {
        kbc_missed(k, &k->stats.missed_reads);
        memset(data, 0xff, len); /* nobody's port, as on an empty bus */
        return;
    }
    (void)pthread_mutex_lock(&k->lock);
    counter_add(&k->stats.reads, 1);
    if (off == KBC_DATA) {
        v = kbc_take_locked(k);
    } else {
        /* The input buffer is never full: commands end at once. */
        v = KBC_STATUS_SYSTEM | KBC_STATUS_UNLOCKED;
        if (k->output_full || kbc_keys_ready_locked(k))
            v |= KBC_STATUS_OUTPUT_FULL;
    }
    (void)pthread_mutex_unlock(&k->lock);
    memcpy(data, &v, 1);
}

static void kbc_write(void *dev, uint64_t off, const void *data, uint32_t len)
{
    struct i8042 *k = dev;
    bool reset;
    uint8_t v;

    if (len != 1 || (off != KBC_DATA && off != KBC_STATUS)) {
        kbc_missed(k, &k->stats.missed_writes);
        return;
    }
    memcpy(&v, data, 1);
    (void)pthread_mutex_lock(&k->lock);
    counter_add(&k->stats.writes, 1);
    reset = off == KBC_DATA ? kbc_data_locked(k, v) : kbc_command_locked(k, v);
    counter_add(&k->stats.resets, reset);
    (void)pthread_mutex_unlock(&k->lock);
    if (reset)
        k->stop.request_stop(k->stop.arg, STOP_REBOOT, 0);
}

const struct bus_ops i8042_bus_ops = {
    .name = "i8042",
    .read = kbc_read,
    .write = kbc_write,
};

int i8042_new(const struct stop_hook *stop, struct i8042 **out_kbc)
{
    struct i8042 *k = calloc(1, sizeof(*k));

    if (!k)
        return -ENOMEM;
    k->stop = *stop;
    k->irq_fd = -1;
    k->config = KBC_CONFIG_AT_START;
    (void)pthread_mutex_init(&k->lock, NULL); /* never fails on Linux */
    *out_kbc = k;
    return 0;
}

void i8042_set_irq(struct i8042 *kbc, int irq_fd)
{
    kbc->irq_fd = irq_fd;
}

bool i8042_press_ctrl_alt_del(struct i8042 *kbc)
{
    /* Left Ctrl, left Alt and Delete: pressed, then released. */
    static const uint8_t set1[] = {0x1d, 0x38, 0xe0, 0x53,
                                   0xe0, 0xd3, 0xb8, 0x9d};
    static const uint8_t set2[] = {0x14, 0x11, 0xe0, 0x71, 0xe0, 0xf0,
                                   0x71, 0xf0, 0x11, 0xf0, 0x14};
    bool ok;

    _Static_assert(sizeof(set2) <= KBC_KEYS_MAX, "room for the keys");
    (void)pthread_mutex_lock(&kbc->lock);
    ok = kbc->irq_fd >= 0 && kbc->next_key == kbc->num_keys;
    if (ok) {
        bool translate = kbc->config & KBC_CONFIG_TRANSLATE;

        kbc->next_key = 0;
        kbc->num_keys = translate ? sizeof(set1) : sizeof(set2);
        memcpy(kbc->keys, translate ? set1 : set2, kbc->num_keys);
        kbc_raise_locked(kbc);
    }
    (void)pthread_mutex_unlock(&kbc->lock);
    return ok;
}

void i8042_get_stats(const struct i8042 *kbc, struct i8042_stats *out)
{
    counters_copy(out, &kbc->stats, sizeof(*out));
}

/* --- saved machines ------------------------------------------------------ */

void i8042_save(struct i8042 *kbc, struct state_out *out)
{
    (void)pthread_mutex_lock(&kbc->lock);
    state_put_u8(out, kbc->config);
    state_put_u8(out, kbc->output);
    state_put_u8(out, kbc->output_full);
    state_put_u8(out, kbc->pending);
    state_put_u8(out, (uint8_t)kbc->num_keys);
    state_put_u8(out, (uint8_t)kbc->next_key);
    state_put_bytes(out, kbc->keys, kbc->num_keys);
    (void)pthread_mutex_unlock(&kbc->lock);
}

int i8042_load(struct i8042 *kbc, struct state_in *in)
{
    uint8_t keys[KBC_KEYS_MAX];
    uint8_t config = state_get_u8(in);
    uint8_t output = state_get_u8(in);
    bool output_full = state_get_bool(in);
    uint8_t pending = state_get_u8(in);
    uint8_t num_keys = state_get_u8(in);
    uint8_t next_key = state_get_u8(in);

    if (num_keys > KBC_KEYS_MAX || next_key > num_keys)
        return -EBADMSG;
    if (pending && pending != KBC_WRITE_CONFIG && pending != KBC_WRITE_OUTPUT)
        return -EBADMSG;
    state_get_bytes(in, keys, num_keys);
    if (state_done(in))
        return -EBADMSG;
    (void)pthread_mutex_lock(&kbc->lock);
    kbc->config = config;
    kbc->output = output;
    kbc->output_full = output_full;
    kbc->pending = pending;
    kbc->num_keys = num_keys;
    kbc->next_key = next_key;
    memcpy(kbc->keys, keys, num_keys);
    kbc_raise_locked(kbc);
    (void)pthread_mutex_unlock(&kbc->lock);
    return 0;
}

void i8042_free(struct i8042 *kbc)
{
    if (!kbc)
        return;
    (void)pthread_mutex_destroy(&kbc->lock);
    free(kbc);
}
