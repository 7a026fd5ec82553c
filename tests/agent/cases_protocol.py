# SPDX-License-Identifier: Apache-2.0
"""The bytes: what is refused, how it is cut, what old hosts sent."""
import os
import random
import struct
import time

import client as c
from harness import shipped_only

HERE = os.path.dirname(os.path.abspath(__file__))


def refused(agent, data, hello=True):
    """Sends raw bytes; the ERROR that must follow, then an end of file."""
    with agent.conn(hello=hello) as conn:
        conn.send(data)
        while True:
            kind, payload = conn.next()
            if kind == c.ERROR:
                break
            assert kind == c.STARTED, hex(kind)
        try:
            conn.next()
            raise AssertionError("a frame after ERROR")
        except EOFError:
            pass
        return c.parse_error(payload)


def alive(agent):
    assert agent.run(["echo", "ok"]).out == b"ok\n"
    assert agent.quiet()


def test_agent_greets_first(agent):
    with agent.conn(hello=False) as conn:
        assert conn.hello() == (c.MAGIC, 1, 1)


def test_bad_magic_is_refused(agent):
    hello = struct.pack("<IHH", 0x12345678, 1, 1)
    assert refused(agent, hello, hello=False)[0] == c.E_PROTOCOL
    assert refused(agent, b"GET / HTTP/1.0\r\n", False)[0] == c.E_PROTOCOL


def test_versions_out_of_range_are_refused(agent):
    hello = struct.pack("<IHH", c.MAGIC, 2, 9)
    assert refused(agent, hello, hello=False)[0] == c.E_VERSION
    for low, high in ((0, 1), (3, 2)):
        hello = struct.pack("<IHH", c.MAGIC, low, high)
        assert refused(agent, hello, hello=False)[0] == c.E_PROTOCOL
    with agent.conn(hello=False) as conn:  # a later host that speaks 1 too
        conn.send(struct.pack("<IHH", c.MAGIC, 1, 7))
        conn.start(["echo", "hi"])
        assert conn.finish().out == b"hi\n"


def test_overlong_frame_is_refused(agent):
    head = struct.pack("<IBBH", (1 << 20) + 1, c.PING, 0, 0)
    assert refused(agent, head)[0] == c.E_PROTOCOL
    head = struct.pack("<IBBH", 0xFFFFFFFF, c.STDIN, 0, 0)
    assert refused(agent, head)[0] == c.E_PROTOCOL


def test_frame_of_the_greatest_length_is_taken(agent):
    pad = c.attr(0x7000, bytes((1 << 20) - 8))
    with agent.conn() as conn:
        conn.frame(c.PING, pad)
        assert conn.next() == (c.OK, b"")


def test_overlong_message_is_refused(agent):
    part = c.frame(c.PING, bytes(1 << 20), c.MORE)
    assert refused(agent, part * 5)[0] == c.E_PROTOCOL


def test_bad_frame_headers_are_refused(agent):
    for head in (struct.pack("<IBBH", 0, c.PING, 0x80, 0),
                 struct.pack("<IBBH", 0, c.PING, 0, 1)):
        assert refused(agent, head)[0] == c.E_PROTOCOL


def test_truncated_attributes_are_refused(agent):
    good = c.start_payload(["true"])
    for bad in (good[:-1], good + b"\0", good + struct.pack("<HHI", 2, 0, 1),
                struct.pack("<HHI", 1, 0, 0xFFFFFFFF),
                struct.pack("<HHI", 1, 0x8000, 0)):
        assert refused(agent, c.frame(c.START, bad))[0] == c.E_PROTOCOL


def test_unknown_attributes(agent):
    extra = c.attr(0x7777, b"whatever")
    with agent.conn() as conn:
        conn.frame(c.START, c.start_payload(["echo", "hi"]) + extra)
        assert conn.finish().out == b"hi\n"
    for kind in (c.START, c.PING, c.NET_CONFIG, c.CLOCK_SET, c.POWER, c.KILL):
        must = c.attr(0x7777, b"whatever", c.REQUIRED)
        body = c.start_payload(["true"]) if kind == c.START else b""
        got = refused(agent, c.frame(kind, body + must))
        assert got[0] == c.E_UNSUPPORTED, (kind, got)


def test_unknown_frames(agent):
    with agent.conn() as conn:
        conn.frame(0xF0, b"new")  # may be skipped
        conn.frame(c.PING)
        assert conn.next()[0] == c.OK
    got = refused(agent, c.frame(0xF0, b"", c.FRAME_REQUIRED))
    assert got[0] == c.E_UNSUPPORTED
    for kind in (0, c.ATTACH, c.FILE_READ, 0x3F, 0x44):
        assert refused(agent, c.frame(kind))[0] == c.E_UNSUPPORTED


def test_frames_of_an_operation_before_start_are_refused(agent):
    for kind in (c.STDIN, c.STDIN_EOF, c.SIGNAL, c.RESIZE):
        got = refused(agent, c.frame(kind, b"x" if kind == c.STDIN else b""))
        assert got[0] == c.E_BAD_REQUEST, (kind, got)


def test_start_twice_is_refused_and_ends_the_first(agent):
    data = c.frame(c.START, c.start_payload(["sleep", "60"]))
    assert refused(agent, data * 2)[0] == c.E_PROTOCOL
    assert agent.quiet(), agent.tree()


def test_bad_start_values_are_refused(agent):
    arg = c.attr(c.A_ARG, "true")
    cases = (
        (b"", c.E_BAD_REQUEST),
        (c.attr(c.A_CWD, "/"), c.E_BAD_REQUEST),
        (c.attr(c.A_ARG, b"a\0b"), c.E_PROTOCOL),
        (arg + c.attr(c.A_ENV, "NOVALUE"), c.E_BAD_REQUEST),
        (arg + c.attr(c.A_ENV, "=x"), c.E_BAD_REQUEST),
        (arg + c.attr(c.A_CWD, "relative"), c.E_BAD_REQUEST),
        (arg + c.attr(c.A_CWD, ""), c.E_PROTOCOL),
        (arg + c.attr(c.A_CWD, "/" * 5000), c.E_BAD_REQUEST),
        (arg + 2 * c.attr(c.A_CWD, "/"), c.E_BAD_REQUEST),
        (arg + c.u8(c.A_STDIN, 2), c.E_PROTOCOL),
        (arg + c.u32(c.A_STDIN, 1), c.E_PROTOCOL),
        (arg + c.attr(c.A_PTY, b"123"), c.E_PROTOCOL),
        (arg + c.attr(c.A_TAG, "t" * 256), c.E_BAD_REQUEST),
        (arg + c.u32(c.A_UMASK, 0o1000), c.E_BAD_REQUEST),
        (arg + c.u32(c.A_LIMIT_MS, 5), c.E_PROTOCOL),
        (arg + 65 * c.u32(c.A_GROUP, 5), c.E_BAD_REQUEST),
        (arg + 33 * c.attr(c.A_RLIMIT, struct.pack("<IIQQ", 7, 0, 9, 9)),
         c.E_BAD_REQUEST),
    )
    for body, want in cases:
        got = refused(agent, c.frame(c.START, body))
        assert got[0] == want, (body[:60], got)


def test_bad_requests_are_refused(agent):
    cases = (
        (c.POWER, b"", c.E_BAD_REQUEST),
        (c.POWER, c.u8(c.A_POWER, 4), c.E_BAD_REQUEST),
        (c.POWER, c.u32(c.A_POWER, 1), c.E_PROTOCOL),
        (c.KILL, c.u32(c.A_PID, 1), c.E_BAD_REQUEST),
        (c.KILL, c.u32(c.A_PID, 1) + c.u32(c.A_SIGNAL, 65), c.E_BAD_REQUEST),
        (c.KILL, c.u32(c.A_PID, 1) + c.u32(c.A_SIGNAL, 9), c.E_NOT_FOUND),
        (c.KILL, c.u32(c.A_SIGNAL, 9) + c.u8(c.A_SCOPE, 9), c.E_BAD_REQUEST),
        (c.PING, c.attr(c.A_TOKEN, bytes(65)), c.E_BAD_REQUEST),
        (c.CLOCK_SET, b"", c.E_BAD_REQUEST),
        (c.CLOCK_SET, c.u64(c.A_TIME, 1), c.E_DENIED),
        (c.NET_CONFIG, c.attr(c.A_IF_NAME, "lo"), c.E_DENIED),
        (c.NET_CONFIG, c.attr(c.A_IF_NAME, "x" * 16), c.E_BAD_REQUEST),
        (c.NET_CONFIG, c.attr(c.A_IF_MAC, bytes(5)), c.E_PROTOCOL),
        (c.NET_CONFIG, c.attr(c.A_ADDRESS, b"\4\41" + bytes(18)),
         c.E_PROTOCOL),
        (c.NET_CONFIG, c.attr(c.A_ROUTE, b"\5\0" + bytes(38)), c.E_PROTOCOL),
    )
    for kind, body, want in cases:
        got = refused(agent, c.frame(kind, body))
        assert got[0] == want, (kind, body, got)


def test_bad_frames_in_a_command_end_it(agent):
    start = c.frame(c.START, c.start_payload(["sleep", "60"], stdin=True))
    cases = (
        (c.frame(c.SIGNAL, c.u32(c.A_SIGNAL, 0)), c.E_BAD_REQUEST),
        (c.frame(c.SIGNAL, b"\1"), c.E_PROTOCOL),
        (c.frame(c.RESIZE, c.attr(c.A_PTY, b"1")), c.E_PROTOCOL),
        (c.frame(c.STDIN, b"x", c.MORE), c.E_PROTOCOL),
        (c.frame(c.SIGNAL, b"", c.MORE) + c.frame(c.STDIN, b"x"),
         c.E_PROTOCOL),
        (struct.pack("<IBBH", 1 << 21, c.STDIN, 0, 0), c.E_PROTOCOL),
    )
    for data, want in cases:
        got = refused(agent, start + data)
        assert got[0] == want, (data, got)
    alive(agent)


def test_resize_without_a_terminal_is_ignored(agent):
    with agent.conn() as conn:
        conn.start(["cat"], stdin=True)
        conn.resize(10, 10)
        conn.stdin(b"x")
        conn.frame(c.STDIN_EOF)
        assert conn.finish().out == b"x"


def test_cut_connections_do_no_harm(agent):
    whole = c.HELLO + c.frame(c.START, c.start_payload(["sleep", "60"]))
    for cut in list(range(0, 24)) + [len(whole) - 1, len(whole)]:
        with agent.conn(hello=False) as conn:
            conn.send(whole[:cut])
    alive(agent)


@shipped_only
def test_ping_returns_the_token_and_floods_are_bounded(agent):
    with agent.conn() as conn:
        conn.frame(c.PING, c.attr(c.A_TOKEN, b"t" * 64))
        assert conn.next() == (c.OK, c.attr(c.A_TOKEN, b"t" * 64))
    before = agent.rss_kib()
    with agent.conn() as conn:
        conn.sock.settimeout(0.5)
        pings = c.frame(c.PING, c.attr(c.A_TOKEN, b"t" * 64)) * 800
        try:
            for _ in range(1000):  # answers are never read
                conn.send(pings)
            raise AssertionError("no backpressure")
        except TimeoutError:
            pass
        assert agent.rss_kib() - before < 2048
    alive(agent)


def session():
    """A session that uses every frame of a host, as bytes."""
    return (c.HELLO +
            c.frame(c.PING, c.attr(c.A_TOKEN, b"abc")) +
            c.frame(c.LIST) +
            c.frame(c.START, c.start_payload(
                ["/bin/sh", "-c", "stty size; cat; exit 5"], stdin=True,
                pty=(40, 120), tag="t", limit_ms=60000)) +
            c.frame(c.RESIZE, c.attr(c.A_PTY, struct.pack("<4H", 40, 120, 0,
                                                          0))) +
            c.frame(c.SIGNAL, c.u32(c.A_SIGNAL, 18) + c.u8(c.A_SCOPE, 1)) +
            c.frame(c.STDIN, b"line\n") + c.frame(c.STDIN_EOF))


def check_session(agent, pieces, wait=0.0):
    with agent.conn(hello=False) as conn:
        for piece in pieces:
            conn.send(piece)
            if wait:
                time.sleep(wait)
        assert conn.next() == (c.OK, c.attr(c.A_TOKEN, b"abc"))
        assert conn.next() == (c.END, b"")
        r = conn.finish()
    assert r.code == 5 and b"40 120\r\n" in r.out and b"line" in r.out, \
        r.__dict__


def test_session_split_at_every_byte(agent):
    data = session()
    check_session(agent, [data])
    check_session(agent, [data[i:i + 1] for i in range(len(data))], 0.0005)
    for cut in range(1, len(data), 7):
        check_session(agent, [data[:cut], data[cut:]], 0.001)


def test_session_split_at_random(agent):
    data = session()
    rng = random.Random(1)
    for _ in range(20):
        cuts = sorted(rng.sample(range(1, len(data)), 12))
        check_session(agent, [data[a:b] for a, b in
                              zip([0] + cuts, cuts + [len(data)])], 0.001)


def test_random_bytes_do_no_harm(agent):
    rng = random.Random(2)
    base = session()
    for _ in range(150):
        data = bytearray(base)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(8, len(data))] = rng.randrange(256)
        with agent.conn(hello=False) as conn:
            try:
                conn.send(bytes(data))
                conn.sock.shutdown(1)
                while conn.sock.recv(65536):
                    pass
            except OSError:
                pass
    alive(agent)


def transcript(name):
    """[('host'|'agent', bytes)] of a recorded session."""
    out = []
    with open(os.path.join(HERE, name)) as f:
        for line in f:
            line = line.split("#")[0].strip()
            if line:
                who, hexes = line.split(None, 1)
                out.append((who, bytes.fromhex(hexes)))
    return out


def test_recorded_session_of_version_1(agent):
    """A host of version 1 got these bytes; it must for ever."""
    with agent.conn(hello=False) as conn:
        for who, data in transcript("session-v1.hex"):
            if who == "host":
                conn.send(data)
                continue
            got = bytearray(conn.exactly(len(data)))
            # What differs from run to run: ids and times are 0xEE.
            for i, byte in enumerate(data):
                if byte == 0xEE:
                    got[i] = 0xEE
            assert bytes(got) == data, (bytes(got).hex(), data.hex())
