/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cpu_state_x86.h"

#include <linux/kvm.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#define CPU_SECTION_VERSION 1u
#define CPU_MAX_MSRS        512u
#define CPU_MSR_BATCH       64u
/* Of the frequency, before time in the guest is wrong enough to matter. */
#define CPU_TSC_TOLERANCE_PPM 250u

#define MSR_IA32_TSC          0x10u
#define MSR_IA32_TSC_DEADLINE 0x6e0u

/*
 * The parts of a vCPU that KVM gives as one structure each, in the order in
 * which they are written; `set` is the order in which they are given back:
 * local APIC before the MSRs that lean on it, events after all that can raise
 * some.
 */
struct cpu_part {
    const char *name;
    unsigned long get;
    unsigned long set;
    size_t size;
    int cap; /* 0: every KVM has it */
};

static const struct cpu_part cpu_before_msrs[] = {
    {"MP state", KVM_GET_MP_STATE, KVM_SET_MP_STATE,
     sizeof(struct kvm_mp_state), 0},
    {"registers", KVM_GET_REGS, KVM_SET_REGS, sizeof(struct kvm_regs), 0},
    {"special registers", KVM_GET_SREGS, KVM_SET_SREGS,
     sizeof(struct kvm_sregs), 0},
    {"FPU", KVM_GET_FPU, KVM_SET_FPU, sizeof(struct kvm_fpu), 0},
    {"extended state", KVM_GET_XSAVE, KVM_SET_XSAVE, sizeof(struct kvm_xsave),
     KVM_CAP_XSAVE},
    {"XCR", KVM_GET_XCRS, KVM_SET_XCRS, sizeof(struct kvm_xcrs), KVM_CAP_XCRS},
    {"debug registers", KVM_GET_DEBUGREGS, KVM_SET_DEBUGREGS,
     sizeof(struct kvm_debugregs), KVM_CAP_DEBUGREGS},
    {"local APIC", KVM_GET_LAPIC, KVM_SET_LAPIC, sizeof(struct kvm_lapic_state),
     0},
};

static const struct cpu_part cpu_after_msrs[] = {
    {"events", KVM_GET_VCPU_EVENTS, KVM_SET_VCPU_EVENTS,
     sizeof(struct kvm_vcpu_events), KVM_CAP_VCPU_EVENTS},
};

#define CPU_PART_MAX 8192u

/* --- the parts --------------------------------------------------------------
 */

static int cpu_part_save(const struct kvm *kvm, int fd,
                         const struct cpu_part *p, struct state_out *out,
                         struct errmsg *err)
{
    uint64_t buf[CPU_PART_MAX / sizeof(uint64_t)];
    bool there = p->cap == 0 || kvm_check_cap(kvm, p->cap) > 0;

    memset(buf, 0, p->size);
    if (there && ioctl(fd, p->get, buf) < 0) {
        int rc = neg_errno();

        return err_set(err, rc, "vCPU: reading its %s failed: %s", p->name,
                       err_reason(rc));
    }
    state_put_u32(out, there ? (uint32_t)p->size : 0);
    state_put_bytes(out, buf, there ? p->size : 0);
    return 0;
}

static int cpu_part_load(int fd, const struct cpu_part *p, struct state_in *in,
                         struct errmsg *err)
{
    uint64_t buf[CPU_PART_MAX / sizeof(uint64_t)];
    uint32_t size = state_get_u32(in);

    if (size == 0 && !in->bad)
        return 0; /* the host it was saved on has no such part */
    if (in->bad || size != p->size)
        return err_set(err, -EBADMSG,
                       "vCPU: its %s in the saved state have a "
                       "wrong size",
                       p->name);
    state_get_bytes(in, buf, size);
    if (ioctl(fd, p->set, buf) < 0) {
        int rc = neg_errno();

        return err_set(err, rc,
                       "vCPU: this host's KVM refused the saved %s: %s",
                       p->name, err_reason(rc));
    }
    return 0;
}

static int cpu_parts_save(const struct kvm *kvm, int fd,
                          const struct cpu_part *parts, size_t num,
                          struct state_out *out, struct errmsg *err)
{
    int rc = 0;

    for (size_t i = 0; i < num && rc == 0; i++)
        rc = cpu_part_save(kvm, fd, &parts[i], out, err);
    return rc;
}

static int cpu_parts_load(int fd, const struct cpu_part *parts, size_t num,
                          struct state_in *in, struct errmsg *err)
{
    int rc = 0;

    for (size_t i = 0; i < num && rc == 0; i++)
        rc = cpu_part_load(fd, &parts[i], in, err);
    return rc;
}

/* --- MSRs -------------------------------------------------------------------
 */

struct cpu_msrs {
    uint32_t num;
    struct kvm_msr_entry e[CPU_MAX_MSRS];
};

union cpu_msr_batch {
    struct kvm_msrs head;
    char room[sizeof(struct kvm_msrs) +
              CPU_MSR_BATCH * sizeof(struct kvm_msr_entry)];
};

union cpu_msr_indices {
    struct kvm_msr_list head;
    char room[sizeof(struct kvm_msr_list) + CPU_MAX_MSRS * sizeof(uint32_t)];
};

/* Memory types: a vCPU has them, KVM's list does not.
 * spec: AMD64 APM 2 7.7 (MTRRs) */
static const struct {
    uint32_t first;
    uint32_t num;
} cpu_more_msrs[] = {
    {0x200, 16},                         /* eight pairs of base and mask */
    {0x250, 1},  {0x258, 2}, {0x268, 8}, /* fixed ranges */
    {0x2ff, 1},                          /* default type */
};

/* All that are wanted and not there yet. */
static void cpu_msr_add_more(struct cpu_msrs *m)
{
    for (size_t i = 0; i < ARRAY_SIZE(cpu_more_msrs); i++) {
        for (uint32_t k = 0; k < cpu_more_msrs[i].num; k++) {
            uint32_t index = cpu_more_msrs[i].first + k;
            uint32_t at = 0;

            while (at < m->num && m->e[at].index != index)
                at++;
            if (at == m->num && m->num < CPU_MAX_MSRS)
                m->e[m->num++] = (struct kvm_msr_entry){.index = index};
        }
    }
}

/* KVM's own list of what makes up a vCPU, and what it leaves out. */
static int cpu_msr_list(const struct kvm *kvm, struct cpu_msrs *out,
                        struct errmsg *err)
{
    union cpu_msr_indices list;

    memset(&list, 0, sizeof(list));
    list.head.nmsrs = CPU_MAX_MSRS;
    if (ioctl(kvm->sys_fd, KVM_GET_MSR_INDEX_LIST, &list) < 0) {
        int rc = neg_errno();

        return err_set(err, rc, "vCPU: reading the list of MSRs failed: %s",
                       err_reason(rc));
    }
    out->num = list.head.nmsrs;
    for (uint32_t i = 0; i < out->num; i++)
        out->e[i] = (struct kvm_msr_entry){.index = list.head.indices[i]};
    cpu_msr_add_more(out);
    return 0;
}

/*
 * Hands entries to KVM in batches; it stops at the first that it refuses, which
 * `refused` is asked about before the rest goes on. Returns 0, what `refused`
 * gave, or -errno.
 */
typedef int (*cpu_msr_fn)(int fd, struct kvm_msr_entry *e, void *arg);

static int cpu_msr_walk(int fd, unsigned long request, struct cpu_msrs *m,
                        cpu_msr_fn refused, void *arg)
{
    union cpu_msr_batch b;
    uint32_t i = 0;

    while (i < m->num) {
        uint32_t n = m->num - i < CPU_MSR_BATCH ? m->num - i : CPU_MSR_BATCH;
        int done;

        memset(&b, 0, sizeof(b));
        b.head.nmsrs = n;
        memcpy(b.head.entries, &m->e[i], n * sizeof(b.head.entries[0]));
        done = ioctl(fd, request, &b);
        if (done < 0)
            return neg_errno();
        memcpy(&m->e[i], b.head.entries,
               (size_t)done * sizeof(b.head.entries[0]));
        i += (uint32_t)done;
        if ((uint32_t)done < n) {
            int rc = refused(fd, &m->e[i], arg);

            if (rc)
                return rc;
            i++;
        }
    }
    return 0;
}

#define CPU_MSR_ABSENT 0xffffffffu

/* On the list, yet this vCPU has none: not part of its state. */
static int cpu_msr_absent(int fd, struct kvm_msr_entry *e, void *arg)
{
    (void)fd;
    (void)arg;
    e->reserved = CPU_MSR_ABSENT;
    return 0;
}

/*
 * Some cannot be written but are there all the same: a value that the vCPU has
 * already is as good as written.
 */
static int cpu_msr_refused(int fd, struct kvm_msr_entry *e, void *arg)
{
    union cpu_msr_batch b;

    memset(&b, 0, sizeof(b));
    b.head.nmsrs = 1;
    b.head.entries[0].index = e->index;
    if (ioctl(fd, KVM_GET_MSRS, &b) == 1 && b.head.entries[0].data == e->data)
        return 0;
    return err_set(arg, -ENOTSUP,
                   "vCPU: this host's KVM refused MSR 0x%x with the saved "
                   "value 0x%llx",
                   e->index, (unsigned long long)e->data);
}

static int cpu_msrs_save(const struct kvm *kvm, int fd, struct state_out *out,
                         struct errmsg *err)
{
    struct cpu_msrs all;
    struct cpu_msrs *m = &all;
    uint32_t num = 0;
    int rc;

    memset(m, 0, sizeof(*m));
    rc = cpu_msr_list(kvm, m, err);
    if (rc)
        return rc;
    rc = cpu_msr_walk(fd, KVM_GET_MSRS, m, cpu_msr_absent, NULL);
    if (rc)
        return err_set(err, rc, "vCPU: reading its MSRs failed: %s",
                       err_reason(rc));
    for (uint32_t i = 0; i < m->num; i++)
        num += m->e[i].reserved != CPU_MSR_ABSENT;
    state_put_u32(out, num);
    for (uint32_t i = 0; i < m->num; i++) {
        if (m->e[i].reserved == CPU_MSR_ABSENT)
            continue;
        state_put_u32(out, m->e[i].index);
        state_put_u64(out, m->e[i].data);
    }
    return 0;
}

/* The deadline is a point of the time stamp counter, so that one goes first. */
static void cpu_msrs_order(struct cpu_msrs *m, uint64_t tsc_ahead)
{
    for (uint32_t i = 0; i < m->num; i++) {
        struct kvm_msr_entry e = m->e[i];

        if (e.index == MSR_IA32_TSC) {
            e.data += tsc_ahead;
            m->e[i] = m->e[0];
            m->e[0] = e;
        }
    }
    for (uint32_t i = 0; i < m->num; i++) {
        struct kvm_msr_entry e = m->e[i];

        if (e.index == MSR_IA32_TSC_DEADLINE) {
            m->e[i] = m->e[m->num - 1];
            m->e[m->num - 1] = e;
            return;
        }
    }
}

/*
 * KVM takes a time stamp counter that is within a second of the one it expects
 * for an attempt to bring vCPUs into step, and goes on with its own: that of a
 * fresh VM is nearly 0. So the first vCPU is first told a value that is far
 * from any, and the others fall into step with it.
 * kvm: kvm_synchronize_tsc(); better from Linux 6.7 on
 */
static void cpu_tsc_leave_step(int fd, const struct cpu_msrs *m)
{
    union cpu_msr_batch b;

    /* 0 falls into step whatever there is. */
    if (m->e[0].index != MSR_IA32_TSC || m->e[0].data == 0)
        return;
    memset(&b, 0, sizeof(b));
    b.head.nmsrs = 1;
    b.head.entries[0] = m->e[0];
    b.head.entries[0].data += 1ull << 48;
    (void)ioctl(fd, KVM_SET_MSRS, &b); /* the walk tells if it is refused */
}

static int cpu_msrs_load(int fd, bool first, uint64_t tsc_ahead,
                         struct state_in *in, struct errmsg *err)
{
    struct cpu_msrs all;
    struct cpu_msrs *m = &all;
    int rc;

    memset(m, 0, sizeof(*m));
    m->num = state_get_u32(in);
    if (m->num == 0 || m->num > CPU_MAX_MSRS)
        return err_set(err, -EBADMSG,
                       "vCPU: the saved state has no sensible "
                       "number of MSRs");
    for (uint32_t i = 0; i < m->num; i++) {
        m->e[i].index = state_get_u32(in);
        m->e[i].data = state_get_u64(in);
    }
    cpu_msrs_order(m, tsc_ahead);
    if (first)
        cpu_tsc_leave_step(fd, m);
    if (err)
        err->text[0] = '\0';
    rc = cpu_msr_walk(fd, KVM_SET_MSRS, m, cpu_msr_refused, err);
    if (rc && err && !err->text[0])
        return err_set(err, rc, "vCPU: writing its MSRs failed: %s",
                       err_reason(rc));
    return rc;
}

/* --- the frequency of its time stamp counter --------------------------------
 */

static uint32_t cpu_tsc_khz(int fd)
{
    int khz = ioctl(fd, KVM_GET_TSC_KHZ, 0);

    return khz > 0 ? (uint32_t)khz : 0; /* 0: KVM cannot tell */
}

static int cpu_tsc_check(const struct kvm *kvm, int fd, uint32_t khz,
                         struct errmsg *err)
{
    uint64_t have = cpu_tsc_khz(fd);
    uint64_t apart = have > khz ? have - khz : khz - have;

    if (khz == 0 || have == 0 ||
        apart * 1000000 <= (uint64_t)khz * CPU_TSC_TOLERANCE_PPM)
        return 0;
    if (kvm_check_cap(kvm, KVM_CAP_TSC_CONTROL) > 0 &&
        ioctl(fd, KVM_SET_TSC_KHZ, (unsigned long)khz) == 0)
        return 0;
    return err_set(err, -ENOTSUP,
                   "vCPU: it was saved with a time stamp counter of %u kHz, "
                   "this host's runs at %llu kHz and cannot be scaled",
                   khz, (unsigned long long)have);
}

/* --- a hypervisor inside the guest ------------------------------------------
 */

/* Head and two pages are what KVM has today. */
union cpu_nested {
    struct kvm_nested_state head;
    char bytes[16 * KIB];
};

static int cpu_nested_save(const struct kvm *kvm, int fd, struct state_out *out,
                           struct errmsg *err)
{
    union cpu_nested room;
    struct kvm_nested_state *n = &room.head;
    int size = kvm_check_cap(kvm, KVM_CAP_NESTED_STATE);

    if (size < (int)sizeof(*n) || size > (int)sizeof(room)) {
        state_put_u32(out, 0);
        return 0;
    }
    memset(&room, 0, sizeof(room));
    n->size = (uint32_t)size;
    if (ioctl(fd, KVM_GET_NESTED_STATE, n) < 0) {
        int rc = neg_errno();

        return err_set(err, rc,
                       "vCPU: reading the state of a nested VM failed: %s",
                       err_reason(rc));
    }
    state_put_u32(out, n->size);
    state_put_bytes(out, n, n->size);
    return 0;
}

static int cpu_nested_load(int fd, struct state_in *in, struct errmsg *err)
{
    union cpu_nested room;
    struct kvm_nested_state *n = &room.head;
    uint32_t size = state_get_u32(in);

    if (size == 0)
        return 0;
    if (size < sizeof(*n) || size > sizeof(room))
        return err_set(err, -EBADMSG,
                       "vCPU: the saved state of a nested VM "
                       "has a wrong size");
    memset(&room, 0, sizeof(room));
    state_get_bytes(in, room.bytes, size);
    n->size = size;
    if (ioctl(fd, KVM_SET_NESTED_STATE, n) < 0) {
        int rc = neg_errno();

        return err_set(err, rc,
                       "vCPU: this host's KVM refused the state of a nested "
                       "VM: %s",
                       err_reason(rc));
    }
    return 0;
}

/* --- one vCPU ---------------------------------------------------------------
 */

static void cpu_section(char *out, size_t size, uint32_t index)
{
    (void)snprintf(out, size, "cpu/%u", index);
}

int cpu_state_save(const struct kvm *kvm, int vcpu_fd, uint32_t index,
                   struct state_out *out, struct errmsg *err)
{
    char name[STATE_NAME_MAX];
    int rc;

    cpu_section(name, sizeof(name), index);
    state_begin(out, name, CPU_SECTION_VERSION);
    state_put_u32(out, cpu_tsc_khz(vcpu_fd));
    rc = cpu_parts_save(kvm, vcpu_fd, cpu_before_msrs,
                        ARRAY_SIZE(cpu_before_msrs), out, err);
    if (rc == 0)
        rc = cpu_msrs_save(kvm, vcpu_fd, out, err);
    if (rc == 0)
        rc = cpu_nested_save(kvm, vcpu_fd, out, err);
    if (rc == 0)
        rc = cpu_parts_save(kvm, vcpu_fd, cpu_after_msrs,
                            ARRAY_SIZE(cpu_after_msrs), out, err);
    state_end(out);
    return rc;
}

int cpu_state_load(const struct kvm *kvm, int vcpu_fd, uint32_t index,
                   uint64_t tsc_ahead_ns, const struct state_file *f,
                   struct errmsg *err)
{
    char name[STATE_NAME_MAX];
    struct state_in in;
    uint32_t khz;
    int rc;

    cpu_section(name, sizeof(name), index);
    rc = state_section(f, name, CPU_SECTION_VERSION, &in, err);
    if (rc)
        return rc;
    khz = state_get_u32(&in);
    rc = cpu_tsc_check(kvm, vcpu_fd, khz, err);
    if (rc == 0)
        rc = cpu_parts_load(vcpu_fd, cpu_before_msrs,
                            ARRAY_SIZE(cpu_before_msrs), &in, err);
    if (rc == 0)
        rc = cpu_msrs_load(
            vcpu_fd, index == 0,
            (uint64_t)((__uint128_t)tsc_ahead_ns * khz / 1000000), &in, err);
    if (rc == 0)
        rc = cpu_nested_load(vcpu_fd, &in, err);
    if (rc == 0)
        rc = cpu_parts_load(vcpu_fd, cpu_after_msrs, ARRAY_SIZE(cpu_after_msrs),
                            &in, err);
    if (rc == 0 && state_done(&in))
        rc = err_set(err, -EBADMSG, "vCPU %u: its saved state is damaged",
                     index);
    return rc;
}
