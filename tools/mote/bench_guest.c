/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/bench_guest.h"

#include "tools/mote/capture.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GUEST_PROBE_MS  20000
#define GUEST_PROBE_MAX ((size_t)64 << 10)

/* --- the machine ------------------------------------------------------------
 */

static bool guest_is_emulated(void)
{
    char vmm[MOTE_PATH_CAP];
    const char *argv[] = {vmm, "--probe", NULL};
    struct capture cap = {0};
    json_t *doc;
    bool emulated;

    if (mote_find_file("mote-vmm", vmm, NULL) ||
        capture_run(argv, GUEST_PROBE_MS, GUEST_PROBE_MAX, &cap))
        return false;
    doc = json_loads(cap.out, JSON_REJECT_DUPLICATES, NULL);
    emulated = json_is_true(
        json_object_get(json_object_get(doc, "ring0"), "emulated"));
    json_decref(doc);
    free(cap.out);
    return emulated;
}

/* What the guest would run as a user's: tiny where its kernel is emulated. */
static int guest_find_kernel(struct bench_guest *g, struct mote_err *err)
{
    char file[64];
    const char *want = g->kernel;

    if (!want)
        want = guest_is_emulated() || mote_find_file("guest/sandbox/vmlinux",
                                                     g->kernel_path, NULL)
                   ? "tiny"
                   : "sandbox";
    (void)snprintf(g->flavour, sizeof(g->flavour), "%s", want);
    if (strcmp(want, "tiny") != 0 && strcmp(want, "sandbox") != 0) {
        (void)snprintf(g->kernel_path, sizeof(g->kernel_path), "%s", want);
        return 0;
    }
    (void)snprintf(file, sizeof(file), "guest/%s/vmlinux", want);
    return mote_find_file(file, g->kernel_path, err);
}

static int guest_boot(struct bench_guest *g, int console,
                      const struct mote_disk *root, struct mote_err *err)
{
    const struct mote_vm_params p = {
        .kernel = g->kernel_path,
        .initrd = g->initrd,
        .boot_args = "console=null quiet panic=-1 reboot=k mote.exit=0x500 "
                     "root=/dev/vda ro mote.overlay=tmpfs",
        .disks = root,
        .disk_count = 1,
        .vcpus = 1,
        .mem_bytes = g->mem_bytes,
        .console_fd = console,
        .log_fd = -1,
        .jail = MOTE_JAIL_OFF, /* its memory is looked at */
    };
    int rc = mote_vm_start(&p, &g->vm, err);

    if (rc == 0)
        rc = mote_vm_wait_ready(g->vm, BENCH_GUARD_MS, -1, err);
    return rc ? rc : mote_find(mote_vm_id(g->vm), &g->info, err);
}

int bench_guest_start(struct bench_guest *g, bool console, struct mote_err *err)
{
    const struct mote_disk root = {.path = g->root, .read_only = true};
    CLEANUP_FD int far_end = -1;
    int ends[2];
    int rc = guest_find_kernel(g, err);

    g->console_fd = -1;
    if (rc == 0)
        rc = mote_find_file("guest/agent.cpio", g->initrd, err);
    if (rc == 0)
        rc = mote_find_file("guest/rootfs.img", g->root, err);
    if (rc)
        return rc;
    if (console) {
        if (pipe2(ends, O_CLOEXEC) < 0)
            return lm_err(err, neg_errno(), "pipe: %s",
                          err_reason(neg_errno()));
        g->console_fd = ends[0];
        far_end = ends[1];
    }
    rc = guest_boot(g, far_end, &root, err);
    if (rc)
        bench_guest_end(g);
    return rc;
}

void bench_guest_end(struct bench_guest *g)
{
    mote_vm_free(g->vm);
    g->vm = NULL;
    drop_fd(&g->console_fd);
}

/* --- commands ---------------------------------------------------------------
 */

/* To its end; *out_first_ns is when the first output came, 0: none did. */
static int guest_exec(const char *vsock_path, const char *const *argv,
                      uint64_t *out_first_ns, struct mote_err *err)
{
    const struct mote_exec_params p = {.argv = argv};
    struct mote_exec_event e = {.kind = MOTE_EXEC_STARTED};
    struct mote_exec *x = NULL;
    int rc = mote_exec_start(vsock_path, &p, &x, err);

    *out_first_ns = 0;
    while (rc == 0 && e.kind != MOTE_EXEC_EXITED &&
           e.kind != MOTE_EXEC_REFUSED) {
        struct pollfd pfd = {.fd = mote_exec_fd(x),
                             .events = mote_exec_events(x)};

        rc = mote_exec_next(x, &e, err);
        if (rc > 0 && e.kind == MOTE_EXEC_STDOUT && *out_first_ns == 0)
            *out_first_ns = util_now_ns();
        if (rc == 0 && poll(&pfd, 1, BENCH_GUARD_MS) == 0)
            rc = lm_err(err, -ETIMEDOUT, "guest: a command does not end");
        rc = rc > 0 ? 0 : rc;
    }
    if (rc == 0 && (e.kind == MOTE_EXEC_REFUSED || e.exit_code != 0))
        rc = lm_err(err, -EIO, "guest: %s failed: %s", argv[0],
                    e.kind == MOTE_EXEC_REFUSED ? e.text : "its exit code");
    mote_exec_free(x);
    return rc;
}

int bench_guest_sh(const char *vsock_path, const char *script,
                   struct mote_err *err)
{
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    uint64_t first_ns;

    return guest_exec(vsock_path, argv, &first_ns, err);
}

int bench_guest_echo(const char *vsock_path, uint64_t *out_ns,
                     struct mote_err *err)
{
    const char *const argv[] = {"/bin/echo", "x", NULL};

    return guest_exec(vsock_path, argv, out_ns, err);
}
