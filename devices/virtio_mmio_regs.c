/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/virtio_mmio_regs.h"

#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <linux/virtio_ring.h>
#include <string.h>

#define MMIO_MAGIC   0x74726976u /* "virt" */
#define MMIO_VERSION 2u
#define MMIO_VENDOR  0x65746f6du /* "mote" */

#define MMIO_RING_FEATURES                                                     \
    ((1ull << VIRTIO_F_VERSION_1) | (1ull << VIRTIO_RING_F_EVENT_IDX) |        \
     (1ull << VIRTIO_RING_F_INDIRECT_DESC))

#define ST_ACKNOWLEDGE ((uint32_t)VIRTIO_CONFIG_S_ACKNOWLEDGE)
#define ST_DRIVER      ((uint32_t)VIRTIO_CONFIG_S_DRIVER)
#define ST_FEATURES_OK ((uint32_t)VIRTIO_CONFIG_S_FEATURES_OK)
#define ST_DRIVER_OK   ((uint32_t)VIRTIO_CONFIG_S_DRIVER_OK)
#define ST_NEEDS_RESET ((uint32_t)VIRTIO_CONFIG_S_NEEDS_RESET)
#define ST_FAILED      ((uint32_t)VIRTIO_CONFIG_S_FAILED)

/* What a driver may set. */
#define ST_OF_DRIVER                                                           \
    (ST_ACKNOWLEDGE | ST_DRIVER | ST_FEATURES_OK | ST_DRIVER_OK | ST_FAILED)

void mmio_regs_init(struct mmio_regs *r, const struct virtio_dev *dev)
{
    memset(r, 0, sizeof(*r));
    r->dev = dev;
    r->offered = dev->offered | MMIO_RING_FEATURES;
}

void mmio_regs_clear(struct mmio_regs *r)
{
    mmio_regs_init(r, r->dev);
}

struct vq_setup_args mmio_regs_queue_args(const struct mmio_regs *r, uint16_t q)
{
    return (struct vq_setup_args){
        .size = (uint16_t)r->q[q].g_num,
        .desc = r->q[q].g_desc,
        .avail = r->q[q].g_avail,
        .used = r->q[q].g_used,
        .event_idx = r->driver_features & (1ull << VIRTIO_RING_F_EVENT_IDX),
        .indirect = r->driver_features & (1ull << VIRTIO_RING_F_INDIRECT_DESC),
    };
}

/* --- reading ------------------------------------------------------------- */

static uint32_t mmio_offered_half(const struct mmio_regs *r)
{
    switch (r->device_features_sel) {
    case 0:
        return (uint32_t)r->offered;
    case 1:
        return (uint32_t)(r->offered >> 32);
    default:
        return 0;
    }
}

uint32_t mmio_regs_read(const struct mmio_regs *r, uint32_t off)
{
    bool selected = r->queue_sel < r->dev->num_queues;

    switch (off) {
    case VIRTIO_MMIO_MAGIC_VALUE:
        return MMIO_MAGIC;
    case VIRTIO_MMIO_VERSION:
        return MMIO_VERSION;
    case VIRTIO_MMIO_DEVICE_ID:
        return r->dev->device_id;
    case VIRTIO_MMIO_VENDOR_ID:
        return MMIO_VENDOR;
    case VIRTIO_MMIO_DEVICE_FEATURES:
        return mmio_offered_half(r);
    case VIRTIO_MMIO_QUEUE_NUM_MAX:
        return selected ? r->dev->queue_max[r->queue_sel] : 0;
    case VIRTIO_MMIO_QUEUE_READY:
        return selected && r->q[r->queue_sel].ready;
    case VIRTIO_MMIO_STATUS:
        return r->status;
    case VIRTIO_MMIO_SHM_LEN_LOW:
    case VIRTIO_MMIO_SHM_LEN_HIGH:
    case VIRTIO_MMIO_SHM_BASE_LOW:
    case VIRTIO_MMIO_SHM_BASE_HIGH:
        return UINT32_MAX; /* no such region */
    default:
        return 0;
    }
}

/* --- features ------------------------------------------------------------ */

/* A driver may think again until it says FEATURES_OK: the last word counts. */
static void mmio_write_features(struct mmio_regs *r, uint32_t g_value)
{
    uint32_t half = r->driver_features_sel < 2 ? r->driver_features_sel : 2;
    uint32_t shift = 32 * half;
    uint64_t wanted;
    bool more;

    if (!(r->status & ST_DRIVER) || (r->status & ST_FEATURES_OK))
        return;
    wanted = half < 2 ? (uint64_t)g_value << shift : 0;
    more = half < 2 ? (wanted & ~r->offered) != 0 : g_value != 0;
    r->unoffered &= (uint8_t) ~(1u << half);
    r->unoffered |= (uint8_t)(more << half);
    if (half == 2)
        return;
    r->driver_features &= ~((uint64_t)UINT32_MAX << shift);
    r->driver_features |= wanted & r->offered;
}

/* spec: virtio-1.2 3.1.1, 6.1 */
static bool mmio_features_acceptable(const struct mmio_regs *r)
{
    return r->unoffered == 0 &&
           (r->driver_features & (1ull << VIRTIO_F_VERSION_1));
}

/* --- status -------------------------------------------------------------- */

/*
 * The status after a driver asked for the bits in `want`: each needs the one
 * before it. spec: virtio-1.2 2.1, 3.1.1
 */
static uint32_t mmio_grant_status(const struct mmio_regs *r, uint32_t want)
{
    uint32_t have = r->status;

    if (want & ST_FAILED)
        return have | ST_FAILED; /* a driver that gives up gets nothing else */
    have |= want & ST_ACKNOWLEDGE;
    if (have & ST_ACKNOWLEDGE)
        have |= want & ST_DRIVER;
    if ((have & ST_DRIVER) && mmio_features_acceptable(r))
        have |= want & ST_FEATURES_OK;
    if ((have & ST_FEATURES_OK) && !(have & ST_NEEDS_RESET))
        have |= want & ST_DRIVER_OK;
    return have;
}

static struct mmio_outcome mmio_write_status(struct mmio_regs *r,
                                             uint32_t g_value)
{
    struct mmio_outcome out = {MMIO_NOTHING, 0, NULL};
    uint32_t want = g_value & ~ST_NEEDS_RESET; /* that one is ours */
    uint32_t granted;

    if (g_value == 0) {
        if (r->status & ST_DRIVER_OK)
            out.action = MMIO_RESET;
        else
            mmio_regs_clear(r);
        return out;
    }
    if ((want & ~ST_OF_DRIVER) || (r->status & ST_OF_DRIVER & ~want)) {
        out.fault = "cleared bits of the device status or set unknown ones";
        return out;
    }
    if (r->status & ST_FAILED)
        return out; /* only a reset leads on from here */
    granted = mmio_grant_status(r, want);
    if (!(want & ST_FAILED) && (want & ~granted))
        out.fault = "was refused a device status";
    if (granted & ~r->status & ST_DRIVER_OK)
        out.action = MMIO_ACTIVATE;
    /* DRIVER_OK itself shows once the device runs. */
    r->status = granted & ~(ST_DRIVER_OK & ~r->status);
    return out;
}

/* --- queues -------------------------------------------------------------- */

bool mmio_regs_queue_fits(const struct mmio_regs *r, uint16_t q)
{
    struct vq_setup_args args = mmio_regs_queue_args(r, q);
    struct virtq scratch;

    return r->q[q].g_num <= r->dev->queue_max[q] &&
           vq_setup(&scratch, r->dev->env.mem, &args) == 0;
}

/* Checks the whole queue here; the same code checks again at activation. */
static const char *mmio_write_ready(struct mmio_regs *r, struct mmio_queue *q,
                                    uint32_t g_value)
{
    if (g_value != 1) {
        q->ready = false;
        return NULL;
    }
    if (!mmio_regs_queue_fits(r, (uint16_t)r->queue_sel)) {
        r->status |= ST_NEEDS_RESET;
        return "set up a queue with a bad size or address";
    }
    q->ready = true;
    return NULL;
}

static void mmio_set_half(uint64_t *field, uint32_t v, bool high)
{
    uint32_t shift = high ? 32 : 0;

    *field &= ~((uint64_t)UINT32_MAX << shift);
    *field |= (uint64_t)v << shift;
}

/*
 * A driver that stops using a queue of the running device reads the register
 * back to know that the device has. It cannot start it again: that is what a
 * reset is for. spec: virtio-1.2 4.2.2.2
 */
static bool mmio_stops_queue(const struct mmio_regs *r, uint32_t off,
                             uint32_t g_value)
{
    return off == VIRTIO_MMIO_QUEUE_READY && g_value == 0 &&
           (r->status & ST_DRIVER_OK) && r->queue_sel < r->dev->num_queues &&
           r->q[r->queue_sel].ready;
}

static const char *mmio_write_queue(struct mmio_regs *r, uint32_t off,
                                    uint32_t g_value)
{
    struct mmio_queue *q;

    /* Queues change only while the driver sets the device up. */
    if (r->queue_sel >= r->dev->num_queues || !(r->status & ST_DRIVER) ||
        (r->status & (ST_DRIVER_OK | ST_FAILED)))
        return NULL;
    q = &r->q[r->queue_sel];
    if (off == VIRTIO_MMIO_QUEUE_READY)
        return mmio_write_ready(r, q, g_value);
    if (q->ready)
        return "changed a queue that was ready";
    switch (off) {
    case VIRTIO_MMIO_QUEUE_NUM:
        q->g_num = g_value;
        break;
    case VIRTIO_MMIO_QUEUE_DESC_LOW:
    case VIRTIO_MMIO_QUEUE_DESC_HIGH:
        mmio_set_half(&q->g_desc, g_value, off == VIRTIO_MMIO_QUEUE_DESC_HIGH);
        break;
    case VIRTIO_MMIO_QUEUE_AVAIL_LOW:
    case VIRTIO_MMIO_QUEUE_AVAIL_HIGH:
        mmio_set_half(&q->g_avail, g_value,
                      off == VIRTIO_MMIO_QUEUE_AVAIL_HIGH);
        break;
    default:
        mmio_set_half(&q->g_used, g_value, off == VIRTIO_MMIO_QUEUE_USED_HIGH);
        break;
    }
    return NULL;
}

struct mmio_outcome mmio_regs_write(struct mmio_regs *r, uint32_t off,
                                    uint32_t g_value)
{
    struct mmio_outcome out = {MMIO_NOTHING, 0, NULL};

    switch (off) {
    case VIRTIO_MMIO_DEVICE_FEATURES_SEL:
        r->device_features_sel = g_value;
        break;
    case VIRTIO_MMIO_DRIVER_FEATURES_SEL:
        r->driver_features_sel = g_value;
        break;
    case VIRTIO_MMIO_DRIVER_FEATURES:
        mmio_write_features(r, g_value);
        break;
    case VIRTIO_MMIO_QUEUE_SEL:
        r->queue_sel = g_value;
        break;
    case VIRTIO_MMIO_STATUS:
        return mmio_write_status(r, g_value);
    case VIRTIO_MMIO_QUEUE_NUM:
    case VIRTIO_MMIO_QUEUE_READY:
    case VIRTIO_MMIO_QUEUE_DESC_LOW:
    case VIRTIO_MMIO_QUEUE_DESC_HIGH:
    case VIRTIO_MMIO_QUEUE_AVAIL_LOW:
    case VIRTIO_MMIO_QUEUE_AVAIL_HIGH:
    case VIRTIO_MMIO_QUEUE_USED_LOW:
    case VIRTIO_MMIO_QUEUE_USED_HIGH:
        if (!mmio_stops_queue(r, off, g_value)) {
            out.fault = mmio_write_queue(r, off, g_value);
            break;
        }
        out.action = MMIO_STOP_QUEUE;
        out.queue = (uint16_t)r->queue_sel;
        r->q[r->queue_sel].ready = false;
        break;
    default:
        break;
    }
    return out;
}

/* --- registers from a saved machine -------------------------------------- */

static const char *mmio_check_status(uint32_t status)
{
    if (status & ~(ST_OF_DRIVER | ST_NEEDS_RESET))
        return "its status has unknown bits";
    if (((status & ST_DRIVER) && !(status & ST_ACKNOWLEDGE)) ||
        ((status & ST_FEATURES_OK) && !(status & ST_DRIVER)) ||
        ((status & ST_DRIVER_OK) && !(status & ST_FEATURES_OK)))
        return "its status lacks a step";
    return NULL;
}

static const char *mmio_check_features(const struct mmio_regs *r)
{
    if (r->driver_features & ~(r->offered | r->dev->loadable))
        return "its driver uses features that are not offered here";
    if (r->unoffered > 7 ||
        ((r->status & ST_FEATURES_OK) && !mmio_features_acceptable(r)))
        return "its features were never negotiated";
    return NULL;
}

const char *mmio_regs_check(const struct mmio_regs *r)
{
    const char *fault = mmio_check_status(r->status);

    if (!fault)
        fault = mmio_check_features(r);
    for (uint16_t q = 0; q < r->dev->num_queues && !fault; q++) {
        if (!r->q[q].ready)
            continue;
        if (!(r->status & ST_DRIVER))
            fault = "a queue is ready before its driver is";
        else if (!mmio_regs_queue_fits(r, q))
            fault = "a queue has a bad size or address";
    }
    return fault;
}
