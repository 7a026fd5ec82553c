# SPDX-License-Identifier: Apache-2.0
"""Copies of a machine that runs, in monitors that wait for them.

The guests check their own memory: `generations` finds one that is not of the
instant of its registers, `tick` one that lacks a page.
"""

import os

from client import connect, ends, launch
from harness import Cases
from state_edit import Memory, State
from snapshot_diff_cases import merged
from ticks import (TICK, check_series, create_body, drain, end, holds, last_tick,
                   load, save, ticking, wait_first, wait_ticks)

CASES = Cases()
MIB = 1 << 20


def case(name):
    return CASES.case(name)


def waiting(t, n=1, args=()):
    """Monitors that wait for a machine -> [(vm, api, path of the socket)]"""
    paths = [t.path(f"f{len(t.vms) + i}") for i in range(n)]
    vms = [launch(t, ["--fork-from", p, *args]) for p in paths]
    return [(vm, connect(t, vm), p) for vm, p in zip(vms, paths)]


def fork(t, api, children):
    """`children`: paths, or entries of the request; the answer."""
    r = api.call("PUT", "/mote/fork", {"children": [
        {"socket": c} if isinstance(c, str) else c for c in children]})
    t.eq(r.status, 200, f"fork: {r.body}")
    t.eq(sorted(r.json), ["children", "copied_bytes", "stopped_us"], "fields")
    t.eq([c["socket"] for c in r.json["children"]],
         [c if isinstance(c, str) else c["socket"] for c in children],
         "sockets in the answer")
    return r.json


def good_fork(t, api, children):
    answer = fork(t, api, children)
    for child in answer["children"]:
        t.eq(child, {"socket": child["socket"], "ok": True}, "a child")
    return answer


def check_child(t, child, low, high):
    """It goes on from a tick of the source's between these, one by one."""
    lines = drain(child).split(b"\n")[1:-1]
    numbers = [int(x.split()[1]) for x in lines if TICK.match(x + b"\n")]
    t.eq(len(numbers), len(lines), f"{child.name}: strange lines: {lines}")
    t.eq(numbers, list(range(numbers[0], numbers[0] + len(numbers))),
         f"{child.name}: ticks")
    t.check(low <= numbers[0] <= high + 2,
            f"{child.name}: begins at {numbers[0]}, forked at {low} to {high}")


def forked(t, children, payload="tick", words="", cpus=1, **options):
    vm, api = ticking(t, payload, words, cpus, **options)
    wait_ticks(vm, 3)
    kids = waiting(t, children)
    low = last_tick(vm)
    answer = good_fork(t, api, [p for _, _, p in kids])
    high = last_tick(vm)
    t.eq(api.state(), "Running", "state of the source")
    for kid, kid_api, path in kids:
        wait_first(kid, 5)
        check_child(t, kid, low, high)
        t.eq(kid_api.state(), "Running", "state of a child")
        t.check(not os.path.lexists(path), "the socket of a child is left")
    wait_ticks(vm, 5)
    check_series(t, drain(vm), "source")
    return vm, api, kids, answer


def fork_case(t, children, payload, words, cpus=1, **options):
    vm, _, kids, answer = forked(t, children, payload, words, cpus, **options)
    print(f"# {children} children of {payload}: stopped "
          f"{answer['stopped_us']} us, {answer['copied_bytes'] >> 10} KiB")
    for kid, _, _ in kids:
        end(t, kid)
    end(t, vm)


for count in (1, 8):
    CASES.add(f"fork_to_{count}_of_a_guest_that_ticks", fork_case, count,
              "tick", "")
    CASES.add(f"fork_to_{count}_has_memory_of_one_instant", fork_case, count,
              "generations", "pages=1000")
CASES.add("fork_of_four_vcpus", fork_case, 2, "tick", "", 4)
def in_use(t, mib):
    """The figures of README.md are the lines that this prints."""
    fork_case(t, 1, "resident", f"mib={mib}", mem=512)


for mib in (128, 470):
    CASES.add(f"fork_with_{mib}_of_512_mib_in_use", in_use, mib)
CASES.add("fork_with_the_pit", fork_case, 1, "tick", "timer=pit")
CASES.add("fork_with_much_written_memory", fork_case, 1, "generations",
          "pages=4096")


@case("fork_what_is_reported")
def reported(t):
    vm, _, kids, answer = forked(t, 1, words="pages=1000")
    t.check(1000 * 4096 <= answer["copied_bytes"] < 64 * MIB,
            f"{answer['copied_bytes']} bytes copied")
    t.check(0 < answer["stopped_us"] < 2000000,
            f"stopped {answer['stopped_us']} us")
    end(t, kids[0][0])
    end(t, vm)


@case("fork_again_and_again_leaves_nothing")
def leaks(t):
    vm, api = ticking(t)
    wait_ticks(vm, 2)
    before = None
    for _ in range(6):
        (kid, _, path), = waiting(t)
        good_fork(t, api, [path])
        wait_first(kid, 2)
        end(t, kid)
        fds = [x for x in holds(vm)[0] if "socket" not in x]
        t.check(before in (None, fds), f"descriptors: {before}, then {fds}")
        before = fds
    t.check(not [x for x in before if "mote-fork" in x],
            "a memfd of a fork is left in the source")
    wait_ticks(vm, 2)
    check_series(t, drain(vm), "source")
    end(t, vm)


@case("fork_of_a_fork_of_a_fork")
def generations(t):
    vm, api, kids, _ = forked(t, 1, "generations", "pages=300")
    said = [vm]
    for _ in range(2):
        kid, kid_api, _ = kids[0]
        said.append(kid)
        kids = waiting(t)
        low = last_tick(kid)
        good_fork(t, kid_api, [kids[0][2]])
        wait_first(kids[0][0], 4)
        check_child(t, kids[0][0], low, last_tick(kid))
    # Each goes on without those before it.
    for x in said:
        end(t, x)
    wait_ticks(kids[0][0], 5)
    end(t, kids[0][0])


@case("fork_of_a_paused_source_which_stays_paused")
def paused(t):
    vm, api = ticking(t)
    wait_ticks(vm, 3)
    api.pause()
    at = drain(vm)
    kids = waiting(t, 2)
    answer = good_fork(t, api, [kids[0][2],
                                {"socket": kids[1][2], "resume_vm": False}])
    t.eq(api.state(), "Paused", "state of the source")
    t.eq(drain(vm), at, "output of the paused source")
    t.eq(answer["stopped_us"], 0, "how long the source was stopped")
    wait_first(kids[0][0])
    check_series(t, at + drain(kids[0][0]), "child")
    t.eq(kids[1][1].state(), "Paused", "state of the other child")
    t.eq(drain(kids[1][0]), b"", "its output")
    kids[1][1].resume()
    wait_first(kids[1][0])
    check_series(t, at + drain(kids[1][0]), "the other child")
    api.resume()
    wait_ticks(vm, 3)
    check_series(t, drain(vm), "source")
    for kid, _, _ in kids:
        end(t, kid)
    end(t, vm)


@case("fork_between_diffs_takes_nothing_from_them")
def diffs(t):
    for payload, words in (("tick", "pages=64"), ("generations", "pages=200")):
        vm, api = ticking(t, payload, words, track_dirty_pages=True)
        wait_ticks(vm, 2)
        save(api, "base", resume=True)
        for _ in range(2):
            wait_ticks(vm, 3)
            (kid, _, path), = waiting(t)
            good_fork(t, api, [path])
            wait_first(kid)
            end(t, kid)
        save(api, "diff", "Diff")
        said = drain(vm)
        t.eq(Memory(State.read(t.path("diff.state"))).kind, 1, "kind")
        ends(t, vm)
        copy, _ = load(t, merged(t, ["base", "diff"]), mote={"verify": True})
        wait_first(copy, 40)
        check_series(t, said + drain(copy), "copy of both")
        end(t, copy)


@case("fork_leaves_no_tracking_behind")
def no_tracking(t):
    """A child can be saved; a diff of it, or of a source that tracked only
    for the fork, is a whole one."""
    vm, api, kids, _ = forked(t, 1)
    kid, kid_api, _ = kids[0]
    for x, x_api, name in ((vm, api, "source"), (kid, kid_api, "child")):
        x_api.pause()
        x_api.ok("PUT", "/snapshot/create", create_body(t, name, "Diff"))
        t.eq(Memory(State.read(t.path(f"{name}.state"))).kind, 0, "kind")
        ends(t, x)
        copy, _ = load(t, name, mote={"verify": True})
        wait_first(copy)
        end(t, copy)


SECTORS = 64


@case("fork_with_a_disk_of_its_own")
def disk(t):
    """Two of one disk are refused; the monitor goes on waiting, and gets
    the machine with a copy of the disk."""
    vm, api = ticking(t, "tick_disk", f"sectors={SECTORS}", set_up=lambda a:
                      a.drive("d", t.file("disk", size=SECTORS * 512)))
    wait_ticks(vm, 3)
    (kid, kid_api, path), = waiting(t)
    before = holds(kid)
    api.pause()

    def ask(child):
        r = api.call("PUT", "/mote/fork", {"children": [child],
                                           "drives": [{"drive_id": "d"}]})
        t.eq(r.status, 200, r.body)
        return r.json["children"][0]

    child = ask({"socket": path})
    t.eq(child["ok"], False, "a child that shares a disk")
    t.check(t.path("disk") in child["error"], child["error"])
    t.eq(kid_api.state(), "Not started", "state of the child")
    t.eq(holds(kid), before, "what the child holds")
    with open(t.path("disk"), "rb") as f:
        t.file("copy", f.read())
    t.eq(ask({"socket": path, "drive_overrides": [
        {"drive_id": "d", "path_on_host": t.path("copy")}]})["ok"], True,
        "a child with a copy")
    api.resume()
    wait_first(kid, 40)
    wait_ticks(vm, 40)
    check_series(t, drain(vm), "source")
    end(t, kid)
    end(t, vm)
