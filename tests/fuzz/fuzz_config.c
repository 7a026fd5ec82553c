/* SPDX-License-Identifier: Apache-2.0 */

/*
 * From a request's body, or a configuration file, to what a machine is to be.
 * The first byte of the input chooses: the rest is the whole document, or the
 * body of one section that is put or laid over a document that is there. What
 * is accepted is shown as GET /vm/config does, and has to be accepted again.
 */

#include "vmm/config_doc.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char fuzz_base[] =
    "{\"boot-source\":{\"kernel_image_path\":\"/k\"},"
    "\"drives\":[{\"drive_id\":\"a\",\"path_on_host\":\"/d\","
    "\"is_root_device\":true,\"rate_limiter\":{\"ops\":{\"size\":1,"
    "\"refill_time\":1}}}],"
    "\"balloon\":{\"amount_mib\":1,\"deflate_on_oom\":false}}";

static int fuzz_read(json_t *doc, struct vm_config *c, struct errmsg *err)
{
    int rc;

    config_init(c);
    rc = config_apply(c, doc, "fuzz", err);
    return rc ? rc : config_check(c, err);
}

static void fuzz_doc(json_t *doc)
{
    struct errmsg err = {""};
    struct vm_config c;
    json_t *view;

    if (fuzz_read(doc, &c, &err)) {
        assert(err.text[0]);
        config_fini(&c);
        return;
    }
    view = config_doc_view(doc, &c);
    config_fini(&c);
    assert(view);
    assert(fuzz_read(view, &c, &err) == 0);
    config_fini(&c);
    json_decref(view);
}

static json_t *fuzz_change(uint8_t how, json_t *base, json_t *body)
{
    static const char *const sections[] = {
        "machine-config", "boot-source", "vsock",  "entropy",
        "logger",         "metrics",     "serial", "balloon",
        "mote",           "pmem",        "drives", "network-interfaces"};
    const char *section = sections[(how >> 2) % ARRAY_SIZE(sections)];
    json_t *patched;
    json_t *doc;

    switch (how & 3) {
    case 0:
        return config_doc_with(base, section, body);
    case 1:
        return config_doc_with_item(base, "drives", "drive_id", body);
    case 2:
        patched = config_doc_patched(json_object_get(base, section), body);
        doc = config_doc_with(base, section, patched);
        break;
    default:
        patched = config_doc_patched(
            config_doc_item(base, "drives", "drive_id", "a"), body);
        doc = config_doc_with_item(base, "drives", "drive_id", patched);
        break;
    }
    json_decref(patched);
    return doc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *body;
    json_t *base;
    json_t *doc;

    if (size < 1)
        return 0;
    body = json_loadb((const char *)data + 1, size - 1, JSON_REJECT_DUPLICATES,
                      NULL);
    if (!body)
        return 0;
    if (data[0] == 0xff) {
        fuzz_doc(body);
    } else if (json_is_object(body)) {
        base = json_loads(fuzz_base, 0, NULL);
        doc = fuzz_change(data[0], base, body);
        assert(doc);
        fuzz_doc(doc);
        json_decref(doc);
        json_decref(base);
    }
    json_decref(body);
    return 0;
}
