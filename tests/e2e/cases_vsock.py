# SPDX-License-Identifier: Apache-2.0
"""vsock between a real guest and plain sockets of the host (guest/vs.c)."""

import os
import resource
import select
import socket
import subprocess
import threading
import time
import zlib

from harness import TOP, Failed, Vm, check, count_fds, rss_kib

CASES = []
BLOCK = 65536
MASK = (1 << 64) - 1


def case(*tiers):
    def wrap(fn):
        fn.tiers = tiers
        CASES.append(fn)
        return fn
    return wrap


def pattern(size, seed):
    """The bytes that vs.c makes of a seed, block by block."""
    x, words = (seed * 2 + 1) & MASK, []
    for _ in range(BLOCK // 8):
        x ^= x << 13 & MASK
        x ^= x >> 7
        x ^= x << 17 & MASK
        words.append(x.to_bytes(8, "little"))
    tail = b"".join(words[1:])
    for i in range((size + BLOCK - 1) // BLOCK):
        yield (i.to_bytes(8, "little") + tail)[:size - i * BLOCK]


def pattern_sum(size, seed):
    value = 1
    for block in pattern(size, seed):
        value = zlib.adler32(block, value)
    return value


def drain(sock):
    """Reads to the end: bytes and sum."""
    size, value = 0, 1
    while True:
        data = sock.recv(1 << 18)
        if not data:
            return size, value
        size, value = size + len(data), zlib.adler32(data, value)


class VsockVm(Vm):
    """A guest with the program vs in /tmp, and its sockets on the host."""

    def __init__(self, host, *options):
        super().__init__(host, *options, tag="vs")
        try:
            # In a jail, the sockets are where that link leads.
            self.uds = os.path.realpath(os.path.join(self.directory(), "vsock.sock"))
            with open(os.path.join(TOP, "build", "tests", "vs"), "rb") as f:
                r = self.sh("cat >/tmp/vs && chmod 755 /tmp/vs", stdin=f.read())
            check(r.rc == 0, "vs does not get into the guest: %s" % r)
        except BaseException:
            self.close()
            raise

    def vs(self, *words, guard=60):
        r = self.exec("/tmp/vs", *map(str, words), guard=guard)
        check(r.rc == 0, "vs %s: %s" % (" ".join(map(str, words)), r))
        return r.out.decode().split()

    def start_vs(self, *words):
        """Runs vs beside; returns once it listens."""
        p = self.popen("/tmp/vs", *map(str, words), stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE)
        ready, _, _ = select.select([p.stdout], [], [], self.host.guard(60))
        line = p.stdout.readline() if ready else b"nothing"
        check(line == b"listening\n", "vs %s said %r" % (words, line))
        return p

    def listen(self, port, backlog=16):
        s = socket.socket(socket.AF_UNIX)
        s.bind("%s_%d" % (self.uds, port))
        os.chmod("%s_%d" % (self.uds, port), 0o777)  # the monitor is another user
        s.listen(backlog)
        s.settimeout(self.host.guard(60))
        return s

    def connect(self, port):
        """A connection to the guest's port, or None where it was refused."""
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(self.host.guard(60))
        s.connect(self.uds)
        s.sendall(b"CONNECT %d\n" % port)
        line = b""
        while not line.endswith(b"\n"):
            try:
                byte = s.recv(1)
            except ConnectionResetError:
                byte = b""
            if not byte:
                s.close()
                return None
            line += byte
        check(line.startswith(b"OK "), "answer to CONNECT: %r" % line)
        return s


class Worker(threading.Thread):
    """Runs fn on a thread; result() passes its value or its exception on."""

    def __init__(self, fn, *args):
        super().__init__(daemon=True)
        self.fn, self.args, self.value, self.error = fn, args, None, None
        self.start()

    def run(self):
        try:
            self.value = self.fn(*self.args)
        except Exception as e:
            self.error = e

    def result(self, guard):
        self.join(guard)
        if self.is_alive():
            raise Failed("%s did not end in %d s" % (self.fn.__name__, guard))
        if self.error:
            raise self.error
        return self.value


def answer_slowly(listener, size, seed, slow_s):
    """Takes one connection; reads at a crawl first, then to the end."""
    conn, _ = listener.accept()
    conn.settimeout(None)
    got, value = 0, 1
    end = time.monotonic() + slow_s
    writer = Worker(send_pattern, conn, size, seed) if size else None
    while time.monotonic() < end:
        data = conn.recv(4096)
        if not data:
            break
        got, value = got + len(data), zlib.adler32(data, value)
        time.sleep(0.05)  # this is the slow reader, not a wait
    while True:
        data = conn.recv(1 << 18)
        if not data:
            break
        got, value = got + len(data), zlib.adler32(data, value)
    if writer:
        writer.result(600)
    conn.close()
    return got, value


def send_pattern(conn, size, seed):
    for block in pattern(size, seed):
        conn.sendall(block)
    conn.shutdown(socket.SHUT_WR)


def slow_reader_both_ways(host, size, slow_s, guard):
    with VsockVm(host) as vm:
        listener = vm.listen(52)
        reader = Worker(answer_slowly, listener, size, 2, slow_s)
        words = vm.vs("both", 52, size, 1, guard=guard)
        got, value = reader.result(host.guard(guard))
        check(got == size and value == pattern_sum(size, 1) == int(words[1]),
              "guest to host: %d bytes, %d, %s" % (got, value, words))
        check(int(words[3]) == size and int(words[4]) == pattern_sum(size, 2),
              "host to guest: %s" % words)


@case("quick")
def BL_052_four_mib_both_ways_with_a_slow_reader(host, work):
    slow_reader_both_ways(host, 4 << 20, 2, 120)


@case("full")
def BL_052_a_gibibyte_both_ways_with_a_slow_reader(host, work):
    slow_reader_both_ways(host, 1 << 30, 5, 900)


@case("full")
def BL_053_half_close_from_either_side(host, work):
    with VsockVm(host) as vm:
        listener = vm.listen(52)

        def serve():
            conn, _ = listener.accept()
            conn.settimeout(host.guard(60))
            got = drain(conn)
            send_pattern(conn, 1 << 20, 7)
            conn.close()
            return got
        server = Worker(serve)
        words = vm.vs("send", 52, 10, 3)
        check(server.result(host.guard(60)) == (10, pattern_sum(10, 3)), "what the host read")
        check(int(words[3]) == 1 << 20 and int(words[4]) == pattern_sum(1 << 20, 7),
              "the answer in the guest: %s" % words)

        p = vm.start_vs("recv", 1053, 1 << 20, 9)
        conn = vm.connect(1053)
        conn.sendall(b"0123456789")
        conn.shutdown(socket.SHUT_WR)
        got = drain(conn)
        conn.close()
        out = p.communicate(timeout=host.guard(60))[0].split()
        check(got == (1 << 20, pattern_sum(1 << 20, 9)), "the answer on the host: %s" % (got,))
        check(int(out[3]) == 10 and int(out[4]) == zlib.adler32(b"0123456789"),
              "what the guest read: %s" % out)


@case("full")
def BL_054_the_same_guest_port_a_thousand_times(host, work):
    with VsockVm(host) as vm:
        listener = vm.listen(52, backlog=1024)
        pid = vm.vmm_pid()
        fds = count_fds(pid)

        def serve():
            for _ in range(1000):
                conn, _ = listener.accept()
                conn.settimeout(host.guard(60))
                check(conn.recv(1) == b"", "bytes out of nowhere")
                conn.close()
        server = Worker(serve)
        check(vm.vs("cycle", 52, 6000, 1000, guard=300)[1] == "1000", "cycles")
        server.result(host.guard(300))
        check(count_fds(pid) <= fds, "descriptors: %d, then %d" % (fds, count_fds(pid)))


@case("full")
def BL_055_the_host_closes_while_the_guest_writes(host, work):
    with VsockVm(host) as vm:
        listener = vm.listen(52)

        def serve():
            for _ in range(100):
                conn, _ = listener.accept()
                got = 0
                while got < 1 << 20:
                    got += len(conn.recv(1 << 18))
                conn.close()
        server = Worker(serve)
        check(vm.vs("flood", 52, 100, guard=300)[1] == "100", "floods")
        server.result(host.guard(300))
        check(vm.sh("echo alive").out == b"alive\n", "the VM afterwards")


@case("full")
def BL_057_an_early_client_is_closed_and_the_next_try_works(host, work):
    with VsockVm(host) as vm:
        check(vm.connect(1057) is None, "nobody listens, and yet an OK")
        p = vm.start_vs("recv", 1057, 5, 1)
        conn = vm.connect(1057)
        check(conn is not None, "refused although the guest listens")
        conn.shutdown(socket.SHUT_WR)
        check(drain(conn)[0] == 5, "the answer")
        p.communicate(timeout=host.guard(60))


@case("full")
def BL_058_fifteen_hundred_connections_held(host, work):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    with VsockVm(host) as vm:
        pid = vm.vmm_pid()
        vm.sh("/tmp/vs echo 1058 >/dev/null 2>&1 &")
        while vm.connect(1058) is None:
            pass  # until it listens: each try is answered at once
        fds = count_fds(pid)
        held = [vm.connect(1058) for _ in range(1500)]
        works = [s for s in held if s]
        check(len(works) >= 1000, "only %d of 1500 accepted" % len(works))
        for i, s in enumerate(works):
            s.sendall(b"%06d" % i)
        for i, s in enumerate(works):
            got = b""
            while len(got) < 6:
                part = s.recv(6)
                check(part, "connection %d of %d ended" % (i, len(works)))
                got += part
            check(got == b"%06d" % i, "connection %d answered %r" % (i, got))
        rss = rss_kib(pid)
        check(rss < 65536, "%d KiB of memory for 1500 connections" % rss)
        for s in works:
            s.close()
        one = vm.connect(1058)
        one.sendall(b"x")
        check(one.recv(1) == b"x", "one more afterwards")
        one.close()
        end = time.monotonic() + host.guard(20)
        while count_fds(pid) > fds:
            check(time.monotonic() < end, "descriptors: %d, then %d" % (fds, count_fds(pid)))
            check(vm.sh("true").rc == 0, "the VM afterwards")


@case("full")
def BL_059_two_hundred_guest_connections_at_once(host, work):
    with VsockVm(host) as vm:
        listener = vm.listen(52, backlog=5)

        def serve(count):
            conns = {}
            for _ in range(count):
                conn, _ = listener.accept()
                conns[conn] = b""
            while conns:
                for conn in select.select(list(conns), [], [], host.guard(60))[0]:
                    data = conn.recv(4096)
                    conns[conn] += data
                    if len(conns[conn]) == 1024:
                        conn.sendall(conns.pop(conn))
                        conn.close()
                    else:
                        check(data, "a connection ended after %d bytes" % len(conns[conn]))
        for _ in range(10):
            server = Worker(serve, 200)
            check(vm.vs("many", 52, 200, 1024, guard=120)[1] == "200", "completed")
            server.result(host.guard(120))


@case("full")
def a_stuck_reader_stops_nobody_else(host, work):
    with VsockVm(host) as vm:
        listener = vm.listen(52)
        p = vm.popen("/tmp/vs", "send", "52", str(64 << 20), "1", stdin=subprocess.DEVNULL,
                     stdout=subprocess.PIPE)
        stuck, _ = listener.accept()  # and reads nothing
        for i in range(20):
            check(vm.sh("echo %d" % i).out == b"%d\n" % i, "command %d beside it" % i)
        check(p.poll() is None, "64 MiB went nowhere, and yet the sender ended")
        stuck.settimeout(host.guard(120))
        got = drain(stuck)
        stuck.close()
        p.communicate(timeout=host.guard(60))
        check(got == (64 << 20, pattern_sum(64 << 20, 1)), "what it held: %s" % (got,))
