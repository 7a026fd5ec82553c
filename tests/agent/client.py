# SPDX-License-Identifier: Apache-2.0
"""A client of the agent protocol (guest/abi.h) for tests; stdlib only.

Written from the numbers of guest/abi.h by hand, so that a change there that
breaks old hosts is noticed here.
"""
import os
import socket
import struct
import time

MAGIC = 0x45544F4D
HELLO = struct.pack("<IHH", MAGIC, 1, 1)

START, NET_CONFIG, CLOCK_SET, POWER, PING, LIST, KILL, ATTACH = range(1, 9)
RESTORE = 0x0F
FILE_READ = 0x20
STDIN, STDIN_EOF, SIGNAL, RESIZE = 0x40, 0x41, 0x42, 0x43
READY, STARTED, STDOUT, STDERR, EXIT, ERROR, OK, ITEM, END = range(0x80, 0x89)
MORE, FRAME_REQUIRED = 1, 2

A_ARG, A_PROGRAM, A_ENV, A_ENV_BARE, A_CWD, A_USER, A_GROUP = range(1, 8)
A_RLIMIT, A_STDIN, A_PTY, A_TAG, A_LIMIT_MS, A_GRACE_MS = range(8, 14)
A_DETACHED, A_UMASK = 14, 15
A_PID, A_EXIT, A_USAGE, A_SIGNAL, A_SCOPE, A_START_NS = range(0x20, 0x26)
A_ERROR, A_TEXT, A_ERRNO = 0x30, 0x31, 0x32
A_AGENT, A_KERNEL, A_MARK, A_TOKEN, A_POWER, A_TIME = range(0x40, 0x46)
A_SEED, A_NOTE, A_INTERFACE = 0x46, 0x47, 0x10A
A_IF_NAME, A_IF_MAC, A_SET_MAC, A_MTU, A_ADDRESS, A_ROUTE = range(0x100, 0x106)
A_RESOLVER, A_SEARCH, A_HOSTNAME, A_FLUSH = range(0x106, 0x10A)
REQUIRED = 1

PROCESS, GROUP, TREE = 1, 2, 3
E_PROTOCOL, E_BAD_REQUEST, E_UNSUPPORTED, E_VERSION = 1, 2, 3, 4
E_BAD_CWD, E_USER, E_RESOURCE, E_INTERNAL, E_NOT_FOUND, E_DENIED = range(5, 11)
E_BUSY = 17
E_NOT_EXEC, E_NO_PROGRAM = 126, 127


def attr(kind, value=b"", flags=0):
    """One attribute; str and bytes are taken as they are."""
    if isinstance(value, str):
        value = value.encode()
    return struct.pack("<HHI", kind, flags, len(value)) + value


def u8(kind, value, flags=0):
    return attr(kind, struct.pack("<B", value), flags)


def u32(kind, value, flags=0):
    return attr(kind, struct.pack("<I", value), flags)


def u64(kind, value, flags=0):
    return attr(kind, struct.pack("<Q", value), flags)


def frame(kind, payload=b"", flags=0):
    return struct.pack("<IBBH", len(payload), kind, flags, 0) + payload


def attrs(payload):
    """Payload to a list of (type, value)."""
    out = []
    while payload:
        kind, _, length = struct.unpack_from("<HHI", payload)
        out.append((kind, payload[8:8 + length]))
        payload = payload[8 + length:]
    return out


def start_payload(argv, env=(), cwd=None, user=None, groups=(), rlimits=(),
                  stdin=False, pty=None, tag=None, limit_ms=None,
                  grace_ms=None, detached=False, bare=False, program=None,
                  umask=None):
    parts = [attr(A_ARG, a) for a in argv]
    parts += [attr(A_ENV, e) for e in env]
    parts += [u32(A_GROUP, g) for g in groups]
    parts += [attr(A_RLIMIT, struct.pack("<IIQQ", r, 0, soft, hard))
              for r, soft, hard in rlimits]
    if cwd is not None:
        parts.append(attr(A_CWD, cwd))
    if user is not None:
        parts.append(attr(A_USER, user))
    if program is not None:
        parts.append(attr(A_PROGRAM, program))
    if stdin:
        parts.append(u8(A_STDIN, 1))
    if pty is not None:
        parts.append(attr(A_PTY, struct.pack("<HHHH", pty[0], pty[1], 0, 0)))
    if tag is not None:
        parts.append(attr(A_TAG, tag))
    if limit_ms is not None:
        parts.append(u64(A_LIMIT_MS, limit_ms))
    if grace_ms is not None:
        parts.append(u32(A_GRACE_MS, grace_ms))
    if detached:
        parts.append(u8(A_DETACHED, 1))
    if bare:
        parts.append(u8(A_ENV_BARE, 1))
    if umask is not None:
        parts.append(u32(A_UMASK, umask))
    return b"".join(parts)


class Result:
    """How a command went."""

    def __init__(self):
        self.pid = None
        self.out = b""
        self.err = b""
        self.exited = self.signal = None
        self.timed_out = False
        self.usage = None
        self.error = None  # (code, text, errno or None)
        self.frames = []   # types in order

    @property
    def code(self):
        """As a shell shows it."""
        if self.error:
            return self.error[0]
        return self.exited if self.signal is None else 128 + self.signal


def parse_error(payload):
    found = dict(attrs(payload))
    errno = found.get(A_ERRNO)
    return (struct.unpack("<I", found[A_ERROR])[0], found[A_TEXT].decode(),
            struct.unpack("<I", errno)[0] if errno else None)


class Conn:
    """One connection. Every receive is bounded by `timeout` seconds."""

    def __init__(self, path=None, sock=None, hello=True, timeout=30):
        if sock is None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(timeout)
            sock.connect(path)
        sock.settimeout(timeout)
        self.sock = sock
        self.buffer = b""
        self.greeted = False
        if hello:
            self.send(HELLO)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def frame(self, kind, payload=b"", flags=0):
        self.send(frame(kind, payload, flags))

    def start(self, argv, **options):
        self.frame(START, start_payload(argv, **options))

    def stdin(self, data):
        for at in range(0, len(data), 1 << 20):
            self.frame(STDIN, data[at:at + (1 << 20)])

    def signal(self, signo, scope=PROCESS):
        self.frame(SIGNAL, u32(A_SIGNAL, signo) + u8(A_SCOPE, scope))

    def resize(self, rows, columns):
        self.frame(RESIZE, attr(A_PTY, struct.pack("<HHHH", rows, columns,
                                                   0, 0)))

    def exactly(self, count):
        parts = [self.buffer]
        have = len(self.buffer)
        while have < count:
            data = self.sock.recv(max(65536, count - have))
            if not data:
                raise EOFError("connection closed after %d of %d bytes"
                               % (have, count))
            parts.append(data)
            have += len(data)
        data = b"".join(parts)
        self.buffer = data[count:]
        return data[:count]

    def hello(self):
        """The agent's HELLO: (magic, lowest, highest)."""
        self.greeted = True
        return struct.unpack("<IHH", self.exactly(8))

    def next(self):
        """The next frame: (type, payload)."""
        if not self.greeted:
            self.hello()
        length, kind, _, _ = struct.unpack("<IBBH", self.exactly(8))
        return kind, self.exactly(length)

    def wait(self, kind):
        """Drops frames until one of this type; returns its payload."""
        while True:
            got, payload = self.next()
            if got == kind:
                return payload
            if got in (ERROR, EXIT):
                raise AssertionError("got frame %#x %r instead of %#x"
                                     % (got, payload, kind))

    def output(self, until):
        """Collects STDOUT until it has these bytes."""
        data = b""
        while until not in data:
            kind, payload = self.next()
            if kind == STDOUT:
                data += payload
            elif kind in (EXIT, ERROR):
                raise AssertionError("ended; had %r" % data)
        return data

    def finish(self, keep=True):
        """Reads up to EXIT or ERROR; keep=False drops the output."""
        result = Result()
        out, err = [], []
        while True:
            kind, payload = self.next()
            result.frames.append(kind)
            if kind == STDOUT and keep:
                out.append(payload)
            elif kind == STDERR and keep:
                err.append(payload)
            elif kind == STARTED:
                result.pid = struct.unpack("<I", dict(attrs(payload))[A_PID])[0]
            elif kind == ERROR:
                result.error = parse_error(payload)
                break
            elif kind == EXIT:
                found = dict(attrs(payload))
                how, flags, _, value = struct.unpack("<BBHI", found[A_EXIT])
                result.timed_out = bool(flags & 1)
                result.usage = struct.unpack("<QQQQ", found[A_USAGE])
                if how == 1:
                    result.exited = value
                else:
                    result.signal = value
                break
        result.out, result.err = b"".join(out), b"".join(err)
        return result


def run(path, argv, data=None, timeout=30, **options):
    """Runs a command to its end; data is its whole standard input."""
    with Conn(path, timeout=timeout) as conn:
        conn.start(argv, stdin=data is not None, **options)
        if data is not None:
            conn.stdin(data)
            conn.frame(STDIN_EOF)
        return conn.finish()


def wait_until(condition, seconds=10):
    """Polls something outside our reach (another process) until true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def children_of(pid):
    """All living descendants, zombies told apart: [(pid, state, name)]."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, "rb") as f:
                text = f.read().decode(errors="replace")
        except OSError:
            continue
        head, tail = text.rsplit(")", 1)
        fields = tail.split()
        found[int(name)] = (int(fields[1]), fields[0], head.split("(", 1)[1])
    out, level = [], {pid}
    while level:
        level = {p for p, (parent, _, _) in found.items() if parent in level}
        out += [(p, found[p][1], found[p][2]) for p in level]
    return out
