# SPDX-License-Identifier: Apache-2.0
"""How guests start and end."""

import os
import signal
import subprocess
import threading

from harness import MOTE, Skip, Vm, check, count_fds, run

CASES = []


def case(*tiers):
    def wrap(fn):
        fn.tiers = tiers
        CASES.append(fn)
        return fn
    return wrap


def mote_run(host, *words, guard=60, stdin=b"", **kw):
    return run([MOTE, "run", "--kernel", host.kernel, *words], host.guard(guard),
               stdin=stdin, **kw)


@case("quick", "full")
def streams_go_to_their_descriptors_and_the_code_comes_back(host, work):
    r = mote_run(host, "--", "/bin/sh", "-c", "echo hi; echo err >&2; exit 7")
    check(r.rc == 7 and r.out == b"hi\n" and r.err == b"err\n", str(r))


@case("quick", "full")
def stdin_passes_through_to_its_end(host, work):
    r = mote_run(host, "--", "cat", stdin=b"abc\n")
    check(r.rc == 0 and r.out == b"abc\n", str(r))


@case("full")
def BL_011_poweroff_halt_and_reboot_end_the_vm(host, work):
    for word, told in (("poweroff", b"switched itself off"), ("halt", b"halted"),
                       ("reboot", b"reboot")):
        r = mote_run(host, "--", "/bin/sh", "-c", word + " -f; sleep 1000")
        check(r.rc == 125 and told in r.err, "%s: %s" % (word, r))


@case("full")
def BL_013_a_guest_panic_is_told_at_once(host, work):
    # A kernel that finds neither /init nor a root disk panics.
    r = mote_run(host, "--boot-args", "rdinit=/nope root=/dev/none", "--", "true")
    check(r.rc == 125 and b"panic" in r.err, str(r))


@case("quick", "full")
def BL_013_a_killed_monitor_ends_the_command_with_125(host, work):
    vm = Vm(host)
    try:
        p = vm.popen("sleep", "1000", stdin=subprocess.DEVNULL,
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.kill(vm.vmm_pid(), signal.SIGKILL)
        _, err = p.communicate(timeout=host.guard(10))
        check(p.returncode == 125 and err.count(b"\n") == 1, "exec: %r %r" % (p.returncode, err))
        check(vm.proc.wait(host.guard(10)) == 125, "run: %r" % vm.proc.returncode)
        check(vm.info() is None, "mote ls still shows it")
    finally:
        vm.close()


@case("full")
def BL_014_twenty_machines_leave_nothing_behind(host, work):
    def shape():
        vms = [d for d in os.listdir("/run/mote/vm")] if os.path.isdir("/run/mote/vm") else []
        ps = subprocess.run(["pgrep", "-x", "mote-vmm"], stdout=subprocess.PIPE).stdout
        return vms, ps.split()
    before = shape()
    for _ in range(20):
        r = mote_run(host, "--", "true")
        check(r.rc == 0, str(r))
    check(shape() == before, "before %r after %r" % (before, shape()))


@case("full")
def BL_015_many_starts_at_once_all_run(host, work):
    results = []

    def one(i):
        results.append(mote_run(host, "--mem", "128M", "--", "echo", str(i), guard=200))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    bad = [str(r) for r in results if r.rc != 0]
    check(len(results) == 12 and not bad, "; ".join(bad))


@case("quick")
def BL_015_four_starts_at_once_all_run(host, work):
    ps = [subprocess.Popen([MOTE, "run", "--kernel", host.kernel, "--mem", "128M", "--",
                            "echo", "x"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
          for _ in range(4)]
    for p in ps:
        out, _ = p.communicate(timeout=host.guard(120))
        check(p.returncode == 0 and out == b"x\n", "%r %r" % (p.returncode, out))


@case("full")
def BL_028_connections_leak_no_descriptor(host, work):
    with Vm(host) as vm:
        pid = vm.vmm_pid()
        vm.exec("true")
        before = count_fds(pid)
        for _ in range(100):
            check(vm.exec("true").rc == 0, "exec")
        check(count_fds(pid) == before, "%d fds, then %d" % (before, count_fds(pid)))


@case("full")
def several_vcpus_are_all_online(host, work):
    for n in ("1", "2", "3", "4"):
        r = mote_run(host, "--kernel", "sandbox", "--cpus", n, "--",
                     "/bin/sh", "-c", "grep -c ^processor /proc/cpuinfo")
        check(r.out == n.encode() + b"\n", "--cpus %s: %s" % (n, r))


@case("full")
def BL_006_no_firmware_bug_lines_with_three_and_eight_vcpus(host, work):
    for n in ("3", "8"):
        r = mote_run(host, "--kernel", "sandbox", "--cpus", n, "--", "/bin/sh", "-c",
                     "dmesg | grep -ci 'firmware bug'; grep -c ^processor /proc/cpuinfo;"
                     "grep 'cpu cores' /proc/cpuinfo | sort -u | wc -l", guard=120)
        check(r.out.split() == [b"0", n.encode(), b"1"], "--cpus %s: %s" % (n, r))


@case("full")
def memory_across_the_hole_is_usable(host, work):
    r = mote_run(host, "--mem", "3500M", "--", "/bin/sh", "-c",
                 "grep MemTotal /proc/meminfo")
    kib = int(r.out.split()[1])
    check(kib > 3300 * 1024, str(r))


@case("full")
def BL_001_bzimage_takes_its_initrd(host, work):
    boot = [f for f in sorted(os.listdir("/boot"))] if os.path.isdir("/boot") else []
    images = [f for f in boot if f.startswith("vmlinuz")]
    image = os.environ.get("MOTE_TEST_BZIMAGE") or (images and "/boot/" + images[-1])
    if not image:
        raise Skip("no bzImage on this host (MOTE_TEST_BZIMAGE names one)")
    r = run([MOTE, "run", "--kernel", image, "--root", "none", "--console", "--",
             "true"], host.guard(60))
    # A distribution's kernel has virtio as modules: our /init runs, no vsock.
    check(b"mote-agent" in r.err or r.rc == 0, str(r))


@case("full")
def BL_005_long_values_travel_and_long_boot_args_are_refused(host, work):
    value = "v" * 3072
    r = mote_run(host, "--env", "BIG=" + value, "--", "/bin/sh", "-c",
                 "echo ${#BIG} " + "x" * 2048)
    check(r.rc == 0 and r.out.startswith(b"3072 "), str(r))
    r = mote_run(host, "--boot-args", "w" * 5000, "--", "true")
    check(r.rc == 125 and (b"2047" in r.err or b"2048" in r.err), str(r))


@case("full")
def BL_029_a_host_that_forbids_io_uring(host, work):
    """The whole VM on the epoll back end."""
    knob = "/proc/sys/kernel/io_uring_disabled"
    if not os.path.exists(knob):
        raise Skip("this kernel has no io_uring_disabled")
    old = open(knob).read()
    open(knob, "w").write("2")
    try:
        r = mote_run(host, "-v", "--", "echo", "ok")
    finally:
        open(knob, "w").write(old)
    check(r.rc == 0 and r.out == b"ok\n", str(r))


@case("quick", "full")
def timeout_ends_the_command_with_124(host, work):
    r = mote_run(host, "--timeout", "2s", "--", "sleep", "1000")
    check(r.rc == 124, str(r))


@case("full")
def interrupt_goes_to_the_command_and_the_second_ends_the_vm(host, work):
    p = subprocess.Popen([MOTE, "run", "--kernel", host.kernel, "--", "/bin/sh", "-c",
                          "trap 'echo got' INT; echo up; while :; do sleep 1; done"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    check(p.stdout.readline() == b"up\n", "no start")
    p.send_signal(signal.SIGINT)
    check(p.stdout.readline() == b"got\n", "the command did not get the signal")
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=host.guard(10))
    check(p.returncode in (125, 130), "rc %r" % p.returncode)


@case("full")
def a_monitor_ends_when_its_starter_is_killed(host, work):
    vm = Vm(host)
    pid = vm.vmm_pid()
    vm.proc.kill()
    # The monitor is not our child: a pidfd tells its end.
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        fd = None
    if fd is not None:
        import select
        ended, _, _ = select.select([fd], [], [], host.guard(10))
        os.close(fd)
        check(ended, "mote-vmm %d lives on" % pid)
    vm.close()
