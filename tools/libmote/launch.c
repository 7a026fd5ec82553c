/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/launch.h"

#include "vmm/errmsg.h"

#include <jansson.h>
#include <stdio.h>

#define LM_GUEST_CID                                                           \
    3 /* the same in every machine: sockets tell them apart                    \
       */
#define LM_MAX_VCPUS 32
#define LM_MAX_DISKS 26 /* vda to vdz */

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
        "{s:o, s:{s:i, s:I, s:o*}, s:o, s:{s:i, s:s}, s:{}}", "boot-source",
        boot, "machine-config", "vcpu_count", (int)p->vcpus, "mem_size_mib",
        (json_int_t)(p->mem_bytes / MIB), "track_dirty_pages",
        p->track_writes ? json_true() : NULL, "drives", lm_config_drives(p),
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

int lm_launch_fds(const struct lm_launch *l, struct lm_spawn *out)
{
    *out =
        (struct lm_spawn){.fds = {-1, l->console_fd, l->log_fd}, .fd_count = 3};
    if (l->fd_count > LM_SPAWN_MAX_FDS - out->fd_count)
        return -E2BIG;
    for (size_t i = 0; i < l->fd_count; i++)
        out->fds[out->fd_count++] = l->fds[i];
    return 0;
}

int lm_launch(const struct lm_launch *l, pid_t *out_pid, struct mote_err *err)
{
    const char *words[LM_LAUNCH_MAX_WORDS + 4] = {"mote-vmm", "--id",
                                                  l->slot->id};
    struct lm_spawn s;
    size_t n = 3;
    int rc = lm_launch_fds(l, &s);

    for (size_t i = 0; i < LM_LAUNCH_MAX_WORDS && l->words[i]; i++)
        words[n++] = l->words[i];
    s.program = l->program;
    s.words = words;
    if (rc == 0)
        rc = lm_spawn(&s, out_pid);
    if (rc)
        return lm_err(err, rc,
                      "%s: cannot be started: %s; build or install mote again",
                      l->program, err_reason(rc));
    return 0;
}
