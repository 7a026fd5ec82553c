/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.json: values to text and back. */
#include "tools/libmote/snapdir_meta.h"

#include "vmm/errmsg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define META_VERSION 1

void snapdir_id_text(const uint8_t id[STATE_ID_BYTES],
                     char out[SNAPDIR_ID_TEXT])
{
    for (size_t i = 0; i < STATE_ID_BYTES; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", id[i]);
}

void snapdir_meta_fini(struct snapdir_meta *m)
{
    for (size_t i = 0; i < m->disk_count; i++) {
        free(m->disks[i].id);
        free(m->disks[i].path);
    }
    m->disk_count = 0;
}

void snapdir_time_text(int64_t ms, char out[SNAPDIR_TIME_TEXT])
{
    time_t s = (time_t)(ms / 1000);
    char stamp[24];
    struct tm tm;

    (void)gmtime_r(&s, &tm);
    (void)strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out, SNAPDIR_TIME_TEXT, "%s.%03uZ", stamp,
                   (unsigned)(ms % 1000) % 1000u);
}

/* --- to text ---------------------------------------------------------------
 */

static json_t *meta_disk_json(const struct snapdir_disk *d)
{
    if (d->file[0])
        return json_pack("{s:s, s:b, s:s, s:s, s:I, s:I}", "id", d->id,
                         "read_only", 0, "file", d->file, "path", d->path,
                         "size_bytes", (json_int_t)d->size_bytes, "crc32",
                         (json_int_t)d->crc);
    return json_pack("{s:s, s:b, s:s, s:I, s:I}", "id", d->id, "read_only", 1,
                     "path", d->path, "size_bytes", (json_int_t)d->size_bytes,
                     "mtime_ns", (json_int_t)d->mtime_ns);
}

char *snapdir_meta_text(const struct snapdir_meta *m)
{
    char created[SNAPDIR_TIME_TEXT];
    json_t *disks = json_array();
    json_t *doc;
    char *text;

    snapdir_time_text(m->created_ms, created);
    for (size_t i = 0; i < m->disk_count; i++)
        (void)json_array_append_new(disks, meta_disk_json(&m->disks[i]));
    if (json_array_size(disks) != m->disk_count) {
        json_decref(disks);
        return NULL;
    }
    doc = json_pack(
        "{s:i, s:s, s:s, s:s?, s:s?, s:s, s:I, s:s, s:o}", "version",
        META_VERSION, "id", m->id, "kind", m->parent[0] ? "diff" : "full",
        "parent", m->parent[0] ? m->parent : NULL, "name",
        m->name[0] ? m->name : NULL, "created", created, "created_ms",
        (json_int_t)m->created_ms, "mote", mote_version(), "disks", disks);
    text = doc ? json_dumps(doc, JSON_INDENT(2)) : NULL;
    json_decref(doc);
    return text;
}

/* --- from text -------------------------------------------------------------
 */

static int meta_bad(const char *path, const char *what, struct mote_err *err)
{
    return lm_err(err, -EBADMSG,
                  "%s/" SNAPDIR_FILE ": %s; the snapshot is of no use", path,
                  what);
}

/* Only names that we give ourselves lead into the directory. */
static bool meta_file_valid(const char *file)
{
    uint64_t n = 0;

    return strlen(file) < sizeof(((struct snapdir_disk *)0)->file) &&
           !strncmp(file, "disk-", 5) &&
           util_parse_u64(file + 5, 0, SNAPDIR_MAX_DISKS, &n) == 0;
}

static int meta_disk_parse(json_t *json, struct snapdir_disk *d)
{
    const char *id = NULL;
    const char *path = NULL;
    const char *file = NULL;
    json_int_t size = -1;
    json_int_t crc = 0;
    json_int_t mtime = 0;
    int read_only = 0;

    if (json_unpack(json, "{s:s, s:b, s:s, s:I, s?s, s?I, s?I}", "id", &id,
                    "read_only", &read_only, "path", &path, "size_bytes", &size,
                    "file", &file, "crc32", &crc, "mtime_ns", &mtime))
        return -EBADMSG;
    if (path[0] != '/' || size < 0 || read_only != !file || crc < 0 ||
        crc > UINT32_MAX || (file && !meta_file_valid(file)))
        return -EBADMSG;
    (void)snprintf(d->file, sizeof(d->file), "%s", file ? file : "");
    d->size_bytes = (uint64_t)size;
    d->mtime_ns = mtime;
    d->crc = (uint32_t)crc;
    d->id = strdup(id);
    d->path = strdup(path);
    return d->id && d->path ? 0 : -ENOMEM;
}

static int meta_disks_parse(json_t *list, struct snapdir_meta *out)
{
    size_t i;
    json_t *item;
    int rc = json_is_array(list) && json_array_size(list) <= SNAPDIR_MAX_DISKS
                 ? 0
                 : -EBADMSG;

    json_array_foreach(list, i, item)
    {
        if (rc)
            break;
        out->disk_count++;
        rc = meta_disk_parse(item, &out->disks[i]);
    }
    return rc;
}

static int meta_parse(json_t *doc, struct snapdir_meta *out)
{
    const char *id = NULL;
    json_int_t created = 0;
    json_t *disks = NULL;
    /* These may be null as well. */
    const char *parent = json_string_value(json_object_get(doc, "parent"));
    const char *name = json_string_value(json_object_get(doc, "name"));

    if (json_unpack(doc, "{s:s, s:I, s:o}", "id", &id, "created_ms", &created,
                    "disks", &disks))
        return -EBADMSG;
    if (strlen(id) != SNAPDIR_ID_TEXT - 1 ||
        (parent && strlen(parent) != SNAPDIR_ID_TEXT - 1))
        return -EBADMSG;
    (void)snprintf(out->id, sizeof(out->id), "%s", id);
    (void)snprintf(out->parent, sizeof(out->parent), "%s",
                   parent ? parent : "");
    (void)snprintf(out->name, sizeof(out->name), "%s", name ? name : "");
    out->created_ms = created;
    return meta_disks_parse(disks, out);
}

int snapdir_meta_read(const char *text, const char *path,
                      struct snapdir_meta *out, struct mote_err *err)
{
    json_t *doc = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    json_int_t version = json_integer_value(json_object_get(doc, "version"));
    int rc = 0;

    memset(out, 0, sizeof(*out));
    if (version > META_VERSION)
        rc = lm_err(err, -ENOTSUP,
                    "%s/" SNAPDIR_FILE ": has version %lld, this mote reads "
                    "%d; use the mote that wrote it",
                    path, (long long)version, META_VERSION);
    else if (version < 1 || meta_parse(doc, out))
        rc = meta_bad(path, "is damaged", err);
    json_decref(doc);
    if (rc)
        snapdir_meta_fini(out);
    return rc;
}
