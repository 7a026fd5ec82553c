/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/vcpu.h"

#include "vmm/cleanup.h"
#include "vmm/quirks_x86.h"

#include <linux/kvm.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

struct vcpu {
    uint32_t index;
    int fd;
    size_t run_bytes;
    struct kvm_run *run;
    struct vcpu_env env;
    struct quirks quirks; /* set if env.emulated_ring0 */
    bool has_thread;
    pthread_t thread;
    atomic_bool stop;
    atomic_bool sample;      /* asked for, and not yet answered */
    struct vcpu_stats stats; /* written by the thread, read by any */
    /* guarded by lock, as are all writes of run->immediate_exit */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool paused;
    uint32_t pauses; /* asked for so far */
    uint32_t told;   /* and answered by env.paused() */
};

/* The signal only has to interrupt KVM_RUN. */
static void vcpu_on_signal(int sig)
{
    (void)sig;
}

static int vcpu_signal(void)
{
    return SIGRTMIN;
}

int vcpu_install_signal(void)
{
    struct sigaction sa;

    memset(&sa, 0, sizeof(sa));
    sa.sa_handler = vcpu_on_signal; /* no SA_RESTART */
    return sigaction(vcpu_signal(), &sa, NULL) < 0 ? neg_errno() : 0;
}

static int vcpu_enable_caps(const struct kvm *kvm)
{
    struct kvm_enable_cap cap = {
        .cap = KVM_CAP_EXIT_ON_EMULATION_FAILURE,
        .args = {1},
    };

    if (!kvm->caps.exit_on_emulation_failure)
        return 0;
    return ioctl(kvm->vm_fd, KVM_ENABLE_CAP, &cap) < 0 ? neg_errno() : 0;
}

int vcpu_new(const struct kvm *kvm, uint32_t index, const struct vcpu_env *env,
             struct vcpu **out_vcpu, struct errmsg *err)
{
    struct vcpu *v = calloc(1, sizeof(*v));
    int rc;

    if (!v)
        return err_set(err, -ENOMEM, "vCPU %u: out of memory", index);
    v->index = index;
    v->env = *env;
    if (env->emulated_ring0)
        quirks_init(&v->quirks, env->gm);
    v->run = MAP_FAILED;
    (void)pthread_mutex_init(&v->lock, NULL); /* neither fails on Linux */
    (void)pthread_cond_init(&v->changed, NULL);
    v->run_bytes = (size_t)kvm->vcpu_mmap_bytes;
    v->fd = ioctl(kvm->vm_fd, KVM_CREATE_VCPU, index);
    if (v->fd < 0)
        goto err;
    v->run =
        mmap(NULL, v->run_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, v->fd, 0);
    if (v->run == MAP_FAILED)
        goto err;
    if (index == 0 && env->emulated_ring0) {
        rc = vcpu_enable_caps(kvm);
        errno = -rc;
        if (rc)
            goto err;
    }
    *out_vcpu = v;
    return 0;
err:
    rc = neg_errno();
    vcpu_free(v);
    return err_set(err, rc, "vCPU %u: KVM refused it: %s", index,
                   err_reason(rc));
}

void vcpu_get_stats(const struct vcpu *v, struct vcpu_stats *out)
{
    counters_copy(out, &v->stats, sizeof(*out));
}

int vcpu_fd(const struct vcpu *v)
{
    return v->fd;
}

/* After this the vCPU does not run again: it cannot. */
static void vcpu_fatal(struct vcpu *v, enum stop_reason reason, uint32_t detail)
{
    counter_add(&v->stats.failures, 1);
    atomic_store_explicit(&v->stop, true, memory_order_release);
    v->env.stop.request_stop(v->env.stop.arg, reason, detail);
}

static void vcpu_handle_io(struct vcpu *v)
{
    struct kvm_run *run = v->run;
    char *data = (char *)run + run->io.data_offset;
    bool out = run->io.direction == KVM_EXIT_IO_OUT;
    uint64_t began_ns = util_now_ns();

    for (uint32_t i = 0; i < run->io.count; i++) {
        if (out)
            (void)bus_write(v->env.pio, run->io.port, data, run->io.size);
        else
            (void)bus_read(v->env.pio, run->io.port, data, run->io.size);
        data += run->io.size;
    }
    counter_add(out ? &v->stats.io_out : &v->stats.io_in, 1);
    span_add(out ? &v->stats.io_out_time : &v->stats.io_in_time,
             util_now_ns() - began_ns);
}

static void vcpu_handle_mmio(struct vcpu *v)
{
    struct kvm_run *run = v->run;
    uint64_t began_ns = util_now_ns();
    bool out = run->mmio.is_write;
    uint32_t len = run->mmio.len;

    if (len > sizeof(run->mmio.data))
        len = sizeof(run->mmio.data);
    if (out)
        (void)bus_write(v->env.mmio, run->mmio.phys_addr, run->mmio.data, len);
    else
        (void)bus_read(v->env.mmio, run->mmio.phys_addr, run->mmio.data, len);
    counter_add(out ? &v->stats.mmio_write : &v->stats.mmio_read, 1);
    span_add(out ? &v->stats.mmio_write_time : &v->stats.mmio_read_time,
             util_now_ns() - began_ns);
}

/* Where the vCPU stood, for the log line of a failure. */
static uint64_t vcpu_rip(const struct vcpu *v)
{
    struct kvm_regs r;

    return ioctl(v->fd, KVM_GET_REGS, &r) < 0 ? 0 : r.rip;
}

static void vcpu_format_insn(const struct kvm_run *run, char *out, size_t size)
{
    size_t n = 0;

    out[0] = '\0';
    if (run->internal.suberror != KVM_INTERNAL_ERROR_EMULATION ||
        run->emulation_failure.ndata < 3 ||
        !(run->emulation_failure.flags &
          KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES))
        return;
    for (uint32_t i = 0; i < run->emulation_failure.insn_size && i < 15; i++) {
        int m = snprintf(out + n, size - n, " %02x",
                         run->emulation_failure.insn_bytes[i]);

        if (m < 0 || (size_t)m >= size - n)
            return;
        n += (size_t)m;
    }
}

static void vcpu_handle_internal_error(struct vcpu *v)
{
    char insn[64];

    if (v->env.emulated_ring0 && quirks_complete(&v->quirks, v->fd, v->run))
        return;
    vcpu_format_insn(v->run, insn, sizeof(insn));
    log_msg(v->env.log, LOG_ERROR,
            "vCPU %u: KVM internal error, suberror %u at rip 0x%llx%s%s",
            v->index, v->run->internal.suberror,
            (unsigned long long)vcpu_rip(v), insn[0] ? ", instruction" : "",
            insn);
    vcpu_fatal(v, STOP_KVM_ERROR, v->run->internal.suberror);
}

static void vcpu_count_exit(const struct vcpu *v)
{
    const struct kvm_run *run = v->run;
    uint64_t key = VCPU_EXIT_KEY(VCPU_EXIT_OTHER, (uint64_t)run->exit_reason);

    if (run->exit_reason == KVM_EXIT_IO)
        key = VCPU_EXIT_KEY(run->io.direction == KVM_EXIT_IO_OUT
                                ? VCPU_EXIT_IO_OUT
                                : VCPU_EXIT_IO_IN,
                            (uint64_t)run->io.port);
    else if (run->exit_reason == KVM_EXIT_MMIO)
        key = VCPU_EXIT_KEY(run->mmio.is_write ? VCPU_EXIT_MMIO_WRITE
                                               : VCPU_EXIT_MMIO_READ,
                            (uint64_t)run->mmio.phys_addr);
    else if (run->exit_reason == KVM_EXIT_INTERNAL_ERROR)
        key = VCPU_EXIT_KEY(VCPU_EXIT_INTERNAL, UINT64_C(0));
    tally_add(v->env.exits, key);
}

/* KVM_RUN was interrupted: what is counted of that where it was asked for. */
static void vcpu_count_signal(struct vcpu *v)
{
    if (v->env.exits)
        tally_add(v->env.exits, VCPU_EXIT_KEY(VCPU_EXIT_SIGNAL, UINT64_C(0)));
    if (v->env.samples &&
        atomic_exchange_explicit(&v->sample, false, memory_order_relaxed))
        tally_add(v->env.samples, vcpu_rip(v));
}

static void vcpu_handle_exit(struct vcpu *v)
{
    struct kvm_run *run = v->run;

    switch (run->exit_reason) {
    case KVM_EXIT_IO:
        vcpu_handle_io(v);
        break;
    case KVM_EXIT_MMIO:
        vcpu_handle_mmio(v);
        break;
    case KVM_EXIT_INTR:
        break;
    case KVM_EXIT_SHUTDOWN:
        log_msg(v->env.log, LOG_WARN, "vCPU %u: triple fault at rip 0x%llx",
                v->index, (unsigned long long)vcpu_rip(v));
        vcpu_fatal(v, STOP_TRIPLE_FAULT, 0);
        break;
    case KVM_EXIT_FAIL_ENTRY:
        log_msg(
            v->env.log, LOG_ERROR,
            "vCPU %u: KVM could not enter the guest, hardware reason "
            "0x%llx",
            v->index,
            (unsigned long long)run->fail_entry.hardware_entry_failure_reason);
        vcpu_fatal(v, STOP_KVM_ERROR, 0);
        break;
    case KVM_EXIT_INTERNAL_ERROR:
        vcpu_handle_internal_error(v);
        break;
    default:
        log_msg(v->env.log, LOG_ERROR,
                "vCPU %u: unexpected KVM exit reason %u at rip 0x%llx",
                v->index, run->exit_reason, (unsigned long long)vcpu_rip(v));
        vcpu_fatal(v, STOP_KVM_ERROR, run->exit_reason);
        break;
    }
}

/* A stop that was requested before the first entry must hold as well. */
static bool vcpu_stopped(struct vcpu *v)
{
    /* pairs with: vcpu_kick(), vcpu_fatal() */
    return atomic_load_explicit(&v->stop, memory_order_acquire);
}

/* Read by KVM at each entry: closes the gap between a check of ours and the
 * entry, where a signal alone would be lost. */
static void vcpu_set_immediate_exit_locked(struct vcpu *v, uint8_t on)
{
    __atomic_store_n(&v->run->immediate_exit, on, __ATOMIC_RELEASE);
}

/*
 * Called where KVM_RUN came back without an exit to handle, so that nothing
 * the guest did is half done. Returns at once unless a pause is on.
 */
static void vcpu_rest(struct vcpu *v)
{
    bool rested = false;

    (void)pthread_mutex_lock(&v->lock);
    while (v->paused && !vcpu_stopped(v)) {
        rested = true;
        if (v->told != v->pauses) {
            v->told = v->pauses;
            (void)pthread_mutex_unlock(&v->lock);
            v->env.paused(v->env.arg, v->index);
            (void)pthread_mutex_lock(&v->lock);
            continue;
        }
        (void)pthread_cond_wait(&v->changed, &v->lock);
    }
    if (rested && !vcpu_stopped(v))
        vcpu_set_immediate_exit_locked(v, 0);
    (void)pthread_mutex_unlock(&v->lock);
    /* Tells the guest's soft lockup watchdog; refused where the guest does
     * not use KVM's clock. */
    if (rested)
        (void)ioctl(v->fd, KVM_KVMCLOCK_CTRL, 0);
}

static void *vcpu_main(void *arg)
{
    struct vcpu *v = arg;
    char name[16];

    (void)snprintf(name, sizeof(name), "vcpu%u", v->index);
    (void)pthread_setname_np(pthread_self(), name); /* cosmetic */
    log_name_thread(name);
    if (v->env.first_run)
        v->env.first_run(v->env.arg, v->index);
    while (!vcpu_stopped(v)) {
        if (ioctl(v->fd, KVM_RUN, 0) == 0) {
            if (v->env.exits)
                vcpu_count_exit(v);
            vcpu_handle_exit(v);
            continue;
        }
        if (errno == EINTR || errno == EAGAIN) {
            vcpu_count_signal(v);
            vcpu_rest(v);
            continue;
        }
        log_msg(v->env.log, LOG_ERROR, "vCPU %u: KVM_RUN failed: %s", v->index,
                err_reason(neg_errno()));
        vcpu_fatal(v, STOP_KVM_ERROR, 0);
    }
    v->env.ended(v->env.arg, v->index);
    return NULL;
}

int vcpu_start(struct vcpu *v, struct errmsg *err)
{
    int rc = pthread_create(&v->thread, NULL, vcpu_main, v);

    if (rc)
        return err_set(err, -rc, "vCPU %u: starting its thread failed: %s",
                       v->index, err_reason(-rc));
    v->has_thread = true;
    return 0;
}

static void vcpu_interrupt(struct vcpu *v)
{
    if (v->has_thread)
        (void)pthread_kill(v->thread, vcpu_signal()); /* gone: fine */
}

void vcpu_sample(struct vcpu *v)
{
    atomic_store_explicit(&v->sample, true, memory_order_relaxed);
    vcpu_interrupt(v);
}

void vcpu_kick(struct vcpu *v)
{
    (void)pthread_mutex_lock(&v->lock);
    /* pairs with: vcpu_stopped() */
    atomic_store_explicit(&v->stop, true, memory_order_release);
    vcpu_set_immediate_exit_locked(v, 1);
    (void)pthread_cond_signal(&v->changed);
    (void)pthread_mutex_unlock(&v->lock);
    vcpu_interrupt(v);
}

void vcpu_pause(struct vcpu *v)
{
    (void)pthread_mutex_lock(&v->lock);
    v->paused = true;
    v->pauses++;
    vcpu_set_immediate_exit_locked(v, 1);
    (void)pthread_cond_signal(&v->changed);
    (void)pthread_mutex_unlock(&v->lock);
    vcpu_interrupt(v);
}

void vcpu_resume(struct vcpu *v)
{
    (void)pthread_mutex_lock(&v->lock);
    v->paused = false;
    (void)pthread_cond_signal(&v->changed);
    (void)pthread_mutex_unlock(&v->lock);
}

void vcpu_free(struct vcpu *v)
{
    if (!v)
        return;
    if (v->has_thread) {
        vcpu_kick(v);
        (void)pthread_join(v->thread, NULL);
    }
    if (v->run != MAP_FAILED)
        (void)munmap(v->run, v->run_bytes);
    drop_fd(&v->fd);
    (void)pthread_cond_destroy(&v->changed);
    (void)pthread_mutex_destroy(&v->lock);
    free(v);
}
