# SPDX-License-Identifier: Apache-2.0
"""Guests that tick, saved and loaded: what the cases about snapshots share."""

import os
import re
import select
import time

from client import monitor
from harness import Failure, PATIENCE

TICK = re.compile(rb"tick (\d+)\n")


def ticking(t, payload="tick", words="", cpus=1, mem=128, set_up=None,
            args=(), **machine):
    """A guest that ticks, started by the socket -> (vm, api)."""
    vm, api = monitor(t, args)
    api.ok("PUT", "/machine-config", {"vcpu_count": cpus, "mem_size_mib": mem,
                                      **machine})
    api.boot_source(payload, f"cpus={cpus} {words}")
    if set_up:
        set_up(api)
    api.start()
    return vm, api


def drain(vm):
    """What its serial port has put out so far."""
    fd = vm.process.stdout.fileno()
    while select.select([fd], [], [], 0)[0]:
        data = os.read(fd, 65536)
        if not data:
            break
        vm.out += data
    return vm.out


def last_tick(vm):
    """-1 before the first."""
    found = TICK.findall(drain(vm))
    return int(found[-1]) if found else -1


def wait_ticks(vm, more=3):
    """Until it has ticked so many times from now on."""
    deadline = time.monotonic() + PATIENCE
    want = last_tick(vm) + more
    while last_tick(vm) < want:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Failure(f"{vm.name}: stands at tick {last_tick(vm)}")
        if not select.select([vm.process.stdout], [], [], left)[0]:
            continue
        if vm.process.poll() is not None:
            drain(vm)
            raise Failure(f"{vm.name}: ended with code {vm.process.poll()}: "
                          f"{vm.out[-120:]!r}")


def wait_first(vm, more=3):
    """The same for one that was loaded: its numbers may begin anywhere, and a
    line that has come in half has none yet."""
    if last_tick(vm) < 0:
        wait_ticks(vm, 1)
    wait_ticks(vm, more)


def check_series(t, data, what):
    """Each tick once, from 0 on, and nothing between."""
    lines = data.split(b"\n")
    want = [b"tick %d" % i for i in range(len(lines))]
    for i, line in enumerate(lines[:-1]):
        t.eq(line, want[i], f"{what}: line {i}")
    t.check(want[-1].startswith(lines[-1]), f"{what}: ends in {lines[-1]!r}")


def save(api, name="snap", kind="Full", resume=False):
    """Pauses and saves to NAME.state and NAME.mem."""
    api.pause()
    api.ok("PUT", "/snapshot/create", create_body(api.t, name, kind))
    if resume:
        api.resume()


def create_body(t, name="snap", kind="Full"):
    return {"snapshot_path": t.path(f"{name}.state"),
            "mem_file_path": t.path(f"{name}.mem"), "snapshot_type": kind}


def load_body(t, name="snap", **more):
    """`more` without a value in it takes a field away."""
    body = {"snapshot_path": t.path(f"{name}.state"),
            "mem_backend": {"backend_type": "File",
                            "backend_path": t.path(f"{name}.mem")},
            "resume_vm": True, **more}
    return {k: v for k, v in body.items() if v is not None}


def load(t, name="snap", args=(), wrap=(), **more):
    """A fresh monitor that goes on from a snapshot -> (vm, api)"""
    vm, api = monitor(t, args, wrap=wrap)
    api.ok("PUT", "/snapshot/load", load_body(t, name, **more))
    return vm, api


def end(t, vm):
    """SIGTERM, and nothing was said against it."""
    drain(vm)
    t.check(vm.process.poll() is None,
            f"{vm.name} has ended: {vm.out[-120:]!r}")
    vm.process.terminate()
    t.eq(vm.wait(), 0, f"{vm.name}: exit code after SIGTERM")


def holds(vm):
    """What a process has: descriptors, mappings of files, threads."""
    base = f"/proc/{vm.pid}"
    fds = None
    while fds is None:
        try:
            fds = sorted(os.readlink(f"{base}/fd/{n}").split(":")[0]
                         for n in os.listdir(f"{base}/fd"))
        except FileNotFoundError:
            pass  # one was closed while we looked: look at all anew
    with open(f"{base}/maps", encoding="utf-8") as f:
        maps = sorted({x.split()[-1] for x in f if "/" in x})
    return fds, maps, len(os.listdir(f"{base}/task"))
