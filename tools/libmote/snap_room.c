/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/snap_room.h"

#include "tools/libmote/err.h"
#include "vmm/cleanup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* Of the 256 MiB beside the guest's memory that its control group has. */
#define ROOM_SPARE (192 * MIB)

/* A file of /proc says a size of 0. */
static char *room_read_proc(int dir_fd, const char *file)
{
    CLEANUP_FD int fd = openat(dir_fd, file, O_RDONLY | O_CLOEXEC);
    char *text = fd < 0 ? NULL : calloc(1, 4096);

    if (text && read(fd, text, 4095) < 0)
        text[0] = '\0';
    return text;
}

int lm_save_room(const struct mote_vm_info *vm, struct mote_err *err)
{
    CLEANUP_FREE char *text = NULL;
    CLEANUP_FD int dir = -1;
    unsigned long long rss_kib = 0;
    char path[32];
    const char *line;

    if (geteuid() != 0)
        return 0;
    (void)snprintf(path, sizeof(path), "/proc/%d", (int)vm->monitor_pid);
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0)
        text = room_read_proc(dir, "status");
    line = text ? strstr(text, "\nVmRSS:") : NULL;
    if (!line || sscanf(line, " VmRSS: %llu", &rss_kib) != 1)
        return lm_err(err, -ESRCH, "machine %s: has ended", vm->id);
    if (2 * rss_kib * KIB <= vm->mem_bytes + ROOM_SPARE)
        return 0;
    return lm_err(err, -ENOMEM,
                  "machine %s: a copy of its memory (%llu MiB in use) does not "
                  "fit beside it into its jail; start it with --jail=off",
                  vm->id, rss_kib / 1024);
}
