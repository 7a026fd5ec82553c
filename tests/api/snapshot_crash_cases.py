# SPDX-License-Identifier: Apache-2.0
"""The plug is pulled while a snapshot is saved over an older one: what is
there afterwards is the old one or the new one, whole."""

import json
import os
import random
import re
import shutil
import signal
import socket
import time

from client import ends
from harness import Cases, PATIENCE, Skip
from state_edit import State
from ticks import (create_body, drain, end, load, save, ticking, wait_first,
                   wait_ticks)

CASES = Cases()
KILLS = int(os.environ.get("KILLS", "30"))
SEED = int(os.environ.get("SEED", "5"))


def case(name):
    return CASES.case(name)


def strace(t, *args):
    """What a monitor is wrapped in; skips without strace."""
    if not shutil.which("strace"):
        raise Skip("strace is missing")
    return ("strace", "-f", "-qq", "-o", t.path("trace"), *args)


def ask_to_save(t, vm):
    """Sends the request and does not wait -> the socket."""
    body = json.dumps(create_body(t)).encode()
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(PATIENCE)
    s.connect(vm.sock)
    s.sendall(b"PUT /snapshot/create HTTP/1.1\r\nHost: x\r\n"
              b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    return s


def check_pair(t, old):
    """What is on disk is loaded; the id of it."""
    ident = State.read(t.path("snap.state")).id
    copy, _ = load(t, mote={"verify": True})
    wait_first(copy, 1)
    end(t, copy)
    return "old" if ident == old else "new"


def source(t, **options):
    """A guest with a saved pair -> (vm, api, id of the pair)"""
    vm, api = ticking(t, words="pages=1024 period=1000", mem=32, **options)
    wait_ticks(vm, 1)
    save(api, resume=True)
    wait_ticks(vm, 1)
    api.pause()
    return vm, api, State.read(t.path("snap.state")).id


def kept(t, name="snap"):
    """The pair, to be put back later."""
    for end_ in ("state", "mem"):
        shutil.copy(t.path(f"{name}.{end_}"), t.path(f"kept.{end_}"))


def put_back(t):
    for name in os.listdir(t.dir):
        if name.startswith("snap."):
            os.unlink(t.path(name))
    for end_ in ("state", "mem"):
        shutil.copy(t.path(f"kept.{end_}"), t.path(f"snap.{end_}"))


@case("BL_082_killed_at_random_moments_of_a_save")
def kills(t):
    chance = random.Random(SEED)
    vm, _, _ = source(t)
    ends(t, vm)
    kept(t)
    vm, api = load(t, resume_vm=False)
    began = time.monotonic()
    api.ok("PUT", "/snapshot/create", create_body(t, "other"))
    whole = time.monotonic() - began
    vm.kill()
    old = State.read(t.path("snap.state")).id
    seen = {"old": 0, "new": 0}
    for _ in range(KILLS):
        put_back(t)
        vm, api = load(t, resume_vm=False)
        s = ask_to_save(t, vm)
        time.sleep(chance.uniform(0, 1.2 * whole))  # any moment will do
        os.kill(vm.pid, signal.SIGKILL)
        vm.wait()
        s.close()
        seen[check_pair(t, old)] += 1
    print(f"# killed {KILLS} times: {seen}, a save took {whole * 1e3:.0f} ms")


def killed_at(t, call, nth):
    """Dies before the n-th of these calls of a save."""
    vm, _, old = source(t)
    vm.kill()
    kept(t)
    wrap = strace(t, "-e", f"trace={call}",
                  "-e", f"inject={call}:signal=SIGKILL:when={nth}")
    vm, _ = load(t, resume_vm=False, wrap=wrap)
    s = ask_to_save(t, vm)
    died = s.recv(100) == b""
    vm.kill()
    t.check(died, f"it did not come to {call} number {nth}")
    which = check_pair(t, old)
    # The next save takes over what was left, and cleans up.
    vm, api = load(t, resume_vm=False)
    api.ok("PUT", "/snapshot/create", create_body(t))
    left = [x for x in os.listdir(t.dir) if x.endswith((".part", ".old"))]
    t.eq(left, [], "left after the next save")
    vm.kill()
    t.eq(check_pair(t, old), "new", "the pair after the next save")
    return which


def killed_old(t, call, nth):
    t.eq(killed_at(t, call, nth), "old", "the pair")


def killed_new(t, call, nth):
    t.eq(killed_at(t, call, nth), "new", "the pair")


# fsync: state, memory, directory, directory; rename: memory, state
for n in (1, 2, 3):
    CASES.add(f"BL_082_killed_before_sync_{n}", killed_old, "fsync", n)
for n in (1, 2):
    CASES.add(f"BL_082_killed_before_rename_{n}", killed_old, "rename", n)
CASES.add("BL_082_killed_before_the_last_sync", killed_new, "fsync", 4)


@case("BL_082_synced_before_it_is_told")
def order(t):
    """Both files, the new names, the directory, then the answer."""
    vm, api, _ = source(t)
    vm.kill()
    calls = "fsync,fdatasync,sync_file_range,rename,renameat,renameat2," \
            "sendto,sendmsg,write,io_uring_enter,openat"
    vm, api = load(t, resume_vm=False,
                   wrap=strace(t, "-y", "-e", f"trace={calls}"))
    api.ok("PUT", "/snapshot/create", create_body(t))
    vm.kill()
    with open(t.path("trace"), encoding="utf-8", errors="replace") as f:
        lines = [re.sub(r"^\d+ +", "", x) for x in f]
    steps = []
    for line in lines:
        done = re.match(r"(fsync|rename)\((.*)\) += 0", line)
        if done:
            names = re.findall(r"[^<>\"/]+(?=[>\"])", done.group(2))
            steps.append((done.group(1), names[-1]))
        elif "HTTP/1.1 204" in line:
            steps.append(("answer", ""))
    steps = steps[max(i for i, x in enumerate(steps[:-1])
                      if x[0] == "answer") + 1:]
    here = os.path.basename(t.dir)
    t.eq(steps, [("fsync", "snap.state.part"), ("fsync", "snap.mem.part"),
                 ("rename", "snap.mem"), ("fsync", here),
                 ("rename", "snap.state"), ("fsync", here), ("answer", "")],
         "the order of a save")


@case("snap_two_processes_save_to_one_place")
def two(t):
    """One of them is refused, or both do it one after the other."""
    vm, api, _ = source(t)
    other, other_api, _ = source(t)
    with open(t.path("snap.mem.part"), "wb") as part:
        import fcntl
        import struct
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
        fcntl.fcntl(part, 37, lock)  # F_OFD_SETLK
        api.bad("PUT", "/snapshot/create", create_body(t),
                "another snapshot is being written")
        t.check(os.path.exists(t.path("snap.mem.part")),
                "the other one's part was taken away")
    api.ok("PUT", "/snapshot/create", create_body(t))
    other_api.ok("PUT", "/snapshot/create", create_body(t))
    check_pair(t, None)
    end(t, vm)
    end(t, other)
    drain(vm)
