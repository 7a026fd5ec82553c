/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/abi.h"

#define USER_LINE_MAX 1024u
#define USER_ID_MAX   0xfffffffeu

/* Reads a file line by line; a line that is too long is passed over. */
struct user_lines {
    int fd;
    size_t at, length;
    char buffer[4096];
    char line[USER_LINE_MAX];
};

/* A piece of a line between two separators; not NUL terminated. */
struct user_field {
    const char *at;
    size_t length;
};

static bool user_lines_open(struct user_lines *l, const char *path)
{
    struct stat st;

    l->at = l->length = 0;
    /* Non-blocking: a FIFO in its place must not hold us. */
    l->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (l->fd < 0)
        return false;
    if (fstat(l->fd, &st) == 0 && S_ISREG(st.st_mode))
        return true;
    close(l->fd);
    return false;
}

/* The next line without its newline, or NULL at the end. */
static const char *user_lines_next(struct user_lines *l)
{
    size_t length = 0;

    for (;;) {
        if (l->at == l->length) {
            ssize_t got = read(l->fd, l->buffer, sizeof(l->buffer));

            if (got <= 0) {
                l->line[length < USER_LINE_MAX ? length : 0] = 0;
                return length > 0 ? l->line : NULL;
            }
            l->at = 0;
            l->length = (size_t)got;
        }
        if (l->buffer[l->at] == '\n') {
            l->at++;
            l->line[length < USER_LINE_MAX ? length : 0] = 0;
            return l->line;
        }
        if (length < USER_LINE_MAX)
            l->line[length++] = l->buffer[l->at];
        l->at++;
    }
}

/* Cuts the next field off *at, which becomes NULL after the last. */
static struct user_field user_cut(const char **at, char separator)
{
    struct user_field f = {.at = *at, .length = 0};
    const char *end;

    if (!*at)
        return f;
    end = strchr(*at, separator);
    f.length = end ? (size_t)(end - *at) : strlen(*at);
    *at = end ? end + 1 : NULL;
    return f;
}

static bool user_same(struct user_field a, struct user_field b)
{
    return a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}

static void user_copy(char *to, size_t size, struct user_field f)
{
    size_t length = f.length < size ? f.length : size - 1;

    memcpy(to, f.at, length);
    to[length] = 0;
}

static int64_t user_id(struct user_field f)
{
    return f.at ? text_number(f.at, f.length, USER_ID_MAX) : -1;
}

/* Looks a name, or if uid >= 0 that number, up in /etc/passwd. */
static bool user_passwd(struct user_field name, int64_t uid, struct user *out)
{
    struct user_lines lines;
    const char *line;
    bool found = false;

    if (!user_lines_open(&lines, "/etc/passwd"))
        return false;
    while (!found && (line = user_lines_next(&lines))) {
        struct user_field login = user_cut(&line, ':');
        int64_t line_uid, line_gid;

        (void)user_cut(&line, ':'); /* password */
        line_uid = user_id(user_cut(&line, ':'));
        line_gid = user_id(user_cut(&line, ':'));
        if (line_uid < 0 || line_gid < 0 || login.length == 0)
            continue;
        if (uid >= 0 ? line_uid != uid : !user_same(login, name))
            continue;
        found = true;
        out->uid = (uid_t)line_uid;
        out->gid = (gid_t)line_gid;
        user_copy(out->name, sizeof(out->name), login);
        (void)user_cut(&line, ':'); /* full name */
        if (line)
            user_copy(out->home, sizeof(out->home), user_cut(&line, ':'));
    }
    close(lines.fd);
    return found;
}

static bool user_lists(const char *members, struct user_field name)
{
    while (members) {
        if (user_same(user_cut(&members, ','), name))
            return true;
    }
    return false;
}

/* The group of this name, or -1. */
static int64_t user_group(struct user_field name)
{
    struct user_lines lines;
    const char *line;
    int64_t gid = -1;

    if (!user_lines_open(&lines, "/etc/group"))
        return -1;
    while (gid < 0 && (line = user_lines_next(&lines))) {
        struct user_field group = user_cut(&line, ':');

        (void)user_cut(&line, ':'); /* password */
        if (group.length > 0 && user_same(group, name))
            gid = user_id(user_cut(&line, ':'));
    }
    close(lines.fd);
    return gid;
}

/* All groups that list the user. */
static void user_groups(struct user *user)
{
    struct user_field name = {.at = user->name, .length = strlen(user->name)};
    struct user_lines lines;
    const char *line;

    if (!user_lines_open(&lines, "/etc/group"))
        return;
    while ((line = user_lines_next(&lines))) {
        int64_t gid;

        (void)user_cut(&line, ':');
        (void)user_cut(&line, ':');
        gid = user_id(user_cut(&line, ':'));
        if (gid >= 0 && user_lists(line, name) &&
            user->group_count < USER_GROUPS_MAX)
            user->groups[user->group_count++] = (gid_t)gid;
    }
    close(lines.fd);
}

void user_root(struct user *out)
{
    memset(out, 0, sizeof(*out));
    memcpy(out->name, "root", 5);
    memcpy(out->home, "/root", 6);
}

int user_find(const char *text, size_t length, struct user *out,
              struct refusal *r)
{
    struct user_field name = {.at = text, .length = length};
    struct user_field group = {0};
    const char *colon = memchr(text, ':', length);
    int64_t uid, gid;

    if (colon) {
        name.length = (size_t)(colon - text);
        group.at = colon + 1;
        group.length = length - name.length - 1;
    }
    memset(out, 0, sizeof(*out));
    memcpy(out->home, "/", 2);
    uid = user_id(name);
    if (!user_passwd(name, uid, out)) {
        if (uid < 0) {
            (void)refuse(r, MOTE_ERR_UNKNOWN_USER, 0, "no user '", NULL, NULL);
            text_add_bytes(&r->text, name.at, name.length);
            text_add(&r->text, "' in the guest's /etc/passwd");
            return -1;
        }
        out->uid = (uid_t)uid;
        user_copy(out->name, sizeof(out->name), name);
    }
    if (!group.at) {
        user_groups(out);
        return 0;
    }
    gid = user_id(group);
    if (gid < 0)
        gid = user_group(group);
    if (gid < 0) {
        (void)refuse(r, MOTE_ERR_UNKNOWN_USER, 0, "no group '", NULL, NULL);
        text_add_bytes(&r->text, group.at, group.length);
        text_add(&r->text, "' in the guest's /etc/group");
        return -1;
    }
    out->gid = (gid_t)gid;
    return 0;
}
