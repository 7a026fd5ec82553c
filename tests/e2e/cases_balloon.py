# SPDX-License-Identifier: Apache-2.0
"""The balloon: memory that the guest gives up goes back to the host.

The host's side is the memfd's pages and the monitor's RSS. Only the `sandbox`
kernel has the driver.
"""

import time

from bare import Bare, has_api
from harness import Failed, Skip, check

CASES = []
MIB = 1 << 20


def case(*tiers):
    def wrap(fn):
        fn.tiers = tiers
        CASES.append(fn)
        return fn
    return wrap


def mem_mib(vm, field):
    """A figure of /proc/meminfo. MemTotal is what the balloon leaves, unless
    the balloon gives way when memory runs out."""
    return int(vm.sh("awk '/%s/{print $2}' /proc/meminfo" % field)) >> 10


def driver(vm, word):
    vm.sh("cd /sys/bus/virtio/drivers/virtio_balloon; for d in /sys/bus/virtio/devices/*; do"
          " [ \"$(cat $d/device)\" = 0x0005 ] && echo ${d##*/} > %s; done; cd /" % word, 120)


def wait_total(vm, holds, what, field="MemTotal"):
    for _ in range(100):
        mib = mem_mib(vm, field)
        if holds(mib):
            return mib
        vm.sh("sleep 0.2")
    check(False, "%s: the guest's %s is %d MiB" % (what, field, mib))


@case("full")
def a_balloon_of_80_percent_and_back(host, work):
    balloon = {"amount_mib": 204, "deflate_on_oom": False}
    with Bare(host, work, 256, {"balloon": balloon}) as vm:
        small = wait_total(vm, lambda n: n < 50, "inflated at boot")
        driver(vm, "unbind")  # a driver that goes gives all back to its guest
        large = wait_total(vm, lambda n: n - small >= 200, "deflated")
        vm.sh("dd if=/dev/zero of=/tmp/f bs=1M count=150 2>/dev/null", 120)
        full = vm.wait_ram(lambda n: n > 160 * MIB, "150 MiB written")
        vm.sh("rm /tmp/f")
        driver(vm, "bind")
        wait_total(vm, lambda n: n < 50, "inflated again")
        empty = vm.wait_ram(lambda n: n < 60 * MIB, "inflated to 80 % again")
        print("# guest %d -> %d MiB, host %s -> %s MiB (memfd, RSS)" % (
            large, small, [n >> 20 for n in full], [n >> 20 for n in empty]), flush=True)
        driver(vm, "unbind")
        wait_total(vm, lambda n: n - small >= 200, "deflated at the end")
        vm.sh("dd if=/dev/urandom of=/tmp/f bs=1M count=20 2>/dev/null && cp /tmp/f /tmp/g &&"
              " cmp /tmp/f /tmp/g", 120)


@case("full")
def reported_free_pages_go_back_to_the_host(host, work):
    balloon = {"amount_mib": 0, "deflate_on_oom": True, "free_page_reporting": True}
    with Bare(host, work, 256, {"balloon": balloon}) as vm:
        before = vm.ram_bytes()
        vm.sh("dd if=/dev/zero of=/tmp/f bs=1M count=64 2>/dev/null", 120)
        full = vm.wait_ram(lambda n: n >= 64 * MIB, "64 MiB written")
        vm.sh("rm /tmp/f")
        after = vm.wait_ram(lambda n: n < 40 * MIB, "removed and reported")
        print("# host %s, full %s, reported %s MiB (memfd, RSS)" % tuple(
            [n >> 20 for n in x] for x in (before, full, after)), flush=True)
        vm.sh("dd if=/dev/urandom of=/tmp/f bs=1M count=64 2>/dev/null && cp /tmp/f /tmp/g &&"
              " cmp /tmp/f /tmp/g", 120)


@case("full")
def BL_087_deflate_on_oom_saves_an_allocation(host, work):
    balloon = {"amount_mib": 200, "deflate_on_oom": True}
    with Bare(host, work, 256, {"balloon": balloon}) as vm:
        wait_total(vm, lambda n: n < 60, "inflated", "MemFree")
        # 120 MiB in a process, where 30 are free: the balloon gives way.
        got = vm.sh("head -c 120m /dev/zero | tail -c 120m | wc -c", 120)
        check(got == "125829120\n", repr(got))


def need_api():
    if not has_api():
        raise Skip("this monitor has no control socket")


def wait_for(host, holds, what, guard=30):
    end = time.monotonic() + host.guard(guard)
    while not holds():
        if time.monotonic() > end:
            raise Failed(what)
        time.sleep(0.2)


@case("full")
def the_control_socket_moves_the_balloon(host, work):
    need_api()
    balloon = {"amount_mib": 0, "deflate_on_oom": False, "stats_polling_interval_s": 1}
    with Bare(host, work, 256, {"balloon": balloon}) as vm:
        def stats():
            return vm.api.must("GET", "/balloon/statistics")
        vm.sh("dd if=/dev/zero of=/tmp/f bs=1M count=150 2>/dev/null", 120)
        full = vm.wait_ram(lambda n: n > 160 * MIB, "150 MiB written")
        vm.sh("rm /tmp/f")
        vm.api.must("PATCH", "/balloon", {"amount_mib": 204})
        wait_for(host, lambda: stats()["actual_mib"] == 204, "the target is not reached")
        empty = vm.wait_ram(lambda n: n < 60 * MIB, "inflated to 80 %")
        status, doc = vm.api.request("PATCH", "/balloon", {"amount_mib": 257})
        check(status == 400 and "amount_mib" in str(doc), "%d %s" % (status, doc))
        wait_for(host, lambda: stats().get("free_memory", 1 << 40) < 60 * MIB,
                 "the statistics do not show it")
        vm.api.must("PATCH", "/balloon", {"amount_mib": 0})
        wait_for(host, lambda: stats()["actual_mib"] == 0, "it does not deflate")
        wait_for(host, lambda: stats()["free_memory"] > 180 * MIB,
                 "the statistics do not show it")
        print("# host %s -> %s MiB (memfd, RSS); %d statistics" % (
            [n >> 20 for n in full], [n >> 20 for n in empty], len(stats())), flush=True)
        vm.sh("dd if=/dev/urandom of=/tmp/f bs=1M count=20 2>/dev/null && cp /tmp/f /tmp/g &&"
              " cmp /tmp/f /tmp/g", 120)


@case("full")
def hinted_free_pages_go_back_to_the_host(host, work):
    need_api()
    balloon = {"amount_mib": 0, "deflate_on_oom": True, "free_page_hinting": True}
    with Bare(host, work, 256, {"balloon": balloon}) as vm:
        vm.sh("dd if=/dev/zero of=/tmp/f bs=1M count=100 2>/dev/null; rm /tmp/f", 120)
        full = vm.ram_bytes()
        check(full[0] > 100 * MIB, "%d MiB after the write" % (full[0] >> 20))
        for _ in range(2):  # a second run names what the first has named
            vm.api.must("PATCH", "/balloon/hinting/start", {"acknowledge_on_stop": True})
            wait_for(host, lambda: vm.api.must("GET", "/balloon/hinting/status")["host_cmd"] == 1,
                     "the run does not end")
        after = vm.wait_ram(lambda n: n < 60 * MIB, "hinted")
        print("# host %s -> %s MiB (memfd, RSS)" % (
            [n >> 20 for n in full], [n >> 20 for n in after]), flush=True)
        vm.api.must("PATCH", "/balloon/hinting/start", {"acknowledge_on_stop": False})
        vm.api.must("PATCH", "/balloon/hinting/stop")
        vm.sh("dd if=/dev/urandom of=/tmp/f bs=1M count=64 2>/dev/null && cp /tmp/f /tmp/g &&"
              " cmp /tmp/f /tmp/g", 120)
