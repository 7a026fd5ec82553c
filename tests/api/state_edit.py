# SPDX-License-Identifier: Apache-2.0
"""Saved machines taken apart and put together again, from what vmm/state.h and
vmm/snapshot_mem.h say of the files; also a second opinion on both."""

import os
import struct
import zlib

HEAD = struct.Struct("<8sHHIQ16sII")
SECT = struct.Struct("<IHHQ")
TRAILER = struct.Struct("<8sIIQ16sI")
PAGE = 4096
CHUNK = 2 << 20


class State:
    """The sections of a state file, in order: [name, version, bytearray]."""

    def __init__(self, data):
        magic, self.version, _, num, length, self.id, zero, crc = \
            HEAD.unpack_from(data)
        assert magic == b"MOTESNAP" and length == len(data) and zero == 0
        assert crc == zlib.crc32(data[:HEAD.size - 4])
        self.sections = []
        at = HEAD.size
        for _ in range(num):
            crc, version, name_len, size = SECT.unpack_from(data, at)
            end = at + SECT.size + name_len + size
            assert crc == zlib.crc32(data[at + 4:end])
            name = data[at + SECT.size:at + SECT.size + name_len].decode()
            self.sections.append(
                [name, version, bytearray(data[end - size:end])])
            assert not any(data[end:end + -end % 8])
            at = end + -end % 8
        assert at == len(data)

    @classmethod
    def read(cls, path):
        with open(path, "rb") as f:
            return cls(f.read())

    def __getitem__(self, name):
        return next(s for s in self.sections if s[0] == name)[2]

    def __contains__(self, name):
        return any(s[0] == name for s in self.sections)

    def names(self):
        return [s[0] for s in self.sections]

    def drop(self, name):
        self.sections = [s for s in self.sections if s[0] != name]

    def bytes(self):
        body = b""
        for name, version, payload in self.sections:
            rest = struct.pack("<HHQ", version, len(name), len(payload)) + \
                name.encode() + payload
            body += struct.pack("<I", zlib.crc32(rest)) + rest
            body += bytes(-len(body) % 8)
        head = HEAD.pack(b"MOTESNAP", self.version, 0, len(self.sections),
                         HEAD.size + len(body), self.id, 0, 0)[:-4]
        return head + struct.pack("<I", zlib.crc32(head)) + body

    def write(self, path):
        with open(path, "wb") as f:
            f.write(self.bytes())


# --- parts of sections -----------------------------------------------------

def cpuid(state):
    """[(function, index, flags, [eax, ebx, ecx, edx])]"""
    raw = state["cpuid"]
    num, = struct.unpack_from("<I", raw)
    rows = [struct.unpack_from("<7I", raw, 4 + 28 * i) for i in range(num)]
    return [(r[0], r[1], r[2], list(r[3:])) for r in rows]


def set_cpuid(state, rows):
    raw = struct.pack("<I", len(rows))
    for function, index, flags, regs in rows:
        raw += struct.pack("<7I", function, index, flags, *regs)
    state["cpuid"][:] = raw


def msrs_at(state, cpu=0):
    """Where the number of MSRs stands in cpu/N, and the number."""
    raw = state[f"cpu/{cpu}"]
    at = 4
    for _ in range(8):  # the parts before them
        size, = struct.unpack_from("<I", raw, at)
        at += 4 + size
    num, = struct.unpack_from("<I", raw, at)
    return at, num


def msrs(state, cpu=0):
    at, num = msrs_at(state, cpu)
    return [struct.unpack_from("<IQ", state[f"cpu/{cpu}"], at + 4 + 12 * i)
            for i in range(num)]


def set_msrs(state, entries, cpu=0):
    at, num = msrs_at(state, cpu)
    raw = state[f"cpu/{cpu}"]
    new = struct.pack("<I", len(entries))
    for index, value in entries:
        new += struct.pack("<IQ", index, value)
    raw[at:at + 4 + 12 * num] = new


# --- memory ----------------------------------------------------------------

class Memory:
    """What a state says of its memory: ram, kind, parent, crcs, bitmap."""

    def __init__(self, state):
        raw = state["memory"]
        self.ram, self.kind, self.parent = struct.unpack_from("<QB16s", raw)
        chunks = -(-self.ram // CHUNK)
        self.crc = list(struct.unpack_from(f"<{chunks}I", raw, 25))
        self.bits = None
        if self.kind == 1:
            words = (self.ram // PAGE + 63) // 64
            self.bits = list(struct.unpack_from(f"<{words}Q", raw,
                                                25 + 4 * chunks))

    def has(self, page):
        return bool(self.bits[page // 64] >> page % 64 & 1)

    def pages(self):
        """The pages that a diff has."""
        return [64 * w + b for w, v in enumerate(self.bits) if v
                for b in range(64) if v >> b & 1]


def trailer(mem_path):
    """(kind, ram, id) of a memory file, checked."""
    with open(mem_path, "rb") as f:
        f.seek(-PAGE, os.SEEK_END)
        page = f.read(PAGE)
    magic, version, kind, ram, ident, zero = TRAILER.unpack_from(page)
    crc, = struct.unpack_from("<I", page, TRAILER.size)
    assert magic == b"MOTEMEM\0" and version == 1 and zero == 0
    assert crc == zlib.crc32(page[:TRAILER.size])
    assert not any(page[TRAILER.size + 4:])
    return kind, ram, ident


def checksums(mem, f):
    """What the file behind `f` ought to have as mem.crc."""
    out = []
    zero = bytes(PAGE)
    for chunk in range(len(mem.crc)):
        crc = 0
        f.seek(chunk * CHUNK)
        data = f.read(min(CHUNK, mem.ram - chunk * CHUNK))
        if mem.kind == 0 and data.count(0) == len(data):
            out.append(0)
            continue
        for at in range(0, len(data), PAGE):
            page = data[at:at + PAGE]
            number = (chunk * CHUNK + at) // PAGE
            if mem.has(number) if mem.kind == 1 else page != zero:
                crc = zlib.crc32(struct.pack("<Q", number), crc)
                crc = zlib.crc32(page, crc)
        out.append(crc)
    return out


def merge(old, new, out):
    """The pairs OLD and NEW, a diff on it, become OUT: prefixes of NAME.state
    and NAME.mem."""
    old_state, new_state = (State.read(f"{x}.state") for x in (old, new))
    diff = Memory(new_state)
    assert diff.kind == 1 and diff.parent == old_state.id, "not its diff"
    with open(f"{old}.mem", "rb") as a, open(f"{new}.mem", "rb") as b, \
            open(f"{out}.mem", "wb") as o:
        o.truncate(diff.ram + PAGE)
        copy_data(a, o, diff.ram)
        for page in diff.pages():
            b.seek(page * PAGE)
            o.seek(page * PAGE)
            o.write(b.read(PAGE))
        head = TRAILER.pack(b"MOTEMEM\0", 1, 0, diff.ram, new_state.id, 0)
        o.seek(diff.ram)
        o.write(head + struct.pack("<I", zlib.crc32(head)))
    full = Memory(new_state)
    full.kind, full.bits = 0, None
    with open(f"{out}.mem", "rb") as o:
        full.crc = checksums(full, o)
    new_state["memory"][:] = struct.pack(
        f"<QB16s{len(full.crc)}I", full.ram, 0, bytes(16), *full.crc)
    new_state.write(f"{out}.state")


def copy_data(src, dst, end):
    """What is no hole, up to `end`."""
    at = 0
    while at < end:
        try:
            at = os.lseek(src.fileno(), at, os.SEEK_DATA)
        except OSError:
            return
        hole = min(os.lseek(src.fileno(), at, os.SEEK_HOLE), end)
        while at < hole:
            n = min(CHUNK, hole - at)
            dst.seek(at)
            dst.write(os.pread(src.fileno(), n, at))
            at += n
