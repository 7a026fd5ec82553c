# SPDX-License-Identifier: Apache-2.0
"""Machines of `mote run` live in a jail by default."""

import os
import stat

from harness import Failed, MOTE, Skip, TOP, Vm, check, run

CASES = []
USER, GROUP = 54400, 54500  # of nobody on this machine


def case(*tiers):
    def register(function):
        function.tiers = tiers
        CASES.append(function)
        return function
    return register


def status(pid):
    with open("/proc/%d/status" % pid) as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


@case("quick", "full")
def a_monitor_sees_devices_its_sockets_and_nothing_else(host, work):
    disk = os.path.join(work, "d.img")
    with open(disk, "wb") as f:
        f.truncate(1 << 20)
    os.chmod(disk, 0o600)
    with Vm(host, "--mem", "128M", "--disk", disk, "--jail=on") as vm:
        pid = vm.vmm_pid()
        root = "/proc/%d/root" % pid
        check(sorted(os.listdir(root)) == ["dev", "mote-vmm", "run"], os.listdir(root))
        check(sorted(os.listdir(root + "/run")) == ["api.sock", "exit.json", "vsock.sock"],
              os.listdir(root + "/run"))
        s = status(pid)
        check(int(s["CapEff"], 16) == 0 and int(s["CapBnd"], 16) == 0, s)
        check(s["NoNewPrivs"] == "1" and s["Seccomp"] == "2", s)
        if os.geteuid() == 0:
            check(min(map(int, s["Uid"].split())) >= 61184, s["Uid"])
        for ns in ("net", "mnt", "ipc", "uts"):
            check(os.readlink("/proc/%d/ns/%s" % (pid, ns)) !=
                  os.readlink("/proc/self/ns/" + ns), "namespace " + ns)
        # A disk that only its owner can open works all the same.
        r = vm.sh("echo x | dd of=/dev/vdb 2>/dev/null && sync /dev/vdb")
        check(r.rc == 0, str(r))
    with open(disk, "rb") as f:
        check(f.read(2) == b"x\n", "the disk was not written")
    check(vm.proc.returncode == 0, "exit code %r" % vm.proc.returncode)


def groups(pid):
    """{controller: directory}: the machine's own control groups."""
    found = {}
    with open("/proc/%d/cgroup" % pid) as f:
        lines = [line.rstrip("\n").split(":", 2) for line in f]
    with open("/proc/self/mounts") as f:
        mounts = [line.split()[:4] for line in f if line.split()[2].startswith("cgroup")]
    for _, names, path in lines:
        for _, top, kind, options in mounts:
            if path.startswith("/mote/") and (kind == "cgroup2" if not names else
                                              set(names.split(",")) <= set(options.split(","))):
                found.update((n, top + path) for n in (names or "memory,pids").split(","))
    return found


def limit(directory, *files):
    for name in files:
        if os.path.exists(os.path.join(directory, name)):
            with open(os.path.join(directory, name)) as f:
                return int(f.read())
    raise Failed("%s: none of %s" % (directory, files))


@case("quick", "full")
def a_machine_of_root_has_limits_of_its_own(host, work):
    if os.geteuid() != 0:
        raise Skip("needs root")
    with Vm(host, "--mem", "128M", "--cpus", "2", "--jail=on") as vm:
        found = groups(vm.vmm_pid())
        if not found:
            raise Skip("no hierarchy of memory or pids on this host")
        if "memory" in found:
            check(limit(found["memory"], "memory.max", "memory.limit_in_bytes") ==
                  384 << 20, "memory")
        if "pids" in found:
            check(limit(found["pids"], "pids.max") == 66, "pids")
    left = [d for d in found.values() if os.path.exists(d)]
    check(not left, "left behind: %s" % left)


@case("full")
def BL_014_a_killed_starter_leaves_no_jail(host, work):
    mounts = open("/proc/self/mounts").read()
    vm = Vm(host, "--mem", "128M", "--jail=on")
    pid, directory = vm.vmm_pid(), vm.directory()
    dirs = groups(pid).values()
    vm.proc.kill()
    vm.proc.wait()
    fd = os.pidfd_open(pid) if os.path.exists("/proc/%d" % pid) else None
    if fd is not None:
        import select
        check(select.select([fd], [], [], host.guard(10))[0], "the monitor lives on")
        os.close(fd)
    run([MOTE, "ls"], host.guard(10))
    check(not os.path.exists(directory), "the slot stays")
    check(not any(map(os.path.exists, dirs)), "a control group stays")
    check(open("/proc/self/mounts").read() == mounts, "a mount stays")
    vm.proc.stdout.close()


# A host of an ordinary user's: its own /dev/kvm, run-time directory, TAPs.
AS_USER = """set -e
mount -t tmpfs none /mnt; mknod -m 660 /mnt/kvm c 10 232; chown 0:%d /mnt/kvm
mount --bind /mnt/kvm /dev/kvm; mkdir -m 700 /mnt/run; chown %d /mnt/run
mount -t sysfs none /sys
ip tuntap add mote0 mode tap user %d; ip tuntap add mote1 mode tap user %d
ip link set mote0 up; ip link set mote1 up
groups=$1; shift
exec env MOTE_RUNTIME_DIR=/mnt/run setpriv --reuid %d --regid %d --groups $groups "$@"
""" % (GROUP, USER, USER, USER + 1, USER, USER)


def as_user(host, groups, *words):
    if os.geteuid() != 0:
        raise Skip("needs root to become somebody else")
    if not os.stat(os.path.join(TOP, "build")).st_mode & stat.S_IXOTH:
        raise Skip("the build is not readable for others")
    # Not below the case's directory, which only root can enter.
    return run(["unshare", "-m", "-n", "--propagation", "private", "sh", "-c", AS_USER, "sh",
                str(groups), MOTE, "run", "--kernel", host.kernel, "--mem", "128M", *words,
                "--", "echo", "x"], host.guard(60))


@case("full")
def BL_027_an_ordinary_user_in_the_group_of_kvm_has_a_jail(host, work):
    r = as_user(host, GROUP, "--jail=on")
    check((r.rc, r.out, r.err) == (0, b"x\n", b""), str(r))


@case("quick", "full")
def BL_027_without_the_group_of_kvm_it_is_named(host, work):
    r = as_user(host, USER, "--jail=on")
    check(r.rc == 125 and b"/dev/kvm" in r.err and b"group" in r.err and r.out == b"", str(r))


@case("full")
def BL_027_a_tap_of_ones_own_works(host, work):
    r = as_user(host, GROUP, "--jail=on", "--net", "tap=mote0")
    check((r.rc, r.out, r.err) == (0, b"x\n", b""), str(r))


@case("quick", "full")
def BL_027_a_tap_of_somebody_else_is_named_with_its_owner(host, work):
    for when in ("on", "off"):
        r = as_user(host, GROUP, "--jail=" + when, "--net", "tap=mote1")
        check(r.rc == 125 and r.err.count(b"\n") == 1 and r.out == b"", str(r))
        for word in (b"mote1", b"user %d" % (USER + 1), b"ip tuntap add", b"user %d)" % USER):
            check(word in r.err, "no %r in %r" % (word, r.err))
