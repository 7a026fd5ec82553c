# SPDX-License-Identifier: Apache-2.0
"""Snapshot files (vmm/state.h, vmm/snapshot_mem.h) as bytes: written by hand
from the description there, so that a change of the format is noticed here."""
import json
import os
import struct
import zlib

PAGE = 4096
CHUNK = 2 << 20


def section(name, payload, version=1):
    rest = struct.pack("<HHQ", version, len(name), len(payload)) + \
        name.encode() + payload
    data = struct.pack("<I", zlib.crc32(rest)) + rest
    return data + bytes(-len(data) % 8)


def state(ident, sections):
    body = b"".join(section(n, p) for n, p in sections)
    head = b"MOTESNAP" + struct.pack("<HHIQ", 1, 0, len(sections),
                                     48 + len(body)) + ident + bytes(4)
    return head + struct.pack("<I", zlib.crc32(head)) + body


def sums(ram, pages):
    """The checksum of each chunk; `pages` is number to content."""
    out = [0] * ((ram + CHUNK - 1) // CHUNK)
    for number in sorted(pages):
        i = number * PAGE // CHUNK
        out[i] = zlib.crc32(struct.pack("<Q", number), out[i])
        out[i] = zlib.crc32(pages[number], out[i])
    return out


def memory_section(ram, pages, parent=None):
    data = struct.pack("<QB", ram, 1 if parent else 0) + (parent or bytes(16))
    data += b"".join(struct.pack("<I", s) for s in sums(ram, pages))
    if parent:
        bits = bytearray((ram // PAGE + 63) // 64 * 8)
        for number in pages:
            bits[number // 8] |= 1 << number % 8
        data += bytes(bits)
    return data


def trailer(ident, ram, diff):
    head = b"MOTEMEM\0" + struct.pack("<IIQ", 1, 1 if diff else 0, ram) + \
        ident + bytes(4)
    return head + struct.pack("<I", zlib.crc32(head))


def cpuid():
    words = struct.unpack("<III", b"AuthenticAMD")
    leaves = [(0, 0, 0, 7, words[0], words[2], words[1]),
              (1, 0, 0, 0xa20f10, 0, 1 << 20 | 1 << 25, 1 << 26)]
    return struct.pack("<I", len(leaves)) + \
        b"".join(struct.pack("<7I", *leaf) for leaf in leaves)


def write(state_path, memory_path, config, pages, parent=None, ident=None):
    """Both files of a snapshot; the id."""
    ident = ident or os.urandom(16)
    ram = config["machine-config"]["mem_size_mib"] << 20
    if not parent:
        pages = {n: p for n, p in pages.items() if any(p)}
    with open(state_path, "wb") as f:
        f.write(state(ident, [
            ("cpuid", cpuid()), ("config", json.dumps(config).encode()),
            ("memory", memory_section(ram, pages, parent))]))
    with open(memory_path, "wb") as f:
        f.truncate(ram + PAGE)
        for number, page in pages.items():
            f.seek(number * PAGE)
            f.write(page)
        f.seek(ram)
        f.write(trailer(ident, ram, bool(parent)).ljust(PAGE, b"\0"))
    return ident


def read_config(state_path):
    """The section "config"."""
    with open(state_path, "rb") as f:
        data = f.read()
    at = 48
    while at < len(data):
        _, _, name_len, length = struct.unpack_from("<IHHQ", data, at)
        name = data[at + 16:at + 16 + name_len]
        begin = at + 16 + name_len
        if name == b"config":
            return data[8 + 16:40], json.loads(data[begin:begin + length])
        at = (begin + length + 7) // 8 * 8
    raise ValueError("no configuration in it")
