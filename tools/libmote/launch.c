/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/launch.h"

#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>

#define LM_GUEST_CID                                                           \
    3 /* the same in every machine: sockets tell them apart                    \
       */
#define LM_MAX_VCPUS   32
#define LM_MAX_DISKS   26 /* vda to vdz */
#define LM_LIFELINE_FD 3
#define LM_NET_FD      4
/* Sources of dup2() are moved above every target first. */
#define LM_FIRST_FREE_FD 10

/* --- configuration ----------------------------------------------------------
 */

int lm_params_check(const struct mote_vm_params *p, struct mote_err *err)
{
    if (p->vcpus < 1 || p->vcpus > LM_MAX_VCPUS)
        return lm_err(err, -EINVAL, "%u CPUs: out of range; use 1 to %d",
                      p->vcpus, LM_MAX_VCPUS);
    if (p->mem_bytes == 0 || p->mem_bytes % MIB)
        return lm_err(err, -EINVAL,
                      "memory of %llu bytes: not whole MiB; use a multiple of "
                      "1M",
                      (unsigned long long)p->mem_bytes);
    if (p->disk_count > LM_MAX_DISKS)
        return lm_err(err, -EINVAL, "%zu disks: too many; use at most %d",
                      p->disk_count, LM_MAX_DISKS);
    return lm_net_check(&p->net, err);
}

/* NULL when it cannot be made. What only mote knows is told only if asked. */
static json_t *lm_config_drive(const struct mote_disk *d, size_t i)
{
    char id[8];
    json_t *drive;

    (void)snprintf(id, sizeof(id), "vd%c", (char)('a' + i));
    drive = json_pack("{s:s, s:s, s:b, s:b, s:s}", "drive_id", id,
                      "path_on_host", d->path, "is_root_device", i == 0,
                      "is_read_only", d->read_only, "cache_type",
                      d->unsafe_cache ? "Unsafe" : "Writeback");
    if (drive && d->direct &&
        json_object_set_new(drive, "mote_direct", json_true())) {
        json_decref(drive);
        return NULL;
    }
    if (drive && d->cow &&
        json_object_set_new(drive, "mote",
                            json_pack("{s:s}", "format", "cow"))) {
        json_decref(drive);
        return NULL;
    }
    return drive;
}

static json_t *lm_config_drives(const struct mote_vm_params *p)
{
    json_t *drives = json_array();

    for (size_t i = 0; i < p->disk_count; i++) {
        /* The append refuses a NULL. */
        if (json_array_append_new(drives, lm_config_drive(&p->disks[i], i))) {
            json_decref(drives);
            return NULL;
        }
    }
    return drives;
}

char *lm_config_text(const struct mote_vm_params *p, const struct lm_net *net,
                     const char *vsock_path)
{
    json_t *boot = json_pack("{s:s, s:s*, s:s}", "kernel_image_path", p->kernel,
                             "initrd_path", p->initrd, "boot_args",
                             p->boot_args ? p->boot_args : "");
    /* "o" hands the parts over, also when packing fails. */
    json_t *root = json_pack(
        "{s:o, s:{s:i, s:I}, s:o, s:{s:i, s:s}, s:{}}", "boot-source", boot,
        "machine-config", "vcpu_count", (int)p->vcpus, "mem_size_mib",
        (json_int_t)(p->mem_bytes / MIB), "drives", lm_config_drives(p),
        "vsock", "guest_cid", LM_GUEST_CID, "uds_path", vsock_path, "entropy");
    char *text = NULL;

    if (root &&
        (p->net.kind == MOTE_NET_NONE ||
         json_object_set_new(root, "network-interfaces",
                             lm_net_config(&p->net, net, LM_NET_FD)) == 0))
        text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    return text;
}

/* --- process
 * ------------------------------------------------------------------ */

/* What a monitor may have from our environment; '=' or '_' ends a prefix. */
static const char *const lm_env_kept[] = {
    "PATH=", "HOME=", "LANG=", "LC_",           "TZ=",          "TMPDIR=",
    "XDG_",  "MOTE_", "ASAN_", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_",
};

static bool lm_env_is_kept(const char *var)
{
    for (size_t i = 0; i < ARRAY_SIZE(lm_env_kept); i++) {
        if (!strncmp(var, lm_env_kept[i], strlen(lm_env_kept[i])))
            return true;
    }
    return false;
}

/* An array for free(); its strings are environ's. */
static char **lm_env_new(void)
{
    size_t n = 0;
    char **env;

    for (char **v = environ; v && *v; v++)
        n++;
    env = calloc(n + 1, sizeof(*env));
    if (!env)
        return NULL;
    n = 0;
    for (char **v = environ; v && *v; v++) {
        if (lm_env_is_kept(*v))
            env[n++] = *v;
    }
    return env;
}

static int lm_launch_attr(posix_spawnattr_t *attr)
{
    sigset_t none;
    sigset_t all;
    int rc;

    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    rc = posix_spawnattr_setsigmask(attr, &none);
    if (!rc)
        rc = posix_spawnattr_setsigdefault(attr, &all);
    if (!rc)
        rc = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK |
                                                POSIX_SPAWN_SETSIGDEF |
                                                POSIX_SPAWN_SETSID);
    return -rc;
}

static int lm_launch_fds(posix_spawn_file_actions_t *fa, const int *fds)
{
    int last = fds[LM_NET_FD] >= 0 ? LM_NET_FD : LM_LIFELINE_FD;
    int rc = 0;

    for (int i = 0; i <= last && !rc; i++)
        rc = posix_spawn_file_actions_adddup2(fa, fds[i], i);
    if (!rc)
        rc = posix_spawn_file_actions_addclosefrom_np(fa, last + 1);
    return -rc;
}

static int lm_launch_spawn(const struct lm_launch *l, char *const *argv,
                           char *const *env, const int *fds, pid_t *out_pid)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    int rc = -posix_spawnattr_init(&attr);

    if (rc)
        return rc;
    rc = -posix_spawn_file_actions_init(&fa);
    if (rc) {
        (void)posix_spawnattr_destroy(&attr);
        return rc;
    }
    rc = lm_launch_attr(&attr);
    if (!rc)
        rc = lm_launch_fds(&fa, fds);
    if (!rc)
        rc = -posix_spawn(out_pid, l->program, &fa, &attr, argv, env);
    (void)posix_spawn_file_actions_destroy(&fa);
    (void)posix_spawnattr_destroy(&attr);
    return rc;
}

/* Fills fds[0..4] with the sources of the monitor's descriptors. */
static int lm_launch_sources(const struct lm_launch *l, int *fds)
{
    CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int from[] = {null, l->console_fd >= 0 ? l->console_fd : null,
                        l->log_fd, l->lifeline_fd, l->net_fd};

    if (null < 0)
        return neg_errno();
    for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
        if (from[i] < 0)
            continue;
        fds[i] = fcntl(from[i], F_DUPFD_CLOEXEC, LM_FIRST_FREE_FD);
        if (fds[i] < 0)
            return neg_errno();
    }
    return 0;
}

char **lm_words_copy(const char *const *words)
{
    size_t bytes = sizeof(char *);
    size_t n = 0;
    char **copy;
    char *p;

    for (; words[n]; n++)
        bytes += sizeof(char *) + strlen(words[n]) + 1;
    copy = malloc(bytes);
    if (!copy)
        return NULL;
    p = (char *)(copy + n + 1);
    for (size_t i = 0; i < n; i++) {
        copy[i] = p;
        p = stpcpy(p, words[i]) + 1;
    }
    copy[n] = NULL;
    return copy;
}

static int lm_launch_run(const struct lm_launch *l, char *const *argv,
                         pid_t *out_pid)
{
    int fds[LM_NET_FD + 1] = {-1, -1, -1, -1, -1};
    char **env = lm_env_new();
    int rc = env ? lm_launch_sources(l, fds) : -ENOMEM;

    if (!rc)
        rc = lm_launch_spawn(l, argv, env, fds, out_pid);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        drop_fd(&fds[i]);
    free(env);
    return rc;
}

int lm_launch(const struct lm_launch *l, pid_t *out_pid, struct mote_err *err)
{
    char config[MOTE_PATH_CAP];
    char exit_file[MOTE_PATH_CAP];
    char api_sock[MOTE_PATH_CAP];
    const char *words[] = {"mote-vmm",   "--config-file",
                           config,       "--api-sock",
                           api_sock,     "--id",
                           l->slot->id,  "--exit-file",
                           exit_file,    "--lifeline-fd",
                           "3",          l->log_level ? "--level" : NULL,
                           l->log_level, NULL};
    char **argv;
    int rc;

    (void)snprintf(config, sizeof(config), "%s/" LM_CONFIG_FILE, l->slot->path);
    (void)snprintf(exit_file, sizeof(exit_file), "%s/" LM_EXIT_FILE,
                   l->slot->path);
    (void)snprintf(api_sock, sizeof(api_sock), "%s/" LM_API_FILE,
                   l->slot->path);
    argv = lm_words_copy(words);
    rc = argv ? lm_launch_run(l, argv, out_pid) : -ENOMEM;
    free(argv);
    if (rc)
        return lm_err(err, rc,
                      "%s: cannot be started: %s; build or install mote again",
                      l->program, err_reason(rc));
    return 0;
}
