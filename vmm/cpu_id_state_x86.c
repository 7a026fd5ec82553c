/* SPDX-License-Identifier: Apache-2.0 */
/* CPUID in a saved state: is this host's CPU good enough for that guest? */
#include "vmm/cpu_state_x86.h"

#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CPUID_VERSION 1u
#define CPUID_MAX     256u

/*
 * The registers that are sets of features: a guest that was told of one that is
 * missing here would meet an undefined instruction. `ignore`: bits that follow
 * what the guest does, or that KVM adds by itself.
 */
struct feature_word {
    uint32_t function;
    uint32_t index;
    int reg; /* 0 EAX .. 3 EDX */
    uint32_t ignore;
};

#define CPUID_1_ECX_OSXSAVE (1u << 27)
#define CPUID_7_ECX_OSPKE   (1u << 4)

static const struct feature_word feature_words[] = {
    {0x1, 0, 2, CPUID_1_ECX_OSXSAVE},
    {0x1, 0, 3, 1u << 28 /* HTT: of the number of vCPUs */},
    {0x7, 0, 1, 0},
    {0x7, 0, 2, CPUID_7_ECX_OSPKE},
    {0x7, 0, 3, 0},
    {0x7, 1, 0, 0},
    {0xd, 0, 0, 0},
    {0xd, 1, 0, 0},
    {0x40000001, 0, 0, 0},
    {0x80000001, 0, 2, 0},
    {0x80000001, 0, 3, 0},
    {0x80000008, 0, 1, 0},
};

/* Names of those that people know. */
static const struct {
    uint32_t function;
    int reg;
    uint32_t bit;
    const char *name;
} feature_names[] = {
    {0x1, 2, 0, "sse3"},
    {0x1, 2, 9, "ssse3"},
    {0x1, 2, 12, "fma"},
    {0x1, 2, 13, "cx16"},
    {0x1, 2, 19, "sse4.1"},
    {0x1, 2, 20, "sse4.2"},
    {0x1, 2, 23, "popcnt"},
    {0x1, 2, 25, "aes"},
    {0x1, 2, 26, "xsave"},
    {0x1, 2, 28, "avx"},
    {0x1, 2, 30, "rdrand"},
    {0x7, 1, 3, "bmi1"},
    {0x7, 1, 5, "avx2"},
    {0x7, 1, 8, "bmi2"},
    {0x7, 1, 9, "erms"},
    {0x7, 1, 16, "avx512f"},
    {0x7, 1, 18, "rdseed"},
    {0x7, 1, 19, "adx"},
    {0x7, 1, 20, "smap"},
    {0x7, 1, 29, "sha"},
    {0x7, 1, 30, "avx512bw"},
    {0x7, 1, 31, "avx512vl"},
    {0x7, 2, 16, "la57"},
    {0x7, 3, 4, "fsrm"},
    {0x80000001, 2, 2, "svm"},
    {0x80000001, 2, 5, "lzcnt"},
    {0x80000001, 3, 26, "1gib-pages"},
};

static uint32_t entry_reg(const struct kvm_cpuid_entry2 *e, int reg)
{
    const uint32_t regs[] = {e->eax, e->ebx, e->ecx, e->edx};

    return regs[reg];
}

static const struct kvm_cpuid_entry2 *
entry_find(const struct kvm_cpuid_entry2 *e, uint32_t num, uint32_t function,
           uint32_t index)
{
    for (uint32_t i = 0; i < num; i++) {
        if (e[i].function == function && e[i].index == index)
            return &e[i];
    }
    return NULL;
}

void cpu_id_save(const struct cpu_id *id, struct state_out *out)
{
    const struct kvm_cpuid2 *t = cpu_id_table(id);

    state_begin(out, "cpuid", CPUID_VERSION);
    state_put_u32(out, t->nent);
    for (uint32_t i = 0; i < t->nent; i++) {
        const struct kvm_cpuid_entry2 *e = &t->entries[i];

        state_put_u32(out, e->function);
        state_put_u32(out, e->index);
        state_put_u32(out, e->flags);
        for (int reg = 0; reg < 4; reg++)
            state_put_u32(out, entry_reg(e, reg));
    }
    state_end(out);
}

static void add_name(char *out, size_t size, const struct feature_word *w,
                     uint32_t bit)
{
    size_t n = strlen(out);

    for (size_t i = 0; i < ARRAY_SIZE(feature_names); i++) {
        if (feature_names[i].function == w->function && w->index == 0 &&
            feature_names[i].reg == w->reg && feature_names[i].bit == bit) {
            (void)snprintf(out + n, size - n, " %s", feature_names[i].name);
            return;
        }
    }
    (void)snprintf(out + n, size - n, " 0x%x.%u:e%cx[%u]", w->function,
                   w->index, "abcd"[w->reg], bit);
}

/* The features that `saved` has and `host` lacks, as text; "" if none. */
static void list_missing(const struct kvm_cpuid_entry2 *saved, uint32_t num,
                         const struct kvm_cpuid2 *host, char *out, size_t size)
{
    out[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(feature_words); i++) {
        const struct feature_word *w = &feature_words[i];
        const struct kvm_cpuid_entry2 *s =
            entry_find(saved, num, w->function, w->index);
        const struct kvm_cpuid_entry2 *h =
            entry_find(host->entries, host->nent, w->function, w->index);
        uint32_t missing =
            s ? entry_reg(s, w->reg) & ~(h ? entry_reg(h, w->reg) : 0) : 0;

        for (uint32_t bit = 0; bit < 32; bit++) {
            if (missing & ~w->ignore & 1u << bit)
                add_name(out, size, w, bit);
        }
    }
}

static void vendor_text(const struct kvm_cpuid_entry2 *e, char out[13])
{
    memset(out, 0, 13);
    if (!e)
        return;
    memcpy(out, &e->ebx, 4);
    memcpy(out + 4, &e->edx, 4);
    memcpy(out + 8, &e->ecx, 4);
}

static int check_host(const struct kvm_cpuid_entry2 *saved, uint32_t num,
                      const struct kvm_cpuid2 *host, struct errmsg *err)
{
    char missing[400];
    char was[13];
    char is[13];

    vendor_text(entry_find(saved, num, 0, 0), was);
    vendor_text(entry_find(host->entries, host->nent, 0, 0), is);
    if (strcmp(was, is) != 0)
        return err_set(err, -ENOTSUP,
                       "the machine was saved on a CPU of another vendor "
                       "(%.12s, this host is %.12s)",
                       was, is);
    list_missing(saved, num, host, missing, sizeof(missing));
    if (missing[0])
        return err_set(err, -ENOTSUP,
                       "the machine was saved on a CPU with features that this "
                       "host lacks:%s; load it on a host that has them",
                       missing);
    return 0;
}

int cpu_id_load(struct cpu_id *host, bool force, const struct state_file *f,
                struct errmsg *err)
{
    struct kvm_cpuid_entry2 *e;
    struct state_in in;
    uint32_t num;
    int rc = state_section(f, "cpuid", CPUID_VERSION, &in, err);

    if (rc)
        return rc;
    num = state_get_u32(&in);
    e = num <= CPUID_MAX ? calloc(CPUID_MAX, sizeof(*e)) : NULL;
    if (!e)
        return err_set(err, num <= CPUID_MAX ? -ENOMEM : -EBADMSG,
                       "the CPUID table in the saved state is no good");
    for (uint32_t i = 0; i < num; i++) {
        e[i].function = state_get_u32(&in);
        e[i].index = state_get_u32(&in);
        e[i].flags = state_get_u32(&in);
        e[i].eax = state_get_u32(&in);
        e[i].ebx = state_get_u32(&in);
        e[i].ecx = state_get_u32(&in);
        e[i].edx = state_get_u32(&in);
    }
    if (state_done(&in))
        rc = err_set(err, -EBADMSG,
                     "the CPUID table in the saved state is damaged");
    if (rc == 0 && !force)
        rc = check_host(e, num, cpu_id_table(host), err);
    if (rc == 0)
        rc = cpu_id_replace(host, e, num);
    free(e);
    return rc;
}
