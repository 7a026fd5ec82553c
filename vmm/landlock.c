/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/landlock.h"

#include "vmm/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

/* syscalls: landlock_create_ruleset landlock_add_rule landlock_restrict_self */

/* What can be done with a file, and what with the files of a directory. */
#define LANDLOCK_ON_FILES                                                      \
    (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE)
#define LANDLOCK_IN_DIRS                                                       \
    (LANDLOCK_ON_FILES | LANDLOCK_ACCESS_FS_READ_DIR |                         \
     LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE)

/* Never needed by a machine that runs, whoever asks. */
#define LANDLOCK_NEVER                                                         \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_REMOVE_DIR |              \
     LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |              \
     LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |             \
     LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM)

/*
 * Rights that came after the first version, with the version of each. A header
 * that is older than the kernel knows fewer; what it lacks is not asked for.
 */
static const struct {
    int abi;
    uint64_t right;
    bool api; /* else only without a control socket */
} landlock_later[] = {
    {2, LANDLOCK_ACCESS_FS_REFER, true}, /* links and moves out of a tree */
#ifdef LANDLOCK_ACCESS_FS_TRUNCATE
    {3, LANDLOCK_ACCESS_FS_TRUNCATE, false},
#endif
#ifdef LANDLOCK_ACCESS_FS_IOCTL_DEV
    /* Block devices as disks are asked for their size. */
    {5, LANDLOCK_ACCESS_FS_IOCTL_DEV, false},
#endif
};

uint64_t landlock_handled_files(enum landlock_role role, int abi)
{
    uint64_t rights = LANDLOCK_NEVER | LANDLOCK_IN_DIRS;

    for (size_t i = 0; i < ARRAY_SIZE(landlock_later); i++) {
        if (abi >= landlock_later[i].abi &&
            (landlock_later[i].api || role == LANDLOCK_CLOSED))
            rights |= landlock_later[i].right;
    }
    return rights;
}

/* TCP, signals to others, abstract sockets: the filter of system calls allows
 * none of them but the last. */
static void landlock_handle_rest(struct landlock_ruleset_attr *attr, int abi)
{
    (void)attr;
    (void)abi;
#ifdef LANDLOCK_ACCESS_NET_CONNECT_TCP
    if (abi >= 4)
        attr->handled_access_net =
            LANDLOCK_ACCESS_NET_BIND_TCP | LANDLOCK_ACCESS_NET_CONNECT_TCP;
#endif
#ifdef LANDLOCK_SCOPE_SIGNAL
    if (abi >= 6)
        attr->scoped =
            LANDLOCK_SCOPE_SIGNAL | LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET;
#endif
}

static int landlock_add(int fd, int parent_fd, uint64_t rights)
{
    const struct landlock_path_beneath_attr rule = {.allowed_access = rights,
                                                    .parent_fd = parent_fd};

    if (syscall(SYS_landlock_add_rule, fd, LANDLOCK_RULE_PATH_BENEATH, &rule,
                0) < 0)
        return neg_errno();
    return 0;
}

/* --- all files but those of the kernel -------------------------------------
 */

static bool landlock_is_kernels(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) < 0 || fs.f_type == PROC_SUPER_MAGIC ||
           fs.f_type == SYSFS_MAGIC;
}

/* One entry of /. Links lead to other entries, or deeper into one. */
static int landlock_allow_entry(int fd, int root_fd, const char *name,
                                bool *out_kernels)
{
    CLEANUP_FD int entry =
        openat(root_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (entry < 0 || fstat(entry, &st) < 0 || S_ISLNK(st.st_mode))
        return 0; /* gone, or not for us: then no rule is needed */
    *out_kernels = landlock_is_kernels(entry);
    if (*out_kernels)
        return 0;
    return landlock_add(
        fd, entry, S_ISDIR(st.st_mode) ? LANDLOCK_IN_DIRS : LANDLOCK_ON_FILES);
}

static int landlock_allow_entries(int fd, int root_fd, DIR *dir,
                                  bool *out_kernels)
{
    struct dirent *e;
    int rc = 0;

    while (rc == 0 && (e = readdir(dir))) {
        bool kernels = false;

        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            rc = landlock_allow_entry(fd, root_fd, e->d_name, &kernels);
        *out_kernels |= kernels;
    }
    return rc;
}

static int landlock_allow_files(int fd)
{
    CLEANUP_FD int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = opendir("/");
    bool kernels = false;
    int rc = 0;

    if (root < 0) {
        rc = neg_errno();
    } else if (dir) {
        rc = landlock_allow_entries(fd, root, dir, &kernels);
    }
    if (dir)
        (void)closedir(dir);
    /* With nothing to leave out, what will be in / is allowed as well. */
    if (rc == 0 && !kernels)
        rc = landlock_add(fd, root, LANDLOCK_IN_DIRS);
    return rc;
}

/* --- rule sets --------------------------------------------------------------
 */

int landlock_new(enum landlock_role role, int *out_fd)
{
    struct landlock_ruleset_attr attr = {0};
    CLEANUP_FD int fd = -1;
    int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, (size_t)0,
                           LANDLOCK_CREATE_RULESET_VERSION);
    int rc = 0;

    if (abi < 1)
        return abi < 0 ? neg_errno() : -EOPNOTSUPP;
    attr.handled_access_fs = landlock_handled_files(role, abi);
    landlock_handle_rest(&attr, abi);
    fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
    if (fd < 0)
        return neg_errno();
    if (role == LANDLOCK_API)
        rc = landlock_allow_files(fd);
    if (rc == 0)
        *out_fd = take_fd(&fd);
    return rc;
}

int landlock_allow_socket(int fd, const char *path)
{
    const char *slash = strrchr(path, '/');
    /* "/" for what lies in the root. */
    size_t len = slash == path ? 1 : slash ? (size_t)(slash - path) : 0;
    CLEANUP_FD int dir_fd = -1;
    char dir[PATH_MAX];

    if (len >= sizeof(dir))
        return -ENAMETOOLONG;
    memcpy(dir, path, len);
    dir[len] = '\0';
    dir_fd = open(slash ? dir : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return neg_errno();
    return landlock_add(fd, dir_fd, LANDLOCK_ACCESS_FS_REMOVE_FILE);
}

int landlock_enforce(int fd)
{
    return syscall(SYS_landlock_restrict_self, fd, 0) < 0 ? neg_errno() : 0;
}
