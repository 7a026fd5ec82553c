# SPDX-License-Identifier: Apache-2.0
"""Machines saved to files and loaded again, as often and as many as you like.

A guest that ticks says by its numbers whether it went on where it was saved;
it finds its own registers and memory. CYCLES in the environment: the length
of the chain, each of whose links is loaded from the one before.
"""

import os
import time

from client import connect, ends, launch, monitor
from harness import Cases, Failure
from ticks import (check_series, create_body, drain, end, load, load_body,
                   save, ticking, wait_first, wait_ticks)

CASES = Cases()
MIB = 1 << 20
CYCLES = int(os.environ.get("CYCLES", "20"))
# Those that take longer each: fewer of them, unless many are asked for.
FEWER = CYCLES if CYCLES > 20 else max(CYCLES // 4, 1)


def case(name):
    return CASES.case(name)


# --- there and back --------------------------------------------------------

def there_and_back(t, payload="tick", words="", cpus=1, mem=128):
    """Saved, goes on; the copy goes on as well, from the same place."""
    vm, api = ticking(t, payload, words, cpus, mem)
    wait_ticks(vm, 5)
    save(api)
    at = drain(vm)
    t.eq(api.state(), "Paused", "state after saving")
    copy, copy_api = load(t)
    wait_first(copy, 5)
    api.resume()
    wait_ticks(vm, 5)
    check_series(t, drain(vm), "source")
    check_series(t, at + drain(copy), "copy")
    t.eq(copy_api.state(), "Running", "state of the copy")
    end(t, copy)
    end(t, vm)


for name, words in (("lapic", ""), ("pit", "timer=pit"),
                    ("deadline", "timer=deadline")):
    CASES.add(f"snap_goes_on_with_timer_{name}", there_and_back, "tick", words)
CASES.add("snap_goes_on_with_four_vcpus", there_and_back, "tick", "", 4)
CASES.add("snap_goes_on_in_the_middle_of_work", there_and_back, "generations",
          "pages=100")


def memory_size(t, mem):
    with open("/proc/meminfo", encoding="ascii") as f:
        total = int(f.readline().split()[1]) // 1024
    if mem > 4 * total:
        t.check(False, f"{mem} MiB of guest memory are too much for {total}")
    there_and_back(t, "tick_edges", "", 1, mem)
    size = os.stat(t.path("snap.mem"))
    t.eq(size.st_size, mem * MIB + 4096, "size of the memory file")
    t.check(size.st_blocks * 512 < 8 * MIB,
            f"the memory file takes {size.st_blocks * 512} bytes")


for size in (64, 2049, 3328, 3329, 6144):
    CASES.add(f"BL_081_memory_of_{size}_mib", memory_size, size)


@case("snap_chain_of_one_vcpu")
def chain(t):
    """Each link is loaded from the one before; the ticks are one series."""
    vm, api = ticking(t, words="pages=16")
    said = b""
    slowest = 0
    for i in range(CYCLES):
        wait_first(vm, 1)
        save(api)
        said += drain(vm)
        end(t, vm)
        vm, api = monitor(t)
        api.ok("PUT", "/snapshot/load", load_body(t))
        began = time.monotonic()
        vm.wait_output(b"tick ")
        slowest = max(slowest, time.monotonic() - began)
    wait_first(vm, 3)
    check_series(t, said + drain(vm), f"{CYCLES} cycles")
    t.check(slowest < 10, f"{slowest:.1f} s until a loaded guest ticked")
    end(t, vm)


@case("snap_chain_of_four_vcpus")
def chain_smp(t):
    vm, api = ticking(t, words="pages=16", cpus=4)
    said = b""
    for _ in range(FEWER):
        wait_first(vm, 1)
        save(api)
        said += drain(vm)
        end(t, vm)
        vm, api = load(t)
    wait_first(vm, 3)
    check_series(t, said + drain(vm), "cycles")
    end(t, vm)


@case("snap_source_saved_again_and_again")
def again(t):
    """One process, many snapshots; nothing of them stays in it."""
    vm, api = ticking(t)
    wait_ticks(vm, 1)
    save(api, resume=True)
    before = sorted(os.listdir(f"/proc/{vm.pid}/fd"))
    for i in range(20):
        wait_ticks(vm, 1)
        save(api, resume=True)
    t.eq(sorted(os.listdir(f"/proc/{vm.pid}/fd")), before, "descriptors")
    t.check(not [x for x in os.listdir(t.dir)
                 if x.endswith((".part", ".old"))], "parts are left")
    wait_ticks(vm, 2)
    check_series(t, drain(vm), "source")
    copy, _ = load(t)
    wait_first(copy)
    end(t, copy)
    end(t, vm)


@case("snap_stays_paused_unless_told")
def paused(t):
    vm, api = ticking(t)
    wait_ticks(vm, 3)
    save(api)
    at = drain(vm)
    for more in ({"resume_vm": False}, {"resume_vm": None}):
        copy, copy_api = load(t, **more)
        t.eq(copy_api.state(), "Paused", "state")
        before = copy.cpu_seconds()
        time.sleep(0.3)  # a measurement, nobody is waited for
        t.check(copy.cpu_seconds() - before < 0.05, "it uses the CPU")
        t.eq(drain(copy), b"", "output while paused")
        # A machine that never ran here can be saved and ended as well.
        copy_api.ok("PUT", "/snapshot/create", create_body(t, "second"))
        copy_api.resume()
        t.eq(copy_api.state(), "Running", "state")
        wait_first(copy)
        check_series(t, at + drain(copy), "copy")
        end(t, copy)
    copy, _ = load(t, "second")
    wait_first(copy)
    check_series(t, at + drain(copy), "copy of the copy")
    end(t, copy)
    copy, _ = load(t, resume_vm=False)
    ends(t, copy)


@case("snap_loaded_by_eight_at_once")
def eight(t):
    vm, api = ticking(t)
    wait_ticks(vm, 3)
    save(api)
    at = drain(vm)
    ends(t, vm)
    vms = [launch(t) for _ in range(8)]
    apis = [connect(t, x) for x in vms]
    for x in apis:
        x.ok("PUT", "/snapshot/load", load_body(t))
    for x in vms:
        wait_first(x)
        check_series(t, at + drain(x), x.name)
    for x in vms:
        end(t, x)


@case("snap_fields_of_older_clients")
def older(t):
    vm, api = ticking(t)
    wait_ticks(vm, 3)
    save(api)
    copy, copy_api = monitor(t)
    copy_api.ok("PUT", "/snapshot/load", {
        "snapshot_path": t.path("snap.state"),
        "mem_file_path": t.path("snap.mem"),
        "enable_diff_snapshots": True, "resume_vm": True})
    wait_first(copy)
    end(t, copy)
    copy, copy_api = load(t, huge_pages="None", clock_realtime=True,
                          track_dirty_pages=True, network_overrides=[],
                          drive_overrides=[])
    wait_first(copy)
    end(t, copy)


# --- in the middle of things -----------------------------------------------

def at_share(t, share):
    """Saved at any moment of a run: here, of its first ticks."""
    vm, api = monitor(t)
    api.ok("PUT", "/machine-config", {"vcpu_count": 2, "mem_size_mib": 128})
    api.boot_source("tick", "cpus=2")
    began = time.monotonic()
    api.start()
    vm.wait_output(b"tick 4\n")
    whole = time.monotonic() - began
    ends(t, vm)
    vm, api = ticking(t, cpus=2)
    time.sleep(whole * share / 100)  # a moment of the run, whichever
    save(api)
    at = drain(vm)
    ends(t, vm)
    copy, _ = load(t)
    copy.wait_output(b"\n")
    wait_first(copy)
    check_series(t, at + drain(copy), f"saved at {share} %")
    end(t, copy)


for percent in (5, 20, 50, 80, 95):
    CASES.add(f"BL_074_saved_at_{percent}_percent", at_share, percent)


@case("BL_098_pause_and_resume_without_delay")
def no_delay(t):
    vm, api = ticking(t, cpus=2)
    other = api.again()
    wait_ticks(vm, 1)
    for i in range(200):
        api.pause()
        (other if i % 2 else api).resume()
        if i % 20 == 0:
            other.resume()
            wait_ticks(vm, 1)
    t.eq(api.state(), "Running", "state")
    wait_ticks(vm, 3)
    check_series(t, drain(vm), "source")
    end(t, vm)


# --- a disk ----------------------------------------------------------------

SECTORS = 64


def check_disk(t, path, ticks):
    """The file of p_tick_disk after at least so many ticks: each sector has
    the newest write that belongs there, and all writes up to one are done."""
    with open(path, "rb") as f:
        data = f.read()
    seen = [int.from_bytes(data[512 * i:512 * i + 8], "little") >> 8
            for i in range(SECTORS)]
    newest = max(seen)
    t.check(newest >= ticks * 3 + 2, f"write {newest} after {ticks} ticks")
    for i, n in enumerate(seen):
        if newest >= SECTORS:
            want = newest - (newest - i) % SECTORS
        else:
            want = i if i <= newest else 0
        t.eq(n, want, f"sector {i} (the newest is {newest})")


def disk_source(t):
    disk = t.file("disk", size=SECTORS * 512)
    return ticking(t, "tick_disk", f"sectors={SECTORS}",
                   set_up=lambda a: a.drive("d", disk))


def copy_file(t, old, new):
    with open(t.path(old), "rb") as f:
        return t.file(new, f.read())


def disk_chain(t, cycles):
    """Each link goes on with a copy of the disk of the one before."""
    vm, api = disk_source(t)
    said = b""
    for i in range(cycles):
        wait_first(vm, 2)
        save(api, resume=False)
        said += drain(vm)
        name = f"disk{i}"
        old = "disk" if i == 0 else f"disk{i - 1}"
        copy_file(t, old, name)
        end(t, vm)
        vm, api = load(t, drive_overrides=[
            {"drive_id": "d", "path_on_host": t.path(name)}])
    wait_first(vm, 30)
    check_series(t, said + drain(vm), "series")
    ticks = (said + vm.out).count(b"\n") - 1
    end(t, vm)
    check_disk(t, t.path(name), ticks)


CASES.add("snap_chain_of_disk_writes_loses_and_doubles_nothing", disk_chain,
          FEWER)
CASES.add("BL_095_what_was_written_before_each_of_five_loads_is_kept",
          disk_chain, 5)


@case("BL_084_missing_disk_put_back")
def missing_disk(t):
    vm, api = disk_source(t)
    wait_ticks(vm, 3)
    save(api)
    at = drain(vm)
    ends(t, vm)
    os.rename(t.path("disk"), t.path("away"))
    copy, copy_api = monitor(t)
    for _ in range(3):
        copy_api.bad("PUT", "/snapshot/load", load_body(t), t.path("disk"),
                     "No such file")
        t.eq(copy_api.state(), "Not started", "state")
    os.rename(t.path("away"), t.path("disk"))
    copy_api.ok("PUT", "/snapshot/load", load_body(t))
    wait_first(copy)
    check_series(t, at + drain(copy), "copy")
    end(t, copy)


@case("BL_040_disk_that_has_shrunk")
def shrunk(t):
    vm, api = disk_source(t)
    wait_ticks(vm, 3)
    save(api)
    ends(t, vm)
    os.truncate(t.path("disk"), SECTORS * 512 // 2)
    copy, copy_api = monitor(t)
    r = copy_api.call("PUT", "/snapshot/load", load_body(t))
    if r.status == 400:
        t.check("d" in r.json["fault_message"], r.body)
    else:  # requests past the end fail one by one
        t.eq(r.status, 204, "status")
        copy.wait()
        if b"status of a" not in copy.out:
            raise Failure(f"the guest said {copy.out!r}")


@case("BL_037_limiter_of_a_snapshot_can_be_taken_off")
def limiter(t):
    disk = t.file("disk", size=SECTORS * 512)
    slow = {"ops": {"size": 2, "refill_time": 400}}
    vm, api = ticking(t, "tick_disk", f"sectors={SECTORS}",
                      set_up=lambda a: a.drive("d", disk, rate_limiter=slow))
    vm.wait_output(b"tick 0\n")
    save(api)
    at = drain(vm)
    ends(t, vm)
    copy, copy_api = load(t)
    copy_api.ok("PATCH", "/drives/d", {"drive_id": "d", "rate_limiter": {
        "bandwidth": {"size": 0, "refill_time": 0},
        "ops": {"size": 0, "refill_time": 0}}})
    began = time.monotonic()
    wait_first(copy, 20)
    t.check(time.monotonic() - began < 8, "still limited")
    check_series(t, at + drain(copy), "copy")
    end(t, copy)
