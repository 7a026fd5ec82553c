#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the default root file system and the initial ramdisk: read back
by a reader of our own, and by fsck.erofs where that is installed."""
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
GUEST = os.path.join(HERE, "..", "..", "guest")
BUILD = os.path.join(GUEST, "rootfs", "build.sh")
INITRD = os.path.join(GUEST, "agent", "mkinitrd.sh")
BLOCK = 4096


class Image:
    """Reads an EROFS image: only what erofs.py writes."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read()
        fields = struct.unpack_from("<IIIBBHQQIIII", self.data, 1024)
        assert fields[0] == 0xE0F5E1E2 and fields[3] == 12
        self.root, self.meta = fields[5], fields[10] * BLOCK
        assert len(self.data) == fields[9] * BLOCK

    def inode(self, nid):
        """(mode, links, uid, content)"""
        at = self.meta + 32 * nid
        form, _, mode, links, size, _, block, _, uid, _, _ = \
            struct.unpack_from("<HHHHIIIIHHI", self.data, at)
        whole = size - size % BLOCK if form >> 1 == 2 else size
        body = self.data[block * BLOCK:block * BLOCK + whole]
        if whole < size:
            assert at % BLOCK + 32 + size - whole <= BLOCK
            body += self.data[at + 32:at + 32 + size - whole]
        assert len(body) == size
        return mode, links, uid, body

    def entries(self, nid):
        body, out = self.inode(nid)[3], []
        for base in range(0, len(body), BLOCK):
            block = body[base:base + BLOCK]
            count = struct.unpack_from("<H", block, 8)[0] // 12
            heads = [struct.unpack_from("<QHB", block, 12 * i)
                     for i in range(count)]
            ends = [h[1] for h in heads[1:]] + [len(block)]
            for (child, start, _), end in zip(heads, ends):
                out.append((block[start:end].rstrip(b"\0").decode(), child))
        names = [n.encode() for n, _ in out]
        assert names == sorted(names), names  # the kernel bisects
        return dict(out)

    def find(self, path):
        nid = self.root
        for name in path.split("/"):
            nid = self.entries(nid)[name]
        return self.inode(nid)

    def count(self, nid=None):
        """Walks everything; dots must lead where they should."""
        nid = self.root if nid is None else nid
        found = self.entries(nid)
        assert found["."] == nid
        total = 0
        for name, child in found.items():
            if name in (".", ".."):
                continue
            total += 1
            if stat.S_ISDIR(self.inode(child)[0]):
                assert self.entries(child)[".."] == nid
                total += self.count(child)
        return total


def build(tool, *args, **env):
    return subprocess.run([tool, *args], env={**os.environ, **env},
                          capture_output=True, text=True, check=False)


def test_rootfs_reads_back(tmp):
    path = os.path.join(tmp, "a.img")
    assert build(BUILD, path).returncode == 0
    image = Image(path)
    assert image.count() > 250
    mode, links, uid, body = image.find("bin/busybox")
    assert mode == stat.S_IFREG | 0o755 and uid == 0 and body[:4] == b"\x7fELF"
    assert image.find("bin/sh")[3] == body and links > 200
    assert image.find("usr/bin/env")[3] == body
    assert image.find("home/user")[2] == 1000
    assert image.find("tmp")[0] == stat.S_IFDIR | 0o1777
    assert image.find("root")[0] == stat.S_IFDIR | 0o700
    assert image.find("etc/mtab")[3] == b"/proc/self/mounts"
    assert b"user:x:1000:1000:" in image.find("etc/passwd")[3]
    for name in ("proc", "sys", "dev", "run", "mnt", "var/tmp"):
        assert stat.S_ISDIR(image.find(name)[0])


def test_rootfs_is_reproducible_and_passes_fsck(tmp):
    paths = [os.path.join(tmp, n) for n in ("a", "b")]
    for path, umask in zip(paths, ("022", "077")):
        script = 'umask %s; exec "$@"' % umask
        assert build("/bin/sh", "-c", script, "sh", BUILD, path,
                     TZ="Asia/Tokyo" if umask == "077" else "UTC"
                     ).returncode == 0
    with open(paths[0], "rb") as a, open(paths[1], "rb") as b:
        assert a.read() == b.read()
    if shutil.which("fsck.erofs"):
        assert build("fsck.erofs", paths[0]).returncode == 0


def test_rootfs_refuses_what_is_not_a_static_program(tmp):
    out = os.path.join(tmp, "x.img")
    for busybox in ("/bin/ls", "/bin/sh"):
        r = build(BUILD, out, BUSYBOX=busybox)
        assert r.returncode == 1 and "busybox-static" in r.stderr, r
    assert build(BUILD).returncode == 2
    assert os.listdir(tmp) == []
    r = build(BUILD, os.path.join(tmp, "no", "x.img"))
    assert r.returncode == 1 and "check the path" in r.stderr, r


def test_initrd_is_reproducible_and_lists_what_init_needs(tmp):
    agent = os.path.join(tmp, "agent")
    with open(agent, "wb") as f:
        f.write(b"program" * 1000 + b"x")
    paths = [os.path.join(tmp, n) for n in ("a", "b")]
    for path in paths:
        assert build(INITRD, agent, path).returncode == 0
    with open(paths[0], "rb") as a, open(paths[1], "rb") as b:
        data = a.read()
        assert data == b.read()
    found, at = {}, 0
    while True:
        assert data[at:at + 6] == b"070701" and at % 4 == 0
        fields = [int(data[at + 6 + 8 * i:at + 14 + 8 * i], 16)
                  for i in range(13)]
        name = data[at + 110:at + 110 + fields[11] - 1].decode()
        at += (110 + fields[11] + 3) // 4 * 4
        if name == "TRAILER!!!":
            break
        found[name] = (fields, data[at:at + fields[6]])
        at += (fields[6] + 3) // 4 * 4
    with open(agent, "rb") as f:
        assert found["init"][1] == f.read()
    assert found["init"][0][1] == stat.S_IFREG | 0o755
    assert found["dev/console"][0][1] == stat.S_IFCHR | 0o600
    assert found["dev/console"][0][9:11] == [5, 1]
    for name in ("root", "lower", "upper", "proc", "dev"):
        assert stat.S_ISDIR(found[name][0][1])
    r = build(INITRD, os.path.join(tmp, "none"), paths[0])
    assert r.returncode == 1 and "No such file" in r.stderr, r


def main():
    passed = failed = 0
    for name, test in sorted(globals().items()):
        if not name.startswith("test_"):
            continue
        tmp = tempfile.mkdtemp(prefix="mote-rootfs-")
        try:
            test(tmp)
            passed += 1
            print("ok", name)
        except (AssertionError, OSError, KeyError, struct.error) as err:
            failed += 1
            print("not ok", name, repr(err))
        finally:
            shutil.rmtree(tmp, ignore_errors=True)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
