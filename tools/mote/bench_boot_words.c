/* SPDX-License-Identifier: Apache-2.0 */
/* The command lines of the monitors, as their users would write them. */
#include "tools/mote/bench_boot_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *boot_guest_words(enum boot_kind kind)
{
    /* The agent takes the word after "--" for one of its own options, says on
     * the console how it is used, and ends: kvmtool has no other way to tell
     * that /init runs. */
    if (kind == BOOT_KVMTOOL)
        return "console=ttyS0 quiet panic=-1 reboot=k -- --test";
    if (kind == BOOT_QEMU) /* the others add the root themselves */
        return "console=null quiet panic=-1 reboot=k mote.marks root=/dev/vda "
               "ro mote.overlay=tmpfs";
    return "console=null quiet panic=-1 reboot=k mote.marks "
           "mote.overlay=tmpfs";
}

static const char words_microvm[] =
    "microvm,acpi=off,x-option-roms=on,pit=on,pic=on,isa-serial=on,"
    "auto-kernel-cmdline=on";

static void words_add(struct boot_words *w, const char *const *list)
{
    for (; *list && w->n < BOOT_MAX_WORDS; list++)
        w->v[w->n++] = *list;
    w->v[w->n] = NULL;
}

static const char *words_text(struct boot_words *w, const char *fmt, ...)
    PRINTF_LIKE(2, 3);
static const char *words_text(struct boot_words *w, const char *fmt, ...)
{
    char *out = w->text[w->texts++];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(out, sizeof(w->text[0]), fmt, ap);
    va_end(ap);
    return out;
}

static void words_mote(struct boot_words *w, const struct boot_guest *g,
                       const char *dir, uint64_t start_us)
{
    const char *const list[] = {
        "--no-api",
        "--config-file",
        words_text(w, "%s/config.json", dir),
        "--exit-file",
        words_text(w, "%s/exit.json", dir),
        "--start-time-us",
        words_text(w, "%llu", (unsigned long long)start_us),
        "--lifeline-fd",
        words_text(w, "%d", BOOT_LIFELINE_FD),
        NULL,
    };

    words_add(w, list);
    if (g->extra)
        words_add(w, g->extra);
}

static void words_firecracker(struct boot_words *w, const char *dir)
{
    const char *const list[] = {"--no-api", "--config-file",
                                words_text(w, "%s/config.json", dir), NULL};

    words_add(w, list);
}

/*
 * microvm with what the kernel needs and the same disk and entropy; its guest
 * cannot have a vsock without vhost. The debug port is a device of its own.
 */
static void words_qemu(struct boot_words *w, const struct boot_guest *g)
{
    const char *const list[] = {
        "-M",
        words_microvm,
        "-bios",
        "bios-microvm.bin",
        "-accel",
        "kvm",
        "-cpu",
        "host",
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
        "-m",
        words_text(w, "%lluM", (unsigned long long)(g->mem_bytes / MIB)),
        "-smp",
        words_text(w, "%u", g->cpus),
        "-kernel",
        g->kernel,
        "-initrd",
        g->initrd,
        "-append",
        boot_guest_words(BOOT_QEMU),
        "-drive",
        words_text(w, "id=root,file=%s,format=raw,readonly=on,if=none",
                   g->root),
        "-device",
        "virtio-blk-device,drive=root",
        "-device",
        "virtio-rng-device",
        "-chardev",
        "stdio,id=marks,signal=off",
        "-device",
        "isa-debugcon,iobase=0x504,chardev=marks",
        NULL,
    };

    words_add(w, list);
}

static void words_kvmtool(struct boot_words *w, const struct boot_guest *g)
{
    const char *const list[] = {
        "run",
        "--console",
        "serial",
        "-m",
        words_text(w, "%llu", (unsigned long long)(g->mem_bytes / MIB)),
        "-c",
        words_text(w, "%u", g->cpus),
        "-k",
        g->kernel,
        "-i",
        g->initrd,
        "-p",
        boot_guest_words(BOOT_KVMTOOL),
        NULL,
    };

    words_add(w, list);
}

int boot_words(struct boot_words *w, const struct boot_monitor *m,
               const struct boot_guest *g, const char *dir, uint64_t start_us,
               struct mote_err *err)
{
    const char *const program[] = {m->program, NULL};

    w->n = w->texts = 0;
    words_add(w, program);
    /* QEMU takes a comma in a value for its end. */
    if (m->kind == BOOT_QEMU && strchr(g->root, ','))
        return lm_err(err, -EINVAL,
                      "%s: QEMU takes no comma in a disk's path; move it",
                      g->root);
    if (m->kind == BOOT_MOTE)
        words_mote(w, g, dir, start_us);
    else if (m->kind == BOOT_FIRECRACKER)
        words_firecracker(w, dir);
    else if (m->kind == BOOT_QEMU)
        words_qemu(w, g);
    else
        words_kvmtool(w, g);
    return 0;
}

void boot_command_text(const struct boot_monitor *m, const struct boot_guest *g,
                       char *out, size_t cap)
{
    struct boot_words w;
    size_t used = 0;

    out[0] = '\0';
    if (boot_words(&w, m, g, "DIR", 0, NULL))
        return;
    for (size_t i = 0; i < w.n; i++) {
        bool quote = strpbrk(w.v[i], " ;'") != NULL;
        int n = snprintf(out + used, cap - used, "%s%s%s%s", i ? " " : "",
                         quote ? "'" : "", w.v[i], quote ? "'" : "");

        if (n < 0 || (size_t)n >= cap - used)
            return; /* cut: for people */
        used += (size_t)n;
    }
}

/* --- where things are ------------------------------------------------------
 */

/* In PATH, as a shell would find it. */
static bool words_in_path(const char *name, char *out)
{
    const char *path = getenv("PATH");
    const char *p = path ? path : "/usr/bin:/bin";

    while (*p) {
        size_t len = strcspn(p, ":");
        int n = snprintf(out, MOTE_PATH_CAP, "%.*s/%s", (int)len, p, name);

        if (len > 0 && n > 0 && n < MOTE_PATH_CAP && access(out, X_OK) == 0)
            return true;
        p += len + (p[len] == ':');
    }
    return false;
}

int boot_monitor_find(struct boot_monitor *m, const char *spec,
                      struct mote_err *err)
{
    static const struct {
        const char *name;
        const char *program;
        const char *remedy;
        enum boot_kind kind;
    } known[] = {
        {"qemu", "qemu-system-x86_64", "install qemu-system-x86", BOOT_QEMU},
        {"kvmtool", "lkvm", "build it and name it: --peer kvmtool=PATH",
         BOOT_KVMTOOL},
        {"firecracker", "firecracker",
         "take a release of it and name it: --peer firecracker=PATH",
         BOOT_FIRECRACKER},
    };
    size_t len = strcspn(spec, "=");
    const char *path = spec[len] == '=' ? spec + len + 1 : NULL;

    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        if (strlen(known[i].name) != len || strncmp(known[i].name, spec, len))
            continue;
        m->kind = known[i].kind;
        (void)snprintf(m->name, sizeof(m->name), "%s", known[i].name);
        if (path)
            (void)snprintf(m->program, sizeof(m->program), "%s", path);
        if (path ? access(path, X_OK) == 0
                 : words_in_path(known[i].program, m->program))
            return 0;
        return lm_err(err, -ENOENT, "peer %s: %s is not there; %s",
                      known[i].name, path ? path : known[i].program,
                      known[i].remedy);
    }
    return lm_err(err, -EINVAL,
                  "option --peer: '%s' is unknown; use qemu, kvmtool or "
                  "firecracker, with =PATH if it is not in PATH",
                  spec);
}

int boot_guest_find(struct boot_guest *g, const char *kernel,
                    const char *initrd, struct mote_err *err)
{
    bool flavour = !strcmp(kernel, "tiny") || !strcmp(kernel, "sandbox");
    char file[64];
    int rc = 0;

    (void)snprintf(file, sizeof(file), "guest/%s/vmlinux",
                   flavour ? kernel : "");
    if (flavour)
        rc = mote_find_file(file, g->kernel, err);
    else
        (void)snprintf(g->kernel, sizeof(g->kernel), "%s", kernel);
    if (rc == 0 && initrd)
        (void)snprintf(g->initrd, sizeof(g->initrd), "%s", initrd);
    else if (rc == 0)
        rc = mote_find_file("guest/agent.cpio", g->initrd, err);
    return rc ? rc : mote_find_file("guest/rootfs.img", g->root, err);
}
