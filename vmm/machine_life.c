/* SPDX-License-Identifier: Apache-2.0 */
/* A machine that is built: started, paused, resumed, ended. */
#include "vmm/machine_int.h"
#include "vmm/seccomp_filter.h"
#include "vmm/uffd.h"

#include <stdio.h>
#include <string.h>

/* --- ending ----------------------------------------------------------------
 */

static void machine_request_stop(void *arg, enum stop_reason reason,
                                 uint32_t detail)
{
    struct machine *m = arg;
    uint64_t word = (uint64_t)reason << 32 | detail;
    uint64_t none = 0;

    if (!atomic_compare_exchange_strong(&m->stop_word, &none, word) &&
        reason == STOP_PANIC)
        atomic_store(&m->stop_word, word);
    if (!atomic_exchange(&m->stop_posted, true))
        evloop_post(m->loop, &m->stop_call);
}

struct stop_hook machine_stop_hook(struct machine *m)
{
    return (struct stop_hook){machine_request_stop, m};
}

static void machine_devices_down(void *arg)
{
    struct machine *m = arg;

    uart_flush(m->uart);
    evloop_stop(m->loop);
}

static void machine_vcpus_down(struct machine *m)
{
    devices_shutdown(m->devices, machine_devices_down, m);
}

/* thread: io */
static void machine_on_stop(struct ev_call *c)
{
    struct machine *m = c->arg;

    m->stopping = true;
    devices_cancel_waits(m->devices);
    for (uint32_t i = 0; i < m->num_started; i++)
        vcpu_kick(m->vcpus[i]);
    /* One that waits for its page hears no signal on every host. */
    if (m->uffd >= 0)
        uffd_end(m->mem, m->uffd);
    if (m->num_ended == m->num_started)
        machine_vcpus_down(m);
}

/* thread: io; posted by each vCPU as its last act */
static void machine_on_ended(struct ev_call *c)
{
    struct machine *m = c->arg;

    m->num_ended++;
    if (m->stopping && m->num_ended == m->num_started)
        machine_vcpus_down(m);
}

void machine_vcpu_ended(void *arg, uint32_t index)
{
    struct machine *m = arg;

    evloop_post(m->loop, &m->ended_calls[index]);
}

/* --- the gate before the first entry ----------------------------------------
 */

/* thread: vcpu */
void machine_first_run(void *arg, uint32_t index)
{
    struct machine *m = arg;
    int rc = 0;

    (void)snprintf(m->labels[index], sizeof(m->labels[index]), "vcpu%u", index);
    if (m->options.filter_calls)
        rc = seccomp_install(SECCOMP_VCPU, m->labels[index]);
    (void)pthread_mutex_lock(&m->gate_lock);
    if (rc)
        m->gate_error = rc;
    m->gate_waiting++;
    (void)pthread_cond_broadcast(&m->gate_changed);
    while (!m->gate_open)
        (void)pthread_cond_wait(&m->gate_changed, &m->gate_lock);
    (void)pthread_mutex_unlock(&m->gate_lock);
    if (index == 0)
        atomic_store(&m->first_run_ns, util_now_ns() - m->options.start_ns);
}

/* Waits for the filters of the vCPUs; 0 or -errno of one. */
static int machine_gate_gather(struct machine *m)
{
    int rc;

    (void)pthread_mutex_lock(&m->gate_lock);
    while (m->gate_waiting < m->num_started)
        (void)pthread_cond_wait(&m->gate_changed, &m->gate_lock);
    rc = m->gate_error;
    (void)pthread_mutex_unlock(&m->gate_lock);
    return rc;
}

static void machine_gate_open(struct machine *m)
{
    (void)pthread_mutex_lock(&m->gate_lock);
    m->gate_open = true;
    (void)pthread_cond_broadcast(&m->gate_changed);
    (void)pthread_mutex_unlock(&m->gate_lock);
}

static int machine_filter_loop(const struct machine *m)
{
    return seccomp_install(
        m->options.control_socket ? SECCOMP_LOOP_API : SECCOMP_LOOP, "loop");
}

/* --- running ---------------------------------------------------------------
 */

static int machine_start_vcpus(struct machine *m, struct errmsg *err)
{
    int rc = 0;

    for (uint32_t i = 0; i < m->num_vcpus && rc == 0; i++) {
        rc = vcpu_start(m->vcpus[i], err);
        if (rc == 0)
            m->num_started++;
    }
    return rc;
}

/* What all threads share; each adds its filter of system calls. */
static int machine_lock_up(struct machine *m, const char **out_what)
{
    int rc = 0;

    *out_what = "seccomp";
    if (m->options.filter_calls)
        rc = seccomp_prepare(m->options.log->fd);
    if (rc)
        return rc;
    *out_what = "landlock";
    return machine_confine(m);
}

/* thread: io; missed beats are not made up for */
static void machine_on_sample(struct ev_timer *t)
{
    struct machine *m = t->arg;

    if (m->stopping)
        return;
    vcpu_sample(m->vcpus[0]);
    (void)!evloop_timer_arm(m->loop, t,
                            util_now_ns() + 1000000000u / m->options.profile_hz,
                            machine_on_sample, m); /* no memory: it ends */
}

static int machine_enter_all(struct machine *m, struct errmsg *err)
{
    const char *what;
    int lock_rc = machine_lock_up(m, &what);
    int rc = machine_start_vcpus(m, err);

    if (lock_rc == 0) {
        what = "seccomp";
        lock_rc = machine_gate_gather(m);
    }
    if (lock_rc == 0 && rc == 0 && m->options.filter_calls)
        lock_rc = machine_filter_loop(m);
    if (lock_rc && rc == 0)
        rc = err_set(err, lock_rc,
                     "%s: %s; the host's kernel needs SECCOMP_FILTER, or "
                     "give --no-seccomp",
                     what, err_reason(lock_rc));
    if (rc)
        machine_request_stop(m, STOP_INTERNAL, 0);
    if (rc == 0 && m->samples)
        machine_on_sample(&m->sample_timer);
    machine_gate_open(m);
    return rc;
}

static void machine_wake_devices(struct machine *m)
{
    uart_wake(m->uart);
    devices_wake(m->devices);
}

int machine_start(struct machine *m, struct errmsg *err)
{
    machine_wake_devices(m); /* those of a loaded machine rest */
    return machine_enter_all(m, err);
}

/* --- pausing ---------------------------------------------------------------
 */

/* thread: io; a turn after the devices' last, whose interrupts are in KVM now
 */
static void machine_on_rested(struct ev_call *c)
{
    struct machine *m = c->arg;
    machine_paused_fn too = m->on_paused_too;
    bool resume = m->resume_due;

    if (m->stopping)
        return;
    m->state = MACHINE_PAUSED;
    m->on_paused_too = NULL;
    m->resume_due = false;
    m->on_paused(m->on_paused_arg);
    if (too)
        too(m->on_paused_too_arg);
    if (resume)
        machine_resume(m);
}

static void machine_devices_rested(void *arg)
{
    struct machine *m = arg;

    evloop_post(m->loop, &m->rested_call);
}

/* thread: io; posted by each vCPU that rests */
static void machine_on_paused(struct ev_call *c)
{
    struct machine *m = c->arg;

    if (++m->num_paused < m->num_started || m->stopping)
        return;
    uart_rest(m->uart);
    devices_rest(m->devices, machine_devices_rested, m);
}

void machine_vcpu_paused(void *arg, uint32_t index)
{
    struct machine *m = arg;

    evloop_post(m->loop, &m->paused_calls[index]);
}

static void machine_begin_pause(struct machine *m, machine_paused_fn done,
                                void *arg)
{
    m->state = MACHINE_PAUSING;
    m->num_paused = 0;
    m->on_paused = done;
    m->on_paused_arg = arg;
    for (uint32_t i = 0; i < m->num_vcpus; i++)
        vcpu_pause(m->vcpus[i]);
}

int machine_start_paused(struct machine *m, machine_paused_fn done, void *arg,
                         struct errmsg *err)
{
    machine_begin_pause(m, done, arg);
    return machine_enter_all(m, err);
}

void machine_pause(struct machine *m, machine_paused_fn done, void *arg)
{
    switch (m->state) {
    case MACHINE_PAUSED:
        done(arg);
        break;
    case MACHINE_PAUSING: /* of a machine that was loaded to stay paused */
        m->on_paused_too = done;
        m->on_paused_too_arg = arg;
        m->resume_due = false;
        break;
    default:
        machine_begin_pause(m, done, arg);
        break;
    }
}

void machine_resume(struct machine *m)
{
    if (m->state == MACHINE_PAUSING)
        m->resume_due = true; /* its devices are on the way to rest */
    if (m->state != MACHINE_PAUSED)
        return;
    m->state = MACHINE_RUNNING;
    machine_wake_devices(m);
    for (uint32_t i = 0; i < m->num_started; i++)
        vcpu_resume(m->vcpus[i]);
}

enum machine_state machine_state(const struct machine *m)
{
    return m->resume_due ? MACHINE_RUNNING : m->state;
}

bool machine_ctrl_alt_del(struct machine *m)
{
    return i8042_press_ctrl_alt_del(m->kbc);
}

struct virtio_dev *machine_find_device(struct machine *m, uint32_t virtio_id,
                                       const char *id)
{
    return devices_find(m->devices, virtio_id, id);
}

void machine_init_calls(struct machine *m)
{
    m->sample_timer.arg = m;
    m->stop_call = (struct ev_call){.fn = machine_on_stop, .arg = m};
    m->rested_call = (struct ev_call){.fn = machine_on_rested, .arg = m};
    for (size_t i = 0; i < LAYOUT_MAX_VCPUS; i++) {
        m->ended_calls[i] = (struct ev_call){.fn = machine_on_ended, .arg = m};
        m->paused_calls[i] =
            (struct ev_call){.fn = machine_on_paused, .arg = m};
    }
}

void machine_collect(struct machine *m, struct machine_result *out)
{
    struct exit_port_mark marks[MACHINE_MAX_MARKS];
    uint64_t word = atomic_load(&m->stop_word);

    memset(out, 0, sizeof(*out));
    out->reason = (enum stop_reason)(word >> 32);
    out->detail = (uint32_t)word;
    out->configured_ns = m->configured_ns;
    out->exits = m->exits;
    out->samples = m->samples;
    out->pio = m->pio;
    out->mmio = m->mmio;
    out->first_run_ns = atomic_load(&m->first_run_ns);
    out->num_marks = exit_port_marks(m->exit_port, marks, ARRAY_SIZE(marks));
    for (size_t i = 0; i < out->num_marks; i++) {
        out->marks[i].mark = marks[i].mark;
        out->marks[i].at_ns = marks[i].at_ns;
    }
}
