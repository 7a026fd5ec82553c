/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the balloon of a running machine. */
#include "vmm/api_int.h"

#include "devices/virtio_balloon.h"

#include <linux/virtio_balloon.h>
#include <linux/virtio_ids.h>

/* NULL with a line: there is none. */
static struct virtio_dev *api_balloon(struct api_call *c)
{
    struct virtio_dev *dev =
        machine_find_device(c->ctl->machine, VIRTIO_ID_BALLOON, NULL);

    if (!dev)
        (void)err_set(&c->err, -ENODEV, "There is no balloon device.");
    return dev;
}

/* Nothing but `fields` in the body, and a balloon. */
static int api_balloon_begin(struct api_call *c, const char *const *fields,
                             struct virtio_dev **out_dev)
{
    int rc = api_only_fields(c, fields);

    if (rc)
        return rc;
    *out_dev = api_balloon(c);
    return *out_dev ? 0 : -ENODEV;
}

/* A change of the balloon, and what it would make of the configuration. */
struct api_balloon_change {
    struct virtio_dev *dev;
    json_t *doc;
    struct vm_config config;
};

/*
 * Lays the one field that the body may have over the section, and reads the
 * result. After a success control_settle() is due.
 */
static int api_balloon_begin_change(struct api_call *c, const char *field,
                                    struct api_balloon_change *x)
{
    const char *const fields[] = {field, NULL};
    json_t *merged;
    int rc = api_balloon_begin(c, fields, &x->dev);

    if (rc)
        return rc;
    merged =
        config_doc_patched(json_object_get(c->ctl->doc, "balloon"), c->body);
    x->doc = merged ? config_doc_with(c->ctl->doc, "balloon", merged) : NULL;
    json_decref(merged);
    return control_parse(x->doc, &x->config, &c->err);
}

int api_patch_balloon(struct api_call *c)
{
    struct api_balloon_change x;
    int rc = api_balloon_begin_change(c, "amount_mib", &x);

    if (rc)
        return rc;
    rc = vballoon_set_target(x.dev, x.config.balloon.target_bytes);
    if (rc)
        (void)err_set(&c->err, rc,
                      "balloon: amount_mib is more than the guest's memory of "
                      "%llu MiB.",
                      (unsigned long long)(x.config.mem_bytes / MIB));
    return control_settle(c->ctl, rc, x.doc, &x.config);
}

int api_patch_balloon_stats(struct api_call *c)
{
    struct api_balloon_change x;
    int rc = api_balloon_begin_change(c, "stats_polling_interval_s", &x);
    uint32_t seconds;

    if (rc)
        return rc;
    seconds = x.config.balloon.stats_interval_s;
    /* The same again is no change, also where there are no statistics. */
    if (seconds != c->ctl->config.balloon.stats_interval_s)
        rc = vballoon_set_stats_interval(x.dev, seconds);
    if (rc)
        (void)err_set(&c->err, rc,
                      "balloon: statistics cannot be turned on or off while "
                      "the microVM runs.");
    return control_settle(c->ctl, rc, x.doc, &x.config);
}

/* --- statistics -------------------------------------------------------------
 */

static int api_add_stats(json_t *out, const struct vballoon_info *info)
{
    static const struct {
        uint32_t tag;
        const char *name;
    } stats[] = {
        {VIRTIO_BALLOON_S_SWAP_IN, "swap_in"},
        {VIRTIO_BALLOON_S_SWAP_OUT, "swap_out"},
        {VIRTIO_BALLOON_S_MAJFLT, "major_faults"},
        {VIRTIO_BALLOON_S_MINFLT, "minor_faults"},
        {VIRTIO_BALLOON_S_MEMFREE, "free_memory"},
        {VIRTIO_BALLOON_S_MEMTOT, "total_memory"},
        {VIRTIO_BALLOON_S_AVAIL, "available_memory"},
        {VIRTIO_BALLOON_S_CACHES, "disk_caches"},
        {VIRTIO_BALLOON_S_HTLB_PGALLOC, "hugetlb_allocations"},
        {VIRTIO_BALLOON_S_HTLB_PGFAIL, "hugetlb_failures"},
        {VBALLOON_S_OOM_KILL, "oom_kill"},
        {VBALLOON_S_ALLOC_STALL, "alloc_stall"},
        {VBALLOON_S_SCAN_ASYNC, "async_scan"},
        {VBALLOON_S_SCAN_DIRECT, "direct_scan"},
        {VBALLOON_S_RECLAIM_ASYNC, "async_reclaim"},
        {VBALLOON_S_RECLAIM_DIRECT, "direct_reclaim"},
    };
    int rc = 0;

    for (size_t i = 0; i < ARRAY_SIZE(stats) && rc == 0; i++) {
        if (info->stats_valid & 1u << stats[i].tag)
            rc = json_object_set_new(
                out, stats[i].name,
                json_integer((json_int_t)info->stats[stats[i].tag]));
    }
    return rc;
}

int api_get_balloon_stats(struct api_call *c)
{
    const uint64_t page = 4096; /* of the balloon, whatever the guest's are */
    struct virtio_dev *dev = api_balloon(c);
    struct vballoon_info info;

    if (!dev)
        return -ENODEV;
    if (c->ctl->config.balloon.stats_interval_s == 0)
        return err_set(&c->err, -ENODEV,
                       "balloon: statistics are not enabled.");
    vballoon_get(dev, &info);
    c->result =
        json_pack("{s:I, s:I, s:I, s:I}", "target_pages",
                  (json_int_t)(info.target_bytes / page), "actual_pages",
                  (json_int_t)(info.actual_bytes / page), "target_mib",
                  (json_int_t)(info.target_bytes / MIB), "actual_mib",
                  (json_int_t)(info.actual_bytes / MIB));
    if (!c->result || api_add_stats(c->result, &info))
        return err_set(&c->err, -ENOMEM, "out of memory");
    return 0;
}

/* --- free page hinting ------------------------------------------------------
 */

static int api_hinting_error(struct api_call *c, int rc)
{
    if (rc == -ENODEV)
        return err_set(&c->err, rc, "balloon: hinting is not enabled.");
    return rc ? err_set(&c->err, rc,
                        "balloon: the guest's driver does no hinting, or does "
                        "not run.")
              : 0;
}

int api_hinting_start(struct api_call *c)
{
    static const char *const fields[] = {"acknowledge_on_stop", NULL};
    const json_t *ack = json_object_get(c->body, fields[0]);
    struct virtio_dev *dev = NULL;
    int rc = api_balloon_begin(c, fields, &dev);

    if (rc)
        return rc;
    if (ack && !json_is_boolean(ack))
        return err_set(&c->err, -EINVAL,
                       API_BODY_ERROR
                       ": acknowledge_on_stop must be true or false.");
    /* Left out it is true: the guest gets its pages back by itself. */
    return api_hinting_error(c,
                             vballoon_hinting_start(dev, !json_is_false(ack)));
}

int api_hinting_stop(struct api_call *c)
{
    static const char *const fields[] = {NULL};
    struct virtio_dev *dev = NULL;
    int rc = api_balloon_begin(c, fields, &dev);

    return rc ? rc : api_hinting_error(c, vballoon_hinting_stop(dev));
}

int api_hinting_status(struct api_call *c)
{
    struct virtio_dev *dev = api_balloon(c);
    struct vballoon_hinting h;
    int rc;

    if (!dev)
        return -ENODEV;
    rc = api_hinting_error(c, vballoon_hinting_status(dev, &h));
    if (rc)
        return rc;
    c->result =
        json_pack("{s:I, s:o}", "host_cmd", (json_int_t)h.host_cmd, "guest_cmd",
                  h.guest_said ? json_integer(h.guest_cmd) : json_null());
    return c->result ? 0 : err_set(&c->err, -ENOMEM, "out of memory");
}
