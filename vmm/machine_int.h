/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_MACHINE_INT_H
#define VMM_MACHINE_INT_H

/*
 * Between machine.c, which builds the parts and takes them down,
 * machine_life.c, which runs, pauses and ends them, machine_state.c, which
 * saves and loads them, and machine_confine.c. Nobody else includes it.
 */

#include "devices/boot_timer.h"
#include "devices/exit_port.h"
#include "devices/i8042.h"
#include "devices/uart.h"
#include "vmm/dirty.h"
#include "vmm/machine.h"
#include "vmm/machine_devices.h"
#include "vmm/vcpu.h"

#include <pthread.h>
#include <stdatomic.h>

struct machine {
    struct machine_options options;
    struct evloop *loop; /* borrowed */
    struct guest_mem *mem;
    struct dirty dirty;
    struct kvm kvm;
    struct irq_table irqs;
    struct bus *pio;
    struct bus *mmio;
    struct register_pages pages;
    struct uart *uart;
    struct i8042 *kbc;
    struct exit_port *exit_port;
    struct boot_timer *boot_timer; /* NULL: none */
    struct device_set *devices;
    struct cpu_id *cpu_id;
    struct tally *exits;          /* NULL: not counted */
    struct tally *samples;        /* the same */
    uint64_t configured_ns;       /* since options.start_ns */
    struct ev_timer sample_timer; /* io thread */
    int uffd;             /* what fills the memory; -1: nothing has to */
    uint32_t vmgenid_gsi; /* with vmgenid_fd */
    int vmgenid_fd;       /* its line, borrowed; -1: there is none */
    int rules_fd;         /* about files, until the start; -1: none */
    uint32_t num_vcpus;
    struct vcpu *vcpus[LAYOUT_MAX_VCPUS];

    _Atomic uint64_t first_run_ns;
    /* Why the VM ends. Reason and detail are packed into one word, so that
     * the first one given is kept whole. */
    _Atomic uint64_t stop_word;
    struct ev_call stop_call;
    struct ev_call ended_calls[LAYOUT_MAX_VCPUS];
    struct ev_call paused_calls[LAYOUT_MAX_VCPUS];
    uint32_t num_ended;   /* io thread */
    uint32_t num_started; /* io thread */
    atomic_bool stop_posted;
    bool stopping;   /* io thread */
    bool resume_due; /* the same: as soon as the pause is complete */
    /* No vCPU enters the guest before every thread has its filter. */
    pthread_mutex_t gate_lock;
    pthread_cond_t gate_changed;
    uint32_t gate_waiting; /* guarded by gate_lock */
    int gate_error;        /* the same: -errno of a vCPU's filter */
    bool gate_open;        /* the same */
    char labels[LAYOUT_MAX_VCPUS][8];
    /* io thread */
    enum machine_state state;
    uint32_t num_paused;
    machine_paused_fn on_paused;
    void *on_paused_arg;
    /* asked for while the pause was under way; NULL: nothing */
    machine_paused_fn on_paused_too;
    void *on_paused_too_arg;
    struct ev_call rested_call;
};

/* machine_state.c: in place of a boot. */
int machine_load_saved(struct machine *m, const struct machine_saved *saved,
                       struct errmsg *err) MUST_CHECK;
/* A new id in the guest's memory; with `tell` its line is raised as well. */
int machine_renew_vmgenid(struct machine *m, bool tell,
                          struct errmsg *err) MUST_CHECK;
int machine_random(void *buf, size_t len, struct errmsg *err) MUST_CHECK;

/* The hooks of a vCPU and of whatever may end the VM; `arg` is the machine. */
void machine_init_calls(struct machine *m);
void machine_first_run(void *arg, uint32_t index);
void machine_vcpu_ended(void *arg, uint32_t index);
void machine_vcpu_paused(void *arg, uint32_t index);

/* Rules about files: made while the machine is, then put into force for this
 * thread and those that it starts from now on. */
int machine_confine_prepare(struct machine *m, const struct vm_config *c,
                            struct errmsg *err) MUST_CHECK;
int machine_confine(struct machine *m) MUST_CHECK;

#endif
