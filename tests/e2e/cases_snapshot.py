# SPDX-License-Identifier: Apache-2.0
"""Snapshots on the command line: save, load, clones, diffs (guest/snap.c)."""

import json
import os
import select
import signal
import subprocess
import time

from harness import MOTE, TOP, Failed, Vm, check, run
from netns import Namespace, ip

CASES = []
MEM = ("--mem", "128M")


def case(*tiers):
    def wrap(fn):
        fn.tiers = tiers
        CASES.append(fn)
        return fn
    return wrap


class SnapVm(Vm):
    """A guest with the program snap in /tmp."""

    def __init__(self, host, *options):
        super().__init__(host, *MEM, *options, tag="sn")
        try:
            with open(os.path.join(TOP, "build", "tests", "snap"), "rb") as f:
                r = self.sh("cat >/tmp/snap && chmod 755 /tmp/snap", stdin=f.read())
            check(r.rc == 0, "snap does not get into the guest: %s" % r)
        except BaseException:
            self.close()
            raise


class Loaded(Vm):
    """A machine out of a snapshot, which stays until closed."""

    def __init__(self, host, where, *options, tag="cl", ready=True):
        self.host = host
        self.name = "%s-%d-%d" % (tag, os.getpid(), time.monotonic_ns() % 10**9)
        self.began = time.time()
        self.proc = subprocess.Popen(
            [MOTE, "snapshot", "load", "--name", self.name, *options, where],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.notes = b""
        if ready:
            self.wait()

    def wait(self):
        ready, _, _ = select.select([self.proc.stdout], [], [], self.host.guard(60))
        line = self.proc.stdout.readline() if ready else b"(nothing)"
        if line.decode().strip() != self.name:
            self.proc.kill()
            raise Failed("not loaded: %r %r" % (line, self.proc.communicate()[1][-600:]))

    def close(self):
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
        try:
            self.notes = self.proc.communicate(timeout=self.host.guard(30))[1]
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.communicate()
            raise Failed("a loaded machine did not end by SIGTERM")

    def _errors(self):
        return self.notes[-800:]


def mote(host, *words, guard=120):
    r = run([MOTE, *words], host.guard(guard))
    check(r.rc == 0, "mote %s: %s" % (" ".join(words), r))
    return r


def save(vm, where, *options):
    return mote(vm.host, "snapshot", "save", vm.name, where, *options)


class Id:
    """What `snap id` says, and between which host times it was asked."""

    def __init__(self, vm):
        self.before = time.time()
        r = vm.exec("/tmp/snap", "id")
        self.after = time.time()
        check(r.rc == 0, "snap id: %s" % r)
        wall, mono, self.random, self.uuid, self.boot_id, self.hostname = \
            r.out.decode().split()
        self.wall, self.mono = int(wall) / 1e9, int(mono) / 1e9

    def check_wall(self):
        # It was read somewhere between the two.
        check(self.before - 0.5 < self.wall < self.after + 0.5,
              "wall clock %.2f, host %.2f to %.2f" % (self.wall, self.before, self.after))


@case("quick", "full")
def snapshot_saves_a_running_machine_and_loads_it(host, work):
    """BL_061, BL_068, BL_069: a running command lives on in the copy and the
    source; the wall clock is the host's, the monotonic one goes on."""
    where = os.path.join(work, "s")
    with SnapVm(host) as vm:
        r = vm.sh("mkdir -p /etc/mote/restore.d; cd /etc/mote/restore.d;"
                  "printf '#!/bin/sh\\necho b >>/tmp/order\\nexit 7\\n' >20-b;"
                  "printf '#!/bin/sh\\necho a >>/tmp/order\\n' >10-a; chmod 755 *")
        check(r.rc == 0, "hooks: %s" % r)
        with vm.popen("/bin/sh", "-c", "echo begun; while :; do echo x >>/tmp/n; sleep 1;"
                      " done", stdout=subprocess.PIPE) as ticker:
            check(ticker.stdout.readline() == b"begun\n", "the ticker did not begin")
            first = Id(vm)
            save(vm, where)
            saved = time.time()
            # The source: unchanged but for the time; its command has its client.
            check(vm.sh("cat /tmp/order").rc != 0, "hooks ran in the source")
            check(ticker.poll() is None, "the command lost its client")
            ticker.kill()
        age_s = 6
        while time.time() < saved + age_s:
            time.sleep(0.2)
        with Loaded(host, where) as copy:
            second = Id(copy)
            second.check_wall()
            ran = saved - first.before + second.after - copy.began
            check(0 < second.mono - first.mono < ran + 0.5,
                  "monotonic time went on by %.2f s, the guest ran for at most %.2f s"
                  % (second.mono - first.mono, ran))
            check(second.hostname == copy.name and second.boot_id != first.boot_id,
                  "identity: %r %r" % (second.hostname, second.boot_id))
            r = copy.sh("cat /tmp/order; n=$(wc -l </tmp/n); while [ $(wc -l </tmp/n) = $n ];"
                        " do sleep 1; done; echo ticks")
            check(r.out == b"a\nb\nticks\n", "in the copy: %s" % r)
        check(b"restore.d/20-b: exit code 7" in copy.notes, "notes: %r" % copy.notes)
        check(copy.proc.returncode == 143, "exit code %s" % copy.proc.returncode)


@case("quick", "full")
def BL_070_clones_at_once_share_no_random_state(host, work):
    where = os.path.join(work, "s")
    with SnapVm(host) as vm:
        save(vm, where)
    clones = [Loaded(host, where, tag="c%d" % i, ready=False) for i in range(8)]
    try:
        for clone in clones:
            clone.wait()
        ids = [Id(clone) for clone in clones]
        for field in ("random", "uuid", "boot_id", "hostname"):
            values = [getattr(i, field) for i in ids]
            check(len(set(values)) == 8, "%s: %r" % (field, values))
        for i in ids:
            i.check_wall()
    finally:
        for clone in clones:
            clone.close()


@case("full")
def BL_071_a_hook_seeds_a_program_anew(host, work):
    where = os.path.join(work, "s")
    with SnapVm(host) as vm:
        r = vm.sh("/tmp/snap rng /tmp/rng.pid /tmp/rng.out >/dev/null 2>&1 &"
                  "while [ ! -s /tmp/rng.pid ]; do sleep 1; done;"
                  "mkdir -p /etc/mote/restore.d; cd /etc/mote/restore.d;"
                  "printf '#!/bin/sh\\nkill -USR1 $(cat /tmp/rng.pid)\\n' >50-rng;"
                  "chmod 755 50-rng")
        check(r.rc == 0, "the program: %s" % r)
        save(vm, where)
    seen = []
    for _ in range(3):
        with Loaded(host, where) as copy:
            r = copy.sh("kill -USR2 $(cat /tmp/rng.pid); while [ ! -s /tmp/rng.out ]; do"
                        " sleep 1; done; cat /tmp/rng.out")
            check(r.rc == 0, "the program is gone: %s" % r)
            seen.append(r.out)
    check(len(set(seen)) == 3, "the same numbers: %r" % seen)


def disk(work, name, size, fill):
    path = os.path.join(work, name)
    with open(path, "wb") as f:
        for i in range(size // 4096):
            f.write(fill(i))
    return path


@case("full")
def BL_077_pages_written_by_the_monitor_are_in_a_diff(host, work):
    """Pages that only the disk's DMA wrote: after merge and load their hash is
    right though the disk below holds zeroes now."""
    size = 8 << 20
    data = disk(work, "data.img", size, lambda i: os.urandom(4096))
    zeroes = disk(work, "zero.img", size, lambda i: bytes(4096))
    base, diff, full = (os.path.join(work, n) for n in ("base", "diff", "full"))
    with SnapVm(host, "--track-writes", "--disk", data + ":ro") as vm:
        # Held open: the cache of a block device goes with its last user.
        r = vm.sh("sleep 100000 </dev/vdb >/dev/null 2>&1 & echo up; head -c 200000"
                  " /dev/urandom >/tmp/was; sha1sum /tmp/was")
        check(r.rc == 0, "%s" % r)
        was = r.out.split()[1]
        save(vm, base)
        r = vm.sh("sha1sum /dev/vdb; rm /tmp/was; head -c 300000 /dev/zero >/tmp/is")
        check(r.rc == 0, "%s" % r)
        digest = r.out.split()[0]
        save(vm, diff, "--diff", base)
        other = run([MOTE, "snapshot", "save", vm.name, os.path.join(work, "no"),
                     "--diff", base], host.guard(60))
        check(other.rc == 1 and b"is not the last snapshot" in other.err,
              "a diff to an older one: %s" % other)
        check(not os.path.exists(os.path.join(work, "no.part")), "something was left")
    r = run([MOTE, "snapshot", "load", diff], host.guard(60))
    check(r.rc == 125 and b"is a diff" in r.err, "a diff was loaded: %s" % r)
    mote(host, "snapshot", "merge", base, diff, full)
    for where in (base, diff, full):
        mote(host, "snapshot", "verify", where)
    told = {w: json.loads(mote(host, "snapshot", "info", "--json", w).out)
            for w in (base, diff, full)}
    check(told[diff]["parent"] == told[base]["id"] and told[full]["id"] == told[diff]["id"]
          and told[full]["kind"] == "full", "%r" % told)
    check(told[diff]["mem_stored_bytes"] < told[base]["mem_stored_bytes"] + size + (8 << 20),
          "the diff is not small: %r" % told)
    with Loaded(host, full, "--disk", "vdb=" + zeroes) as copy:
        r = copy.sh("sha1sum </dev/vdb; ls /tmp/was; wc -c </tmp/is; sha1sum </tmp/is;"
                    " head -c 300000 /dev/zero | sha1sum")
        words = r.out.split()
        check(words[0] == digest, "hash of the cached disk: %s, not %r" % (r, digest))
        check(words[2] == b"300000" and words[3] == words[5], "zero pages: %s" % r)
    with Loaded(host, base, "--disk", "vdb=" + zeroes) as copy:
        r = copy.sh("sha1sum </tmp/was")
        check(r.out.split()[0] == was, "the base has changed: %s" % r)


@case("full")
def BL_067_five_generations(host, work):
    where = os.path.join(work, "g0")
    with SnapVm(host) as vm:
        r = vm.sh("echo 0 >/tmp/generation")
        check(r.rc == 0, "%s" % r)
        save(vm, where)
    for i in range(1, 6):
        options = ("--track-writes",) if i % 2 else ()
        with Loaded(host, where, *options) as copy:
            r = copy.sh("cat /tmp/generation; echo %d >/tmp/generation" % i)
            check(r.out == b"%d\n" % (i - 1), "generation %d: %s" % (i, r))
            older, where = where, os.path.join(work, "g%d" % i)
            if options:  # by turns a diff and a full one
                part = where + "-diff"
                save(copy, part, "--diff", older)
                r = copy.sh("echo still here")
                check(r.out == b"still here\n", "after its own snapshot: %s" % r)
                mote(host, "snapshot", "merge", older, part, where)
            else:
                save(copy, where)
                r = copy.sh("echo still here")
                check(r.out == b"still here\n", "after its own snapshot: %s" % r)


@case("full")
def BL_091_a_snapshot_changes_nothing_in_the_source(host, work):
    look = "cat /proc/net/route /proc/net/arp /proc/sys/kernel/random/boot_id; hostname;" \
           " cat /proc/net/unix | wc -l"
    with SnapVm(host) as vm:
        before = vm.sh(look)
        script = "i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo $i; done; cat >/dev/null"
        with vm.popen("/bin/sh", "-c", script, stdin=subprocess.PIPE,
                      stdout=subprocess.PIPE) as stream:
            check(stream.stdout.readline() == b"1\n", "the stream did not begin")
            for i in range(3):
                save(vm, os.path.join(work, "s%d" % i))
            stream.stdin.close()
            rest = stream.stdout.read()
        check(rest == b"".join(b"%d\n" % i for i in range(2, 401)) and stream.returncode == 0,
              "the stream was cut: %r %s" % (rest[-40:], stream.returncode))
        after = vm.sh(look)
        check(before.out == after.out, "before %r, after %r" % (before.out, after.out))


@case("full")
def snapshot_copies_disks_that_can_be_written(host, work):
    data = disk(work, "data.img", 1 << 20, lambda i: b"%04d" % i * 1024)
    where = os.path.join(work, "s")
    with SnapVm(host, "--disk", data) as vm:
        r = vm.sh("printf saved | dd of=/dev/vdb conv=notrunc 2>/dev/null; sync")
        check(r.rc == 0, "%s" % r)
        save(vm, where)
        vm.sh("printf later | dd of=/dev/vdb conv=notrunc 2>/dev/null; sync")
    mote(host, "snapshot", "verify", where)
    for _ in range(2):  # each has a copy of its own
        with Loaded(host, where) as copy:
            r = copy.sh("head -c 5 /dev/vdb; printf other | dd of=/dev/vdb conv=notrunc"
                        " 2>/dev/null; sync")
            check(r.out == b"saved", "in a copy: %s" % r)
    mine = os.path.join(work, "mine.img")
    subprocess.run(["cp", os.path.join(where, "disk-1"), mine], check=True)
    with Loaded(host, where, "--disk", "vdb=" + mine) as copy:
        copy.sh("printf kept! | dd of=/dev/vdb conv=notrunc 2>/dev/null; sync")
    with open(mine, "rb") as f:
        check(f.read(5) == b"kept!", "a disk of the user's was not written")
    with open(data, "rb") as f:
        check(f.read(5) == b"later", "the source's disk was touched")
    mote(host, "snapshot", "verify", where)


@case("full")
def snapshot_load_runs_a_command_with_its_exit_code(host, work):
    where = os.path.join(work, "s")
    with SnapVm(host) as vm:
        save(vm, where)
    r = run([MOTE, "snapshot", "load", where, "--", "/bin/sh", "-c", "cat; echo e >&2; exit 9"],
            host.guard(60), stdin=b"in\n")
    check(r.rc == 9 and r.out == b"in\n" and r.err == b"e\n", "%s" % r)
    r = run([MOTE, "snapshot", "load", where, "--", "nope"], host.guard(60))
    check(r.rc == 127, "%s" % r)
    check(os.listdir(where) and not [n for n in os.listdir(work) if n != "s"], "left behind")


@case("full")
def clones_have_addresses_of_their_own(host, work):
    """Two at once on one bridge, each with its own MAC and IP; the network
    hears of them by a gratuitous ARP before the first command."""
    where = os.path.join(work, "s")
    look = "cat /sys/class/net/eth0/address 2>/dev/null || ip link show eth0;" \
           " ip addr show eth0; ip route; cat /etc/resolv.conf"
    with Namespace() as ns:
        ip("link", "add", "br0", "type", "bridge")
        ip("addr", "add", "10.7.0.1/24", "dev", "br0")
        ip("link", "set", "br0", "up")
        for i in range(3):
            ip("link", "set", ns.tap("t%d" % i, address=None), "master", "br0")
        with SnapVm(host, "--net", "tap=t0,ip=10.7.0.2/24,gw=10.7.0.1") as vm:
            r = vm.sh("ping -c 1 -W 10 10.7.0.1 >/dev/null && " + look)
            check(r.rc == 0, "the source has no network: %s" % r)
            save(vm, where)
        ip("neigh", "flush", "dev", "br0")
        # Only who is known already is learned anew from what nobody asked for.
        for i in (1, 2):
            ip("neigh", "add", "10.7.0.%d" % (10 + i), "lladdr", "02:00:00:00:00:0%d" % i,
               "dev", "br0", "nud", "stale")
        copies = []
        try:
            for i in (1, 2):
                copies.append(Loaded(host, where, "--net",
                                     "tap=t%d,ip=10.7.0.%d/24,gw=10.7.0.1,dns=10.7.0.1"
                                     % (i, 10 + i)))
            known = ip("neigh", "show", "dev", "br0")
            check("02:00:00:00:00:0" not in known, "the network heard nothing: %s" % known)
            for i, copy in enumerate(copies, 1):
                r = copy.sh("ping -c 1 -W 10 10.7.0.1 >/dev/null && ping -c 1 -W 10 10.7.0.%d"
                            " >/dev/null; echo $?; %s" % (13 - i, look))
                text = r.out.decode()
                check(text.startswith("0\n") and "10.7.0.%d/24" % (10 + i) in text and
                      "10.7.0.2/24" not in text and "default via 10.7.0.1" in text and
                      "nameserver 10.7.0.1" in text, "copy %d: %s" % (i, r))
            macs = [copy.sh("ip link show eth0").out.split(b"ether ")[1][:17]
                    for copy in copies]
            check(macs[0] != macs[1], "one MAC: %r" % macs)
        finally:
            for copy in copies:
                copy.close()
