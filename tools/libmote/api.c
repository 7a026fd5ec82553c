/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/api.h"

#include "tools/libmote/chan.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#define API_ANSWER_MAX ((size_t)4 << 20)

struct api_answer {
    char *data; /* ends with a NUL */
    size_t len;
    size_t cap;
    int status;
    char *body; /* in data */
    size_t body_len;
};

static int api_connect(const char *path, int *out_fd, struct mote_err *err)
{
    CLEANUP_FD int fd = -1;
    struct sockaddr_un sa;
    int rc = lm_unix_address(&sa, path, "", err);

    if (rc)
        return rc;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
        rc = neg_errno();
        return lm_err(err, rc, "%s: %s; the machine may have just ended", path,
                      err_reason(rc));
    }
    *out_fd = take_fd(&fd);
    return 0;
}

static int api_send(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return neg_errno();
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static int api_send_request(int fd, const char *method, const char *target,
                            const char *body)
{
    CLEANUP_FREE char *head = NULL;
    int n = asprintf(&head,
                     "%s %s HTTP/1.1\r\nHost: localhost\r\n"
                     "Content-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     method, target, strlen(body));
    int rc = n < 0 ? -ENOMEM : api_send(fd, head, (size_t)n);

    return rc ? rc : api_send(fd, body, strlen(body));
}

/* Once the head is there: where the body is and how long. 1, 0 or -EBADMSG. */
static int api_parse_head(struct api_answer *a)
{
    static const char field[] = "content-length:";
    char *end = strstr(a->data, "\r\n\r\n");
    unsigned long long len = 0;

    if (!end)
        return 0;
    if (sscanf(a->data, "HTTP/1.1 %3d", &a->status) != 1)
        return -EBADMSG;
    for (char *line = a->data; line < end; line = strstr(line, "\r\n") + 2) {
        if (!strncasecmp(line, field, sizeof(field) - 1))
            len = strtoull(line + sizeof(field) - 1, NULL, 10);
    }
    if (len > API_ANSWER_MAX)
        return -EBADMSG;
    a->body = end + 4;
    a->body_len = (size_t)len;
    return a->len - (size_t)(a->body - a->data) >= a->body_len;
}

static int api_receive(int fd, struct api_answer *a)
{
    int rc = 0;

    while (rc == 0) {
        ssize_t n;

        if (a->cap - a->len < 4096) {
            char *p = realloc(a->data, a->cap + 65536);

            if (!p || a->cap > API_ANSWER_MAX) {
                a->data = p ? p : a->data;
                return p ? -EBADMSG : -ENOMEM;
            }
            a->data = p;
            a->cap += 65536;
        }
        n = recv(fd, a->data + a->len, a->cap - a->len - 1, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? neg_errno() : -ECONNRESET;
        a->len += (size_t)n;
        a->data[a->len] = '\0';
        rc = api_parse_head(a);
    }
    return rc < 0 ? rc : 0;
}

static int api_judge(const struct api_answer *a, const char *target,
                     json_t **out_json, struct mote_err *err)
{
    json_t *json =
        a->body_len ? json_loadb(a->body, a->body_len, 0, NULL) : NULL;
    int rc = 0;

    if (a->status < 200 || a->status > 299) {
        const char *why =
            json_string_value(json_object_get(json, "fault_message"));

        rc = lm_err(err, -EREMOTEIO, "mote-vmm: %s",
                    why ? why : "it gave no reason");
    } else if (a->body_len && !json) {
        rc = lm_err(err, -EBADMSG, "mote-vmm: its answer to %s is no JSON",
                    target);
    }
    if (rc == 0 && out_json)
        *out_json = json_incref(json);
    json_decref(json);
    return rc;
}

int lm_api_call(const char *path, const char *method, const char *target,
                json_t *body, json_t **out_json, struct mote_err *err)
{
    CLEANUP_FREE char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    CLEANUP_FD int fd = -1;
    struct api_answer a = {0};
    int rc;

    if (body && !text)
        return lm_err_nomem(err);
    rc = api_connect(path, &fd, err);
    if (rc)
        return rc;
    rc = api_send_request(fd, method, target, text ? text : "");
    if (rc == 0)
        rc = api_receive(fd, &a);
    if (rc)
        (void)lm_err(err, rc, "mote-vmm: no answer to %s: %s", target,
                     rc == -ECONNRESET ? "the machine has ended"
                                       : err_reason(rc));
    else
        rc = api_judge(&a, target, out_json, err);
    free(a.data);
    return rc;
}
