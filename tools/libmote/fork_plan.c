/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/fork_plan.h"

#include "tools/libmote/files.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void plan_parse_mac(struct fork_plan *p, const char *text)
{
    unsigned m[6];

    p->has_mac = text && sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x", &m[0], &m[1],
                                &m[2], &m[3], &m[4], &m[5]) == 6;
    for (size_t i = 0; p->has_mac && i < ARRAY_SIZE(m); i++)
        p->old_mac[i] = (uint8_t)m[i];
}

/* Where it is, for a monitor that has no descriptors of it: what its owner
 * called it, from where that was. For free(). */
static char *plan_drive_path(const struct mote_vm_info *source,
                             const char *path)
{
    CLEANUP_FREE char *plain = strdup(path);
    CLEANUP_FREE char *from = NULL;

    if (!plain)
        return NULL;
    lm_files_plain(plain);
    if (plain[0] != '/' &&
        asprintf(&from, "/proc/%d/cwd/%s", (int)source->owner_pid, plain) < 0)
        return NULL;
    return realpath(from ? from : plain, NULL);
}

static int plan_drive(struct fork_plan *p, const struct mote_vm_info *source,
                      json_t *drive, struct mote_err *err)
{
    const char *id = json_string_value(json_object_get(drive, "drive_id"));
    const char *path =
        json_string_value(json_object_get(drive, "path_on_host"));
    CLEANUP_FREE char *here = path ? plan_drive_path(source, path) : NULL;

    if (!json_is_true(json_object_get(drive, "is_read_only")))
        return lm_err(err, -EOPNOTSUPP,
                      "machine %s: can write to its disk %s, which a copy "
                      "would share; save a snapshot and load that",
                      source->name[0] ? source->name : source->id,
                      id ? id : "");
    if (!here)
        return lm_err(err, -ENOENT, "disk %s: %s: is not there any more",
                      id ? id : "", path ? path : "");
    return json_array_append_new(p->drives, json_pack("{s:s, s:s}", "drive_id",
                                                      id, "path_on_host", here))
               ? lm_err_nomem(err)
               : 0;
}

static int plan_drives(struct fork_plan *p, const struct mote_vm_info *source,
                       struct mote_err *err)
{
    json_t *drive;
    size_t i;
    int rc = 0;

    p->drives = json_array();
    if (!p->drives)
        return lm_err_nomem(err);
    json_array_foreach(json_object_get(p->config, "drives"), i, drive)
    {
        if (rc == 0)
            rc = plan_drive(p, source, drive, err);
    }
    return rc;
}

/* The directory of its vsock socket: as its configuration says, and really. */
static int plan_run(struct fork_plan *p, const struct mote_vm_info *source,
                    struct mote_err *err)
{
    const char *seen = json_string_value(
        json_object_get(json_object_get(p->config, "vsock"), "uds_path"));
    CLEANUP_FREE char *real = realpath(source->vsock_path, NULL);

    if (!seen || !strrchr(seen, '/') || !real)
        return lm_err(err, -EINVAL,
                      "machine %s: has no vsock, so the agent of a copy cannot "
                      "be reached",
                      source->name[0] ? source->name : source->id);
    (void)snprintf(p->seen_run, sizeof(p->seen_run), "%.*s",
                   (int)(strrchr(seen, '/') - seen), seen);
    (void)snprintf(p->run, sizeof(p->run), "%.*s",
                   (int)(strrchr(real, '/') - real), real);
    return 0;
}

int fork_plan_read(struct fork_plan *p, const struct mote_vm_info *source,
                   struct mote_err *err)
{
    const char *slash = strrchr(source->vsock_path, '/');
    json_t *iface;
    int rc;

    (void)snprintf(p->api, sizeof(p->api), "%.*s/" LM_API_FILE,
                   slash ? (int)(slash - source->vsock_path) : 0,
                   source->vsock_path);
    rc = lm_api_call(p->api, "GET", "/vm/config", NULL, &p->config, err);
    if (rc)
        return rc;
    rc = plan_run(p, source, err);
    if (rc)
        return rc;
    iface = json_array_get(json_object_get(p->config, "network-interfaces"), 0);
    p->iface_id = json_string_value(json_object_get(iface, "iface_id"));
    p->tap = json_string_value(json_object_get(iface, "host_dev_name"));
    p->has_passt =
        json_object_get(json_object_get(iface, "mote"), "fd") != NULL;
    plan_parse_mac(p, json_string_value(json_object_get(iface, "guest_mac")));
    p->vcpus = source->vcpus;
    p->mem_bytes = source->mem_bytes;
    return plan_drives(p, source, err);
}

void fork_plan_fini(struct fork_plan *p)
{
    json_decref(p->config);
    json_decref(p->drives);
    p->config = p->drives = NULL;
}

int fork_plan_net(const struct fork_plan *p, const struct mote_net_params *want,
                  struct mote_net_params *out, struct mote_err *err)
{
    *out = (struct mote_net_params){.kind = MOTE_NET_NONE};
    if (want && want->kind != MOTE_NET_NONE && !p->iface_id)
        return lm_err(err, -EINVAL,
                      "fork: the machine has no network interface; leave out "
                      "--net");
    if (want && want->kind == MOTE_NET_NONE && p->iface_id)
        return lm_err(err, -EINVAL,
                      "fork: the machine's network interface cannot be taken "
                      "away; give --net user or --net tap=NAME");
    if (!want && p->iface_id && !p->has_passt)
        return lm_err(err, -EINVAL,
                      "fork: %s%s serves one machine; give each copy --net "
                      "user or --net tap=NAME",
                      p->tap ? "TAP " : "its network", p->tap ? p->tap : "");
    if (want)
        *out = *want;
    else if (p->has_passt)
        out->kind = MOTE_NET_USER;
    return lm_net_check(out, err);
}

static bool plan_is_jailed(const struct fork_plan *p)
{
    return strcmp(p->seen_run, p->run) != 0;
}

/* Its socket as the source sees it, or (`ours`) the same file as we do. */
static void plan_socket(const struct fork_plan *p, const struct mote_vm *vm,
                        bool ours, char *out, size_t size)
{
    if (plan_is_jailed(p))
        (void)snprintf(out, size, "%s/f-%s", ours ? p->run : p->seen_run,
                       vm->slot.id);
    else
        (void)snprintf(out, size, "%s/" LM_FORK_FILE, vm->slot.path);
}

/*
 * A jailed source sees its own directory alone, and is another user: one more
 * name there for the socket, which that user may connect to. The directory
 * keeps all others out.
 */
int fork_plan_lend(const struct fork_plan *p, const struct mote_vm *vm,
                   struct mote_err *err)
{
    char from[MOTE_PATH_CAP];
    char to[MOTE_PATH_CAP + 32];
    int rc;

    if (!plan_is_jailed(p))
        return 0;
    (void)snprintf(from, sizeof(from), "%s/" LM_FORK_FILE, vm->slot.path);
    plan_socket(p, vm, true, to, sizeof(to));
    if (chmod(from, 0666) == 0 && link(from, to) == 0)
        return 0;
    rc = neg_errno();
    return lm_err(err, rc, "%s: %s", to, err_reason(rc));
}

void fork_plan_unlend(const struct fork_plan *p, const struct mote_vm *vm)
{
    char path[MOTE_PATH_CAP + 32];

    plan_socket(p, vm, true, path, sizeof(path));
    if (plan_is_jailed(p))
        (void)unlink(path); /* it may never have been there */
}

json_t *fork_plan_child(const struct fork_plan *p, const struct mote_vm *vm,
                        const struct mote_net_params *net, bool track_writes)
{
    char socket[MOTE_PATH_CAP + 32];
    json_t *child;

    plan_socket(p, vm, false, socket, sizeof(socket));
    child = json_pack("{s:s, s:{s:s}, s:b, s:b, s:O}", "socket", socket,
                      "vsock_override", "uds_path", vm->vsock.sun_path,
                      "track_dirty_pages", track_writes, "resume_vm", 0,
                      "drive_overrides", p->drives);
    if (child && net->kind != MOTE_NET_NONE &&
        json_object_set_new(
            child, "network_overrides",
            json_pack("[o]", lm_net_override(net, &vm->net, p->iface_id,
                                             LM_NET_FD)))) {
        json_decref(child);
        return NULL;
    }
    return child;
}
