# SPDX-License-Identifier: Apache-2.0
"""Cases about a monitor that runs: signals, streams, sockets, many at once."""

import contextlib
import ctypes
import errno
import os
import select
import signal
import socket
import struct
import subprocess
import time

from guest_cases import OTHERS
from harness import Cases, Network, PATIENCE, fill_pipe

CASES = Cases()
MIB = 1 << 20
IDLE_SECONDS = 2.0  # how long CPU time is measured
IDLE_LIMIT = 0.02   # of that: BL-017


# --- asked to end ----------------------------------------------------------

def ends_by_signal(t, number):
    vm = t.parked(cpus=2)
    vm.process.send_signal(number)
    t.eq(vm.wait(), 0, "exit code")
    t.eq(vm.report["reason"], "request", "reason in the exit file")
    t.eq(vm.report["detail"], signal.strsignal(number), "detail")
    t.eq(vm.err, "", "log")


CASES.add("end_by_SIGTERM", ends_by_signal, signal.SIGTERM)
CASES.add("end_by_SIGINT", ends_by_signal, signal.SIGINT)
CASES.add("end_by_SIGHUP", ends_by_signal, signal.SIGHUP)


@CASES.case("end_by_SIGTERM_of_a_busy_guest")
def end_busy(t):
    vm = t.start(t.config(t.host.payload("compute"), f"loops={1 << 62}"))
    # No output tells that it runs; its CPU time does.
    deadline = time.monotonic() + PATIENCE
    while vm.cpu_seconds() < 0.2:
        t.check(time.monotonic() < deadline, "the guest does not run")
        t.check(vm.process.poll() is None, "the VM has ended by itself")
    t.terminate(vm)


@CASES.case("end_by_lifeline")
def end_by_lifeline(t):
    r, w = os.pipe()
    vm = t.parked(args=["--lifeline-fd", str(r)], pass_fds=[r])
    os.close(r)
    os.write(w, b"bytes mean nothing")
    t.check(vm.process.poll() is None, "bytes in the lifeline ended the VM")
    os.close(w)
    t.eq(vm.wait(), 0, "exit code")
    t.eq(vm.report["reason"], "request", "reason in the exit file")


# --- standard streams ------------------------------------------------------

def close_standard_input():
    os.close(0)


def idle_share(vms):
    """CPU time of each VM over the same span, as a share of it."""
    before = [vm.cpu_seconds() for vm in vms]
    began = time.monotonic()
    time.sleep(IDLE_SECONDS)  # a measurement, nobody is waited for
    span = time.monotonic() - began
    return [(vm.cpu_seconds() - b) / span for vm, b in zip(vms, before)]


@CASES.case("BL_017_no_spin_without_stdin")
def no_spin(t):
    with subprocess.Popen(["sleep", "1"], stdout=subprocess.PIPE) as sleep:
        vms = {
            "closed": t.parked(preexec=close_standard_input),
            "/dev/null": t.parked(),
            "sleep 1 |": t.parked(stdin=sleep.stdout),
        }
        sleep.stdout.close()
    # The with statement waited for `sleep`: all three have no input now.
    for name, share in zip(vms, idle_share(list(vms.values()))):
        t.check(share < IDLE_LIMIT, f"stdin {name}: {share:.1%} CPU at rest")
    for name, vm in vms.items():
        t.check(vm.process.poll() is None, f"stdin {name}: the VM has ended")
        t.check(len(vm.err.splitlines()) <= 1, f"stdin {name}: {vm.err}")
        t.terminate(vm)


@CASES.case("BL_042_no_spin_on_a_broken_ring")
def no_spin_broken_ring(t):
    vms = []
    for way in ("idx_jump", "idx_back", "loop"):
        disk = t.file(f"disk_{way}", size=MIB)
        vm = t.start(t.config(t.host.payload("virtq_hostile"),
                              f"do={way} then=park",
                              drives=[t.drive("a", disk)], rng=True))
        vm.wait_output(b"parked\n")
        vms.append(vm)
    for vm, share in zip(vms, idle_share(vms)):
        t.check(share < IDLE_LIMIT, f"{vm.name}: {share:.1%} CPU at rest")
        t.terminate(vm)


@CASES.case("guest_that_breaks_every_rule_is_bounded")
def flood_of_faults(t):
    disk = t.file("disk", bytes(MIB))
    with Network() as net:
        flood_and_rest(t, disk, net)


def flood_and_rest(t, disk, net):
    vm = t.start(t.config(t.host.payload("flood"), "loops=500",
                          drives=[t.drive("a", disk)], net=net["net"],
                          **OTHERS), pass_fds=net["pass_fds"])
    began = time.monotonic()
    vm.wait_output(b"warm\n")
    before = vm.resident_bytes()
    vm.wait_output(b"parked\n")
    grown = vm.resident_bytes() - before
    t.check(grown < MIB, f"the monitor has grown by {grown >> 10} KiB")
    share = idle_share([vm])[0]
    t.check(share < IDLE_LIMIT, f"{share:.1%} CPU at rest")
    # Ten lines in ten seconds for each of six devices, and vsock's own.
    windows = 1 + int((time.monotonic() - began) / 10)
    lines = vm.err.splitlines()
    t.check(6 <= len(lines) <= 70 * windows, f"{len(lines)} lines in the log")
    t.eq(t.read("disk"), bytes(MIB), "the disk")
    t.terminate(vm)


@CASES.case("driver_without_sense_comes_to_rest")
def driver_without_sense(t):
    """Random set-ups, requests and resets of all devices at once, a network
    with a peer among them; the seed is fixed."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        config = t.config(t.host.payload("chaos"), "loops=1200 seed=7",
                          drives=[t.drive("a", t.file("disk", bytes(MIB)))],
                          **OTHERS)
        config["network-interfaces"] = [
            {"iface_id": "n", "mote": {"fd": theirs.fileno()}}]
        vm = t.start(config, pass_fds=[theirs.fileno()])
        theirs.close()
        vm.wait_output(b"parked\n")
        share = idle_share([vm])[0]
        t.check(share < IDLE_LIMIT, f"{share:.1%} CPU at rest")
        t.terminate(vm)


@CASES.case("BL_018_flood_on_stdin")
def flood(t):
    zeroes = bytes(65536)
    r, w = os.pipe()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, w)
        vm = t.parked(stdin=r)
        os.close(r)
        before = vm.resident_bytes()
        took = fill_pipe(w, zeroes)
        # From here on a reader that has no limit would make room again.
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            left = max(0.0, deadline - time.monotonic())
            if select.select([], [w], [], left)[1]:
                took += fill_pipe(w, zeroes)
        grown = vm.resident_bytes() - before
        t.check(took < MIB, f"{took} bytes were taken from stdin")
        t.check(grown < MIB, f"{grown} bytes more are resident")
        t.terminate(vm)


def close_output():
    os.close(1)
    os.close(2)


@CASES.case("closed_stdout_and_stderr_hit_no_file")
def closed_output(t):
    """The files that are opened next must not become the serial port or the
    log, although they get the numbers 1 and 2."""
    disk = t.file("disk", size=MIB)
    drives = [t.drive("a", disk)]
    vm = t.start(t.config(t.host.payload("serial_out"), drives=drives),
                 preexec=close_output)
    t.judge(vm)
    vm = t.start(t.config(t.host.payload("virtq_hostile"), "do=loop",
                          drives=drives, rng=True), preexec=close_output)
    t.judge(vm)
    # Guest memory is a file as well; its first bytes are the MP pointer.
    for exit_file in (True, False):
        vm = t.start(t.config(t.host.payload("mptable"), "cpus=1 ",
                              drives=drives, mem=16),
                     preexec=close_output, args=["--level", "Trace"],
                     exit_file=exit_file)
        t.eq(vm.wait(), 0, "exit code of a guest that looks at address 0")
    t.eq(t.read("disk"), bytes(MIB), "the disk")


@CASES.case("reader_of_stdout_goes_away")
def reader_gone(t):
    r, w = os.pipe()
    os.close(r)
    vm = t.start(t.config(t.host.payload("serial_out")),
                 preexec=lambda: os.dup2(w, 1), pass_fds=[w])
    os.close(w)
    t.eq(vm.wait(), 0, "exit code")
    t.eq(vm.report["reason"], "test", "reason in the exit file")
    t.check(len(vm.err.splitlines()) <= 1, "more than one line: " + vm.err)


# --- io_uring forbidden ----------------------------------------------------

class SockFprog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


SECCOMP_RET_TRAP, SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW = (
    0x00030000, 0x00050000, 0x7fff0000)


def forbid_call(number, action):
    """A seccomp filter from outside that answers one system call so.
    spec: linux/seccomp.h, linux/filter.h"""
    PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
    LD_W_ABS, JEQ_K, RET_K = 0x20, 0x15, 0x06
    program = b"".join(struct.pack("<HBBI", *i) for i in (
        (LD_W_ABS, 0, 0, 0),  # the system call's number
        (JEQ_K, 0, 1, number),
        (RET_K, 0, 0, action),
        (RET_K, 0, 0, SECCOMP_RET_ALLOW),
    ))
    prog = SockFprog(len(program) // 8, program)

    def install():
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or \
                libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER,
                           ctypes.byref(prog), 0, 0):
            raise OSError(ctypes.get_errno(), "seccomp")
    return install


def forbid_io_uring(error):
    """As container profiles do."""
    SYS_io_uring_setup = 425
    return forbid_call(SYS_io_uring_setup, SECCOMP_RET_ERRNO | error)


def without_io_uring(t, error):
    sectors = 64
    disk = t.file("disk", size=sectors * 512)
    vm = t.run_payload("blk_rw", f"sectors={sectors}",
                       drives=[t.drive("a", disk)],
                       preexec=forbid_io_uring(error))
    lines = vm.err.splitlines()
    t.eq(len(lines), 1, "lines of the log")
    for word in ("io_uring", os.strerror(error), "epoll"):
        t.check(word in lines[0], f"no {word!r} in: {lines[0]}")


def async_without_io_uring(t, error):
    """What was asked for by name is refused, with the setting to change."""
    disk = t.drive("a", t.file("disk", size=MIB))
    disk["io_engine"] = "Async"
    vm = t.start(t.config(t.host.payload("serial_out"), drives=[disk]),
                 preexec=forbid_io_uring(error))
    vm.wait()
    t.eq(vm.code, 152, "exit code")
    said = vm.err.splitlines()[-1]
    for word in ("drive a", "Async", "io_uring_disabled", os.strerror(error)):
        t.check(word in said, f"no {word!r} in: {said}")


CASES.add("BL_029_async_EPERM", async_without_io_uring, errno.EPERM)
CASES.add("BL_029_async_ENOSYS", async_without_io_uring, errno.ENOSYS)
CASES.add("BL_029_io_uring_EPERM", without_io_uring, errno.EPERM)
CASES.add("BL_029_io_uring_ENOSYS", without_io_uring, errno.ENOSYS)


def everything_without_io_uring(t):
    """The interrupt of every kind of device over the other back end."""
    disk = t.file("disk", size=MIB)
    t.run_payload("irq", "devices=4", drives=[t.drive("a", disk)],
                  vsock="v.sock", rng=True, mote={"virtio_console": True},
                  preexec=forbid_io_uring(errno.EPERM))


CASES.add("BL_029_devices_by_epoll", everything_without_io_uring)


# --- many at once ----------------------------------------------------------

@CASES.case("BL_015_many_starts_at_once")
def many(t):
    # 100 on four processors, the size of the report's host.
    count = 100 if t.host.emulated else min(100, 25 * os.cpu_count())
    config = t.config(t.host.payload("serial_out"))
    vms = [t.start(config) for _ in range(count)]
    for vm in vms:
        t.judge(vm)
        t.eq(vm.err, "", "log")


@CASES.case("disk_in_use_by_another_vm")
def disk_in_use(t):
    disk = t.file("disk", size=MIB)
    first = t.parked(drives=[t.drive("a", disk)])
    for read_only in (False, True):
        second = t.start(t.config(t.host.payload("serial_out"),
                                  drives=[t.drive("a", disk, read_only)]))
        t.refused(second, (1, 152), disk, "in use")
    t.terminate(first)
    t.run_payload("serial_out", drives=[t.drive("a", disk)])
    shared = [t.parked(drives=[t.drive("a", disk, read_only=True)])
              for _ in range(2)]
    for vm in shared:
        t.terminate(vm)


# --- the vsock socket ------------------------------------------------------

def answers(path):
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(path)
            return True
        except OSError:
            return False


@CASES.case("BL_022_live_owner_of_the_socket")
def socket_live(t):
    first = t.parked(vsock="v.sock")
    second = t.start(t.config(t.host.payload("serial_out"), vsock="v.sock"))
    t.refused(second, (1, 152), "v.sock", "another process listens")
    t.check(answers(t.path("v.sock")), "the first VM's socket is gone")
    t.terminate(first)
    t.check(not os.path.lexists(t.path("v.sock")),
            "the socket outlives its VM")


@CASES.case("BL_022_stale_socket")
def socket_stale(t):
    first = t.parked(vsock="v.sock")
    first.process.kill()
    first.wait()
    t.check(os.path.lexists(t.path("v.sock")), "SIGKILL left no socket?")
    second = t.parked(vsock="v.sock")
    t.check(answers(t.path("v.sock")), "the second VM does not listen")
    t.eq(second.err, "", "log")
    t.terminate(second)


@CASES.case("BL_022_plain_file_at_the_socket")
def socket_plain_file(t):
    t.file("v.sock", b"precious")
    vm = t.start(t.config(t.host.payload("serial_out"), vsock="v.sock"))
    t.refused(vm, (1, 152), "v.sock", "not a socket")
    t.eq(t.read("v.sock"), b"precious", "the file in the socket's place")


@CASES.case("BL_023_socket_path_of_107_bytes")
def socket_107(t):
    name = "s" * 107
    vm = t.parked(vsock=name)
    t.check(os.path.lexists(t.path(name)), "there is no socket")
    t.terminate(vm)


@CASES.case("BL_023_socket_path_of_108_bytes")
def socket_108(t):
    vm = t.start(t.config(t.host.payload("serial_out"), vsock="s" * 108))
    t.refused(vm, 152, "108 bytes", "107")
    t.no_stray_files([])


# --- system calls ----------------------------------------------------------

def thread_states(vm):
    """{thread name: {field: value}} of /proc/PID/task/*/status."""
    out = {}
    tasks = f"/proc/{vm.process.pid}/task"
    for tid in os.listdir(tasks):
        with open(f"{tasks}/{tid}/status", encoding="ascii") as f:
            fields = dict(line.split(":\t", 1) for line in f if ":\t" in line)
        out[fields["Name"].strip()] = fields
    return out


@CASES.case("seccomp_filters_every_thread")
def seccomp_every_thread(t):
    vm = t.parked(cpus=1, vsock="v.sock")
    for name, fields in thread_states(vm).items():
        if name.startswith(("iou-", "kvm")):
            continue  # the kernel's own
        t.eq(fields["Seccomp"].strip(), "2", f"Seccomp of thread {name}")
        t.eq(fields["NoNewPrivs"].strip(), "1", f"NoNewPrivs of thread {name}")
    t.terminate(vm)


def landlock_abi():
    """0: this host has none. kernel: landlock_create_ruleset(2)."""
    libc = ctypes.CDLL(None)
    return max(libc.syscall(ctypes.c_long(444), None, ctypes.c_size_t(0),
                            ctypes.c_uint(1)), 0)


@CASES.case("landlock_is_in_force_before_the_guest_runs")
def landlock_in_force(t):
    vm = t.parked(args=["--level", "Debug"], vsock="v.sock")
    lines = [x for x in vm.err.splitlines() if "landlock" in x]
    t.eq(len(lines), 1, f"lines about landlock: {lines}")
    t.check(("in force" if landlock_abi() else "going on without")
            in lines[0], lines[0])
    t.terminate(vm)
    t.check(not os.path.lexists(t.path("v.sock")),
            "the socket could not be removed")


@CASES.case("BL_025_a_needed_call_that_is_missing_is_named")
def seccomp_missing_call(t):
    """As with a filter that lacks accept4: nobody needs it before a client
    comes, and then the loop does."""
    SYS_accept4 = 288
    vm = t.parked(vsock="v.sock",
                  preexec=forbid_call(SYS_accept4, SECCOMP_RET_TRAP))
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(t.path("v.sock"))
        t.eq(vm.wait(), 148, "exit code")
    lines = vm.err.splitlines()
    t.eq(len(lines), 1, f"lines of the log: {lines}")
    for word in ("thread loop", "accept4 (288)"):
        t.check(word in lines[0], f"no {word!r} in: {lines[0]}")


@CASES.case("landlock_missing_is_one_line_for_those_who_debug")
def landlock_missing(t):
    SYS_landlock_create_ruleset = 444
    refuse = forbid_call(SYS_landlock_create_ruleset,
                         SECCOMP_RET_ERRNO | errno.ENOSYS)
    vm = t.parked(preexec=refuse)
    t.eq(vm.err, "", "log")
    t.terminate(vm)
    vm = t.parked(preexec=refuse, args=["--level", "Debug"])
    lines = [x for x in vm.err.splitlines() if "landlock" in x]
    t.eq(len(lines), 1, f"lines about landlock: {lines}")
    t.check("going on without" in lines[0], lines[0])
    t.terminate(vm)


@CASES.case("seccomp_can_be_left_out")
def seccomp_left_out(t):
    vm = t.parked(args=["--no-seccomp"])
    for name, fields in thread_states(vm).items():
        t.eq(fields["Seccomp"].strip(), "0", f"Seccomp of thread {name}")
    t.terminate(vm)
