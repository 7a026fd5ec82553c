# SPDX-License-Identifier: Apache-2.0
"""The long tier: counts instead of seconds."""

import hashlib
import os

from harness import Vm, check, count_fds

CASES = []


def case(*tiers):
    def wrap(fn):
        fn.tiers = tiers
        CASES.append(fn)
        return fn
    return wrap


@case("soak")
def thousands_of_commands(host, work):
    n = 100 if host.emulated else 5000
    with Vm(host) as vm:
        pid = vm.vmm_pid()
        vm.exec("true")
        fds = count_fds(pid)
        for i in range(n):
            check(vm.exec("true").rc == 0, "exec %d" % i)
        check(count_fds(pid) == fds, "descriptors of the monitor")


@case("soak")
def a_gibibyte_both_ways(host, work):
    rounds = 1 if host.emulated else 16
    data = os.urandom(1 << 20) * (4 if host.emulated else 64)
    with Vm(host) as vm:
        for i in range(rounds):
            r = vm.exec("cat", stdin=data, guard=600)
            check(hashlib.sha256(r.out).digest() == hashlib.sha256(data).digest(), "round %d" % i)


@case("soak")
def hundred_boots(host, work):
    from cases_life import mote_run
    for i in range(10 if host.emulated else 100):
        r = mote_run(host, "--", "echo", "x")
        check(r.rc == 0 and r.out == b"x\n", "boot %d: %s" % (i, r))
