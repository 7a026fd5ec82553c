/* SPDX-License-Identifier: Apache-2.0 */
/* A machine that is saved, and one that is loaded instead of booted. */
#include "vmm/cpu_state_x86.h"
#include "vmm/machine_int.h"

#define MACHINE_VERSION 1u

/* What has to be the same again, and no part of any device. */
static void machine_save_head(const struct machine *m, struct state_out *out)
{
    state_begin(out, "machine", MACHINE_VERSION);
    state_put_u32(out, m->num_vcpus);
    state_put_u64(out, gm_ram_bytes(m->mem));
    state_put_u8(out, m->options.emulated_ring0);
    state_put_u32(out, m->vmgenid_fd >= 0 ? m->vmgenid_gsi : 0);
    state_end(out);
}

static int machine_check_head(const struct machine *m,
                              const struct state_file *f, struct errmsg *err)
{
    struct state_in in;
    int rc = state_section(f, "machine", MACHINE_VERSION, &in, err);
    bool emulated;
    bool same;

    if (rc)
        return rc;
    same = state_get_u32(&in) == m->num_vcpus;
    same = state_get_u64(&in) == gm_ram_bytes(m->mem) && same;
    emulated = state_get_bool(&in);
    same =
        state_get_u32(&in) == (m->vmgenid_fd >= 0 ? m->vmgenid_gsi : 0) && same;
    if (state_done(&in) || !same)
        return err_set(err, -EBADMSG,
                       "the saved state says one thing of the machine and its "
                       "configuration another");
    if (m->options.emulated_ring0 && !emulated)
        return err_set(err, -ENOTSUP,
                       "the machine was saved on a host whose KVM runs kernel "
                       "code, this one's emulates it and does not know all of "
                       "that kernel's instructions; load it on such a host");
    return 0;
}

/* The exit port has nothing: its marks are of this process's time. */
static void machine_save_legacy(const struct machine *m, struct state_out *out)
{
    state_begin(out, "uart", 1);
    uart_save(m->uart, out);
    state_end(out);
    state_begin(out, "i8042", 1);
    i8042_save(m->kbc, out);
    state_end(out);
}

static int machine_load_legacy(struct machine *m, const struct state_file *f,
                               struct errmsg *err)
{
    struct state_in uart;
    struct state_in kbc;
    int rc = state_section(f, "uart", 1, &uart, err);

    if (rc == 0)
        rc = state_section(f, "i8042", 1, &kbc, err);
    if (rc)
        return rc;
    rc = uart_load(m->uart, &uart);
    if (rc == 0)
        rc = i8042_load(m->kbc, &kbc);
    return rc ? err_set(err, rc,
                        "a legacy device in the saved state is "
                        "damaged")
              : 0;
}

int machine_save(struct machine *m, struct state_out *out, struct errmsg *err)
{
    int rc = 0;

    if (m->stopping)
        return err_set(err, -ESHUTDOWN, "the machine is about to end");
    machine_save_head(m, out);
    cpu_id_save(m->cpu_id, out);
    for (uint32_t i = 0; i < m->num_vcpus && rc == 0; i++)
        rc = cpu_state_save(&m->kvm, vcpu_fd(m->vcpus[i]), i, out, err);
    if (rc == 0)
        rc = kvm_chips_save(&m->kvm, out, err);
    if (rc == 0)
        rc = kvm_clock_save(&m->kvm, out, err);
    if (rc)
        return rc;
    machine_save_legacy(m, out);
    devices_save(m->devices, out);
    return 0;
}

int machine_load_saved(struct machine *m, const struct machine_saved *saved,
                       struct errmsg *err)
{
    const struct state_file *f = saved->state;
    int rc = machine_check_head(m, f, err);

    if (rc == 0)
        rc = kvm_chips_load(&m->kvm, f, err);
    for (uint32_t i = 0; i < m->num_vcpus && rc == 0; i++)
        rc = cpu_state_load(&m->kvm, vcpu_fd(m->vcpus[i]), i, saved->ahead_ns,
                            f, err);
    if (rc == 0)
        rc = kvm_clock_load(&m->kvm, saved->ahead_ns, f, err);
    if (rc == 0)
        rc = machine_load_legacy(m, f, err);
    if (rc == 0)
        rc = devices_load(m->devices, f, err);
    /* Last: its interrupt needs the chips. */
    return rc ? rc : machine_renew_vmgenid(m, true, err);
}

struct guest_mem *machine_mem(struct machine *m)
{
    return m->mem;
}

struct dirty *machine_dirty(struct machine *m)
{
    return &m->dirty;
}
