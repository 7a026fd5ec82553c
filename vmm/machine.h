/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_MACHINE_H
#define VMM_MACHINE_H

/*
 * The one owner of a VM's parts: builds them in order, runs them on an
 * event loop, takes them down in the opposite order.
 *
 * Threads: created, started and freed on one thread, the loop's.
 * machine_stop_hook() may be used from any.
 * Errors: -errno with a line in `err`; what happens once the VM runs is told
 * by the result.
 */

#include "vmm/config.h"
#include "vmm/evloop.h"
#include "vmm/log.h"
#include "vmm/state.h"
#include "vmm/stop.h"

struct bus;
struct machine;
struct tally;
struct mmds_service;

struct machine_options {
    struct evloop *loop; /* borrowed; it outlives the machine */
    struct log *log;
    int console_in_fd;       /* -1: none; borrowed */
    int console_out_fd;      /* -1: none; borrowed */
    uint64_t start_ns;       /* CLOCK_MONOTONIC that timings count from */
    bool emulated_ring0;     /* what the probe said */
    bool keyboard;           /* machine_ctrl_alt_del() will be used */
    bool filter_calls;       /* by seccomp, from the start on */
    bool control_socket;     /* its client may still open files */
    const char *fork_socket; /* goes once the machine runs; NULL: none */
    bool boot_timer;         /* the guest says when it has booted */
    int64_t cpu_offset;      /* us: CPU time before and beside this process's */
    bool count_exits;        /* by kind and address, for the result */
    uint64_t profile_hz;     /* samples of vCPU 0 in a second; 0: none */
    bool test_exit;          /* test programs may end the VM with a result */
    /* On the interfaces that the configuration names; borrowed. */
    const struct mmds_service *mmds;
};

/* A machine that goes on from a saved state instead of booting. */
struct machine_saved {
    const struct state_file *state; /* borrowed, as are the next two */
    int mem_fd;                     /* its memory; -1: see next */
    const char *uffd_path;          /* whoever fills its memory listens there */
    uint64_t ahead_ns; /* clocks go on by that much later; mostly 0 */
    bool force_cpu;    /* do not look whether this host's CPU has all of it */
};

#define MACHINE_MAX_MARKS 32

struct machine_result {
    enum stop_reason reason;
    uint32_t detail;
    uint64_t configured_ns; /* since start_ns: all built; 0: it never was */
    uint64_t first_run_ns;  /* since start_ns; 0: it never ran */
    struct tally *exits;    /* borrowed; NULL: not counted */
    struct tally *samples;  /* the same */
    const struct bus *pio;  /* borrowed: who was meant by an exit's address */
    const struct bus *mmio;
    size_t num_marks;
    struct {
        uint8_t mark;
        uint64_t at_ns; /* since start_ns */
    } marks[MACHINE_MAX_MARKS];
};

/* `saved`: NULL for one that boots. */
int machine_new(const struct vm_config *config,
                const struct machine_options *options,
                const struct machine_saved *saved, struct machine **out_machine,
                struct errmsg *err) MUST_CHECK;
/*
 * Starts the vCPUs; once in a process, because from now on the calling thread,
 * the loop's, may make only the system calls of seccomp_rules.h. On failure the
 * VM is being ended, as by the stop hook, and the loop has to run until that is
 * done.
 */
int machine_start(struct machine *m, struct errmsg *err) MUST_CHECK;
/* The same, for a loaded machine that is to stay paused; `done` as with
 * machine_pause(). */
typedef void (*machine_paused_fn)(void *arg);
int machine_start_paused(struct machine *m, machine_paused_fn done, void *arg,
                         struct errmsg *err) MUST_CHECK;
void machine_free(struct machine *m); /* NULL is fine */

/* The machine ends by evloop_stop(), once devices and console are quiet. */
struct stop_hook machine_stop_hook(struct machine *m);
void machine_collect(struct machine *m, struct machine_result *out);

/* --- a machine that was started; thread: io ------------------------------ */

enum machine_state { MACHINE_RUNNING, MACHINE_PAUSING, MACHINE_PAUSED };

enum machine_state machine_state(const struct machine *m);
/*
 * Stops the vCPUs at a point where the guest has no access half done, then
 * brings the devices to rest: they finish what they have begun, and what the
 * host sends waits. `done` runs once all rest: at once if they do already,
 * never if the VM ends first. While PAUSING, as a machine is that was loaded to
 * stay paused, `done` runs with that pause's; one more at most.
 */
void machine_pause(struct machine *m, machine_paused_fn done, void *arg);
/* Idempotent. While PAUSING it is done as soon as all rest; the state is told
 * as RUNNING from now on. */
void machine_resume(struct machine *m);

/*
 * All that is not memory, as sections of `out`. Only while PAUSED. Memory and
 * the record of its pages that were written are borrowed from the machine.
 */
int machine_save(struct machine *m, struct state_out *out,
                 struct errmsg *err) MUST_CHECK;
struct guest_mem *machine_mem(struct machine *m);
struct dirty *machine_dirty(struct machine *m);

/* False: the guest has not taken the keys pressed before. */
bool machine_ctrl_alt_del(struct machine *m);

/* By VIRTIO_ID_* and the id of its section, NULL for kinds that have one
 * device; NULL if there is none. Borrowed. */
struct virtio_dev;
struct virtio_dev *machine_find_device(struct machine *m, uint32_t virtio_id,
                                       const char *id) MUST_CHECK;

#endif
