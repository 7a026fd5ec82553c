# SPDX-License-Identifier: Apache-2.0
"""Diffs: what a guest and its devices wrote since the snapshot before."""

import os
import time

import state_edit
from client import ends, monitor
from harness import Cases, Skip
from state_edit import Memory, State
from ticks import (check_series, create_body, drain, end, load, load_body,
                   save, ticking, wait_first, wait_ticks)

CASES = Cases()
MIB = 1 << 20
SECTORS = 64


def case(name):
    return CASES.case(name)


def check_files(t, name):
    """A pair as its description has it, by a second reader of it."""
    state = State.read(t.path(f"{name}.state"))
    mem = Memory(state)
    path = t.path(f"{name}.mem")
    kind, ram, ident = state_edit.trailer(path)
    t.eq((kind, ram, ident), (mem.kind, mem.ram, state.id), f"end of {name}")
    t.eq(os.stat(path).st_size, ram + 4096, f"size of {name}.mem")
    with open(path, "rb") as f:
        t.eq(state_edit.checksums(mem, f), mem.crc, f"checksums of {name}")
    return state, mem


def merged(t, names):
    """The name of what NAMES, each on the one before, come to."""
    out = names[0]
    for name in names[1:]:
        new = f"{out}+{name}"
        state_edit.merge(t.path(out), t.path(name), t.path(new))
        out = new
    return out


@case("diff_files_are_as_described")
def described(t):
    vm, api = ticking(t, words="pages=16", track_dirty_pages=True)
    wait_ticks(vm, 2)
    save(api, "base", resume=True)
    base, mem = check_files(t, "base")
    t.eq(mem.kind, 0, "kind of the base")
    t.eq(mem.parent, bytes(16), "parent of the base")
    wait_ticks(vm, 2)
    save(api, "diff", "Diff")
    _, mem = check_files(t, "diff")
    t.eq(mem.kind, 1, "kind of the diff")
    t.eq(mem.parent, base.id, "parent of the diff")
    pages = len(mem.pages())
    t.check(16 <= pages <= 64, f"{pages} pages in the diff")
    ends(t, vm)


@case("BL_077_a_first_diff_is_a_whole_snapshot")
def first(t):
    for track in (True, False):
        vm, api = ticking(t, track_dirty_pages=track)
        wait_ticks(vm, 2)
        save(api, "first", "Diff")
        said = drain(vm)
        t.eq(check_files(t, "first")[1].kind, 0, "kind")
        ends(t, vm)
        copy, _ = load(t, "first", mote={"verify": True})
        wait_first(copy)
        check_series(t, said + drain(copy), "copy")
        end(t, copy)


@case("diff_without_tracking_is_a_whole_one")
def untracked(t):
    vm, api = ticking(t)
    wait_ticks(vm, 1)
    save(api, "base", resume=True)
    wait_ticks(vm, 1)
    save(api, "diff", "Diff")
    t.eq(check_files(t, "diff")[1].kind, 0, "kind")
    ends(t, vm)


def chain(t, payload, words, set_up=None, cpus=1):
    """A whole one and diffs; merged they are the machine of the last."""
    vm, api = ticking(t, payload, words, cpus, set_up=set_up,
                      track_dirty_pages=True)
    wait_ticks(vm, 3)
    names = ["base"]
    save(api, "base", resume=True)
    for i in range(4):
        wait_ticks(vm, 1 + i * 5)
        names.append(f"d{i}")
        save(api, names[-1], "Diff", resume=i < 3)
    said = drain(vm)
    ends(t, vm)
    last = merged(t, names)
    copy, _ = load(t, last, mote={"verify": True})
    wait_first(copy, 40)
    check_series(t, said + drain(copy), "copy")
    end(t, copy)
    return names


@case("diff_chain_of_a_guest_that_writes")
def chain_memory(t):
    chain(t, "tick", "pages=32")
    chain(t, "generations", "pages=100")


@case("diff_chain_of_four_vcpus")
def chain_smp(t):
    chain(t, "tick", "pages=32", cpus=4)


@case("BL_077_what_devices_wrote_is_in_the_diff")
def chain_disk(t):
    """The guest checks buffers and a used ring that only the disk writes."""
    disk = t.file("disk", size=SECTORS * 512)
    chain(t, "tick_disk", f"sectors={SECTORS}",
          lambda api: api.drive("d", disk))


@case("diff_of_a_copy_builds_on_what_was_loaded")
def of_copy(t):
    vm, api = ticking(t, words="pages=16")
    wait_ticks(vm, 2)
    save(api, "base")
    said = drain(vm)
    ends(t, vm)
    base = State.read(t.path("base.state"))
    copy, copy_api = load(t, "base", track_dirty_pages=True)
    names = ["base"]
    for i in range(3):
        wait_first(copy, 2)
        names.append(f"d{i}")
        save(copy_api, names[-1], "Diff", resume=i < 2)
        _, mem = check_files(t, names[-1])
        t.eq(mem.kind, 1, "kind")
        t.eq(mem.parent, base.id, "parent")
        t.check(len(mem.pages()) < 100, f"{len(mem.pages())} pages")
        base = State.read(t.path(f"{names[-1]}.state"))
    said += drain(copy)
    ends(t, copy)
    second, _ = load(t, merged(t, names), mote={"verify": True})
    wait_first(second)
    check_series(t, said + drain(second), "copy of the copy")
    end(t, second)


# --- a diff that fails -----------------------------------------------------

def small_disk(t, size):
    """What a monitor is wrapped in so that DIR/small is a tmpfs of its own."""
    if os.getuid() != 0:
        raise Skip("mounting a small tmpfs takes root")
    os.mkdir(t.path("small"))
    return ("unshare", "-m", "--propagation", "private", "sh", "-c",
            f"mount -t tmpfs -o size={size} none {t.path('small')} && "
            'exec "$@"', "sh")


def fails(t, api, body, word):
    api.pause()
    api.bad("PUT", "/snapshot/create", body, word)
    t.eq(api.state(), "Paused", "state")


def recovers(t, vm, api, fail):
    """A diff that failed: the next one has its pages."""
    wait_ticks(vm, 3)
    save(api, "base", resume=True)
    wait_ticks(vm, 2)
    before = sorted(os.listdir(f"/proc/{vm.pid}/fd"))
    for _ in range(2):
        fail()
        t.eq(sorted(os.listdir(f"/proc/{vm.pid}/fd")), before, "descriptors")
        api.resume()
        wait_ticks(vm, 1)
    save(api, "diff", "Diff")
    said = drain(vm)
    t.eq(Memory(State.read(t.path("diff.state"))).kind, 1, "kind")
    ends(t, vm)
    copy, _ = load(t, merged(t, ["base", "diff"]), mote={"verify": True})
    wait_first(copy, 40)
    check_series(t, said + drain(copy), "copy")
    end(t, copy)


@case("diff_on_a_full_disk_keeps_its_pages")
def full_disk(t):
    wrap = small_disk(t, "64k")
    vm, api = monitor(t, wrap=wrap)
    api.ok("PUT", "/machine-config", {"vcpu_count": 1, "mem_size_mib": 128,
                                      "track_dirty_pages": True})
    api.boot_source("tick", "pages=64")
    api.start()
    inside = f"/proc/{vm.pid}/root{t.path('small')}"

    def fail():
        fails(t, api, create_body(t, "small/x", "Diff"), "No space left")
        t.eq(os.listdir(inside), [], "what is left on the small disk")
    recovers(t, vm, api, fail)


@case("diff_over_the_limit_of_file_sizes_keeps_its_pages")
def too_large(t):
    import resource
    vm, api = ticking(t, words="pages=64", track_dirty_pages=True)

    def fail():
        resource.prlimit(vm.pid, resource.RLIMIT_FSIZE, (MIB, -1))
        fails(t, api, create_body(t, "large", "Diff"), "File too large")
        resource.prlimit(vm.pid, resource.RLIMIT_FSIZE, (-1, -1))
        t.eq([x for x in os.listdir(t.dir) if x.startswith("large")], [],
             "what is left")
    recovers(t, vm, api, fail)


# --- how much is written ---------------------------------------------------

@case("BL_090_memory_files_are_sparse")
def sparse(t):
    vm, api = ticking(t, mem=1024, track_dirty_pages=True)
    wait_ticks(vm, 2)
    began = time.monotonic()
    save(api, "base", resume=True)
    took = time.monotonic() - began
    base = os.stat(t.path("base.mem")).st_blocks * 512
    used = vm.guest_bytes()
    t.check(base < used + 4 * MIB,
            f"{base} bytes on disk, the guest has touched {used}")
    t.check(took < 5, f"saving took {took:.1f} s")
    wait_ticks(vm, 2)
    save(api, "diff", "Diff")
    t.check(os.stat(t.path("diff.mem")).st_blocks * 512 < MIB, "diff")
    ends(t, vm)
    # A copy's memory is private: it is not more on disk for that.
    copy, copy_api = load(t, "base")
    wait_first(copy)
    save(copy_api, "again")
    again = os.stat(t.path("again.mem")).st_blocks * 512
    t.check(again < base + MIB, f"{again} bytes for the copy, {base} before")
    ends(t, copy)
    second, _ = load(t, "again", mote={"verify": True})
    wait_first(second)
    end(t, second)
