/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_VCPU_H
#define VMM_VCPU_H

/*
 * One virtual CPU and its thread. The thread only runs KVM_RUN, hands guest
 * accesses to the buses and says how it ended.
 *
 * Ownership: owns its fd, its kvm_run mapping and its thread; borrows all of
 * the env. Threads: create, start, join on the main thread; vcpu_kick(),
 * vcpu_pause() and vcpu_resume() on any.
 * Errors: -errno with a line in `err`; a running vCPU reports by the stop hook.
 */

#include "vmm/bus.h"
#include "vmm/counter.h"
#include "vmm/cpu_x86.h"
#include "vmm/kvm.h"
#include "vmm/log.h"
#include "vmm/stop.h"
#include "vmm/tally.h"

#include <stdatomic.h>

struct vcpu;

struct vcpu_env {
    const struct bus *pio;
    const struct bus *mmio;
    struct stop_hook stop;
    struct log *log;
    bool emulated_ring0;
    const struct guest_mem *gm; /* for quirks_complete() */
    /* What is counted where it was asked for, else NULL; borrowed. */
    struct tally *exits;   /* VCPU_EXIT_KEY() of each return of KVM_RUN */
    struct tally *samples; /* the instruction pointer, by vcpu_sample() */
    /* Told on the vCPU's thread right before its first KVM_RUN, and as its
     * very last act. */
    void (*first_run)(void *arg, uint32_t index);
    void (*ended)(void *arg, uint32_t index);
    /* Told on the vCPU's thread: after vcpu_pause(), it rests. */
    void (*paused)(void *arg, uint32_t index);
    void *arg;
};

/* Why KVM_RUN came back, for env.exits; with the address for the first four. */
enum vcpu_exit_kind {
    VCPU_EXIT_IO_IN,
    VCPU_EXIT_IO_OUT,
    VCPU_EXIT_MMIO_READ,
    VCPU_EXIT_MMIO_WRITE,
    VCPU_EXIT_SIGNAL,   /* we took it out */
    VCPU_EXIT_INTERNAL, /* KVM could not emulate an instruction */
    VCPU_EXIT_OTHER,
};
#define VCPU_EXIT_KINDS           7u
#define VCPU_EXIT_KEY(kind, addr) ((uint64_t)(kind) << 56 | ((addr) << 8 >> 8))
#define VCPU_EXIT_KIND(key)       ((enum vcpu_exit_kind)((key) >> 56))
#define VCPU_EXIT_ADDR(key)       ((key) << 8 >> 8)

/* Exits of KVM_RUN by what the guest asked for, and the time that the answer
 * took. Counted by the vCPU's thread. */
struct vcpu_stats {
    uint64_t io_in;
    uint64_t io_out;
    uint64_t mmio_read;
    uint64_t mmio_write;
    uint64_t failures; /* exits that ended the VM */
    struct span io_in_time;
    struct span io_out_time;
    struct span mmio_read_time;
    struct span mmio_write_time;
};
/* Thread: any. */
void vcpu_get_stats(const struct vcpu *v, struct vcpu_stats *out);

int vcpu_new(const struct kvm *kvm, uint32_t index, const struct vcpu_env *env,
             struct vcpu **out_vcpu, struct errmsg *err) MUST_CHECK;
int vcpu_fd(const struct vcpu *v);
int vcpu_start(struct vcpu *v, struct errmsg *err) MUST_CHECK;
/*
 * Makes the thread leave KVM_RUN, with what the guest was doing to a device
 * completed, and rest; env.paused() follows, unless the vCPU ends first.
 */
void vcpu_pause(struct vcpu *v);
void vcpu_resume(struct vcpu *v); /* idempotent */
/*
 * Makes the thread count its instruction pointer in env.samples, if the guest
 * is running just now. Costs the guest an exit.
 */
void vcpu_sample(struct vcpu *v);
/* Makes the thread leave KVM_RUN for good. Idempotent. */
void vcpu_kick(struct vcpu *v);
/* Kicks, joins the thread if one runs, frees. NULL is fine. */
void vcpu_free(struct vcpu *v);

/* Once per process, before any vCPU starts: the signal that kicks. */
int vcpu_install_signal(void) MUST_CHECK;

#endif
