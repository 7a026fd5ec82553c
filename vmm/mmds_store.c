/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/mmds_store.h"

#include <stdlib.h>
#include <string.h>

/* A part of a path; a longer one names nothing. */
#define STORE_MAX_KEY 1024u

/* --- writing -------------------------------------------------------------- */

/* Makes `doc`, whose reference it takes, the document if it is not too large.
 */
static int store_adopt(struct mmds_store *s, json_t *doc)
{
    size_t len = doc ? json_dumpb(doc, NULL, 0, JSON_COMPACT) : 0;
    int rc = len == 0 ? -ENOMEM : 0;

    if (rc == 0 && len > s->limit)
        rc = -EFBIG;
    if (rc) {
        json_decref(doc);
        return rc;
    }
    json_decref(s->doc);
    s->doc = doc;
    return 0;
}

int mmds_store_put(struct mmds_store *s, json_t *doc)
{
    return store_adopt(s, json_deep_copy(doc));
}

static int store_merge(json_t *into, json_t *patch);

/* One member of a patch. spec: rfc7396 2 */
static int store_merge_member(json_t *into, const char *name, json_t *value)
{
    json_t *before = json_object_get(into, name);
    int rc;

    if (json_is_null(value)) {
        (void)json_object_del(into, name); /* -1: it was not there */
        return 0;
    }
    if (!json_is_object(value))
        return json_object_set_new(into, name, json_deep_copy(value));
    if (!json_is_object(before)) {
        rc = json_object_set_new(into, name, json_object());
        if (rc)
            return rc;
        before = json_object_get(into, name);
    }
    return store_merge(before, value);
}

/* Its depth is that of the patch, which the JSON parser bounds. */
static int store_merge(json_t *into, json_t *patch)
{
    const char *name;
    json_t *value;
    int rc = 0;

    json_object_foreach(patch, name, value)
    {
        rc = store_merge_member(into, name, value);
        if (rc)
            break;
    }
    return rc;
}

int mmds_store_patch(struct mmds_store *s, json_t *patch)
{
    json_t *merged;

    if (!s->doc)
        return -ENOENT;
    merged = json_deep_copy(s->doc);
    if (merged && store_merge(merged, patch)) {
        json_decref(merged);
        merged = NULL;
    }
    return store_adopt(s, merged);
}

json_t *mmds_store_get(const struct mmds_store *s)
{
    return s->doc ? json_incref(s->doc) : json_object();
}

void mmds_store_fini(struct mmds_store *s)
{
    json_decref(s->doc);
    s->doc = NULL;
}

/* --- finding -------------------------------------------------------------- */

/* The next part of *path, unescaped: 1; 0: there is none; or -ENOENT. */
static int store_next_key(const char **path, char *out)
{
    const char *p = *path + strspn(*path, "/");
    size_t n = 0;

    if (!*p)
        return 0;
    while (*p && *p != '/') {
        char c = *p++;

        if (c == '~') {
            if (*p != '0' && *p != '1')
                return -ENOENT;
            c = *p++ == '0' ? '~' : '/';
        }
        if (n + 1 == STORE_MAX_KEY)
            return -ENOENT;
        out[n++] = c;
    }
    out[n] = '\0';
    *path = p;
    return 1;
}

static json_t *store_child(json_t *v, const char *key)
{
    uint64_t i = 0;

    if (json_is_object(v))
        return json_object_get(v, key);
    if (!json_is_array(v) || (key[0] == '0' && key[1]) ||
        util_parse_u64(key, 0, UINT32_MAX, &i))
        return NULL;
    return json_array_get(v, (size_t)i);
}

/* Borrowed; NULL: there is none. */
static json_t *store_find(json_t *v, const char *path)
{
    char key[STORE_MAX_KEY];
    int rc = 1;

    while (v && (rc = store_next_key(&path, key)) > 0)
        v = store_child(v, key);
    return rc < 0 ? NULL : v;
}

/* --- showing -------------------------------------------------------------- */

static int store_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The sorted keys, one a line, of an object whose keys are in `names`. */
static char *store_join(json_t *object, const char **names, size_t num)
{
    size_t len = 1;
    char *text;
    char *p;

    for (size_t i = 0; i < num; i++)
        len += strlen(names[i]) + 2;
    text = malloc(len);
    p = text;
    for (size_t i = 0; text && i < num; i++) {
        if (i > 0)
            *p++ = '\n';
        p = stpcpy(p, names[i]);
        if (json_is_object(json_object_get(object, names[i])))
            *p++ = '/';
    }
    if (p)
        *p = '\0';
    return text;
}

static char *store_list(json_t *object)
{
    size_t num = json_object_size(object);
    const char **names = calloc(num + 1, sizeof(*names));
    const char *name;
    json_t *value;
    char *text;
    size_t i = 0;

    if (!names)
        return NULL;
    json_object_foreach(object, name, value) names[i++] = name;
    qsort(names, num, sizeof(*names), store_compare);
    text = store_join(object, names, num);
    free(names);
    return text;
}

static int store_words(json_t *v, char **out_text)
{
    if (json_is_string(v))
        *out_text = strdup(json_string_value(v));
    else if (json_is_object(v))
        *out_text = store_list(v);
    else
        return -ENOTSUP;
    return *out_text ? 0 : -ENOMEM;
}

int mmds_store_text(const struct mmds_store *s, const char *path, bool as_json,
                    char **out_text)
{
    json_t *doc = mmds_store_get(s);
    json_t *v;
    int rc;

    if (!doc)
        return -ENOMEM;
    v = store_find(doc, path);
    if (!v) {
        rc = -ENOENT;
    } else if (as_json) {
        *out_text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
        rc = *out_text ? 0 : -ENOMEM;
    } else {
        rc = store_words(v, out_text);
    }
    json_decref(doc);
    return rc;
}
