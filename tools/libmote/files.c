/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/files.h"

#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

int lm_files_lend(struct lm_files *f, int fd)
{
    if (f->count == LM_FILES_MAX)
        return -E2BIG;
    f->fds[f->count] = fd;
    f->own[f->count] = false;
    f->names[f->count++] = NULL;
    return 0;
}

static const char *files_remedy(int rc, bool writable)
{
    switch (rc) {
    case -ENOENT:
    case -ENOTDIR:
        return "check the path";
    case -EACCES:
    case -EPERM:
    case -EROFS:
        return writable ? "make it writable for this user or attach it "
                          "read-only"
                        : "make it readable for this user";
    default:
        return "check the file";
    }
}

int lm_files_open(struct lm_files *f, const char *role, const char *path,
                  bool writable, const char **out_name, struct mote_err *err)
{
    CLEANUP_FREE char *name = NULL;
    CLEANUP_FD int fd = -1;
    int rc;

    if (f->count == LM_FILES_MAX)
        return lm_err(err, -E2BIG, "%s %s: one file too many; use fewer disks",
                      role, path);
    /* A FIFO must not hold us up; the monitor says what it thinks of one. */
    fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_NOCTTY |
                        O_CLOEXEC);
    if (fd < 0) {
        rc = neg_errno();
        return lm_err(err, rc, "%s %s: cannot open it: %s; %s", role, path,
                      err_reason(rc), files_remedy(rc, writable));
    }
    if (asprintf(&name, "/dev/fd/%zu%s%s", f->count, *path == '/' ? "" : "/./",
                 path) < 0) {
        name = NULL;
        return lm_err_nomem(err);
    }
    f->fds[f->count] = take_fd(&fd);
    f->own[f->count] = true;
    *out_name = f->names[f->count++] = take_ptr(name);
    return 0;
}

void lm_files_close(struct lm_files *f)
{
    for (size_t i = 0; i < f->count; i++) {
        if (f->own[i])
            (void)close(f->fds[i]);
        free(f->names[i]);
    }
    f->count = 0;
}

void lm_files_plain(char *text)
{
    static const char prefix[] = "/dev/fd/";
    char *p = text;

    while ((p = strstr(p, prefix)) != NULL) {
        const char *name = p + strlen(prefix);

        name += strspn(name, "0123456789");
        if (name == p + strlen(prefix) || *name != '/') {
            p += strlen(prefix);
            continue;
        }
        if (!strncmp(name, "/./", 3)) /* it was not an absolute path */
            name += 3;
        memmove(p, name, strlen(name) + 1);
    }
}
