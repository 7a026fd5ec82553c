/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/config_doc.h"

#include <string.h>

/* NULL in `doc` when the last step, which gave `rc`, failed. */
static json_t *doc_checked(json_t *doc, int rc)
{
    if (rc == 0)
        return doc;
    json_decref(doc);
    return NULL;
}

json_t *config_doc_with(json_t *doc, const char *section, json_t *value)
{
    json_t *copy = json_copy(doc);

    if (!copy)
        return NULL;
    if (!value) {
        (void)json_object_del(copy, section); /* -1: it was not there */
        return copy;
    }
    return doc_checked(copy, json_object_set(copy, section, value));
}

static bool doc_has_id(const json_t *item, const char *key, const char *id)
{
    const char *s = json_string_value(json_object_get(item, key));

    return s && id && !strcmp(s, id);
}

json_t *config_doc_item(json_t *doc, const char *section, const char *key,
                        const char *id)
{
    json_t *list = json_object_get(doc, section);
    json_t *item;
    size_t i;

    json_array_foreach(list, i, item)
    {
        if (doc_has_id(item, key, id))
            return item;
    }
    return NULL;
}

json_t *config_doc_with_item(json_t *doc, const char *section, const char *key,
                             json_t *item)
{
    const char *id = json_string_value(json_object_get(item, key));
    json_t *old = json_object_get(doc, section);
    json_t *list = json_is_array(old) ? json_copy(old) : json_array();
    json_t *changed;
    size_t i = 0;
    int rc;

    while (i < json_array_size(list) &&
           !doc_has_id(json_array_get(list, i), key, id))
        i++;
    rc = i < json_array_size(list) ? json_array_set(list, i, item)
                                   : json_array_append(list, item);
    list = doc_checked(list, rc);
    if (!list)
        return NULL;
    changed = config_doc_with(doc, section, list);
    json_decref(list);
    return changed;
}

/* The fields of `patch` that are not null over those of `into`. */
static int doc_lay_over(json_t *into, json_t *patch)
{
    const char *name;
    json_t *value;
    int rc = into ? 0 : -1;

    json_object_foreach(patch, name, value)
    {
        if (rc == 0 && !json_is_null(value))
            rc = json_object_set(into, name, value);
    }
    return rc;
}

json_t *config_doc_patched(json_t *old, json_t *patch)
{
    json_t *merged = old ? json_copy(old) : json_object();
    int rc = doc_lay_over(merged, patch);
    const char *name;
    json_t *value;

    /* Where both have an object the patch's took its place: go deeper. */
    json_object_foreach(patch, name, value)
    {
        json_t *before = json_object_get(old, name);
        json_t *inner;

        if (rc || !json_is_object(before) || !json_is_object(value))
            continue;
        inner = json_copy(before);
        rc = doc_lay_over(inner, value);
        if (rc == 0)
            rc = json_object_set(merged, name, inner);
        json_decref(inner);
    }
    return doc_checked(merged, rc);
}

json_t *config_doc_machine(json_t *doc, const struct vm_config *c)
{
    json_t *given = json_object_get(doc, "machine-config");
    json_t *all =
        json_pack("{s:i, s:I, s:b, s:b, s:s}", "vcpu_count", (int)c->num_vcpus,
                  "mem_size_mib", (json_int_t)(c->mem_bytes / MIB), "smt", 0,
                  "track_dirty_pages", 0, "huge_pages", "None");

    return doc_checked(all, doc_lay_over(all, given));
}

json_t *config_doc_view(json_t *doc, const struct vm_config *c)
{
    static const char *const always[] = {
        "boot-source",    "balloon",     "cpu-config", "logger", "metrics",
        "memory-hotplug", "mmds-config", "vsock",      "entropy"};
    static const char *const lists[] = {"drives", "network-interfaces", "pmem"};
    json_t *view = json_copy(doc);
    int rc = view ? 0 : -1;

    for (size_t i = 0; i < ARRAY_SIZE(always) && rc == 0; i++) {
        if (!json_object_get(view, always[i]))
            rc = json_object_set_new(view, always[i], json_null());
    }
    for (size_t i = 0; i < ARRAY_SIZE(lists) && rc == 0; i++) {
        if (!json_is_array(json_object_get(view, lists[i])))
            rc = json_object_set_new(view, lists[i], json_array());
    }
    if (rc == 0)
        rc = json_object_set_new(view, "machine-config",
                                 config_doc_machine(doc, c));
    return doc_checked(view, rc);
}
