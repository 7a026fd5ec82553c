# SPDX-License-Identifier: Apache-2.0
"""Snapshots whose memory another process fills, by userfaultfd."""

import os
import socket

from client import ends, monitor
from harness import Cases, Skip
from ticks import (check_series, drain, end, load_body, save, ticking,
                   wait_first, wait_ticks)
from uffd import Handler

CASES = Cases()
MIB = 1 << 20


def case(name):
    return CASES.case(name)


def uffd_body(t, sock, **more):
    return load_body(t, mem_backend={"backend_type": "Uffd",
                                     "backend_path": sock}, **more)


def need_uffd():
    if os.getuid() != 0 and not os.access("/dev/userfaultfd", os.W_OK):
        raise Skip("userfaultfd takes root or /dev/userfaultfd")


def saved(t, **options):
    need_uffd()
    vm, api = ticking(t, **options)
    wait_ticks(vm, 2)
    save(api)
    said = drain(vm)
    ends(t, vm)
    return said


def served(t, said, mem, **options):
    handler = Handler(t.path("h"), t.path("snap.mem"))
    vm, api = monitor(t)
    api.ok("PUT", "/snapshot/load", uffd_body(t, t.path("h"), **options))
    wait_first(vm, 20)
    check_series(t, said + drain(vm), "copy")
    t.check(handler.error is None, f"the handler: {handler.error}")
    t.eq(sum(r["size"] for r in handler.regions), mem * MIB, "sizes")
    for r in handler.regions:
        t.eq((r["page_size"], r["page_size_kib"]), (4096, 4096), "page size")
    t.check(0 < handler.served < 2000, f"{handler.served} pages were asked for")
    return vm, api, handler


@case("uffd_serves_a_copy")
def serve(t):
    said = saved(t)
    vm, api, handler = served(t, said, 128)
    end(t, vm)
    handler.close()


@case("uffd_serves_memory_on_both_sides_of_the_hole")
def hole(t):
    said = saved(t, payload="tick_edges", mem=3329)
    vm, api, handler = served(t, said, 3329)
    t.eq(len(handler.regions), 2, "regions")
    t.eq([r["offset"] for r in handler.regions], [0, 3328 * MIB], "offsets")
    end(t, vm)
    handler.close()


@case("uffd_copy_can_be_saved_again")
def again(t):
    """Saving reads all pages: those that nobody has touched as well."""
    said = saved(t, mem=32)
    vm, api, handler = served(t, said, 32)
    save(api, "second")
    said += drain(vm)
    ends(t, vm)
    handler.close()
    vm, api = monitor(t)
    api.ok("PUT", "/snapshot/load", load_body(t, "second",
                                              mote={"verify": True}))
    wait_first(vm)
    check_series(t, said + drain(vm), "copy of the copy")
    end(t, vm)


@case("uffd_without_a_handler_is_refused")
def nobody(t):
    said = saved(t)
    vm, api = monitor(t)
    before = sorted(os.listdir(f"/proc/{vm.pid}/fd"))
    t.file("plain")
    for sock, word in ((t.path("nobody"), "No such file"),
                       (t.path("plain"), "refused"),
                       (t.path("x" * 200), "too long")):
        api.bad("PUT", "/snapshot/load", uffd_body(t, sock), "memory backend",
                word)
        t.eq(api.state(), "Not started", "state")
    api.bad("PUT", "/snapshot/load", {
        **uffd_body(t, t.path("nobody")), "mote": {"verify": True}},
        "mote.verify needs a memory file")
    t.eq(sorted(os.listdir(f"/proc/{vm.pid}/fd")), before, "descriptors")
    api.ok("PUT", "/snapshot/load", load_body(t))
    wait_first(vm)
    check_series(t, said + drain(vm), "copy")
    end(t, vm)


@case("uffd_handler_that_goes_leaves_a_machine_that_can_be_ended")
def goes(t):
    """A vCPU waits for its page for ever; that holds neither the socket nor
    the end. (While it is loaded the handler is needed: a monitor that waits
    there takes SIGKILL.)"""
    saved(t, words="pages=512")
    handler = Handler(t.path("h"), t.path("snap.mem"))
    vm, api = monitor(t)
    api.ok("PUT", "/snapshot/load", uffd_body(t, t.path("h"),
                                              resume_vm=False))
    handler.close()
    t.check(handler.served > 0, "loading needed no page")
    api.resume()
    t.eq(api.state(), "Running", "state")
    ends(t, vm)


@case("snapshot_load_from_a_handler_whose_backlog_is_full")
def backlog(t):
    vm, api = ticking(t)
    wait_ticks(vm, 2)
    save(api)
    end(t, vm)
    full = socket.socket(socket.AF_UNIX)
    full.bind(t.path("full"))
    full.listen(0)
    clients = []
    for _ in range(4):
        c = socket.socket(socket.AF_UNIX)
        c.setblocking(False)
        try:
            c.connect(t.path("full"))
        except BlockingIOError:
            pass
        clients.append(c)
    vm, api = monitor(t)
    api.bad("PUT", "/snapshot/load", load_body(t, mem_backend={
        "backend_type": "Uffd", "backend_path": t.path("full")}), "full")
    api.ok("PUT", "/snapshot/load", load_body(t))
    end(t, vm)
