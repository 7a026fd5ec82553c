/* SPDX-License-Identifier: Apache-2.0 */
/* Interrupt chips, timer and clock of a VM, saved and loaded. */
#include "vmm/cpu_state_x86.h"

#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#define CHIPS_VERSION 1u
#define CLOCK_VERSION 1u

static int chips_error(struct errmsg *err, const char *what)
{
    int rc = neg_errno();

    return err_set(err, rc, "%s: %s", what, err_reason(rc));
}

static const uint32_t chip_ids[] = {
    KVM_IRQCHIP_PIC_MASTER,
    KVM_IRQCHIP_PIC_SLAVE,
    KVM_IRQCHIP_IOAPIC,
};

int kvm_chips_save(const struct kvm *kvm, struct state_out *out,
                   struct errmsg *err)
{
    struct kvm_irqchip chip;
    struct kvm_pit_state2 pit;

    state_begin(out, "chips", CHIPS_VERSION);
    for (size_t i = 0; i < ARRAY_SIZE(chip_ids); i++) {
        memset(&chip, 0, sizeof(chip));
        chip.chip_id = chip_ids[i];
        if (ioctl(kvm->vm_fd, KVM_GET_IRQCHIP, &chip) < 0)
            return chips_error(err, "reading an interrupt chip failed");
        state_put_bytes(out, &chip.chip, sizeof(chip.chip));
    }
    memset(&pit, 0, sizeof(pit));
    if (ioctl(kvm->vm_fd, KVM_GET_PIT2, &pit) < 0)
        return chips_error(err, "reading the timer failed");
    state_put_bytes(out, &pit, sizeof(pit));
    state_end(out);
    return 0;
}

int kvm_chips_load(const struct kvm *kvm, const struct state_file *f,
                   struct errmsg *err)
{
    struct kvm_irqchip chips[ARRAY_SIZE(chip_ids)];
    struct kvm_pit_state2 pit;
    struct state_in in;
    int rc = state_section(f, "chips", CHIPS_VERSION, &in, err);

    if (rc)
        return rc;
    memset(chips, 0, sizeof(chips));
    for (size_t i = 0; i < ARRAY_SIZE(chip_ids); i++) {
        chips[i].chip_id = chip_ids[i];
        state_get_bytes(&in, &chips[i].chip, sizeof(chips[i].chip));
    }
    state_get_bytes(&in, &pit, sizeof(pit));
    if (state_done(&in))
        return err_set(err, -EBADMSG,
                       "the interrupt chips in the saved state "
                       "are damaged");
    for (size_t i = 0; i < ARRAY_SIZE(chip_ids); i++) {
        if (ioctl(kvm->vm_fd, KVM_SET_IRQCHIP, &chips[i]) < 0)
            return chips_error(err, "KVM refused a saved interrupt chip");
    }
    if (ioctl(kvm->vm_fd, KVM_SET_PIT2, &pit) < 0)
        return chips_error(err, "KVM refused the saved timer");
    return 0;
}

/* --- the clock --------------------------------------------------------------
 */

int kvm_clock_save(const struct kvm *kvm, struct state_out *out,
                   struct errmsg *err)
{
    struct kvm_clock_data clock;
    struct timespec wall;

    memset(&clock, 0, sizeof(clock));
    if (ioctl(kvm->vm_fd, KVM_GET_CLOCK, &clock) < 0)
        return chips_error(err, "reading KVM's clock failed");
    if (clock_gettime(CLOCK_REALTIME, &wall) < 0)
        return chips_error(err, "reading the wall clock failed");
    state_begin(out, "clock", CLOCK_VERSION);
    state_put_u64(out, clock.clock);
    state_put_u64(out,
                  (uint64_t)wall.tv_sec * 1000000000 + (uint64_t)wall.tv_nsec);
    state_end(out);
    return 0;
}

static int kvm_clock_read(const struct state_file *f, uint64_t *out_clock,
                          uint64_t *out_wall, struct errmsg *err)
{
    struct state_in in;
    int rc = state_section(f, "clock", CLOCK_VERSION, &in, err);

    if (rc)
        return rc;
    *out_clock = state_get_u64(&in);
    *out_wall = state_get_u64(&in);
    return state_done(&in) ? err_set(err, -EBADMSG,
                                     "the clock in the saved "
                                     "state is damaged")
                           : 0;
}

int kvm_clock_saved_at(const struct state_file *f, uint64_t *out_ns,
                       struct errmsg *err)
{
    uint64_t clock;

    return kvm_clock_read(f, &clock, out_ns, err);
}

int kvm_clock_load(const struct kvm *kvm, uint64_t ahead_ns,
                   const struct state_file *f, struct errmsg *err)
{
    struct kvm_clock_data clock;
    uint64_t saved = 0;
    uint64_t wall;
    int rc = kvm_clock_read(f, &saved, &wall, err);

    if (rc)
        return rc;
    memset(&clock, 0, sizeof(clock));
    clock.clock = saved + ahead_ns;
    if (ioctl(kvm->vm_fd, KVM_SET_CLOCK, &clock) < 0)
        return chips_error(err, "KVM refused the saved clock");
    return 0;
}
