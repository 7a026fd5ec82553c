# SPDX-License-Identifier: Apache-2.0
"""Forks that go wrong: children that do not answer, sources that go, and
strangers at the door of a monitor that waits."""

import array
import fcntl
import os
import random
import socket
import struct
import threading
import time

from client import BEFORE, dial, ends, monitor
from fork_cases import fork, good_fork, waiting
from harness import Cases, PATIENCE
from ticks import (check_series, create_body, drain, end, holds, last_tick,
                   ticking, wait_first, wait_ticks)

CASES = Cases()
MIB = 1 << 20
SEALS = 0xb  # seal, shrink, write; grow is 4


def case(name):
    return CASES.case(name)


class Door(threading.Thread):
    """A socket that is no waiting monitor: hangs up, or says something."""

    def __init__(self, path, answer):
        super().__init__(daemon=True)
        self.answer = answer
        self.door = socket.socket(socket.AF_UNIX)
        self.door.bind(path)
        self.door.listen()
        self.start()

    def run(self):
        while True:
            s, _ = self.door.accept()
            if self.answer == b"the end":
                break
            try:
                if self.answer is not None:
                    s.recv(65536)  # the kernel closes the descriptors in it
                    s.sendall(self.answer)
            except OSError:
                pass
            s.close()
        self.door.close()

    def close(self):
        self.answer = b"the end"
        dial(self.door.getsockname()).close()
        self.join(5)


def answer_of(code, length, text=b""):
    return struct.pack("<II", code, length) + text


@case("fork_refused_requests")
def requests(t):
    vm, api = ticking(t)
    wait_ticks(vm, 2)
    before = holds(vm)
    (kid, kid_api, path), = waiting(t)
    api.bad("PUT", "/mote/fork", {}, "children")
    for children, word in (
            ([], "list of 1 to"), ("x", "list of 1 to"), ({}, "list of 1 to"),
            ([{}], "socket"), ([{"socket": ""}], "socket"),
            ([{"socket": 1}], "socket"), (["x"], "socket"),
            ([{"socket": path, "x": "y" * 70000}], ""),
            ([{"socket": path}] * 5000, "")):
        r = api.call("PUT", "/mote/fork", {"children": children})
        t.check(r.status in (400, 413), f"{r.status} {r.body[:200]}")
        t.check(word in r.body, f"no {word} in {r.body[:200]}")
        if r.status == 413 or r.headers.get("Connection") == "close":
            api = api.again()
    api.bad("PUT", "/mote/fork", {"children": [{"socket": path}], "x": 1},
            "`x`")
    kid_api.call("GET", "/")
    t.eq(kid_api.bad("PUT", "/mote/fork",
                     {"children": [{"socket": path}]}), BEFORE, "no machine")
    t.eq(holds(vm)[1:], before[1:], "what the source holds")
    good_fork(t, api, [path])
    wait_first(kid)
    end(t, kid)
    wait_ticks(vm, 2)
    check_series(t, drain(vm), "source")
    end(t, vm)


@case("fork_children_that_are_no_good_beside_one_that_is")
def bad_children(t):
    vm, api = ticking(t, words="pages=200")
    wait_ticks(vm, 2)
    answers = {
        "hangs_up": None,
        "says_nothing": b"",
        "cuts": b"\0\0\0",
        "garbage": b"HTTP/1.1 400 Bad Request\r\n\r\n",
        "endless": answer_of(5, 0xffffffff, b"A" * 5000),
        "negative": answer_of(5, 0x80000000, b"%s%n" * 1000),
        "strange": answer_of(0xffffffff, 4, b"abcd"),
        "reason": answer_of(28, 11, b"no such luck"),
        "late": answer_of(12, 200, b"it hangs up in the middle"),
    }
    doors = [Door(t.path(x), a) for x, a in answers.items()]
    t.file("plain")
    (kid, _, path), = waiting(t)
    names = [*answers, "plain", "missing", "x" * 200]
    for i in range(2):
        children = [t.path(x) for x in names]
        if i == 1:
            children.insert(4, path)
        result = fork(t, api, children)["children"]
        for child in result:
            if child["socket"] == path:
                t.eq(child["ok"], True, "the good one")
                continue
            t.eq(child["ok"], False, child["socket"])
            t.check(child["error"], f"no reason for {child['socket']}")
        if i == 0:
            errors = {os.path.basename(c["socket"]): c["error"]
                      for c in result}
            t.check("no such luc" in errors["reason"], errors["reason"])
            t.check("no monitor waits there" in errors["missing"],
                    errors["missing"])
    wait_first(kid)
    t.eq(api.state(), "Running", "state")
    wait_ticks(vm, 2)
    check_series(t, drain(vm), "source")
    for d in doors:
        d.close()
    end(t, kid)
    end(t, vm)


@case("fork_overrides_that_a_child_refuses")
def overrides(t):
    vm, api = ticking(t)
    wait_ticks(vm, 2)
    (kid, kid_api, path), = waiting(t)
    before = holds(kid)
    for more, word in (
            ({"x": 1}, "unknown field `x`"),
            ({"resume_vm": 1}, "resume_vm"),
            ({"snapshot_path": "/x"}, "leave out"),
            ({"mem_file_path": "/x"}, "leave out"),
            ({"drive_overrides": [{"drive_id": "no"}]}, "does not have")):
        child = fork(t, api, [{"socket": path, **more}])["children"][0]
        t.eq(child["ok"], False, str(more))
        t.check(word in child["error"], f"{more}: {child['error']}")
        t.eq(kid_api.state(), "Not started", "state of the child")
        t.eq(holds(kid), before, f"what the child holds after {more}")
    good_fork(t, api, [path])
    wait_first(kid)
    child = fork(t, api, [path])["children"][0]
    t.check("no monitor waits there" in child["error"], child["error"])
    end(t, kid)
    end(t, vm)


@case("fork_to_a_monitor_that_was_configured")
def configured(t):
    vm, api = ticking(t)
    wait_ticks(vm, 2)
    (kid, kid_api, path), = waiting(t)
    kid_api.ok("PUT", "/machine-config", {"vcpu_count": 1,
                                          "mem_size_mib": 64})
    child = fork(t, api, [path])["children"][0]
    t.eq(child["ok"], False, "a child with a configuration")
    t.check("not allowed after configuring" in child["error"], child["error"])
    ends(t, kid)
    t.check(not os.path.lexists(path), "the socket is left")
    end(t, vm)


# --- strangers -------------------------------------------------------------

def memfd(data, size=None, seals=SEALS | 4):
    fd = os.memfd_create("x", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.write(fd, data)
    if size is not None:
        os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, 1033, seals)  # F_ADD_SEALS
    return fd


def knock(path, data, fds=()):
    """What a stranger gets for it; b"" if it is hung up on."""
    s = dial(path)
    extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] \
        if fds else []
    try:
        s.sendmsg([data], extra)
        s.shutdown(socket.SHUT_WR)
        return s.recv(4096)
    except (ConnectionResetError, BrokenPipeError):
        return b""
    finally:
        s.close()


def request(text=b"{}", magic=b"MOTEFORK", version=1, length=None):
    return magic + struct.pack("<II", version, len(text) if length is None
                               else length) + text


@case("fork_strangers_at_the_door_of_a_waiting_monitor")
def strangers(t):
    vm, api = ticking(t)
    wait_ticks(vm, 2)
    (kid, kid_api, path), = waiting(t)
    before = holds(kid)
    state = memfd(b"MOTESNAP" + bytes(100))
    ram = memfd(b"", 64 * MIB)
    loose = memfd(b"x" * 4096, seals=0)
    empty = memfd(b"")
    null = os.open("/dev/null", os.O_RDWR)
    pair = socket.socketpair()
    both = [state, ram]
    for data, fds in (
            (b"", ()), (b"x", ()), (b"x" * 15, ()),
            (b"GET / HTTP/1.1\r\n\r\n", ()),
            (request(), ()), (request(), [state]), (request(), both),
            (request(), [ram, state]), (request(), [loose, loose]),
            (request(), [state, loose]), (request(), [state, empty]),
            (request(), [null, null]),
            (request(), [pair[0].fileno(), pair[1].fileno()]),
            (request(), both * 20),
            (request(magic=b"MOTEFORX"), both), (request(version=2), both),
            (request(length=0xffffffff), both), (request(length=100), both),
            (request(length=0), both), (request(b"x"), both),
            (request(b"[]"), both), (request(b'{"a":1,"a":2}'), both),
            (request(b"{\"x\": \"" + b"y" * 60000 + b"\"}"), both),
            (request(b"\xff" * 100), both)):
        got = knock(path, data, fds)
        t.check(got == b"" or struct.unpack_from("<I", got)[0] != 0,
                f"{data[:40]!r} with {len(fds)} descriptors was taken")
        t.eq(kid_api.state(), "Not started", "state of the child")
    # One that stays keeps the others out only until it goes.
    s = dial(path)
    s.sendall(request()[:5])
    child = fork(t, api, [path])["children"][0]
    t.eq(child["ok"], False, "while a stranger is there")
    s.close()
    deadline = time.monotonic() + PATIENCE
    while holds(kid) != before:
        t.check(time.monotonic() < deadline, f"the child holds {holds(kid)}, "
                                             f"{before} before all of them")
    good_fork(t, api, [path])
    wait_first(kid)
    end(t, kid)
    end(t, vm)
    for fd in (state, ram, loose, empty, null):
        os.close(fd)


# --- a source that goes ----------------------------------------------------

@case("fork_whose_source_is_ended_in_the_middle")
def source_goes(t):
    """Each child runs, or still waits; the source ends as ever."""
    chance = random.Random(7)
    seen = set()
    for i in range(8):
        vm, api = ticking(t, "generations", "pages=4096")
        wait_ticks(vm, 1)
        kids = waiting(t, 2)
        s = dial(vm.sock)
        body = b'{"children":[%b]}' % b",".join(
            b'{"socket":"%b"}' % p.encode() for _, _, p in kids)
        s.sendall(b"PUT /mote/fork HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" %
                  (len(body), body))
        time.sleep(chance.uniform(0, 0.3))  # any moment will do
        if i % 4 == 3:
            vm.kill()
        else:
            drain(vm)
            vm.process.terminate()
            t.eq(vm.wait(), 0, "exit code of the source")
        s.close()
        for kid, kid_api, path in kids:
            state = kid_api.state()
            seen.add(state)
            if state == "Running":
                wait_first(kid, 2)
            else:
                t.eq(state, "Not started", "state of a child")
                t.check(os.path.exists(path), "it does not wait any more")
            end(t, kid)
    print(f"# children were {sorted(seen)}")


@case("fork_source_that_is_asked_other_things_meanwhile")
def meanwhile(t):
    vm, api = ticking(t, "generations", "pages=4096")
    wait_ticks(vm, 1)
    kids = waiting(t, 4)
    done = threading.Event()
    other = api.again()
    errors = []

    def ask():
        while not done.is_set():
            try:
                if other.state() not in ("Running", "Paused"):
                    errors.append("state")
                other.pause()
                other.resume()
            except Exception as e:
                errors.append(repr(e))
                return

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        for kid, _, path in kids:
            good_fork(t, api, [path])
    finally:
        done.set()
        asker.join()
    t.eq(errors, [], "errors of the other client")
    for kid, _, _ in kids:
        wait_first(kid, 2)
        end(t, kid)
    before = last_tick(vm)
    wait_ticks(vm, 2)
    t.check(last_tick(vm) > before, "the source stands")
    end(t, vm)


@case("fork_socket_that_cannot_be_made")
def no_socket(t):
    for path, word in (("/nowhere/f", "/nowhere/f"), (t.path("d"), "d"),
                       (t.path("x" * 200), "x")):
        if word == "d":
            os.mkdir(path)
        vm = t.start("{}", ["--fork-from", path, "--config-file", "/x"])
        t.check(vm.wait() != 0, "both --fork-from and --config-file")
        from client import launch
        vm = launch(t, ["--fork-from", path], exit_file=False)
        t.check(vm.wait() != 0, f"exit code for {path}")
        t.check(word in vm.err, vm.err)
        t.check(not os.path.lexists(vm.sock), "its control socket is left")
    vm, api = monitor(t, ["--fork-from", t.path("f")])
    t.check(os.stat(t.path("f")).st_mode & 0o777 == 0o600, "mode")
    ends(t, vm)
    t.check(not os.path.lexists(t.path("f")), "the socket is left")


def kid_state(t, what):
    vm, api = ticking(t, cpus=4)
    wait_ticks(vm, 2)
    for i in range(4):
        (kid, kid_api, path), = waiting(t)
        good_fork(t, api, [{"socket": path, "resume_vm": False}])
        r = kid_api.call("PATCH", "/vm", {"state": what})
        t.eq(r.status, 204, f"{what}: {r.body}")
        t.eq(kid_api.state(), "Paused" if what == "Paused" else "Running",
             "state")
        if what == "Paused":
            kid_api.ok("PUT", "/snapshot/create", create_body(t, f"k{i}"))
            kid_api.resume()
        wait_ticks(kid, 3)
        end(t, kid)
    end(t, vm)


for what in ("Paused", "Resumed"):
    CASES.add(f"fork_child_that_is_{what.lower()}_before_it_rests", kid_state,
              what)
