#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the default root file system from a static busybox.

usage: build.py BUSYBOX OUT.img

README.md says what is in it and why it is EROFS.
"""
import os
import subprocess
import sys

import erofs

UUID = bytes.fromhex("6d6f7465000040008000726f6f746673")  # "mote", "rootfs"
TIME = 1704067200  # 2024-01-01: any fixed time, but not one before make's

EMPTY = ("dev", "proc", "sys", "run", "mnt", "opt", "srv", "media",
         "usr/lib", "usr/local/bin", "usr/local/sbin", "usr/share",
         "var/cache", "var/lib", "var/log", "lib")

FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n"
                  "daemon:x:1:1:daemon:/usr/sbin:/bin/false\n"
                  "user:x:1000:1000:user:/home/user:/bin/sh\n"
                  "nobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\ndaemon:x:1:\ntty:x:5:\nusers:x:100:user\n"
                 "user:x:1000:\nnogroup:x:65534:\n",
    "etc/shells": "/bin/sh\n/bin/ash\n",
    "etc/profile": "export PATH=${PATH:-/usr/local/sbin:/usr/local/bin:"
                   "/usr/sbin:/usr/bin:/sbin:/bin}\n"
                   "umask 022\n"
                   "[ \"$(id -u)\" = 0 ] && PS1='# ' || PS1='$ '\n",
    "etc/hosts": "127.0.0.1\tlocalhost mote\n::1\tlocalhost\n",
    "etc/hostname": "mote\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    # The agent lays the real one over this if the root is read-only.
    "etc/resolv.conf": "",
    "etc/os-release": 'NAME="mote"\nID=mote\n'
                      'PRETTY_NAME="mote default root (busybox)"\n',
}

# Only the old way to boot from a ramdisk.
NOT_LINKED = {"linuxrc"}


def is_static(program):
    """No program header asks for an interpreter (PT_INTERP, 3)."""
    if program[:4] != b"\x7fELF" or program[4] != 2:
        return False
    start = int.from_bytes(program[32:40], "little")
    size, count = (int.from_bytes(program[i:i + 2], "little")
                   for i in (54, 56))
    return all(program[start + i * size] != 3 for i in range(count))


def applets(path):
    """Where busybox wants its names: ["bin/sh", "usr/bin/env", ...]."""
    text = subprocess.run([path, "--list-full"], check=True,
                          capture_output=True, text=True).stdout
    return sorted(set(text.split()) - NOT_LINKED)


def tree(path, program):
    root = erofs.new_root()
    for name in EMPTY:
        root.directory(name)
    root.directory("root", 0o700)
    root.directory("home/user", 0o755, 1000, 1000)
    root.directory("tmp", 0o1777)
    root.directory("var/tmp", 0o1777)
    root.symlink("var/run", "/run")
    root.symlink("etc/mtab", "/proc/self/mounts")
    for name, text in FILES.items():
        root.file(name, text)
    # Hard links: no inode to read and no link to follow at each exec.
    busybox = root.file("bin/busybox", program, 0o755)
    for name in applets(path):
        if name != "bin/busybox":
            root.put(name, busybox)
    return root


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    path, out = sys.argv[1:]
    try:
        with open(path, "rb") as f:
            program = f.read()
        if not is_static(program):
            sys.exit("%s: not a static 64-bit program; install Debian's "
                     "busybox-static" % path)
        data = erofs.image(tree(path, program), UUID, "mote-root", TIME)
        with open(out + ".tmp", "wb") as f:
            f.write(data)
        os.rename(out + ".tmp", out)
    except OSError as err:
        sys.exit("%s: %s; check the path and its permissions"
                 % (err.filename, err.strerror))


if __name__ == "__main__":
    main()
