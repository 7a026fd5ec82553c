# SPDX-License-Identifier: Apache-2.0
"""The HTTP layer as clients see it, and the socket itself."""

import os
import signal
import socket
import stat
import time

from client import Api, connect, dial, ends, launch, monitor
from harness import Cases, Failure, PATIENCE

CASES = Cases()
VERSION = b"GET /version HTTP/1.1\r\n\r\n"
ANSWER = b'{"firecracker_version":"1.17.0"}'
HEAD = b"Server: Firecracker API\r\nConnection: keep-alive\r\n"


def case(name):
    return CASES.case("http_" + name, kvm=False)


def hear(s, text):
    """Reads until `text` has come; what came."""
    got = b""
    while text not in got:
        data = s.recv(65536)
        if not data:
            raise Failure(f"closed before {text!r} came: {got!r}")
        got += data
    return got


def to_end(s):
    got = b""
    while True:
        data = s.recv(65536)
        if not data:
            return got
        got += data


@case("heads_are_as_clients_know_them")
def heads(t):
    vm, _ = monitor(t)
    s = dial(vm.sock)
    s.sendall(VERSION)
    t.eq(hear(s, ANSWER), b"HTTP/1.1 200 \r\n" + HEAD +
         b"Content-Type: application/json\r\nContent-Length: 32\r\n\r\n" +
         ANSWER, "answer with a body")
    s.sendall(b"PUT /entropy HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
    t.eq(hear(s, b"\r\n\r\n"), b"HTTP/1.1 204 \r\n" + HEAD + b"\r\n",
         "answer without one")
    s.sendall(b"GET /x HTTP/1.1\r\n\r\n")
    body = (b'{"fault_message":"Invalid request method and/or path: '
            b'GET /x."}')
    t.eq(hear(s, body), b"HTTP/1.1 400 \r\n" + HEAD +
         b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" %
         len(body) + body, "an error")
    ends(t, vm)


@case("pipelined_and_split_at_every_byte")
def pipelined(t):
    vm, _ = monitor(t)
    s = dial(vm.sock)
    put = (b"PUT /machine-config HTTP/1.1\r\nContent-Length: 36\r\n\r\n"
           b'{"vcpu_count":2,"mem_size_mib":256} ')
    s.sendall(put + VERSION + put + VERSION)
    got = hear(s, ANSWER)
    while got.count(ANSWER) < 2:
        got += hear(s, ANSWER)
    t.eq(got.count(b"HTTP/1.1 204"), 2, "mutations")
    for b in put + VERSION:
        s.sendall(bytes([b]))
    hear(s, ANSWER)
    for cut in range(1, len(put)):
        s.sendall(put[:cut])
        s.sendall(put[cut:])
        hear(s, b"204 \r\n")


@case("expect_100_continue")
def expect(t):
    vm, _ = monitor(t)
    s = dial(vm.sock)
    s.sendall(b"PUT /entropy HTTP/1.1\r\nExpect: 100-continue\r\n"
              b"Content-Length: 2\r\n\r\n")
    hear(s, b"HTTP/1.1 100 \r\n")
    s.sendall(b"{}")
    hear(s, b"HTTP/1.1 204 \r\n")


@case("http_1_0_is_closed_unless_kept")
def one_zero(t):
    vm, _ = monitor(t)
    s = dial(vm.sock)
    s.sendall(b"GET /version HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    hear(s, ANSWER)
    s.sendall(b"GET /version HTTP/1.0\r\n\r\n")
    t.check(b"Connection: close" in to_end(s), "not announced")


def refused(t, data, *words):
    """400, the reason, and the end of the connection; others go on."""
    vm, api = monitor(t)
    s = dial(vm.sock)
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    got = to_end(s)
    t.check(got.startswith(b"HTTP/1.1 400 \r\n"), f"answer: {got!r}")
    for word in (*words, b'{"error": "',
                 b"All previous unanswered requests will be dropped."):
        t.check(word in got, f"no {word!r} in {got!r}")
    api.get("/version")
    ends(t, vm)


for name, data, words in (
        ("chunked", b"PUT /entropy HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
                    b"\r\n2\r\n{}\r\n0\r\n\r\n", [b"Transfer-Encoding"]),
        ("long_body", b"PUT /x HTTP/1.1\r\nContent-Length: 51201\r\n\r\n" +
                      b"x" * 51201, [b"51201", b"51200"]),
        ("long_head", b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\n\r\n",
         [b"too long"]),
        ("no_http", b"hello\r\n\r\n", [b"Invalid"]),
        ("two_lengths", b"PUT /entropy HTTP/1.1\r\nContent-Length: 2\r\n"
                        b"Content-Length: 3\r\n\r\n{}", [b"twice"]),
):
    CASES.add("http_refuses_" + name, refused, data, *words, kvm=False)


@case("body_limit_is_an_option")
def body_limit(t):
    vm, api = monitor(t, ["--http-api-max-payload-size", "100"])
    api.bad("PUT", "/entropy", '{"x":' + " " * 93 + "1}", "entropy.x")
    s = dial(vm.sock)
    s.sendall(b"PUT /x HTTP/1.1\r\nContent-Length: 101\r\n\r\n")
    t.check(b"limit of 100 bytes" in to_end(s), "the limit is not named")


@case("slow_clients_stop_nobody")
def slow(t):
    vm, api = monitor(t)
    api.get("/version")
    clients = [dial(vm.sock) for _ in range(9)]
    for i, s in enumerate(clients):
        s.sendall((b"PUT /entropy HTTP/1.1\r\nContent-Length: 9\r\n\r\n{",
                   b"GET /ver", b"")[i % 3])
    for _ in range(20):
        api.get("/version")
    # The eleventh is told so, and the others keep their places.
    s = dial(vm.sock)
    s.sendall(VERSION)
    got = to_end(s)
    t.check(got.startswith(b"HTTP/1.1 503 \r\n"), f"answer: {got!r}")
    t.check(b'{"error": "Too many open connections"}' in got, f"{got!r}")
    t.check(b"Connection: close" in got, f"{got!r}")
    api.get("/version")
    clients[1].sendall(b"sion HTTP/1.1\r\n\r\n")
    hear(clients[1], ANSWER)
    clients[0].close()
    deadline = time.monotonic() + PATIENCE
    while True:  # the place is free once the monitor has seen that
        s = dial(vm.sock)
        s.sendall(VERSION)
        if s.recv(65536).startswith(b"HTTP/1.1 200"):
            break
        t.check(time.monotonic() < deadline, "no place becomes free")
    ends(t, vm)


@case("flood_without_reading_is_bounded")
def flood(t):
    vm, api = monitor(t)
    api.get("/version")
    before = vm.resident_bytes()
    s = dial(vm.sock)
    s.settimeout(0.3)
    sent = 0
    try:
        while sent < 64 << 20:
            sent += s.send(VERSION * 1000)
    except socket.timeout:
        pass
    t.check(sent < 64 << 20, "the monitor takes requests without end")
    api.get("/version")
    grown = vm.resident_bytes() - before
    t.check(grown < 2 << 20, f"grown by {grown} bytes")


@case("clients_that_vanish_leave_nothing")
def vanish(t):
    vm, api = monitor(t)
    api.get("/version")
    before = len(os.listdir(f"/proc/{vm.pid}/fd"))
    for i in range(200):
        s = dial(vm.sock)
        s.sendall((b"", b"GET", VERSION, b"PUT /x HTTP/1.1\r\n"
                   b"Content-Length: 9\r\n\r\n{")[i % 4])
        s.close()
    deadline = time.monotonic() + PATIENCE
    while len(os.listdir(f"/proc/{vm.pid}/fd")) != before:
        t.check(time.monotonic() < deadline, "descriptors are left")
        api.get("/version")


# --- the socket ------------------------------------------------------------

@case("socket_is_private")
def private(t):
    vm, _ = monitor(t)
    mode = os.lstat(vm.sock).st_mode
    t.check(stat.S_ISSOCK(mode), "no socket")
    t.eq(stat.S_IMODE(mode), 0o600, "mode")
    ends(t, vm)


@CASES.case("BL_022_api_socket_of_a_killed_monitor", kvm=False)
def stale(t):
    vm, _ = monitor(t)
    vm.process.send_signal(signal.SIGKILL)
    vm.process.wait()
    t.check(os.path.lexists(vm.sock), "nothing is left to be taken over")
    again = launch(t, sock=vm.sock)
    connect(t, again).get("/version")
    ends(t, again)


@CASES.case("BL_022_api_socket_of_a_live_monitor", kvm=False)
def live(t):
    vm, api = monitor(t)
    second = launch(t, sock=vm.sock)
    t.refused(second, 153, "--api-sock", "another process listens")
    api.get("/version")
    ends(t, vm)


@CASES.case("BL_022_plain_file_in_its_place", kvm=False)
def plain(t):
    path = t.file("mine", b"precious")
    vm = launch(t, sock=path)
    t.refused(vm, 153, "--api-sock", "not a socket")
    t.eq(t.read("mine"), b"precious", "the file")


@CASES.case("BL_023_api_socket_path_of_107_and_108_bytes", kvm=False)
def long_path(t):
    base = t.path("d")
    path = base + "x" * (107 - len(base))
    vm = launch(t, sock=path)
    connect(t, vm).get("/version")
    ends(t, vm)
    t.refused(launch(t, sock=path + "x"), 153, "--api-sock", "107")


@case("socket_replaced_by_somebody_is_not_removed")
def replaced(t):
    vm, _ = monitor(t)
    os.unlink(vm.sock)
    t.file("s0", b"not ours")
    vm.process.terminate()
    t.eq(vm.wait(), 0, "exit code")
    t.eq(t.read("s0"), b"not ours", "the file")


@CASES.case("BL_019_reader_of_stdout_and_stderr_gone", kvm=False)
def no_reader(t):
    vm = launch(t, ["--level", "Debug"],
                wrap=["sh", "-c", 'exec "$@" 2>&1', "sh"])
    vm.process.stdout.close()
    api = connect(t, vm)
    for _ in range(100):
        api.get("/")
    vm.process.terminate()
    t.eq(vm.process.wait(PATIENCE), 0, "exit code")
    vm.process.stdout = open(os.devnull, "rb")


@case("start_is_cheap")
def cheap(t):
    """The figure is printed by benches; this is the guard, ten times it."""
    vm, api = monitor(t)
    api.get("/machine-config")
    used = vm.cpu_seconds()
    t.check(used < 0.03, f"{used * 1000:.1f} ms of CPU from exec to an answer")


@case("many_connections_one_after_the_other")
def many(t):
    vm, _ = monitor(t)
    for _ in range(300):
        Api(t, vm.sock).get("/version")
