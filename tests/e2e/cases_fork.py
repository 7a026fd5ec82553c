# SPDX-License-Identifier: Apache-2.0
"""Live fork: copies of a running machine, by `mote fork`."""

import json
import os
import select
import signal
import subprocess
import time

from cases_snapshot import MEM, Id, SnapVm
from harness import MOTE, Failed, Vm, check, count_fds, run

CASES = []


def case(*tiers):
    def wrap(fn):
        fn.tiers = tiers
        CASES.append(fn)
        return fn
    return wrap


class Copy(Vm):
    """One copy; it belongs to a Forks."""

    def __init__(self, host, name):
        self.host = host
        self.name = name


class Forks:
    """`mote fork` of a machine and the copies that it keeps."""

    def __init__(self, vm, count, tag="f", ready=True):
        self.host = vm.host
        self.count = count
        self.prefix = "%s-%d-%d" % (tag, os.getpid(), time.monotonic_ns() % 10**9)
        self.proc = subprocess.Popen(
            [MOTE, "fork", "--json", "-n", str(count), "--name", self.prefix, vm.name],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.doc = None
        self.copies = []
        if ready:
            self.wait()

    def wait(self):
        text = b""
        deadline = time.monotonic() + self.host.guard(60)
        while not text.endswith(b"\n}\n"):
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.proc.stdout], [], [], max(left, 0))
            more = os.read(self.proc.stdout.fileno(), 65536) if ready else b""
            if not more:
                self.proc.kill()
                raise Failed("no forks: %r %r" % (text, self.proc.communicate()[1][-600:]))
            text += more
        self.doc = json.loads(text)
        bad = [c for c in self.doc["children"] if "id" not in c]
        if bad:
            self.close()
            raise Failed("copies failed: %r" % bad)
        self.copies = [Copy(self.host, c["name"]) for c in self.doc["children"]]

    def close(self):
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
        try:
            self.proc.communicate(timeout=self.host.guard(30))
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.communicate()
            raise Failed("mote fork did not end by SIGTERM")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def names():
    vms = json.loads(run([MOTE, "ls", "--json"], 60).out)["sandboxes"]
    return {vm["name"] for vm in vms}


@case("quick", "full")
def BL_070_eight_forks_share_no_random_state(host, work):
    """And the rest of an identity: boot id, host name, wall clock."""
    with SnapVm(host) as vm:
        source = Id(vm)
        with Forks(vm, 8) as forks:
            ids = [Id(copy) for copy in forks.copies] + [Id(vm)]
        for word in ("random", "uuid", "boot_id", "hostname"):
            seen = [getattr(i, word) for i in ids]
            check(len(set(seen)) == len(seen), "%s: %r" % (word, seen))
        for copy, i in zip(forks.copies, ids):
            check(i.hostname == copy.name, "host name %r" % i.hostname)
            i.check_wall()
        check(ids[-1].boot_id == source.boot_id, "the source's boot id changed")


@case("quick", "full")
def BL_092_a_fork_leaves_its_source_running(host, work):
    """A command of the source goes on with its client; the next one is served
    at once; memory and files of both part at the fork."""
    with Vm(host, *MEM, tag="fk") as vm:
        check(vm.sh("echo before >/tmp/f").rc == 0, "no file")
        with vm.popen("/bin/sh", "-c", "while :; do echo x; sleep 1; done",
                      stdout=subprocess.PIPE) as ticker:
            check(ticker.stdout.readline() == b"x\n", "the ticker did not begin")
            with Forks(vm, 1) as forks:
                start = time.monotonic()
                r = vm.sh("echo source >>/tmp/f; cat /tmp/f")
                took = time.monotonic() - start
                check(r.out == b"before\nsource\n", "in the source: %s" % r)
                check(took < host.guard(1), "it took %.2f s" % took)
                check(forks.doc["stopped_ms"] < host.guard(100),
                      "stopped for %.1f ms" % forks.doc["stopped_ms"])
                r = forks.copies[0].sh("echo copy >>/tmp/f; cat /tmp/f")
                check(r.out == b"before\ncopy\n", "in the copy: %s" % r)
                for _ in range(2):
                    check(ticker.stdout.readline() == b"x\n", "the ticker stopped")
            r = vm.sh("cat /tmp/f")
            check(r.out == b"before\nsource\n", "in the source later: %s" % r)
            ticker.kill()


@case("quick", "full")
def fork_of_a_fork_outlives_what_it_came_from(host, work):
    with Vm(host, *MEM, tag="fk") as vm:
        check(vm.sh("echo 0 >/tmp/g").rc == 0, "no file")
        first = Forks(vm, 1, tag="fa")
        try:
            check(first.copies[0].sh("echo 1 >>/tmp/g").rc == 0, "no file in the copy")
            with Forks(first.copies[0], 1, tag="fb") as second:
                first.close()
                r = second.copies[0].sh("cat /tmp/g")
                check(r.out == b"0\n1\n", "in the second generation: %s" % r)
                check(vm.sh("cat /tmp/g").out == b"0\n", "in the source")
        finally:
            first.close()


@case("quick", "full")
def BL_094_forks_at_once_end_as_ready_or_failed(host, work):
    """Two at once, and the source ends meanwhile: each copy is ready or has
    failed, within a bound, and nothing stays."""
    count = 3 if host.emulated else 10
    vm = Vm(host, *MEM, tag="fk")
    forks = []
    try:
        before = count_fds(vm.vmm_pid())
        with Forks(vm, 1):
            pass
        check(count_fds(vm.vmm_pid()) <= before, "the source keeps descriptors")
        forks = [Forks(vm, count, tag="f%d" % i, ready=False) for i in range(2)]
        for f in forks:
            f.wait()
        for f in forks:
            check(len(f.copies) == count, "%d copies" % len(f.copies))
        late = Forks(vm, count, tag="fl", ready=False)
        forks.append(late)
        time.sleep(0.1)
        check(run([MOTE, "stop", "-f", vm.name], host.guard(20)).rc == 0, "stop")
        try:
            late.wait()
        except Failed:
            pass  # with its reason
        check(forks[0].copies[0].exec("/bin/true").rc == 0, "a copy without its source")
    finally:
        for f in forks:
            f.close()
        try:
            vm.close()
        except Failed:
            pass  # it was ended
    prefixes = tuple(f.prefix for f in forks)
    left = [n for n in names() if n.startswith(prefixes)]
    check(not left, "still there: %r" % left)
