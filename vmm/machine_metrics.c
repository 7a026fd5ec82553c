/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/machine_metrics.h"

#include "devices/virtio_balloon.h"
#include "devices/virtio_blk.h"
#include "devices/virtio_net.h"
#include "devices/virtio_rng.h"
#include "devices/virtio_vsock.h"
#include "vmm/machine_int.h"
#include "vmm/metric_rows.h"

#include <linux/virtio_ids.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One device at one time. */
struct device_counts {
    struct virtio_stats all;
    uint64_t kicks; /* of all queues */
    uint64_t kicks_even;
    uint64_t kicks_odd;
    union {
        struct vblk_stats blk;
        struct vnet_stats net;
        struct vvsock_stats vsock;
        struct vballoon_counts balloon;
        struct vrng_stats rng;
    } u;
};

struct machine_told {
    struct device_counts devices[LAYOUT_MAX_DEVICES];
    struct vcpu_stats vcpus[LAYOUT_MAX_VCPUS];
    struct uart_stats uart;
    struct i8042_stats i8042;
    uint64_t uart_dropped;
};

/* --- keys -------------------------------------------------------------------
 */

#define DEV(key, field) METRIC_ROW(key, struct device_counts, field)
#define DEV_SPAN(key, field)                                                   \
    {                                                                          \
        key, offsetof(struct device_counts, field), METRIC_SPAN                \
    }
#define DEV_HISTOGRAM(key, field)                                              \
    {                                                                          \
        key, offsetof(struct device_counts, field), METRIC_HISTOGRAM           \
    }
#define DEV_ALL                                                                \
    DEV("activate_fails", all.activate_fails),                                 \
        DEV("cfg_fails", all.cfg_fails), DEV("event_fails", all.broken)

static const struct metric_row blk_rows[] = {
    DEV_ALL,
    DEV("execute_fails", u.blk.failed),
    DEV("invalid_reqs_count", u.blk.refused),
    DEV("flush_count", u.blk.flushes),
    DEV("discard_count", u.blk.discards),
    DEV("queue_event_count", kicks),
    DEV("rate_limiter_event_count", u.blk.limiter_events),
    DEV("rate_limiter_throttled_events", u.blk.throttled),
    DEV("remaining_reqs_count", u.blk.left_over),
    DEV("update_count", u.blk.updates),
    DEV("update_fails", u.blk.update_fails),
    DEV("read_bytes", u.blk.read_bytes),
    DEV("write_bytes", u.blk.write_bytes),
    DEV("read_count", u.blk.reads),
    DEV("write_count", u.blk.writes),
    DEV_SPAN("read_agg", u.blk.read_time),
    DEV_SPAN("write_agg", u.blk.write_time),
};

static const struct metric_row blk_histograms[] = {
    DEV_HISTOGRAM("block_read", u.blk.read_us),
    DEV_HISTOGRAM("block_write", u.blk.write_us),
    DEV_HISTOGRAM("block_flush", u.blk.flush_us),
};

/* Each frame is received or sent by one operation: packets are counted under
 * two names. */
static const struct metric_row net_rows[] = {
    DEV_ALL,
    DEV("no_rx_avail_buffer", u.net.rx_no_buffer),
    DEV("rx_queue_event_count", kicks_even),
    DEV("rx_rate_limiter_throttled", u.net.rx_throttled),
    DEV("rx_bytes_count", u.net.rx_bytes),
    DEV("rx_packets_count", u.net.rx_frames),
    DEV("rx_count", u.net.rx_frames),
    DEV("rx_fails", u.net.rx_dropped),
    DEV("tx_queue_event_count", kicks_odd),
    DEV("tx_rate_limiter_throttled", u.net.tx_throttled),
    DEV("tx_bytes_count", u.net.tx_bytes),
    DEV("tx_packets_count", u.net.tx_frames),
    DEV("tx_count", u.net.tx_frames),
    DEV("tx_fails", u.net.tx_dropped),
    DEV("tx_malformed_frames", u.net.tx_bad),
    DEV("control_fails", u.net.ctrl_bad),
};

static const struct metric_row vsock_rows[] = {
    DEV_ALL,
    DEV("rx_queue_event_count", all.kicks[0]),
    DEV("tx_queue_event_count", all.kicks[1]),
    DEV("rx_bytes_count", u.vsock.to_guest_bytes),
    DEV("tx_bytes_count", u.vsock.to_host_bytes),
    DEV("rx_packets_count", u.vsock.to_guest_packets),
    DEV("tx_packets_count", u.vsock.to_host_packets),
    DEV("conns_added", u.vsock.begun),
    DEV("conns_removed", u.vsock.ended),
    DEV("conns_killed", u.vsock.cut),
    DEV("conns_opened", u.vsock.opened),
    DEV("conns_refused", u.vsock.refused),
    DEV("bad_packets_count", u.vsock.bad_packets),
};

static const struct metric_row balloon_rows[] = {
    DEV_ALL,
    DEV("inflate_count", u.balloon.inflates),
    DEV("deflate_count", u.balloon.deflates),
    DEV("stats_updates_count", u.balloon.stats_updates),
    DEV("free_page_hint_count", u.balloon.hints),
    DEV("free_page_report_count", u.balloon.reports),
    DEV("discarded_bytes", u.balloon.discarded_bytes),
    DEV("discard_fails", u.balloon.discard_fails),
    DEV("bad_reqs_count", u.balloon.bad_requests),
};

static const struct metric_row entropy_rows[] = {
    DEV("activate_fails", all.activate_fails),
    DEV("cfg_fails", all.cfg_fails),
    DEV("entropy_event_fails", all.broken),
    DEV("entropy_event_count", u.rng.requests),
    DEV("entropy_bytes", u.rng.bytes),
    DEV("host_rng_fails", u.rng.dry),
};

/* Of all devices, those without a group of their own too. */
static const struct metric_row interrupt_rows[] = {
    DEV("triggers", all.interrupts),
    DEV("config_updates", all.config_updates),
};

#define VCPU(key, field) METRIC_ROW(key, struct vcpu_stats, field)
#define VCPU_SPAN(key, field)                                                  \
    {                                                                          \
        key, offsetof(struct vcpu_stats, field), METRIC_SPAN                   \
    }

static const struct metric_row vcpu_rows[] = {
    VCPU("exit_io_in", io_in),
    VCPU("exit_io_out", io_out),
    VCPU("exit_mmio_read", mmio_read),
    VCPU("exit_mmio_write", mmio_write),
    VCPU("failures", failures),
    VCPU_SPAN("exit_io_in_agg", io_in_time),
    VCPU_SPAN("exit_io_out_agg", io_out_time),
    VCPU_SPAN("exit_mmio_read_agg", mmio_read_time),
    VCPU_SPAN("exit_mmio_write_agg", mmio_write_time),
};

static const struct metric_row uart_rows[] = {
    METRIC_ROW("read_count", struct uart_stats, reads),
    METRIC_ROW("write_count", struct uart_stats, writes),
    METRIC_ROW("missed_read_count", struct uart_stats, missed_reads),
    METRIC_ROW("missed_write_count", struct uart_stats, missed_writes),
    METRIC_ROW("lost_input_bytes", struct uart_stats, lost_input),
};

static const struct metric_row i8042_rows[] = {
    METRIC_ROW("read_count", struct i8042_stats, reads),
    METRIC_ROW("write_count", struct i8042_stats, writes),
    METRIC_ROW("missed_read_count", struct i8042_stats, missed_reads),
    METRIC_ROW("missed_write_count", struct i8042_stats, missed_writes),
    METRIC_ROW("reset_count", struct i8042_stats, resets),
};

static const struct {
    uint32_t virtio_id;
    const char *group;
    const struct metric_row *rows;
    size_t num_rows;
} kinds[] = {
    {VIRTIO_ID_BLOCK, "block", blk_rows, ARRAY_SIZE(blk_rows)},
    {VIRTIO_ID_NET, "net", net_rows, ARRAY_SIZE(net_rows)},
    {VIRTIO_ID_VSOCK, "vsock", vsock_rows, ARRAY_SIZE(vsock_rows)},
    {VIRTIO_ID_BALLOON, "balloon", balloon_rows, ARRAY_SIZE(balloon_rows)},
    {VIRTIO_ID_RNG, "entropy", entropy_rows, ARRAY_SIZE(entropy_rows)},
};

/* --- devices ----------------------------------------------------------------
 */

static void metrics_sample(struct virtio_dev *dev, struct device_counts *out)
{
    memset(out, 0, sizeof(*out));
    counters_copy(&out->all, &dev->counts, sizeof(out->all));
    for (uint16_t q = 0; q < dev->num_queues; q++) {
        out->kicks += out->all.kicks[q];
        *(q % 2 ? &out->kicks_odd : &out->kicks_even) += out->all.kicks[q];
    }
    switch (dev->device_id) {
    case VIRTIO_ID_BLOCK:
        vblk_get_stats(dev, &out->u.blk);
        break;
    case VIRTIO_ID_NET:
        vnet_get_stats(dev, &out->u.net);
        break;
    case VIRTIO_ID_VSOCK:
        vvsock_get_stats(dev, &out->u.vsock);
        break;
    case VIRTIO_ID_BALLOON:
        vballoon_get_counts(dev, &out->u.balloon);
        break;
    case VIRTIO_ID_RNG:
        vrng_get_stats(dev, &out->u.rng);
        break;
    default:
        break;
    }
}

/* In the group of its kind, and one of its own if it has an id. */
static void metrics_add_kind(json_t *line, const struct virtio_dev *dev,
                             const char *id, const struct device_counts *now,
                             const struct device_counts *told)
{
    for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
        char key[96];

        if (kinds[k].virtio_id != dev->device_id)
            continue;
        metric_rows_add(metric_group(line, kinds[k].group), kinds[k].rows,
                        kinds[k].num_rows, now, told);
        if (!id)
            continue;
        (void)snprintf(key, sizeof(key), "%s_%s", kinds[k].group, id);
        metric_rows_add(metric_group(line, key), kinds[k].rows,
                        kinds[k].num_rows, now, told);
    }
}

static void metrics_add_device(json_t *line, struct virtio_dev *dev,
                               const char *id, struct device_counts *told)
{
    struct device_counts now;

    metrics_sample(dev, &now);
    metrics_add_kind(line, dev, id, &now, told);
    metric_rows_add(metric_group(line, "interrupts"), interrupt_rows,
                    ARRAY_SIZE(interrupt_rows), &now, told);
    if (dev->device_id == VIRTIO_ID_BLOCK)
        metric_rows_add(
            metric_group(metric_group(line, "mote"), "latency_us_log2"),
            blk_histograms, ARRAY_SIZE(blk_histograms), &now, told);
    *told = now;
}

/* --- the machine ------------------------------------------------------------
 */

/* Every key, so that a line has them whatever devices there are. */
static void metrics_add_zeroes(json_t *line)
{
    for (size_t k = 0; k < ARRAY_SIZE(kinds); k++)
        metric_rows_add(metric_group(line, kinds[k].group), kinds[k].rows,
                        kinds[k].num_rows, NULL, NULL);
    metric_rows_add(metric_group(line, "interrupts"), interrupt_rows,
                    ARRAY_SIZE(interrupt_rows), NULL, NULL);
    metric_rows_add(metric_group(line, "vcpu"), vcpu_rows,
                    ARRAY_SIZE(vcpu_rows), NULL, NULL);
    metric_rows_add(metric_group(line, "uart"), uart_rows,
                    ARRAY_SIZE(uart_rows), NULL, NULL);
    metric_rows_add(metric_group(line, "i8042"), i8042_rows,
                    ARRAY_SIZE(i8042_rows), NULL, NULL);
    metric_rows_add(metric_group(metric_group(line, "mote"), "latency_us_log2"),
                    blk_histograms, ARRAY_SIZE(blk_histograms), NULL, NULL);
    (void)json_object_set_new(metric_group(line, "mote"), "uart_dropped_bytes",
                              json_integer(0));
}

static void metrics_add_uart(struct machine *m, struct machine_told *told,
                             json_t *line)
{
    uint64_t dropped = uart_dropped(m->uart);
    struct uart_stats now;

    uart_get_stats(m->uart, &now);
    metric_rows_add(metric_group(line, "uart"), uart_rows,
                    ARRAY_SIZE(uart_rows), &now, &told->uart);
    (void)json_object_set_new(
        metric_group(line, "mote"), "uart_dropped_bytes",
        json_integer((json_int_t)(dropped - told->uart_dropped)));
    told->uart = now;
    told->uart_dropped = dropped;
}

static void metrics_add_i8042(struct machine *m, struct machine_told *told,
                              json_t *line)
{
    struct i8042_stats now;

    i8042_get_stats(m->kbc, &now);
    metric_rows_add(metric_group(line, "i8042"), i8042_rows,
                    ARRAY_SIZE(i8042_rows), &now, &told->i8042);
    told->i8042 = now;
}

static void metrics_add_vcpus(struct machine *m, struct machine_told *told,
                              json_t *line)
{
    for (uint32_t i = 0; i < m->num_vcpus; i++) {
        struct vcpu_stats now;

        vcpu_get_stats(m->vcpus[i], &now);
        metric_rows_add(metric_group(line, "vcpu"), vcpu_rows,
                        ARRAY_SIZE(vcpu_rows), &now, &told->vcpus[i]);
        told->vcpus[i] = now;
    }
}

void machine_gather(struct machine *m, struct machine_told **told, json_t *line)
{
    if (m && !*told)
        *told = calloc(1, sizeof(**told));
    if (m && !*told)
        return;
    metrics_add_zeroes(line);
    if (!m)
        return;
    for (size_t i = 0; i < devices_num(m->devices); i++) {
        const char *id = NULL;
        struct virtio_dev *dev = devices_at(m->devices, i, &id);

        metrics_add_device(line, dev, id, &(*told)->devices[i]);
    }
    metrics_add_uart(m, *told, line);
    metrics_add_i8042(m, *told, line);
    metrics_add_vcpus(m, *told, line);
}
