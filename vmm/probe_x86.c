/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/probe_x86.h"

#include "vmm/cleanup.h"
#include "vmm/cpu_x86.h"
#include "vmm/guest_mem.h"
#include "vmm/kvm.h"
#include "vmm/le.h"

#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* Emulation costs 500 ns and more, native code under a nested software
 * emulator some 20 ns at most. */
#define PROBE_LIMIT_NS   150.0
#define PROBE_ITERATIONS 5000u /* of two instructions */
#define PROBE_ROUNDS     3
#define PROBE_RAM        0x10000u
#define PROBE_CODE       0x8000u
#define PROBE_PML4       0x1000u
#define PROBE_PDPT       0x2000u
#define PROBE_PD         0x3000u
#define PROBE_GDT        0x500u
#define PROBE_PORT       0x80u

#define PTE_PRESENT_WRITE 0x3ull
#define PTE_HUGE          0x80ull

struct probe_vm {
    struct kvm kvm;
    struct guest_mem *gm;
    int vcpu;
    struct kvm_run *run;
    size_t run_bytes;
};

static int probe_write_code(struct guest_mem *gm)
{
    static const uint8_t code[] = {
        0xff, 0xc9,       /* dec ecx */
        0x75, 0xfc,       /* jnz -4 */
        0xe6, PROBE_PORT, /* out PROBE_PORT, al */
        0xf4,             /* hlt: never reached */
    };
    /* Null, null, 64-bit code, data. */
    static const uint64_t gdt[] = {0, 0, 0x00af9b000000ffffull,
                                   0x00cf93000000ffffull};
    uint8_t e[8];
    int rc = gm_write(gm, PROBE_CODE, code, sizeof(code));

    if (rc == 0)
        rc = gm_write(gm, PROBE_GDT, gdt, sizeof(gdt));
    put_le64(e, PROBE_PDPT | PTE_PRESENT_WRITE);
    if (rc == 0)
        rc = gm_write(gm, PROBE_PML4, e, sizeof(e));
    put_le64(e, PROBE_PD | PTE_PRESENT_WRITE);
    if (rc == 0)
        rc = gm_write(gm, PROBE_PDPT, e, sizeof(e));
    put_le64(e, PTE_PRESENT_WRITE | PTE_HUGE);
    if (rc == 0)
        rc = gm_write(gm, PROBE_PD, e, sizeof(e));
    return rc;
}

static int probe_vm_build(struct probe_vm *p, struct errmsg *err)
{
    const struct cpu_entry entry = {
        .rip = PROBE_CODE,
        .cr3 = PROBE_PML4,
        .gdt_base = PROBE_GDT,
        .gdt_limit = 31,
        .code_selector = 0x10,
        .data_selector = 0x18,
    };
    int rc = kvm_create_vm(&p->kvm, err);

    if (rc)
        return rc;
    rc = gm_new(PROBE_RAM, &p->gm);
    if (rc == 0)
        rc = probe_write_code(p->gm);
    if (rc)
        return err_set(err, rc, "ring 0 probe: %s", err_reason(rc));
    rc = kvm_add_memory(&p->kvm, p->gm, false, err);
    if (rc)
        return rc;
    p->vcpu = ioctl(p->kvm.vm_fd, KVM_CREATE_VCPU, 0);
    if (p->vcpu < 0) {
        rc = neg_errno();
        return err_set(err, rc, "ring 0 probe: %s", err_reason(rc));
    }
    p->run_bytes = (size_t)p->kvm.vcpu_mmap_bytes;
    p->run = mmap(NULL, p->run_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                  p->vcpu, 0);
    if (p->run == MAP_FAILED) {
        rc = neg_errno();
        return err_set(err, rc, "ring 0 probe: %s", err_reason(rc));
    }
    return cpu_set_entry(p->vcpu, &entry, err);
}

/* One pass of the loop with `iterations`; time into *out_ns. */
static int probe_pass(struct probe_vm *p, uint32_t iterations, uint64_t *out_ns,
                      struct errmsg *err)
{
    struct kvm_regs r;
    uint64_t t0;
    int rc;

    memset(&r, 0, sizeof(r));
    r.rip = PROBE_CODE;
    r.rflags = 2;
    r.rcx = iterations;
    if (ioctl(p->vcpu, KVM_SET_REGS, &r) < 0) {
        rc = neg_errno();
        return err_set(err, rc, "ring 0 probe: %s", err_reason(rc));
    }
    t0 = util_now_ns();
    do {
        rc = ioctl(p->vcpu, KVM_RUN, 0) < 0 ? neg_errno() : 0;
    } while (rc == -EINTR);
    *out_ns = util_now_ns() - t0;
    if (rc)
        return err_set(err, rc, "ring 0 probe: KVM_RUN failed: %s",
                       err_reason(rc));
    if (p->run->exit_reason != KVM_EXIT_IO || p->run->io.port != PROBE_PORT)
        return err_set(err, -EIO,
                       "ring 0 probe: the test loop left KVM with exit reason "
                       "%u; this KVM cannot run long-mode guests",
                       p->run->exit_reason);
    return 0;
}

static void probe_vm_fini(struct probe_vm *p)
{
    if (p->run != MAP_FAILED)
        (void)munmap(p->run, p->run_bytes);
    drop_fd(&p->vcpu);
    kvm_fini(&p->kvm);
    gm_free(p->gm);
}

/* The fastest of a few rounds, long loop minus short loop. */
static int probe_time(struct probe_vm *p, double *out_ns, struct errmsg *err)
{
    uint64_t best_long = UINT64_MAX;
    uint64_t best_short = UINT64_MAX;
    uint64_t extra;

    for (int i = 0; i < PROBE_ROUNDS; i++) {
        uint64_t t = 0;
        int rc = probe_pass(p, 1, &t, err);

        if (rc)
            return rc;
        best_short = min_u64(best_short, t);
        rc = probe_pass(p, PROBE_ITERATIONS, &t, err);
        if (rc)
            return rc;
        best_long = min_u64(best_long, t);
    }
    extra = best_long > best_short ? best_long - best_short : 0;
    *out_ns = (double)extra / (2.0 * (PROBE_ITERATIONS - 1));
    return 0;
}

int probe_ring0_measure(struct ring0_probe *out, struct errmsg *err)
{
    struct probe_vm p = {.vcpu = -1, .run = MAP_FAILED};
    double ns = 0;
    int rc = kvm_open(&p.kvm, err);

    if (rc)
        return rc;
    rc = probe_vm_build(&p, err);
    if (rc == 0)
        rc = probe_time(&p, &ns, err);
    probe_vm_fini(&p);
    if (rc)
        return rc;
    out->ns_per_instruction = ns;
    out->emulated = ns > PROBE_LIMIT_NS;
    out->from_cache = false;
    return 0;
}

struct ring0_probe probe_ring0_known(double ns_per_instruction)
{
    return (struct ring0_probe){.emulated = ns_per_instruction > PROBE_LIMIT_NS,
                                .ns_per_instruction = ns_per_instruction,
                                .from_cache = true};
}

/* --- the cache: one line, "<boot id> <kvm module> <ns> \n" -----------------
 */

static bool probe_key(char *out, size_t size)
{
    CLEANUP_FD int fd =
        open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    char id[64] = "";
    ssize_t n;

    if (fd < 0)
        return false;
    n = read(fd, id, sizeof(id) - 1);
    if (n < 36)
        return false;
    id[36] = '\0';
    (void)snprintf(out, size, "%s %s", id, kvm_module_name());
    return true;
}

static bool probe_cache_read(const char *path, const char *key,
                             struct ring0_probe *out)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    char line[160] = "";
    size_t len = strlen(key);
    double ns = 0;
    ssize_t n;

    if (fd < 0)
        return false;
    n = read(fd, line, sizeof(line) - 1);
    if (n <= (ssize_t)len || memcmp(line, key, len) != 0 || line[len] != ' ')
        return false;
    if (sscanf(line + len, "%lf", &ns) != 1)
        return false;
    *out = probe_ring0_known(ns);
    return true;
}

static void probe_cache_write(const char *path, const char *key,
                              const struct ring0_probe *p)
{
    char tmp[512];
    char line[192];
    int n;
    int fd;

    n = snprintf(tmp, sizeof(tmp), "%s.%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof(tmp))
        return;
    n = snprintf(line, sizeof(line), "%s %.3f\n", key, p->ns_per_instruction);
    if (n < 0 || (size_t)n >= sizeof(line))
        return;
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (util_write_full(fd, line, (size_t)n) != 0 || rename(tmp, path) != 0)
        (void)unlink(tmp);
    (void)close(fd);
}

int probe_ring0_cached(const char *dir, struct ring0_probe *out,
                       struct errmsg *err)
{
    char path[400];
    char key[128];
    bool usable =
        dir && probe_key(key, sizeof(key)) && strlen(dir) < sizeof(path) - 16;
    int rc;

    if (usable) {
        (void)snprintf(path, sizeof(path), "%s/ring0", dir);
        if (probe_cache_read(path, key, out))
            return 0;
    }
    rc = probe_ring0_measure(out, err);
    if (rc == 0 && usable)
        probe_cache_write(path, key, out);
    return rc;
}

void probe_ring0_store(const char *dir, const struct ring0_probe *p)
{
    char path[400];
    char key[128];

    if (!probe_key(key, sizeof(key)) || strlen(dir) >= sizeof(path) - 16)
        return;
    (void)snprintf(path, sizeof(path), "%s/ring0", dir);
    probe_cache_write(path, key, p);
}

bool probe_cache_dir(char *out, size_t size)
{
    const char *base = geteuid() == 0 ? "/run" : getenv("XDG_RUNTIME_DIR");
    struct stat st;
    int n;

    if (!base || base[0] != '/')
        return false;
    n = snprintf(out, size, "%s/mote", base);
    if (n < 0 || (size_t)n >= size)
        return false;
    if (mkdir(out, 0700) < 0 && errno != EEXIST)
        return false;
    return lstat(out, &st) == 0 && S_ISDIR(st.st_mode) &&
           st.st_uid == geteuid() && (st.st_mode & 022) == 0;
}
