/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/host_report.h"

#include "vmm/evloop.h"
#include "vmm/kvm.h"
#include "vmm/probe_x86.h"

#include <jansson.h>
#include <liburing.h>
#include <string.h>

static json_t *report_kvm(struct errmsg *err)
{
    struct kvm kvm;
    json_t *doc = json_object();
    json_t *caps = json_object();
    int rc = kvm_open(&kvm, err);

    (void)json_object_set_new(doc, "present", json_boolean(rc == 0));
    (void)json_object_set_new(doc, "module", json_string(kvm_module_name()));
    (void)json_object_set_new(doc, "error",
                              rc ? json_string(err->text) : json_null());
    if (rc == 0) {
        for (size_t i = 0; i < kvm_num_cap_reports; i++)
            (void)json_object_set_new(
                caps, kvm_cap_reports[i].name,
                json_boolean(kvm_check_cap(&kvm, kvm_cap_reports[i].cap) > 0));
        (void)json_object_set_new(doc, "api_version", json_integer(12));
        (void)json_object_set_new(doc, "max_vcpus",
                                  json_integer(kvm.caps.max_vcpus));
        kvm_fini(&kvm);
    }
    (void)json_object_set_new(doc, "capabilities", caps);
    return doc;
}

static json_t *report_ring0(bool have_kvm)
{
    struct ring0_probe p = {0};
    struct errmsg err = {""};
    char dir[256];

    if (!have_kvm)
        return json_null();
    if (probe_ring0_measure(&p, &err))
        return json_pack("{s:s}", "error", err.text);
    if (probe_cache_dir(dir, sizeof(dir)))
        probe_ring0_store(dir, &p);
    return json_pack("{s:b, s:f, s:n}", "emulated", p.emulated,
                     "ns_per_instruction", p.ns_per_instruction, "error");
}

static const struct {
    unsigned bit;
    const char *name;
} report_ring_features[] = {
    {IORING_FEAT_NODROP, "nodrop"},
    {IORING_FEAT_SUBMIT_STABLE, "submit_stable"},
    {IORING_FEAT_FAST_POLL, "fast_poll"},
    {IORING_FEAT_EXT_ARG, "ext_arg"},
    {IORING_FEAT_NATIVE_WORKERS, "native_workers"},
    {IORING_FEAT_CQE_SKIP, "cqe_skip"},
};

static json_t *report_io_uring(void)
{
    struct io_uring ring;
    struct io_uring_params p;
    json_t *features = json_array();
    int rc;

    memset(&p, 0, sizeof(p));
    rc = io_uring_queue_init_params(8, &ring, &p);
    if (rc < 0) {
        json_decref(features);
        return json_pack("{s:b, s:s, s:[]}", "available", 0, "errno",
                         strerrorname_np(-rc), "features");
    }
    io_uring_queue_exit(&ring);
    for (size_t i = 0; i < ARRAY_SIZE(report_ring_features); i++) {
        if (p.features & report_ring_features[i].bit)
            (void)json_array_append_new(
                features, json_string(report_ring_features[i].name));
    }
    return json_pack("{s:b, s:n, s:o}", "available", 1, "errno", "features",
                     features);
}

int host_report_print(FILE *out)
{
    struct errmsg err = {""};
    json_t *kvm = report_kvm(&err);
    bool have_kvm = json_is_true(json_object_get(kvm, "present"));
    json_t *doc =
        json_pack("{s:o, s:o, s:o}", "kvm", kvm, "ring0",
                  report_ring0(have_kvm), "io_uring", report_io_uring());
    int rc;

    if (!doc)
        return -ENOMEM;
    rc = json_dumpf(doc, out, JSON_INDENT(2)) == 0 && fputc('\n', out) != EOF &&
                 fflush(out) == 0
             ? 0
             : -EIO;
    json_decref(doc);
    return rc;
}
