# SPDX-License-Identifier: Apache-2.0
"""Forks of machines that can write their disks."""

import os
import shutil
import subprocess

from client import connect, launch, monitor
from fork_cases import good_fork, waiting
from harness import Cases, Skip
from snapshot_cases import SECTORS, check_disk
from ticks import (check_series, drain, end, last_tick, ticking, wait_first,
                   wait_ticks)

CASES = Cases()
MIB = 1 << 20


def case(name):
    return CASES.case(name)


def mote(t, *args):
    """`mote`, which is beside the monitor."""
    program = os.path.join(os.path.dirname(t.host.vmm), "mote")
    subprocess.run([program, *args], check=True, timeout=60,
                   stdin=subprocess.DEVNULL)


def cow(t):
    """A base of zeroes and a copy-on-write file on it -> (base, file)"""
    base = t.file("base", size=SECTORS * 512)
    mote(t, "disk", "create", "--base", base, t.path("top"))
    return base, t.path("top")


def source(t, path, **drive):
    return ticking(t, "tick_disk", f"sectors={SECTORS}",
                   set_up=lambda a: a.drive("d", path, **drive))


def cow_source(t):
    base, top = cow(t)
    return base, top, *source(t, top, mote={"format": "cow"})


def child(path, disk):
    return {"socket": path, "drive_overrides": [
        {"drive_id": "d", "path_on_host": disk}]}


def request(kids, names, **drive):
    return {"children": [child(p, n) for (_, _, p), n in zip(kids, names)],
            "drives": [{"drive_id": "d", "clone_paths": names, **drive}]}


def flat(t, path, out):
    mote(t, "disk", "flatten", path, t.path(out))
    return t.path(out)


@case("fork_disk_cow_is_of_the_same_instant_as_the_memory")
def cow_disk(t):
    base, top, vm, api = cow_source(t)
    wait_ticks(vm, 5)
    kids = waiting(t, 2)
    names = [t.path("kid0"), t.path("kid1")]
    r = api.call("PUT", "/mote/fork", request(kids, names,
                                              next_path=t.path("next")))
    t.eq(r.status, 200, f"fork: {r.body}")
    t.eq([c["ok"] for c in r.json["children"]], [True, True], "children")
    print(f"# stopped {r.json['stopped_us']} us")
    t.eq(api.get("/vm/config")["drives"][0]["path_on_host"], t.path("next"),
         "where the source goes on")
    # Each reads back what it wrote, before the fork and after it: the guest's
    # program checks that itself.
    for kid, _, _ in kids:
        wait_first(kid, 12)
    wait_ticks(vm, 12)
    for number, (kid, _, _) in enumerate(kids):
        ticks = last_tick(kid)
        end(t, kid)
        check_disk(t, flat(t, names[number], f"flat{number}"), ticks - 1)
    ticks = last_tick(vm)
    check_series(t, drain(vm), "source")
    end(t, vm)
    check_disk(t, flat(t, t.path("next"), "flat"), ticks - 1)
    with open(base, "rb") as f:
        t.check(not any(f.read()), "the base was written")


@case("fork_disk_cow_again_and_of_a_child")
def cow_generations(t):
    _, _, vm, api = cow_source(t)
    wait_ticks(vm, 3)
    for n in range(3):
        kids = waiting(t, 1)
        name = t.path(f"kid{n}")
        r = api.call("PUT", "/mote/fork", request(
            kids, [name], next_path=t.path(f"next{n}")))
        t.eq((r.status, r.json["children"][0]["ok"]), (200, True), r.body)
        end(t, vm)
        vm, api, _ = kids[0]
        wait_first(vm, 4)
    ticks = last_tick(vm)
    end(t, vm)
    check_disk(t, flat(t, name, "flat"), ticks - 1)


@case("fork_disk_that_can_be_written_has_to_be_spoken_of")
def refusals(t):
    _, top, vm, api = cow_source(t)
    wait_ticks(vm, 2)
    kids = waiting(t, 1)
    there = t.file("there", b"x")
    new = t.path("new")
    before = sorted(os.listdir(t.dir))
    for drives, *words in (
            (None, "drive d can be written", "clone_paths"),
            ([], "drive d can be written"), (5, "must be a list"),
            ([{"drive_id": "e", "clone_paths": [new]}], "drive d can be"),
            ([{"drive_id": "d"}], "pause it"),
            ([{"drive_id": "d", "clone_paths": [new], "next_path": new,
               "x": 1}], "unknown field `x`"),
            ([{"drive_id": "d", "clone_paths": [new]}], "next_path"),
            ([{"drive_id": "d", "clone_paths": [new], "next_path": "rel"}],
             "absolute"),
            ([{"drive_id": "d", "clone_paths": [], "next_path": new}],
             "a path for each of the 1 children"),
            ([{"drive_id": "d", "clone_paths": [1], "next_path": new}],
             "must be paths"),
            ([{"drive_id": "d", "clone_paths": [there], "next_path": new}],
             there, "File exists"),
            ([{"drive_id": "d", "clone_paths": [new], "next_path": there}],
             there, "File exists"),
            ([{"drive_id": "d", "clone_paths": ["/nowhere/x"],
               "next_path": new}], "/nowhere/x"),
            ([{"drive_id": "d", "clone_paths": [new], "next_path": new}],
             new, "File exists"),
            ([{"drive_id": "d", "clone_paths": [new],
               "next_path": t.path("next")},
              {"drive_id": "d"}], "twice")):
        body = {"children": [child(kids[0][2], new)]}
        if drives is not None:
            body["drives"] = drives
        api.bad("PUT", "/mote/fork", body, *words)
        t.eq(sorted(os.listdir(t.dir)), before, f"files after {drives}")
    t.eq(api.get("/vm/config")["drives"][0]["path_on_host"], top, "its file")
    t.eq(t.read("there"), b"x", "a file that was there")
    wait_ticks(vm, 2)
    r = api.call("PUT", "/mote/fork", request(kids, [new],
                                              next_path=t.path("next")))
    t.eq(r.json["children"][0]["ok"], True, r.body)
    wait_first(kids[0][0], 3)
    end(t, kids[0][0])
    end(t, vm)


@case("fork_disk_read_only_is_shared")
def read_only(t):
    disk = t.file("disk", size=SECTORS * 512)
    vm, api = ticking(t, set_up=lambda a: a.drive("d", disk,
                                                  is_read_only=True))
    wait_ticks(vm, 2)
    kids = waiting(t, 2)
    good_fork(t, api, [p for _, _, p in kids])
    for kid, _, _ in kids:
        wait_first(kid, 2)
        end(t, kid)
    api.bad("PUT", "/mote/fork", {"children": [{"socket": "s"}], "drives": [
        {"drive_id": "d", "clone_paths": [t.path("x")]}]}, "cannot be written")
    end(t, vm)


@case("fork_disk_raw_is_copied_by_the_file_system")
def raw(t):
    disk = t.file("disk", size=SECTORS * 512)
    vm, api = source(t, disk)
    wait_ticks(vm, 3)
    kids = waiting(t, 2)
    names = [t.path("kid0"), t.path("kid1")]
    api.bad("PUT", "/mote/fork", request(kids, names, next_path=t.path("n")),
            "a raw file has no field `next_path`")
    r = api.call("PUT", "/mote/fork", request(kids, names))
    if r.status == 400:  # no reflinks here: said so, nothing is left
        t.check("reflink" in r.json["fault_message"] and
                "copy-on-write" in r.json["fault_message"], r.body)
        for name in names:
            t.check(not os.path.lexists(name), f"{name} was left")
        wait_ticks(vm, 3)
        end(t, vm)
        for kid, _, _ in kids:
            end(t, kid)
        return
    t.eq([c["ok"] for c in r.json["children"]], [True, True], r.body)
    for number, (kid, _, _) in enumerate(kids):
        wait_first(kid, 6)
        ticks = last_tick(kid)
        end(t, kid)
        check_disk(t, names[number], ticks - 1)
    end(t, vm)


def reflinks(t):
    """What a monitor is wrapped in so that DIR/xfs is a file system of its
    own that can share blocks, with the disk on it."""
    if os.getuid() != 0 or not shutil.which("mkfs.xfs"):
        raise Skip("a file system with reflinks takes root and mkfs.xfs")
    image = t.file("image", size=400 * MIB)
    subprocess.run(["mkfs.xfs", "-q", image], check=True, timeout=60)
    os.mkdir(t.path("xfs"))
    own = ("unshare", "-m", "--propagation", "private", "sh", "-c")
    mount = f"mount -o loop {image} {t.path('xfs')}"
    tried = subprocess.run([*own, mount], capture_output=True, timeout=60,
                           check=False)
    if tried.returncode:
        raise Skip(f"mounting xfs: {tried.stderr.decode().strip()[:80]}")
    return (*own, f"{mount} && "
            f"truncate -s {SECTORS * 512} {t.path('xfs/disk')} && "
            'exec "$@"', "sh")


@case("fork_disk_raw_is_of_the_same_instant_where_there_are_reflinks")
def reflink(t):
    vm, api = monitor(t, wrap=reflinks(t))
    api.ok("PUT", "/machine-config", {"vcpu_count": 1, "mem_size_mib": 128})
    api.boot_source("tick_disk", f"cpus=1 sectors={SECTORS}")
    api.drive("d", t.path("xfs/disk"))
    api.start()
    wait_ticks(vm, 5)
    inside = ("nsenter", f"--mount=/proc/{vm.pid}/ns/mnt",
              f"--wd={t.dir}", "--")
    kids = []
    for n in range(2):
        kid = launch(t, ["--fork-from", t.path(f"f{n}")], wrap=inside)
        kids.append((kid, connect(t, kid), t.path(f"f{n}")))
    names = [t.path("xfs/kid0"), t.path("xfs/kid1")]
    r = api.call("PUT", "/mote/fork", request(kids, names))
    t.eq(r.status, 200, r.body)
    t.eq([c["ok"] for c in r.json["children"]], [True, True], r.body)
    for number, (kid, _, _) in enumerate(kids):
        wait_first(kid, 12)
        ticks = last_tick(kid)
        end(t, kid)
        check_disk(t, f"/proc/{vm.pid}/root{names[number]}", ticks - 1)
    wait_ticks(vm, 12)
    check_series(t, drain(vm), "source")
    end(t, vm)
