#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the guest's root for tests/bench/io.sh: busybox, fio, iperf3, stream.

usage: image.py STREAM OUT.img
Programs come from this machine, with the libraries that they load; the same
image boots under every monitor that is measured.
"""
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(TOP, "guest", "rootfs"))
import build  # noqa: E402
import erofs  # noqa: E402

PROGRAMS = ("fio", "iperf3")


def needed(path):
    """The shared objects that a program loads, its interpreter too."""
    out = subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
    return sorted(set(re.findall(r"(/\S+) \(0x", out)))


def add(root, path, seen, name=None):
    with open(path, "rb") as f:
        root.file((name or path).lstrip("/"), f.read(), 0o755)
    seen.add(path)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    stream, out = sys.argv[1:]
    with open(shutil.which("busybox"), "rb") as f:
        busybox = f.read()
    if not build.is_static(busybox):
        sys.exit("image: busybox is not static; install busybox-static")
    root = build.tree(shutil.which("busybox"), busybox)
    seen = set()
    for name in PROGRAMS:
        path = shutil.which(name)
        if not path:
            sys.exit("image: no %s on this machine; apt-get install %s" % (name, name))
        for lib in needed(path):
            if lib not in seen:
                add(root, lib, seen)
        add(root, path, seen, "usr/local/bin/" + name)
    add(root, stream, seen, "usr/local/bin/stream")
    add(root, os.path.join(HERE, "guest.sh"), seen, "bench")
    data = erofs.image(root, build.UUID, "bench", build.TIME)
    with open(out + ".tmp", "wb") as f:
        f.write(data)
    os.rename(out + ".tmp", out)


if __name__ == "__main__":
    main()
