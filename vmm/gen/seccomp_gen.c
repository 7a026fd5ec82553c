/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs when mote is built: turns the lists of vmm/seccomp_rules.h into BPF
 * programs by libseccomp, and prints them as C. So the monitor neither links
 * the library nor spends time on it at each start.
 */
#include "vmm/seccomp_rules.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/if_tun.h>
#include <linux/io_uring.h>
#include <linux/kvm.h>
#include <linux/userfaultfd.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void die(const char *what, int rc)
{
    fprintf(stderr, "seccomp_gen: %s: %s\n", what, strerror(-rc));
    exit(1);
}

struct rule {
    const char *name;
    struct scmp_arg_cmp arg;
    int nr;
    unsigned num_args; /* 0 or 1 */
};

/* The kernel looks at no more than the low 32 bits of such arguments. */
#define LOW_32 0xffffffffu
/* The reasons are for the readers of the lists. */
#define ALLOW(call, why) {#call, {0}, SCMP_SYS(call), 0},
#define ALLOW_IF(call, arg, value, why)                                        \
    {#call,                                                                    \
     {arg, SCMP_CMP_MASKED_EQ, LOW_32, (uint32_t)(value)},                     \
     SCMP_SYS(call),                                                           \
     1},
#define ALLOW_MASK(call, arg, mask, value, why)                                \
    {#call, {arg, SCMP_CMP_MASKED_EQ, mask, value}, SCMP_SYS(call), 1},

static const struct rule rules_vcpu[] = {SECCOMP_RULES_VCPU};
static const struct rule rules_loop[] = {SECCOMP_RULES_LOOP};
static const struct rule rules_loop_api[] = {SECCOMP_RULES_LOOP_API};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void print_program(const char *name, const struct rule *rules,
                          size_t count)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_TRAP);
    struct sock_filter insn;
    FILE *out = tmpfile();
    int rc;

    if (!f || !out)
        die(name, -ENOMEM);
    /* By a tree: KVM_RUN and io_uring_enter are on the hot path. */
    rc = seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (rc)
        die("optimize", rc);
    for (size_t i = 0; i < count; i++) {
        const struct rule *r = &rules[i];

        rc = seccomp_rule_add_array(f, SCMP_ACT_ALLOW, r->nr, r->num_args,
                                    &r->arg);
        if (rc && rc != -EEXIST)
            die(r->name, rc);
    }
    rc = seccomp_export_bpf(f, fileno(out));
    if (rc)
        die("export", rc);
    rewind(out);
    printf("static const struct sock_filter %s[] = {\n", name);
    while (fread(&insn, sizeof(insn), 1, out) == 1)
        printf("    {0x%02x, %u, %u, 0x%08x},\n", insn.code, insn.jt, insn.jf,
               insn.k);
    printf("};\n\n");
    fclose(out);
    seccomp_release(f);
}

static void print_names(void)
{
    printf("static const char *const seccomp_call_names[] = {\n");
    for (int nr = 0; nr < 512; nr++) {
        char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, nr);

        if (name)
            printf("    [%d] = \"%s\",\n", nr, name);
        free(name);
    }
    printf("};\n");
}

int main(void)
{
    printf("/* Made by vmm/gen/seccomp_gen.c. */\n\n");
    print_program("seccomp_vcpu", rules_vcpu, COUNT(rules_vcpu));
    print_program("seccomp_loop", rules_loop, COUNT(rules_loop));
    print_program("seccomp_loop_api", rules_loop_api, COUNT(rules_loop_api));
    print_names();
    return fflush(stdout) ? 1 : 0;
}
