# SPDX-License-Identifier: Apache-2.0
"""Names of files that a client gives and that are no good: those that meet on
the way of a snapshot, and FIFOs, which would hold whoever opens them."""

import os

from client import connect, launch
from harness import Cases
from ticks import end, ticking, wait_ticks

CASES = Cases()


def case(name):
    return CASES.case(name)


def names_that_meet(t, api, state, mem):
    api.bad("PUT", "/snapshot/create",
            {"snapshot_path": t.path(state), "mem_file_path": t.path(mem)},
            "names")


@case("snapshot_names_that_would_overwrite_each_other")
def names(t):
    vm, api = ticking(t)
    wait_ticks(vm, 2)
    api.pause()
    for state, mem in (("x.old", "x"), ("x.part", "x"), ("x", "x.part"),
                       ("./x.old", "x")):
        for name in ("x", "x.old", "x.part"):
            t.file(name, b"precious")
        names_that_meet(t, api, state, mem)
        for name in ("x", "x.old", "x.part"):
            with open(t.path(name), "rb") as f:
                t.eq(f.read(), b"precious", f"{name} after {state}, {mem}")
    left = [n for n in os.listdir(os.path.dirname(t.path("x")))
            if n.endswith(".part.part")]
    t.eq(left, [], "leftovers")
    end(t, vm)


@case("fifos_in_place_of_files_hang_nobody")
def fifos(t):
    os.mkfifo(t.path("fifo"))
    for field in ("kernel_image_path", "initrd_path"):
        vm = launch(t)
        api = connect(t, vm)
        body = {"kernel_image_path": t.host.payload("tick"), field:
                t.path("fifo")}
        r = api.call("PUT", "/boot-source", body)
        if r.status == 204:
            api.bad("PUT", "/actions", {"action_type": "InstanceStart"}, "fifo")
        vm.process.terminate()
        t.eq(vm.wait(), 0, "exit")
    vm, api = ticking(t)
    wait_ticks(vm, 1)
    api.pause()
    for s, m in (("fifo", "m"), ("s", "fifo")):
        api.bad("PUT", "/snapshot/create", {"snapshot_path": t.path(s),
                "mem_file_path": t.path(m)}, "fifo")
    os.mkfifo(t.path("q.part"))
    api.bad("PUT", "/snapshot/create", {"snapshot_path": t.path("q"),
            "mem_file_path": t.path("m")}, "q")
    end(t, vm)
    for d in ({"path_on_host": t.path("fifo")},
              {"path_on_host": t.path("fifo"), "mote": {"format": "cow"}},
              {"path_on_host": t.path("fifo"), "is_read_only": True}):
        vm = launch(t)
        api = connect(t, vm)
        api.boot_source("tick")
        r = api.call("PUT", "/drives/d", {"drive_id": "d",
                     "is_root_device": False, **d})
        if r.status == 204:
            api.bad("PUT", "/actions", {"action_type": "InstanceStart"}, "fifo")
        vm.process.terminate()
        t.eq(vm.wait(), 0, "exit")
