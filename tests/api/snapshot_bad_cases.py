# SPDX-License-Identifier: Apache-2.0
"""Saved machines that are refused: with the reason, by a process that has
nothing more than before and loads the good one afterwards."""

import os
import shutil
import struct
import zlib

import state_edit
from client import AFTER, ends, monitor
from harness import Cases
from state_edit import State
from ticks import (check_series, create_body, drain, end, holds, load,
                   load_body, save, ticking, wait_first, wait_ticks)

CASES = Cases()
MIB = 1 << 20


def case(name):
    return CASES.case(name)


def saved(t, name="snap", **options):
    """A snapshot on disk, its source gone; what it had said."""
    vm, api = ticking(t, **options)
    wait_ticks(vm, 2)
    save(api, name)
    said = drain(vm)
    ends(t, vm)
    return said


class Refusals:
    """One monitor that is given one bad snapshot after the other."""

    def __init__(self, t):
        self.t = t
        self.vm, self.api = monitor(t)
        self.api.bad("PUT", "/snapshot/load", load_body(t, "nowhere"),
                     "nowhere.state", "No such file")
        self.before = holds(self.vm)
        self.files = None

    def bad(self, body, *words):
        self.files = sorted(os.listdir(self.t.dir))
        message = self.api.bad("PUT", "/snapshot/load", body, *words)
        self.t.eq(self.api.state(), "Not started", f"state after: {message}")
        self.t.eq(holds(self.vm), self.before, f"it holds after: {message}")
        self.t.eq(sorted(os.listdir(self.t.dir)), self.files,
                  f"files after: {message}")
        return message

    def edited(self, change, *words, name="snap"):
        """The state is changed, its checksums are right."""
        t = self.t
        state = State.read(t.path(f"{name}.state"))
        change(state)
        state.write(t.path("edited.state"))
        return self.bad(load_body(t, name,
                                  snapshot_path=t.path("edited.state")),
                        *words)

    def good(self, said, name="snap"):
        """After all of it the good one is loaded by the same process."""
        self.api.ok("PUT", "/snapshot/load", load_body(self.t, name))
        wait_first(self.vm)
        check_series(self.t, said + drain(self.vm), "the good one")
        end(self.t, self.vm)


# --- requests --------------------------------------------------------------

@case("bad_requests_to_save")
def bad_create(t):
    vm, api = ticking(t)
    wait_ticks(vm, 1)
    body = create_body(t)
    before = sorted(os.listdir(t.dir))
    api.bad("PUT", "/snapshot/create", body, "pause it first")
    api.pause()
    fds = holds(vm)
    for bad, word in (
            ({**body, "snapshot_path": None}, "snapshot_path"),
            ({**body, "mem_file_path": ""}, "mem_file_path"),
            ({**body, "mem_file_path": 7}, "mem_file_path"),
            ({**body, "snapshot_type": "Half"}, "Full or Diff"),
            ({**body, "snapshot_type": 1}, "Full or Diff"),
            ({**body, "x": 1}, "`x`"), ({}, "snapshot_path"),
            ({**body, "mem_file_path": body["snapshot_path"]}, "two files"),
            ({**body, "mem_file_path": "/nowhere/x"}, "/nowhere/x"),
            ({**body, "snapshot_path": "/nowhere/x"}, "/nowhere/x"),
            ({**body, "snapshot_path": t.dir}, "no regular file"),
            ({**body, "mem_file_path": "/dev/null"}, "no regular file")):
        api.bad("PUT", "/snapshot/create", bad, word)
        t.eq(api.state(), "Paused", "state")
    os.symlink("/etc/passwd", t.path("link"))
    api.bad("PUT", "/snapshot/create", {**body, "mem_file_path":
                                        t.path("link")}, "no regular file")
    os.unlink(t.path("link"))
    t.eq(holds(vm), fds, "what it holds")
    t.eq(sorted(os.listdir(t.dir)), before, "files")
    api.resume()
    wait_ticks(vm, 2)
    check_series(t, drain(vm), "source")
    end(t, vm)


@case("bad_requests_to_load")
def bad_load(t):
    said = saved(t)
    r = Refusals(t)
    body = load_body(t)
    backend = body["mem_backend"]
    for bad, word in (
            ({**body, "snapshot_path": None}, "missing field `snapshot_path`"),
            ({**body, "snapshot_path": 1}, "snapshot_path"),
            ({"snapshot_path": body["snapshot_path"]},
             "missing field `mem_backend`"),
            ({**body, "mem_file_path": t.path("snap.mem")}, "both given"),
            ({**body, "mem_backend": "x"}, "mem_backend"),
            ({**body, "mem_backend": {**backend, "backend_type": "Magic"}},
             "File or Uffd"),
            ({**body, "mem_backend": {**backend, "x": 1}}, "File or Uffd"),
            ({**body, "mem_backend": {"backend_type": "File"}},
             "backend_path"),
            ({**body, "resume_vm": 1}, "resume_vm must be true or false"),
            ({**body, "track_dirty_pages": "yes"}, "track_dirty_pages"),
            ({**body, "huge_pages": "2M"}, "huge_pages"),
            ({**body, "network_overrides": {}}, "network_overrides"),
            ({**body, "drive_overrides": 1}, "drive_overrides"),
            ({**body, "vsock_override": []}, "vsock_override"),
            ({**body, "mote": 1}, "mote"),
            ({**body, "mote": {"x": True}}, "`mote.x`"),
            ({**body, "mote": {"verify": 1}}, "mote.verify"),
            ({**body, "x": 1}, "unknown field `x`"),
            ({**body, "drive_overrides": [{"drive_id": "no",
                                           "path_on_host": "/x"}]},
             "drive_id `no`, which the snapshot does not have"),
            ({**body, "drive_overrides": [{}]}, "does not have"),
            ({**body, "network_overrides": [{"iface_id": "e",
                                             "host_dev_name": "t"}]},
             "iface_id `e`, which the snapshot does not have"),
            ({**body, "vsock_override": {"uds_path": t.path("v")}},
             "vsock: an override is given, the snapshot has no such")):
        r.bad(bad, word)
    r.good(said)


@case("bad_load_after_configuration")
def configured(t):
    said = saved(t)
    for path, sent in (
            ("/machine-config", {"vcpu_count": 1, "mem_size_mib": 64}),
            ("/boot-source", {"kernel_image_path": t.host.payload("park")}),
            ("/drives/d", {"drive_id": "d", "is_root_device": False,
                           "path_on_host": t.file("disk", size=MIB)}),
            ("/entropy", {})):
        vm, api = monitor(t)
        api.ok("PUT", path, sent)
        api.bad("PUT", "/snapshot/load", load_body(t),
                "not allowed after configuring", path.split("/")[1])
        t.eq(api.state(), "Not started", "state")
        ends(t, vm)
    vm, api = monitor(t)
    api.ok("PUT", "/logger", {"level": "Info"})
    api.ok("PUT", "/snapshot/load", load_body(t))
    t.eq(api.bad("PUT", "/snapshot/load", load_body(t)), AFTER, "a second")
    wait_first(vm)
    check_series(t, said + drain(vm), "copy")
    end(t, vm)


# --- files -----------------------------------------------------------------

def flipped(data, at):
    out = bytearray(data)
    out[at] ^= 0x10
    return bytes(out)


@case("BL_083_a_bad_state_file_is_refused")
def bad_state(t):
    said = saved(t)
    r = Refusals(t)
    data = t.read("snap.state")

    def state_of(new, *words):
        body = load_body(t, snapshot_path=t.file("bad.state", new))
        return r.bad(body, "bad.state", *words)

    for n in (1, 8, 100, len(data) // 2, len(data) - 1):
        state_of(data[:-n])
    state_of(data + b"\0")
    state_of(data + bytes(4096))
    state_of(b"", "empty")
    state_of(b"x" * 100)
    state_of(data[:-1] + b"\x01")
    for at in (0, 5, 8, 12, 16, 24, 40, 44, 47):
        state_of(flipped(data, at))
    for at in range(48, len(data) - 8, len(data) // 40):
        state_of(flipped(data, at))
    new = bytearray(data)
    struct.pack_into("<H", new, 8, 99)
    struct.pack_into("<I", new, 44, zlib.crc32(new[:44]))
    state_of(bytes(new), "99")
    os.mkdir(t.path("dir"))
    r.bad(load_body(t, snapshot_path=t.path("dir")), "dir", "regular file")
    r.bad(load_body(t, snapshot_path="/dev/zero"), "regular file")
    r.bad(load_body(t, snapshot_path=t.path("snap.mem")), "snap.mem")
    t.file("huge", size=1 << 40)
    r.bad(load_body(t, snapshot_path=t.path("huge")), "MiB")
    os.unlink(t.path("huge"))
    r.good(said)


@case("BL_083_a_state_that_is_a_fifo_is_refused")
def fifo(t):
    said = saved(t)
    r = Refusals(t)
    os.mkfifo(t.path("fifo"))
    r.bad(load_body(t, snapshot_path=t.path("fifo")), "regular file")
    r.bad(load_body(t, mem_backend={"backend_type": "File",
                                    "backend_path": t.path("fifo")}),
          "regular file")
    r.good(said)


@case("BL_083_a_bad_memory_file_is_refused")
def bad_mem(t):
    said = saved(t)
    saved(t, "other", mem=64)
    saved(t, "twin")
    r = Refusals(t)

    def mem(name, *words):
        r.bad(load_body(t, mem_backend={"backend_type": "File",
                                        "backend_path": t.path(name)}),
              name, *words)

    t.file("empty")
    os.mkdir(t.path("dir"))
    mem("empty", "has 0 bytes")
    mem("dir", "no regular file")
    mem("missing", "No such file")
    mem("snap.state", "was cut, or belongs to another")
    mem("other.mem", "belongs to another")
    mem("twin.mem", "memory of another snapshot")
    for change in (-1, 1, -4096, 4096, -(64 * MIB)):
        shutil.copy(t.path("snap.mem"), t.path("cut"))
        size = os.stat(t.path("cut")).st_size
        os.truncate(t.path("cut"), size + change)
        mem("cut", "has %d bytes" % (size + change))
    os.unlink(t.path("cut"))
    for at in (0, 8, 12, 16, 24, 44):
        shutil.copy(t.path("snap.mem"), t.path("flip"))
        with open(t.path("flip"), "r+b") as f:
            f.seek(128 * MIB + at)
            byte = f.read(1)[0]
            f.seek(128 * MIB + at)
            f.write(bytes([byte ^ 1]))
        mem("flip", "its end is damaged")
    r.bad(load_body(t, snapshot_path=t.path("twin.state")),
          "memory of another snapshot")
    r.good(said)


@case("bad_memory_is_found_by_verify")
def verify(t):
    said = saved(t)
    r = Refusals(t)
    with open(t.path("snap.mem"), "rb") as f:
        at = os.lseek(f.fileno(), 2 * MIB, os.SEEK_DATA)
        hole = os.lseek(f.fileno(), at, os.SEEK_HOLE)
    shutil.copy(t.path("snap.mem"), t.path("good"))
    for where in (at, hole - 1, hole):  # the last was a page of zeroes
        shutil.copy(t.path("good"), t.path("snap.mem"))
        with open(t.path("snap.mem"), "r+b") as f:
            f.seek(where)
            byte = f.read(1)[0]
            f.seek(where)
            f.write(bytes([byte ^ 0x80]))
        r.bad(load_body(t, mote={"verify": True}), "snap.mem", "damaged",
              "0x%x" % (where // (2 * MIB) * 2 * MIB))
    shutil.copy(t.path("good"), t.path("snap.mem"))
    copy, _ = load(t, mote={"verify": True})
    wait_first(copy)
    check_series(t, said + drain(copy), "verified")
    end(t, copy)
    r.good(said)


@case("bad_diff_without_its_base")
def unmerged(t):
    vm, api = ticking(t, track_dirty_pages=True)
    wait_ticks(vm, 2)
    save(api, "base", resume=True)
    wait_ticks(vm, 2)
    save(api, "diff", "Diff")
    ends(t, vm)
    r = Refusals(t)
    r.bad(load_body(t, "diff"), "is a diff", "merge")
    r.bad(load_body(t, "base", mem_backend={
        "backend_type": "File", "backend_path": t.path("diff.mem")}),
        "another snapshot")
    ends(t, r.vm)


# --- what is in the sections -----------------------------------------------

@case("BL_089_another_cpu_is_refused_by_name")
def cpu(t):
    said = saved(t)
    r = Refusals(t)

    def vendor(state):
        rows = state_edit.cpuid(state)
        next(x for x in rows if x[0] == 0)[3][1:] = struct.unpack(
            "<3I", b"CentntelaurH")
        state_edit.set_cpuid(state, rows)

    def feature(function, reg, bit):
        def change(state):
            rows = state_edit.cpuid(state)
            rows = [x for x in rows if x[0] == function and x[1] == 0] + \
                [x for x in rows if not (x[0] == function and x[1] == 0)]
            if rows[0][0] != function:
                rows.insert(0, (function, 0, 0, [0, 0, 0, 0]))
            rows[0][3][reg] |= 1 << bit
            state_edit.set_cpuid(state, rows)
        return change

    r.edited(vendor, "another vendor", "CentaurHntel")
    # A bit that no CPU has.
    r.edited(feature(0x1, 2, 16), "features that this host lacks",
             "0x1.0:ecx[16]")
    # That flag is for whoever knows better.
    state = State.read(t.path("snap.state"))
    feature(0x1, 2, 16)(state)
    state.write(t.path("edited.state"))
    copy, copy_api = monitor(t)
    reply = copy_api.call("PUT", "/snapshot/load", load_body(
        t, snapshot_path=t.path("edited.state"), mote={"ignore_cpu": True}))
    t.eq(reply.status, 204, f"ignore_cpu: {reply.body}")
    wait_first(copy)
    end(t, copy)
    r.good(said)


@case("BL_073_an_msr_that_is_refused_is_named")
def msr(t):
    """In the middle of the list: all before it and behind it are kept, or
    the load is refused."""
    said = saved(t)
    r = Refusals(t)
    for where in (0, 0.5, 1):
        def unknown(state):
            entries = state_edit.msrs(state)
            entries.insert(int(len(entries) * where), (0x12345678, 1))
            state_edit.set_msrs(state, entries)
        r.edited(unknown, "refused MSR 0x12345678")

    def none(state):
        state_edit.set_msrs(state, [])
    r.edited(none, "number of MSRs")

    def many(state):
        state_edit.set_msrs(state, [(0x10, 0)] * 513)
    r.edited(many, "number of MSRs")

    def cut(state):
        at, num = state_edit.msrs_at(state)
        struct.pack_into("<I", state["cpu/0"], at, num + 1)
    r.edited(cut)
    r.good(said)


@case("BL_088_a_paravirtual_msr_that_is_refused_is_named")
def paravirtual(t):
    said = saved(t)
    r = Refusals(t)

    def clock(state):
        """A clock page at an address that KVM does not take: bits above
        what a guest has."""
        entries = [(i, v) for i, v in state_edit.msrs(state)
                   if i != 0x4b564d02] + [(0x4b564d02, ~0 & (1 << 64) - 1)]
        state_edit.set_msrs(state, entries)
    r.edited(clock, "MSR 0x4b564d02")
    r.good(said)


@case("bad_sections_of_a_good_file")
def sections(t):
    """Every section cut, grown, emptied, or of a later version, and taken
    away: refused, and never the process's end."""
    disk = t.file("disk", size=MIB)
    vm, api = ticking(t, "tick_disk", "sectors=64", set_up=lambda a: (
        a.drive("d", disk), a.ok("PUT", "/entropy", {}),
        a.ok("PUT", "/balloon", {"amount_mib": 0, "deflate_on_oom": True}),
        a.ok("PUT", "/vsock", {"guest_cid": 3, "uds_path": t.path("v")})))
    wait_ticks(vm, 2)
    save(api)
    said = drain(vm)
    ends(t, vm)
    r = Refusals(t)
    for name in State.read(t.path("snap.state")).names():
        def cut(state):
            del state[name][-1:]

        def grow(state):
            state[name].append(0)

        def empty(state):
            del state[name][:]

        def later(state):
            next(s for s in state.sections if s[0] == name)[1] = 77

        if len(State.read(t.path("snap.state"))[name]) > 0:
            r.edited(cut)
            r.edited(empty)
        r.edited(grow)
        r.edited(later, name, "version 77")
        r.edited(lambda state: state.drop(name))
    r.good(said)


@case("bad_bytes_anywhere_end_no_process")
def bytes_anywhere(t):
    """One byte of a section is another, checksums are right: refused or
    taken, and if taken the machine can be ended."""
    disk = t.file("disk", size=MIB)
    vm, api = ticking(t, "tick_disk", "sectors=64", set_up=lambda a: (
        a.drive("d", disk), a.ok("PUT", "/entropy", {})))
    wait_ticks(vm, 2)
    save(api)
    ends(t, vm)
    vm, api = monitor(t)
    good = State.read(t.path("snap.state"))
    taken = 0
    for name in good.names():
        size = len(good[name])
        step = max(size // (6 if name.startswith("cpu") else 12), 1)
        for at in range(0, size, step):
            state = State.read(t.path("snap.state"))
            state[name][at] ^= 0xff
            state.write(t.path("edited.state"))
            reply = api.call("PUT", "/snapshot/load", load_body(
                t, snapshot_path=t.path("edited.state"), resume_vm=False))
            if reply.status == 400:
                continue
            t.eq(reply.status, 204, f"{name} byte {at}: {reply.body}")
            taken += 1
            ends(t, vm)
            vm, api = monitor(t)
    t.check(taken > 0, "nothing was taken")
    end(t, vm)


@case("bad_queue_addresses_past_the_end_of_memory")
def queues(t):
    disk = t.file("disk", size=MIB)
    vm, api = ticking(t, "tick_disk", "sectors=64",
                      set_up=lambda a: a.drive("d", disk))
    wait_ticks(vm, 2)
    save(api)
    said = drain(vm)
    ends(t, vm)
    r = Refusals(t)
    good = State.read(t.path("snap.state"))["device/0"]
    # le32 num, then three addresses, each le64: see virtio_mmio_state.c
    first = 4 + 2 + 4 * 4 + 8 + 1 + 4 + 4
    num, desc, avail, used = struct.unpack_from("<IQQQ", good, first)
    t.eq(num, 8, "the queue's size in the saved state")
    for i, what in enumerate((desc, avail, used)):
        for value in (128 * MIB, 128 * MIB - 16, 1 << 40, (1 << 64) - 4096,
                      what + 1):
            def move(state):
                struct.pack_into("<Q", state["device/0"], first + 4 + 8 * i,
                                 value)
            r.edited(move, "device/0")
    for value in (0, 3, 1 << 15, 1 << 31):
        def size(state):
            struct.pack_into("<I", state["device/0"], first, value)
        r.edited(size, "device/0")
    r.good(said)
