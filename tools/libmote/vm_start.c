/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/vm_start.h"

#include "tools/libmote/files.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define VM_JAIL_RUN  "/run" /* the shared directory, as seen from inside */
#define VM_MAX_DISKS 26

/* --- whether there is a jail
 * ---------------------------------------------------- */

/* It cannot be: an error, or a word about it, as was asked for. */
static int vm_without_jail(struct lm_vm_start *s, const struct mote_err *why,
                           struct mote_err *err)
{
    s->jail_chosen = false;
    if (s->params->jail == MOTE_JAIL_ON)
        return lm_err(err, why->rc,
                      "jail: %s; `mote doctor` says what this host allows, "
                      "--jail=off does without",
                      why->text);
    (void)snprintf(s->note, sizeof(s->note), "%.399s", why->text);
    return 0;
}

/* The files below a copy-on-write one are opened by the paths in their
 * headers, which a jail does not have. */
static int vm_check_disks(const struct mote_vm_params *p, struct mote_err *why)
{
    for (size_t i = 0; i < p->disk_count; i++) {
        if (p->disks[i].cow)
            return lm_err(why, -ENOTSUP,
                          "the files below a copy-on-write disk are not "
                          "reached from inside");
    }
    return 0;
}

int lm_vm_prepare(struct lm_vm_start *s, struct mote_err *err)
{
    static const char *const links[] = {LM_API_FILE, LM_VSOCK_FILE, NULL};
    const struct mote_net_params *net = &s->params->net;
    struct mote_err why = {0};
    int rc;

    if (s->params->jail == MOTE_JAIL_OFF)
        return 0;
    if (vm_check_disks(s->params, &why))
        return vm_without_jail(s, &why, err);
    rc = lm_slot_split(s->slot, links, err);
    if (rc)
        return rc;
    rc = lm_jail_choose(net->kind == MOTE_NET_TAP ? net->tap : NULL, &s->jail,
                        &why);
    if (rc == 0)
        rc = lm_jail_give(&s->jail, s->slot->dir_fd, LM_RUN_DIR, &why);
    if (rc)
        return vm_without_jail(s, &why, err);
    s->jail_chosen = true;
    return 0;
}

int lm_vm_give(const struct lm_vm_start *s, const char *file,
               struct mote_err *err)
{
    return s->jail_chosen ? lm_jail_give(&s->jail, s->slot->run_fd, file, err)
                          : 0;
}

/* --- what the monitor is told
 * --------------------------------------------------- */

struct vm_words {
    char exit_file[MOTE_PATH_CAP];
    char api_sock[MOTE_PATH_CAP];
    char ring0[16];
    const char *words[16];
};

/* `run` is the shared directory as the monitor sees it. */
static void vm_make_words(const struct lm_vm_start *s, const char *config,
                          const char *run, struct vm_words *w)
{
    size_t n = 0;

    (void)snprintf(w->exit_file, sizeof(w->exit_file), "%s/" LM_EXIT_FILE, run);
    (void)snprintf(w->api_sock, sizeof(w->api_sock), "%s/" LM_API_FILE, run);
    w->words[n++] = s->waits ? "--fork-from" : "--config-file";
    w->words[n++] = config;
    w->words[n++] = "--api-sock";
    w->words[n++] = w->api_sock;
    w->words[n++] = "--exit-file";
    w->words[n++] = w->exit_file;
    w->words[n++] = "--lifeline-fd";
    w->words[n++] = "3";
    if (w->ring0[0]) {
        w->words[n++] = "--ring0-ns";
        w->words[n++] = w->ring0;
    }
    if (s->params->log_level) {
        w->words[n++] = "--level";
        w->words[n++] = s->params->log_level;
    }
    w->words[n] = NULL;
}

static int vm_write_other(const struct lm_vm_start *s, const char *run,
                          struct lm_files *f, struct mote_err *err)
{
    char *text = NULL;
    int rc = s->config(s->config_arg, run, f, &text, err);

    if (rc == 0)
        rc = lm_slot_write(s->slot, LM_CONFIG_FILE, text, err);
    free(text);
    return rc;
}

static int vm_write_config(const struct lm_vm_start *s,
                           const struct mote_vm_params *p, const char *run,
                           struct mote_err *err)
{
    char vsock[MOTE_PATH_CAP];
    CLEANUP_FREE char *text = NULL;

    (void)snprintf(vsock, sizeof(vsock), "%s/" LM_VSOCK_FILE, run);
    text = lm_config_text(p, s->net, vsock);
    if (!text)
        return lm_err(err, -EINVAL,
                      "machine: its paths or boot arguments are not valid "
                      "UTF-8, or memory is short; rename the files");
    return lm_slot_write(s->slot, LM_CONFIG_FILE, text, err);
}

static struct lm_launch vm_launch_of(const struct lm_vm_start *s,
                                     const char *program,
                                     const struct vm_words *w)
{
    return (struct lm_launch){
        .program = program,
        .slot = s->slot,
        .words = w->words,
        .console_fd = s->params->console_fd,
        .log_fd = s->log_fd,
        /* A TAP is found by its name, where that is. */
        .host_net = s->params->net.kind == MOTE_NET_TAP,
    };
}

/* --- without a jail
 * -------------------------------------------------------------- */

static int vm_launch_plain(const struct lm_vm_start *s, const char *program,
                           pid_t *out_pid, struct mote_err *err)
{
    struct vm_words w = {.ring0 = ""};
    const int fds[] = {s->lifeline_fd, s->net->vmm_fd};
    char config[MOTE_PATH_CAP];
    struct lm_launch l;
    int rc = 0;

    if (s->config)
        rc = vm_write_other(s, s->slot->run_path, NULL, err);
    else if (!s->waits)
        rc = vm_write_config(s, s->params, s->slot->run_path, err);
    if (rc)
        return rc;
    (void)snprintf(config, sizeof(config), "%s/%s", s->slot->path,
                   s->waits ? LM_FORK_FILE : LM_CONFIG_FILE);
    vm_make_words(s, config, s->slot->run_path, &w);
    l = vm_launch_of(s, program, &w);
    l.fds = fds;
    l.fd_count = s->net->vmm_fd >= 0 ? 2 : 1;
    return lm_launch(&l, out_pid, err);
}

/* --- in a jail
 * ------------------------------------------------------------------- */

/* The same machine with its files as descriptors. */
static int vm_open_files(const struct mote_vm_params *p, struct lm_files *f,
                         struct mote_disk *disks, struct mote_vm_params *out,
                         struct mote_err *err)
{
    int rc = lm_files_open(f, "kernel", p->kernel, false, &out->kernel, err);

    if (rc == 0 && p->initrd)
        rc = lm_files_open(f, "initrd", p->initrd, false, &out->initrd, err);
    for (size_t i = 0; i < p->disk_count && rc == 0; i++) {
        disks[i] = p->disks[i];
        rc = lm_files_open(f, "disk", p->disks[i].path, !p->disks[i].read_only,
                           &disks[i].path, err);
    }
    out->disks = disks;
    return rc;
}

/* *out_tried: the machine is fine, so what failed is the jail. */
static int vm_launch_files(const struct lm_vm_start *s, const char *program,
                           struct lm_files *f, pid_t *out_pid, bool *out_tried,
                           struct mote_err *err)
{
    struct vm_words w = {.ring0 = ""};
    struct mote_disk disks[VM_MAX_DISKS];
    struct mote_vm_params inside = *s->params;
    char path[MOTE_PATH_CAP];
    const char *config = NULL;
    struct lm_launch l;
    unsigned ns = 0;
    int rc = s->config ? vm_write_other(s, VM_JAIL_RUN, f, err)
                       : vm_open_files(s->params, f, disks, &inside, err);

    if (rc == 0 && !s->config)
        rc = vm_write_config(s, &inside, VM_JAIL_RUN, err);
    (void)snprintf(path, sizeof(path), "%s/" LM_CONFIG_FILE, s->slot->path);
    if (rc == 0)
        rc = lm_files_open(f, "configuration", path, false, &config, err);
    if (rc)
        return rc;
    if (lm_jail_ring0(program, &ns) == 0)
        (void)snprintf(w.ring0, sizeof(w.ring0), "%u", ns);
    vm_make_words(s, config, VM_JAIL_RUN, &w);
    l = vm_launch_of(s, program, &w);
    l.fds = f->fds + 3;
    l.fd_count = f->count - 3;
    if (s->jail.uid)
        lm_cgroup_make(s->slot->id, s->params->mem_bytes, s->params->vcpus,
                       s->cgroup);
    l.cgroup = s->cgroup;
    *out_tried = true;
    return lm_launch_jailed(&l, &s->jail, out_pid, err);
}

static int vm_launch_jailed(const struct lm_vm_start *s, const char *program,
                            pid_t *out_pid, bool *out_tried,
                            struct mote_err *err)
{
    const int own[] = {-1, -1, -1, s->lifeline_fd, s->net->vmm_fd};
    struct lm_files f = {.count = 0};
    int rc = 0;

    for (size_t i = 0; i < ARRAY_SIZE(own) && rc == 0; i++)
        rc = lm_files_lend(&f, own[i]);
    if (rc == 0)
        rc = vm_launch_files(s, program, &f, out_pid, out_tried, err);
    lm_files_close(&f);
    return rc;
}

int lm_vm_launch(struct lm_vm_start *s, pid_t *out_pid, struct mote_err *err)
{
    char program[MOTE_PATH_CAP];
    struct mote_err why = {0};
    bool tried = false;
    int rc = mote_find_file("mote-vmm", program, err);

    if (rc || !s->jail_chosen)
        return rc ? rc : vm_launch_plain(s, program, out_pid, err);
    rc = vm_launch_jailed(s, program, out_pid, &tried, &why);
    if (rc && !tried)
        return lm_err(err, rc, "%s", why.text);
    if (rc == 0)
        return 0;
    lm_cgroup_remove(s->cgroup);
    rc = vm_without_jail(s, &why, err);
    return rc ? rc : vm_launch_plain(s, program, out_pid, err);
}
