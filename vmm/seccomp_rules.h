/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_SECCOMP_RULES_H
#define VMM_SECCOMP_RULES_H

/*
 * The system calls that each thread of a running machine may make, and why.
 * vmm/gen/seccomp_gen.c turns these lists into programs when mote is built.
 * Whatever is not here raises SIGSYS, which ends the process (exit code 148).
 *
 *   ALLOW(call, why)
 *   ALLOW_IF(call, argument, value, why)          low 32 bits of one argument
 *   ALLOW_MASK(call, argument, mask, value, why)  (argument & mask) == value
 */

/* Both threads: end, be woken, say why. */
#define SECCOMP_RULES_ALL                                                      \
    ALLOW(futex, "locks between the threads, and joining them")                \
    ALLOW(write, "eventfds, log lines, console output")                        \
    ALLOW(rt_sigreturn, "the signal that takes a vCPU out of KVM_RUN")         \
    ALLOW(rt_sigprocmask, "libc, around the end of a thread and abort()")      \
    ALLOW(exit, "end of a thread")                                             \
    ALLOW(exit_group, "end of the process, also from the SIGSYS handler")      \
    ALLOW(gettid, "abort()")                                                   \
    ALLOW(getpid, "abort()")                                                   \
    ALLOW(tgkill, "abort(); the loop takes vCPUs out of KVM_RUN")              \
    ALLOW(clock_gettime, "CPU time; where the vDSO has no fast clock")         \
    ALLOW(restart_syscall, "the kernel, after a stop by a signal")             \
    ALLOW(munmap, "memory given back")                                         \
    ALLOW(madvise, "libc gives back the stack of a thread that ends")

#define SECCOMP_RULES_VCPU                                                     \
    SECCOMP_RULES_ALL                                                          \
    ALLOW_IF(ioctl, 1, KVM_RUN, "the guest runs")                              \
    ALLOW_IF(ioctl, 1, KVM_KVMCLOCK_CTRL, "the guest was paused")              \
    ALLOW_IF(ioctl, 1, KVM_GET_REGS, "log lines; quirks")                      \
    ALLOW_IF(ioctl, 1, KVM_SET_REGS, "quirks")                                 \
    ALLOW_IF(ioctl, 1, KVM_GET_VCPU_EVENTS, "quirks")                          \
    ALLOW_IF(ioctl, 1, KVM_SET_VCPU_EVENTS, "quirks")                          \
    ALLOW_IF(ioctl, 1, KVM_GET_SREGS, "quirks: XSAVE")                         \
    ALLOW_IF(ioctl, 1, KVM_SET_SREGS, "quirks: CR2 of a fault of XSAVE")       \
    ALLOW_IF(ioctl, 1, KVM_GET_XCRS, "quirks: XSAVE")                          \
    ALLOW_IF(ioctl, 1, KVM_GET_XSAVE, "quirks: XSAVE")                         \
    ALLOW_IF(ioctl, 1, KVM_SET_XSAVE, "quirks: XRSTOR")

/* Memory may never become code. */
#define SECCOMP_RULES_MEMORY                                                   \
    ALLOW(brk, "malloc")                                                       \
    ALLOW_MASK(mmap, 2, PROT_EXEC, 0, "malloc")                                \
    ALLOW_MASK(mprotect, 2, PROT_EXEC, 0, "malloc")                            \
    ALLOW(mremap, "malloc; the source was not executable either")

#define SECCOMP_RULES_LOOP                                                     \
    SECCOMP_RULES_ALL                                                          \
    SECCOMP_RULES_MEMORY                                                       \
    ALLOW(io_uring_enter, "the ring, restricted to the operations in use")     \
    ALLOW_IF(io_uring_register, 1, IORING_REGISTER_ENABLE_RINGS,               \
             "the loop starts")                                                \
    ALLOW_IF(io_uring_register, 1, IORING_REGISTER_FILES_UPDATE,               \
             "a disk is swapped")                                              \
    ALLOW(epoll_pwait2, "the loop where io_uring is forbidden")                \
    ALLOW(epoll_ctl, "the same")                                               \
    ALLOW(preadv2, "disks of that loop")                                       \
    ALLOW(pwritev2, "the same")                                                \
    ALLOW(fdatasync, "the same")                                               \
    ALLOW(fallocate, "the same")                                               \
    ALLOW(read, "eventfds, signals, the console's input")                      \
    ALLOW(readv, "frames of a TAP")                                            \
    ALLOW(writev, "frames of a TAP")                                           \
    ALLOW(pread64, "sectors that direct I/O has to merge; metrics")            \
    ALLOW(pwrite64, "the exit file")                                           \
    ALLOW(poll, "whether a peer has gone, a terminal takes bytes")             \
    ALLOW_IF(socket, 0, AF_UNIX, "a guest connects out")                       \
    ALLOW(connect, "the same")                                                 \
    ALLOW(accept4, "clients of vsock, ports and the control socket")           \
    ALLOW(recvmsg, "bytes for the guest")                                      \
    ALLOW(recvfrom, "the line of a client, its requests")                      \
    ALLOW(sendmsg, "bytes of the guest")                                       \
    ALLOW(sendto, "answers on the control socket")                             \
    ALLOW(shutdown, "half-close")                                              \
    ALLOW(close, "connections end")                                            \
    ALLOW_IF(fcntl, 1, F_GETFD, "whether a descriptor is open")                \
    ALLOW_IF(fcntl, 1, F_GETFL, "blocking or not")                             \
    ALLOW_IF(fcntl, 1, F_SETFL, "the same")                                    \
    ALLOW_IF(fcntl, 1, F_DUPFD_CLOEXEC, "a spare descriptor")                  \
    ALLOW(getrandom, "virtio-rng, secrets of vsock, tokens of metadata")       \
    ALLOW_IF(ioctl, 1, TUNSETOFFLOAD, "what the driver acked")                 \
    ALLOW_IF(ioctl, 1, TUNSETQUEUE, "queue pairs in use")                      \
    ALLOW_IF(ioctl, 1, TUNSETVNETHDRSZ, "header of a TAP")                     \
    ALLOW_IF(ioctl, 1, BLKGETSIZE64, "a disk was resized")                     \
    ALLOW(fstat, "the same, for files")                                        \
    ALLOW(newfstatat, "libc's fstat; whether a socket's file is still ours")   \
    ALLOW(lstat, "the same")                                                   \
    ALLOW(unlink, "socket files of ours")                                      \
    ALLOW(sysinfo, "libc's qsort(), for the balloon's pages")                  \
    ALLOW(ftruncate, "the exit file")

/* What is read of KVM when a machine is saved. */
#define SECCOMP_RULES_SAVE                                                     \
    ALLOW_IF(ioctl, 1, KVM_CHECK_EXTENSION, "what this KVM has of it")         \
    ALLOW_IF(ioctl, 1, KVM_GET_MSR_INDEX_LIST, "a snapshot: vCPUs")            \
    ALLOW_IF(ioctl, 1, KVM_GET_MSRS, "the same")                               \
    ALLOW_IF(ioctl, 1, KVM_GET_MP_STATE, "the same")                           \
    ALLOW_IF(ioctl, 1, KVM_GET_REGS, "the same")                               \
    ALLOW_IF(ioctl, 1, KVM_GET_SREGS, "the same")                              \
    ALLOW_IF(ioctl, 1, KVM_GET_FPU, "the same")                                \
    ALLOW_IF(ioctl, 1, KVM_GET_XSAVE, "the same")                              \
    ALLOW_IF(ioctl, 1, KVM_GET_XCRS, "the same")                               \
    ALLOW_IF(ioctl, 1, KVM_GET_DEBUGREGS, "the same")                          \
    ALLOW_IF(ioctl, 1, KVM_GET_LAPIC, "the same")                              \
    ALLOW_IF(ioctl, 1, KVM_GET_NESTED_STATE, "the same")                       \
    ALLOW_IF(ioctl, 1, KVM_GET_VCPU_EVENTS, "the same")                        \
    ALLOW_IF(ioctl, 1, KVM_GET_TSC_KHZ, "the same")                            \
    ALLOW_IF(ioctl, 1, KVM_GET_IRQCHIP, "a snapshot: interrupt chips")         \
    ALLOW_IF(ioctl, 1, KVM_GET_PIT2, "a snapshot: the timer")                  \
    ALLOW_IF(ioctl, 1, KVM_GET_CLOCK, "a snapshot: the clock")                 \
    ALLOW_IF(ioctl, 1, KVM_GET_DIRTY_LOG, "a diff or a fork: written pages")   \
    ALLOW_IF(ioctl, 1, KVM_SET_USER_MEMORY_REGION, "a fork: log them")         \
    ALLOW(lseek, "holes of the guest's memory")                                \
    ALLOW(fsync, "a snapshot is on disk before anybody is told")               \
    ALLOW(rename, "it takes its place")                                        \
    ALLOW(link, "the one before keeps a name until then")                      \
    ALLOW_IF(ioctl, 1, FICLONE, "a fork: its children's disks")                \
    ALLOW(memfd_create, "a fork's copy of the memory")                         \
    ALLOW_IF(fcntl, 1, F_ADD_SEALS, "which nobody changes any more")

/* With a control socket: its client may change disks while the guest runs, save
 * the machine and fork it. */
#define SECCOMP_RULES_LOOP_API                                                 \
    SECCOMP_RULES_LOOP                                                         \
    SECCOMP_RULES_SAVE                                                         \
    ALLOW(openat, "a disk's new file")                                         \
    ALLOW(statx, "its alignment for direct I/O")                               \
    ALLOW_IF(fcntl, 1, F_OFD_SETLK, "its lock")                                \
    ALLOW_IF(ioctl, 1, BLKSSZGET, "its sectors")                               \
    ALLOW_IF(ioctl, 1, UFFDIO_UNREGISTER,                                      \
             "nobody waits for memory at the end")                             \
    ALLOW(clock_nanosleep, "a lock that a dead monitor still holds")

#endif
