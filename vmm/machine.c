/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/machine_int.h"

#include "boot/boot_x86.h"
#include "vmm/bus.h"
#include "vmm/cleanup.h"
#include "vmm/cpu_state_x86.h"
#include "vmm/irq.h"
#include "vmm/quirks_x86.h"
#include "vmm/uffd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define MACHINE_DEFAULT_ARGS "console=ttyS0 reboot=k panic=-1"
#define MACHINE_SEED_BYTES   32u
#define MACHINE_VMGENID_LEN  16u
#define MACHINE_PIO_WIDTH    8u
#define MACHINE_EXIT_SLOTS   4096u
#define MACHINE_SAMPLE_SLOTS 65536u

/* --- building, in order -----------------------------------------------------
 */

static int machine_map_saved(struct machine *m, uint64_t bytes, int saved_fd)
{
    int fd = saved_fd < 0 ? -1 : fcntl(saved_fd, F_DUPFD_CLOEXEC, 0);
    int rc;

    if (saved_fd >= 0 && fd < 0)
        return neg_errno();
    rc = gm_new_private(bytes, fd, &m->mem);
    if (rc)
        drop_fd(&fd);
    return rc;
}

static int machine_build_memory(struct machine *m, uint64_t bytes,
                                const struct machine_saved *saved,
                                struct errmsg *err)
{
    int rc = saved ? machine_map_saved(m, bytes, saved->mem_fd)
                   : gm_new(bytes, &m->mem);

    if (rc)
        return err_set(err, rc, "guest memory: %llu MiB: %s",
                       (unsigned long long)(bytes / MIB), err_reason(rc));
    if (saved && saved->uffd_path)
        return uffd_offer(m->mem, saved->uffd_path, &m->uffd, err);
    return 0;
}

/* Memory goes in before the interrupt chips: see kvm_create_vm(). */
static int machine_build_kvm(struct machine *m, const struct vm_config *c,
                             struct errmsg *err)
{
    int rc = kvm_open(&m->kvm, err);

    if (rc == 0)
        rc = kvm_create_vm(&m->kvm, err);
    if (rc == 0)
        rc = kvm_add_memory(&m->kvm, m->mem, c->track_dirty, err);
    if (rc == 0)
        rc = register_pages_init(&m->pages, &m->kvm,
                                 c->no_register_pages ? 0 : devices_count(c),
                                 (uint32_t)gm_region_count(m->mem), err);
    if (rc == 0)
        rc = kvm_create_irqchip(&m->kvm, err);
    return rc;
}

static int machine_add_pio(struct machine *m, uint64_t port, uint64_t len,
                           const struct bus_ops *ops, void *dev,
                           struct errmsg *err)
{
    int rc = bus_add(m->pio, port, len, ops, dev);

    if (rc)
        return err_set(err, rc, "port 0x%llx: %s", (unsigned long long)port,
                       err_reason(rc));
    return 0;
}

static int machine_build_uart(struct machine *m, struct errmsg *err)
{
    int irq_fd = -1;
    int rc = irq_take(&m->irqs, &m->kvm, LAYOUT_UART_GSI, &irq_fd, err);

    if (rc)
        return rc;
    rc = uart_new(m->loop, m->options.log, irq_fd, m->options.console_in_fd,
                  m->options.console_out_fd, &m->uart);
    if (rc)
        return err_set(err, rc, "serial port: %s", err_reason(rc));
    return machine_add_pio(m, LAYOUT_UART_PORT, MACHINE_PIO_WIDTH,
                           &uart_bus_ops, m->uart, err);
}

/* Keys come only by the control socket; without it there is no line. */
static int machine_build_keyboard(struct machine *m, struct errmsg *err)
{
    int irq_fd = -1;
    int rc = 0;

    if (m->options.keyboard)
        rc = irq_take(&m->irqs, &m->kvm, LAYOUT_KEYBOARD_GSI, &irq_fd, err);
    if (rc)
        return rc;
    i8042_set_irq(m->kbc, irq_fd);
    return machine_add_pio(m, LAYOUT_I8042, I8042_NUM_PORTS, &i8042_bus_ops,
                           m->kbc, err);
}

static int machine_build_boot_timer(struct machine *m, struct errmsg *err)
{
    const struct boot_timer_args args = {
        .log = m->options.log,
        .start_ns = m->options.start_ns,
        .cpu_offset = m->options.cpu_offset,
    };
    int rc;

    if (!m->options.boot_timer)
        return 0;
    rc = boot_timer_new(&args, &m->boot_timer);
    if (rc == 0)
        rc = bus_add(m->mmio, LAYOUT_BOOT_TIMER, BOOT_TIMER_BYTES,
                     &boot_timer_bus_ops, m->boot_timer);
    /* Accesses of RAM never come here, so this one may lie in it. */
    if (rc == 0)
        rc = bus_add(m->mmio, LAYOUT_BOOT_TIMER_NEW, BOOT_TIMER_BYTES,
                     &boot_timer_bus_ops, m->boot_timer);
    return rc ? err_set(err, rc, "boot timer: %s", err_reason(rc)) : 0;
}

static int machine_build_legacy(struct machine *m, struct errmsg *err)
{
    const struct stop_hook stop = machine_stop_hook(m);
    const struct exit_port_args args = {
        .stop = stop,
        .test_enabled = m->options.test_exit,
        .start_ns = m->options.start_ns,
    };
    int rc = bus_new(&m->pio);

    if (rc == 0)
        rc = bus_new(&m->mmio);
    if (rc == 0)
        rc = i8042_new(&stop, &m->kbc);
    if (rc == 0)
        rc = exit_port_new(&args, &m->exit_port);
    if (rc)
        return err_set(err, rc, "legacy devices: %s", err_reason(rc));
    rc = machine_build_uart(m, err);
    if (rc == 0)
        rc = machine_build_keyboard(m, err);
    if (rc == 0)
        rc = machine_add_pio(m, EXIT_PORT_BASE, EXIT_PORT_NUM_PORTS,
                             &exit_port_bus_ops, m->exit_port, err);
    return rc ? rc : machine_build_boot_timer(m, err);
}

static int machine_build_cpu_id(struct machine *m, uint32_t n,
                                const struct machine_saved *saved,
                                struct errmsg *err)
{
    /* KVM takes as long to say what it supports as to make the VM. */
    bool ask = !saved || !saved->force_cpu;
    int rc = cpu_id_new(ask ? &m->kvm : NULL, n, &m->cpu_id, err);

    if (rc)
        return rc;
    if (ask && m->options.emulated_ring0)
        quirks_fix_cpuid(m->cpu_id);
    return saved ? cpu_id_load(m->cpu_id, saved->force_cpu, saved->state, err)
                 : 0;
}

static int machine_build_tallies(struct machine *m, struct errmsg *err)
{
    int rc = 0;

    if (m->options.count_exits)
        rc = tally_new(MACHINE_EXIT_SLOTS, &m->exits);
    if (rc == 0 && m->options.profile_hz)
        rc = tally_new(MACHINE_SAMPLE_SLOTS, &m->samples);
    return rc ? err_set(err, rc, "counts: %s", err_reason(rc)) : 0;
}

static int machine_build_vcpus(struct machine *m, uint32_t n, bool boots,
                               struct errmsg *err)
{
    const struct vcpu_env env = {
        .pio = m->pio,
        .mmio = m->mmio,
        .stop = machine_stop_hook(m),
        .log = m->options.log,
        .emulated_ring0 = m->options.emulated_ring0,
        .gm = m->mem,
        .exits = m->exits,
        .samples = m->samples,
        .first_run = machine_first_run,
        .ended = machine_vcpu_ended,
        .paused = machine_vcpu_paused,
        .arg = m,
    };
    int rc;

    for (uint32_t i = 0; i < n; i++) {
        rc = vcpu_new(&m->kvm, i, &env, &m->vcpus[i], err);
        if (rc)
            return rc;
        m->num_vcpus++;
        rc = cpu_id_apply(m->cpu_id, vcpu_fd(m->vcpus[i]), i, err);
        if (rc == 0 && boots)
            rc = cpu_set_boot_state(vcpu_fd(m->vcpus[i]), err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Words that the monitor adds; the user's come after and so win. */
static void machine_words(const struct machine *m, const struct vm_config *c,
                          char *out, size_t size)
{
    char root[128] = "";

    for (size_t i = 0; i < c->num_drives; i++) {
        const struct config_drive *d = &c->drives[i];

        if (d->is_root)
            (void)snprintf(root, sizeof(root), " root=%s%s %s",
                           d->partuuid ? "PARTUUID=" : "/dev/vda",
                           d->partuuid ? d->partuuid : "",
                           d->read_only ? "ro" : "rw");
    }
    (void)snprintf(out, size, "mote.exit=0x%x%s%s%s", EXIT_PORT_BASE, root,
                   m->options.emulated_ring0 ? " " : "",
                   m->options.emulated_ring0 ? quirks_kernel_words() : "");
}

int machine_random(void *buf, size_t len, struct errmsg *err)
{
    if (getrandom(buf, len, 0) != (ssize_t)len)
        return err_set(err, -EIO, "random seed: the host gave none");
    return 0;
}

static int machine_enter(struct machine *m, const struct boot_result *b,
                         struct errmsg *err)
{
    const struct cpu_entry entry = {
        .rip = b->entry_rip,
        .rsi = b->boot_params,
        .cr3 = b->page_tables,
        .gdt_base = b->gdt_base,
        .gdt_limit = b->gdt_limit,
        .code_selector = BOOT_SEL_CS,
        .data_selector = BOOT_SEL_DS,
    };

    for (size_t i = 0; i < b->num_notes; i++)
        log_msg(m->options.log, LOG_INFO, "%s", b->notes[i]);
    log_msg(m->options.log, LOG_DEBUG, "command line: %s", b->cmdline);
    return cpu_set_entry(vcpu_fd(m->vcpus[0]), &entry, err);
}

static int machine_load(struct machine *m, const struct vm_config *c,
                        struct errmsg *err)
{
    struct boot_mmio_dev devs[LAYOUT_MAX_DEVICES];
    struct boot_result *result = calloc(1, sizeof(*result));
    uint8_t seed[MACHINE_SEED_BYTES];
    char words[512];
    struct boot_config b = {
        .kernel_path = c->kernel_path,
        .initrd_path = c->initrd_path,
        .user_cmdline = c->boot_args ? c->boot_args : MACHINE_DEFAULT_ARGS,
        .extra_words = words,
        .ram_is_fresh = true,
        .seed = seed,
        .seed_len = sizeof(seed),
        .desc = c->no_device_tree ? BOOT_DESC_MPTABLE : BOOT_DESC_AUTO,
    };
    int rc;

    if (!result)
        return err_set(err, -ENOMEM, "out of memory");
    rc = machine_random(seed, sizeof(seed), err);
    machine_words(m, c, words, sizeof(words));
    b.machine.ncpus = c->num_vcpus;
    b.machine.devs = devs;
    b.machine.ndevs = devices_describe(m->devices, devs, ARRAY_SIZE(devs));
    b.machine.vmgenid = c->vmgenid;
    b.machine.vmgenid_gsi = m->vmgenid_gsi;
    if (rc == 0)
        rc = boot_load(m->mem, &b, result, err);
    if (rc == 0)
        rc = machine_enter(m, result, err);
    explicit_bzero(seed, sizeof(seed));
    free(result);
    return rc;
}

/* Its page is there in any case; without a line nobody looks at it. */
static int machine_build_vmgenid(struct machine *m, const struct vm_config *c,
                                 struct errmsg *err)
{
    return c->vmgenid ? irq_take_device(&m->irqs, &m->kvm, &m->vmgenid_gsi,
                                        &m->vmgenid_fd, err)
                      : 0;
}

int machine_renew_vmgenid(struct machine *m, bool tell, struct errmsg *err)
{
    uint8_t id[MACHINE_VMGENID_LEN];
    const uint64_t edge = 1;
    int rc = m->vmgenid_fd >= 0 ? machine_random(id, sizeof(id), err) : 0;

    if (m->vmgenid_fd < 0 || rc)
        return rc;
    rc = gm_write(m->mem, LAYOUT_VMGENID, id, sizeof(id));
    if (rc == 0 && tell)
        rc = util_write_full(m->vmgenid_fd, &edge, sizeof(edge));
    return rc ? err_set(err, rc, "vmgenid: %s", err_reason(rc)) : 0;
}

/*
 * Files that the configuration names are at fault: for whoever started us that
 * is a bad configuration, whatever errno says; the line has the reason.
 */
static int machine_named(int rc)
{
    return rc ? -EINVAL : 0;
}

static int machine_build_devices(struct machine *m, const struct vm_config *c,
                                 struct errmsg *err)
{
    const struct device_env env = {
        .vdev = {.mem = m->mem, .loop = m->loop, .log = m->options.log},
        .kvm = &m->kvm,
        .irqs = &m->irqs,
        .mmio = m->mmio,
        .pages = &m->pages,
        .console_out_fd = m->options.console_out_fd,
        .mmds = m->options.mmds,
    };
    int rc = machine_named(devices_new(&env, c, &m->devices, err));

    return rc ? rc : machine_build_vmgenid(m, c, err);
}

static int machine_boot(struct machine *m, const struct vm_config *c,
                        struct errmsg *err)
{
    int rc = machine_renew_vmgenid(m, false, err);

    return rc ? rc : machine_named(machine_load(m, c, err));
}

static int machine_build(struct machine *m, const struct vm_config *c,
                         const struct machine_saved *saved, struct errmsg *err)
{
    int rc = machine_build_memory(m, c->mem_bytes, saved, err);

    if (rc == 0)
        dirty_init(&m->dirty, &m->kvm, m->mem);
    if (rc == 0)
        rc = machine_build_kvm(m, c, err);
    if (rc == 0)
        rc = machine_build_legacy(m, err);
    if (rc == 0)
        rc = machine_build_devices(m, c, err);
    if (rc == 0)
        rc = machine_build_cpu_id(m, c->num_vcpus, saved, err);
    if (rc == 0)
        rc = machine_build_tallies(m, err);
    if (rc == 0)
        rc = machine_build_vcpus(m, c->num_vcpus, !saved, err);
    if (rc == 0)
        rc =
            saved ? machine_load_saved(m, saved, err) : machine_boot(m, c, err);
    if (rc == 0 && c->track_dirty)
        rc = dirty_start(&m->dirty, err);
    if (rc == 0)
        rc = machine_confine_prepare(m, c, err);
    m->configured_ns = util_now_ns() - m->options.start_ns;
    return rc;
}

int machine_new(const struct vm_config *config,
                const struct machine_options *options,
                const struct machine_saved *saved, struct machine **out_machine,
                struct errmsg *err)
{
    struct machine *m = calloc(1, sizeof(*m));
    int rc;

    if (!m)
        return err_set(err, -ENOMEM, "out of memory");
    m->options = *options;
    m->loop = options->loop;
    m->kvm.sys_fd = -1;
    m->kvm.vm_fd = -1;
    m->uffd = -1;
    m->vmgenid_fd = -1;
    m->rules_fd = -1;
    (void)pthread_mutex_init(&m->gate_lock, NULL); /* never fail on Linux */
    (void)pthread_cond_init(&m->gate_changed, NULL);
    irq_init(&m->irqs);
    machine_init_calls(m);
    rc = vcpu_install_signal();
    if (rc)
        err_set(err, rc, "signals: %s", err_reason(rc));
    else
        rc = machine_build(m, config, saved, err);
    if (rc) {
        machine_free(m);
        return rc;
    }
    *out_machine = m;
    return 0;
}

void machine_free(struct machine *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < m->num_vcpus; i++)
        vcpu_free(m->vcpus[i]);
    evloop_timer_cancel(m->loop, &m->sample_timer);
    tally_free(m->exits);
    tally_free(m->samples);
    cpu_id_free(m->cpu_id);
    devices_free(m->devices);
    exit_port_free(m->exit_port);
    boot_timer_free(m->boot_timer);
    i8042_free(m->kbc);
    uart_free(m->uart);
    bus_free(m->mmio);
    bus_free(m->pio);
    irq_fini(&m->irqs);
    kvm_fini(&m->kvm);
    register_pages_fini(&m->pages);
    dirty_fini(&m->dirty);
    drop_fd(&m->uffd);
    gm_free(m->mem);
    drop_fd(&m->rules_fd);
    (void)pthread_cond_destroy(&m->gate_changed);
    (void)pthread_mutex_destroy(&m->gate_lock);
    free(m);
}
