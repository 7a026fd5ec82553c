/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a request to its handler, and what all routes have in common. Texts are
 * those that Firecracker's clients may look for.
 */
#include "vmm/api_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- answers ----------------------------------------------------------------
 */

static void api_answer(struct control *ctl, int status, const json_t *body,
                       bool deprecated)
{
    /* JSON_ENSURE_ASCII: nothing that a client could stumble over. */
    char *text =
        body ? json_dumps(body, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    const struct http_reply r = {
        .status = status,
        .body = text,
        .deprecated = deprecated,
    };

    counter_add(&ctl->counts.deprecated_calls, deprecated);
    histogram_add(&ctl->counts.api_us, util_now_ns() - ctl->request_ns);
    api_server_answer(ctl->api, &r);
    free(text);
}

/* A line may quote bytes that are no UTF-8, or end within a character. */
static json_t *api_text(const char *line)
{
    char ascii[sizeof(((struct errmsg *)0)->text)];
    json_t *s = json_string(line);

    if (s)
        return s;
    (void)snprintf(ascii, sizeof(ascii), "%s", line);
    for (char *p = ascii; *p; p++) {
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    }
    return json_string(ascii);
}

static void api_fault(struct control *ctl, int status, const char *line)
{
    json_t *body = json_pack("{s:o}", "fault_message", api_text(line));

    log_msg(ctl->log, LOG_INFO, "API: %d: %s", status, line);
    api_answer(ctl, status, body, false);
    json_decref(body);
}

void api_finish_with(struct control *ctl, int rc, json_t *result,
                     const struct errmsg *err)
{
    if (rc)
        api_fault(ctl, 400, err->text);
    else
        api_answer(ctl, result ? 200 : 204, result, false);
    json_decref(result);
}

void api_finish(struct control *ctl, int rc, const struct errmsg *err)
{
    api_finish_with(ctl, rc, NULL, err);
}

/* --- finding the route ------------------------------------------------------
 */

/* Whether `path` is the pattern's; its id goes to `out_id`, cut to size. */
static bool api_path_is(const char *pattern, const char *path, char *out_id,
                        size_t size)
{
    const char *hole = strstr(pattern, "{}");
    size_t n = hole ? (size_t)(hole - pattern) : 0;

    if (!hole)
        return !strcmp(pattern, path);
    /* "/drives" is "/drives/" with an empty id. */
    if (strlen(path) == n - 1 && !strncmp(pattern, path, n - 1)) {
        out_id[0] = '\0';
        return true;
    }
    if (strncmp(pattern, path, n) != 0 || strchr(path + n, '/'))
        return false;
    (void)snprintf(out_id, size, "%s", path + n);
    return true;
}

static const struct api_route *api_find(const struct http_request *req,
                                        char *out_id, size_t size)
{
    for (size_t i = 0; i < api_num_routes; i++) {
        const struct api_route *r = &api_routes[i];

        if (!strcmp(r->method, req->method) &&
            api_path_is(r->path, req->path, out_id, size))
            return r;
    }
    return NULL;
}

/* --- checks that all routes share -------------------------------------------
 */

/*
 * A body belongs to PUT and PATCH, and to nothing else. hinting/start and
 * stop, all of whose fields are optional, may leave it out.
 */
static int api_check_body(struct api_call *c, const struct http_request *req)
{
    bool takes = req->method[0] == 'P';

    if (!takes && req->body_len > 0)
        return err_set(&c->err, -EINVAL, "%s",
                       req->method[0] == 'G' ? "GET request cannot have a body."
                                             : "Empty Delete request.");
    if (takes && req->body_len == 0 &&
        strncmp(req->path, "/balloon/hinting/", 17) != 0)
        return err_set(&c->err, -EINVAL, "Empty %s request.", req->method);
    return 0;
}

static int api_check_id(struct api_call *c)
{
    const struct api_route *r = c->route;
    const char *in_body;

    if (!strstr(r->path, "{}"))
        return 0;
    if (!c->id[0])
        return err_set(&c->err, -EINVAL, "The ID cannot be empty.");
    if (!config_id_ok(c->id))
        return err_set(&c->err, -EINVAL,
                       "API Resource IDs can only contain alphanumeric "
                       "characters and underscores.");
    in_body =
        r->key ? json_string_value(json_object_get(c->body, r->key)) : NULL;
    if (in_body && strcmp(in_body, c->id) != 0)
        return err_set(&c->err, -EINVAL,
                       "The id from the path [%s] does not match the id from "
                       "the body [%.64s]!",
                       c->id, in_body);
    return 0;
}

static int api_check_phase(struct api_call *c)
{
    enum api_phase now = c->ctl->machine ? API_POST : API_PRE;

    if (c->route->phase & now)
        return 0;
    return err_set(&c->err, -EPERM,
                   "The requested operation is not supported %s starting the "
                   "microVM.",
                   now == API_POST ? "after" : "before");
}

static int api_check_needed(struct api_call *c)
{
    for (size_t i = 0; i < ARRAY_SIZE(c->route->need); i++) {
        const char *name = c->route->need[i];

        if (name && !json_object_get(c->body, name))
            return err_set(&c->err, -EINVAL,
                           API_BODY_ERROR ": missing field `%s`.", name);
    }
    return 0;
}

int api_only_fields(struct api_call *c, const char *const *allowed)
{
    const char *name;
    json_t *value;

    json_object_foreach(c->body, name, value)
    {
        if (!config_is_one_of(name, allowed))
            return err_set(&c->err, -EINVAL,
                           API_BODY_ERROR ": unknown field `%.64s`.", name);
    }
    return 0;
}

static int api_parse_body(struct api_call *c, const struct http_request *req)
{
    json_error_t je;

    if (req->body_len == 0)
        return 0;
    c->body = json_loadb(req->body, req->body_len, JSON_REJECT_DUPLICATES, &je);
    if (!c->body)
        return err_set(&c->err, -EINVAL,
                       API_BODY_ERROR ": %s at line %d column %d.", je.text,
                       je.line, je.column);
    if (!json_is_object(c->body))
        return err_set(&c->err, -EINVAL,
                       API_BODY_ERROR ": it has to be an object.");
    return 0;
}

/* --- dispatch ---------------------------------------------------------------
 */

static int api_call(struct api_call *c, const struct http_request *req)
{
    int rc = api_check_body(c, req);

    if (rc == 0)
        rc = api_parse_body(c, req);
    if (rc == 0)
        rc = api_check_id(c);
    if (rc == 0)
        rc = api_check_phase(c);
    if (rc == 0)
        rc = api_check_needed(c);
    return rc ? rc : c->route->fn(c);
}

void api_dispatch(void *arg, const struct http_request *req)
{
    struct control *ctl = arg;
    struct api_call c = {.ctl = ctl};
    struct api_stat *stat;
    int rc;

    ctl->request_ns = util_now_ns();
    log_msg(ctl->log, LOG_DEBUG, "API: %s %.200s, %zu bytes", req->method,
            req->path, req->body_len);
    c.route = api_find(req, c.id, sizeof(c.id));
    if (!c.route) {
        (void)err_set(&c.err, -ENOENT,
                      "Invalid request method and/or path: %s %.400s.",
                      req->method, req->path);
        api_fault(ctl, 400, c.err.text);
        return;
    }
    stat = &ctl->stats[c.route - api_routes];
    stat->count++;
    rc = api_call(&c, req);
    if (rc < 0) {
        stat->fails++;
        api_fault(ctl, c.status ? c.status : 400, c.err.text);
    } else if (rc == 0) {
        api_answer(ctl, c.result ? 200 : 204, c.result, c.deprecated);
    }
    json_decref(c.result);
    json_decref(c.body);
}

/* --- metrics ----------------------------------------------------------------
 */

static void api_add_count(json_t *group, const char *name, const char *what,
                          uint64_t n)
{
    json_int_t before;
    char key[64];

    (void)snprintf(key, sizeof(key), "%s_%s", name, what);
    before = json_integer_value(json_object_get(group, key));
    (void)json_object_set_new(group, key, json_integer(before + (json_int_t)n));
}

/* Groups are named by method; routes of one name are added up. */
void api_gather(struct control *ctl, json_t *line)
{
    static const struct {
        const char *method;
        const char *group;
    } groups[] = {
        {"GET", "get_api_requests"},
        {"PUT", "put_api_requests"},
        {"PATCH", "patch_api_requests"},
    };

    for (size_t g = 0; g < ARRAY_SIZE(groups); g++) {
        json_t *group = json_object();

        for (size_t i = 0; i < api_num_routes; i++) {
            struct api_stat *s = &ctl->stats[i];

            if (strcmp(api_routes[i].method, groups[g].method) != 0)
                continue;
            api_add_count(group, api_routes[i].stat, "count",
                          s->count - s->told_count);
            if (g > 0)
                api_add_count(group, api_routes[i].stat, "fails",
                              s->fails - s->told_fails);
            s->told_count = s->count;
            s->told_fails = s->fails;
        }
        (void)json_object_set_new(line, groups[g].group, group);
    }
}
