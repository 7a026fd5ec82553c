#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the guest's initial ramdisk: the agent as /init and what it needs.

usage: mkinitrd.py AGENT OUT.cpio

The same agent gives the same bytes, whoever runs this and when: owner 0, time
0, fixed inode numbers. No root needed: device nodes are only text here.
spec: linux Documentation/driver-api/early-userspace/buffer-format.rst, "newc"
"""
import os
import sys

# Mount points: root.c has the last three.
DIRECTORIES = ("dev", "proc", "sys", "run", "root", "lower", "upper")
# The kernel opens the console before init has mounted anything.
NODES = (("dev/console", 0o600, 5, 1), ("dev/null", 0o666, 1, 3))

S_IFDIR, S_IFCHR, S_IFREG = 0o040000, 0o020000, 0o100000


def pad(data):
    return data + b"\0" * (-len(data) % 4)


def entry(number, name, mode, data=b"", device=(0, 0)):
    """One archive member; its header fields are 8 hex digits each."""
    links = 2 if mode & S_IFDIR and not mode & S_IFREG else 1
    name = name.encode() + b"\0"
    fields = (number, mode, 0, 0, links, 0, len(data), 0, 0, *device,
              len(name), 0)
    head = b"070701" + b"".join(b"%08x" % f for f in fields)
    return pad(head + name) + pad(data)


def archive(agent):
    out, number = b"", 1
    for name in DIRECTORIES:
        out += entry(number, name, S_IFDIR | 0o755)
        number += 1
    for name, mode, major, minor in NODES:
        out += entry(number, name, S_IFCHR | mode, device=(major, minor))
        number += 1
    out += entry(number, "init", S_IFREG | 0o755, agent)
    return out + entry(0, "TRAILER!!!", 0)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    try:
        with open(sys.argv[1], "rb") as f:
            agent = f.read()
        # Renamed when whole: make must not find half of it.
        with open(sys.argv[2] + ".tmp", "wb") as f:
            f.write(archive(agent))
        os.rename(sys.argv[2] + ".tmp", sys.argv[2])
    except OSError as err:
        sys.exit("%s: %s; check the path and its permissions"
                 % (err.filename, err.strerror))


if __name__ == "__main__":
    main()
