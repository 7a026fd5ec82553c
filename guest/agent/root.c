/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/root.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/agent/boot.h"
#include "guest/agent/words.h"

/* Directories of the initial ramdisk (mkinitrd.py makes them). */
#define ROOT_NEW   "/root"
#define ROOT_LOWER "/lower"
#define ROOT_UPPER "/upper"

/* A disk is there before init runs, unless its driver is slow to find it. */
#define ROOT_WAIT_MS 10000

static _Noreturn void root_fail(const char *what, const char *name, int error,
                                const char *remedy)
{
    struct text t;

    text_init(&t);
    text_add(&t, what);
    text_add(&t, name);
    if (error) {
        text_add(&t, ": ");
        text_add_errno(&t, error);
    }
    text_add(&t, remedy);
    boot_fail(&t);
}

/* Opens the disk, waiting for it to appear in /dev if need be. */
static int root_open(const char *device)
{
    int fd = open(device, O_RDONLY | O_CLOEXEC);
    struct pollfd wait = {.events = POLLIN};

    if (fd >= 0)
        return fd;
    wait.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (wait.fd >= 0 && inotify_add_watch(wait.fd, "/dev", IN_CREATE) >= 0) {
        /* It may have come before the watch: look before each wait. */
        while ((fd = open(device, O_RDONLY | O_CLOEXEC)) < 0 &&
               errno == ENOENT && poll(&wait, 1, ROOT_WAIT_MS) > 0) {
            char events[1024];

            (void)!read(wait.fd, events, sizeof(events));
        }
    }
    if (fd < 0)
        root_fail("no root disk ", device, errno,
                  "; attach it, or correct root= on the command line");
    if (wait.fd >= 0)
        close(wait.fd);
    return fd;
}

static void root_mount_disk(const char *device, const char *where,
                            const char *type, unsigned long flags)
{
    uint8_t bytes[WORDS_DISK_BYTES];
    int fd = root_open(device);
    ssize_t got = 0;

    if (!type) {
        got = read(fd, bytes, sizeof(bytes));
        type = words_disk_type(bytes, got > 0 ? (size_t)got : 0);
    }
    close(fd);
    if (!type)
        root_fail("no file system known to the agent on ", device, 0,
                  "; make it erofs, ext4, squashfs or xfs");
    if (mount(device, where, type, flags, NULL) < 0)
        root_fail("cannot mount the disk ", device, errno,
                  errno == ENODEV ? "; this kernel lacks its file system"
                                  : "; check the image");
}

/* The writable layer: memory (half of it at most) or a disk of its own. */
static void root_mount_upper(const char *overlay)
{
    if (strncmp(overlay, "/dev/", 5) == 0)
        root_mount_disk(overlay, ROOT_UPPER, NULL, MS_NODEV);
    else if (strcmp(overlay, "tmpfs") != 0)
        root_fail("mote.overlay=", overlay, 0,
                  " is neither tmpfs nor a disk in /dev");
    else if (mount("tmpfs", ROOT_UPPER, "tmpfs", MS_NODEV,
                   "size=50%,mode=755") < 0)
        root_fail("cannot mount the writable layer in memory", "", errno,
                  "; this kernel lacks tmpfs");
    if ((mkdir(ROOT_UPPER "/data", 0755) < 0 && errno != EEXIST) ||
        (mkdir(ROOT_UPPER "/work", 0755) < 0 && errno != EEXIST))
        root_fail("cannot write to the writable layer ", overlay, errno, "");
}

static void root_mount_overlay(const struct words *words)
{
    root_mount_disk(words->root, ROOT_LOWER, words->root_type, MS_RDONLY);
    root_mount_upper(words->overlay);
    if (mount("overlay", ROOT_NEW, "overlay", 0,
              "lowerdir=" ROOT_LOWER ",upperdir=" ROOT_UPPER
              "/data,workdir=" ROOT_UPPER "/work") < 0)
        root_fail("cannot lay a writable layer over ", words->root, errno,
                  errno == ENODEV ? "; this kernel lacks overlayfs" : "");
}

static void root_move(const char *from, const char *to)
{
    if (mount(from, to, NULL, MS_MOVE, NULL) == 0)
        return;
    if (errno == ENOENT && mkdir(to, 0755) == 0 &&
        mount(from, to, NULL, MS_MOVE, NULL) == 0)
        return;
    root_fail("the root disk has no directory ", from, errno,
              "; add it to the image, or boot with mote.overlay=tmpfs");
}

void root_enter(const struct words *words)
{
    if (words->overlay)
        root_mount_overlay(words);
    else
        root_mount_disk(words->root, ROOT_NEW, words->root_type,
                        words->writable ? 0 : MS_RDONLY);
    root_move("/dev", ROOT_NEW "/dev");
    root_move("/proc", ROOT_NEW "/proc");
    if (chdir(ROOT_NEW) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 ||
        chroot(".") < 0 || chdir("/") < 0)
        root_fail("cannot make it the root: ", words->root, errno, "");
}
