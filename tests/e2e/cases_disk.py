# SPDX-License-Identifier: Apache-2.0
"""Disks as the guest's kernel sees them."""

import hashlib
import os

from cases_life import mote_run
from harness import MOTE, check, run

CASES = []


def case(*tiers):
    def wrap(fn):
        fn.tiers = tiers
        CASES.append(fn)
        return fn
    return wrap


def image(work, name, data):
    path = os.path.join(work, name)
    with open(path, "wb") as f:
        f.write(data)
    return path


@case("quick", "full")
def a_disk_is_read_written_and_keeps_its_data(host, work):
    data = os.urandom(64 * 1024)
    path = image(work, "d.img", data)
    r = mote_run(host, "--disk", path, "--", "/bin/sh", "-c",
                 "sha256sum < /dev/vdb; echo mote | dd of=/dev/vdb bs=5 seek=1 conv=fsync,notrunc"
                 " 2>/dev/null")
    want = hashlib.sha256(data).hexdigest().encode()
    check(r.rc == 0 and r.out.split()[0] == want, str(r))
    with open(path, "rb") as f:
        got = f.read()
    check(got == data[:5] + b"mote\n" + data[10:], "the file is not what was written")


@case("full")
def a_read_only_disk_refuses_writes(host, work):
    data = os.urandom(4096)
    path = image(work, "d.img", data)
    r = mote_run(host, "--disk", path + ":ro", "--", "/bin/sh", "-c",
                 "cat /sys/block/vdb/ro 2>/dev/null; dd if=/dev/zero of=/dev/vdb bs=512 count=1")
    check(r.rc != 0, str(r))
    with open(path, "rb") as f:
        check(f.read() == data, "the file changed")


@case("full")
def BL_030_a_tail_under_a_sector_is_left_alone(host, work):
    data = os.urandom(1024 * 1024 + 300)
    path = image(work, "d.img", data)
    r = mote_run(host, "-v", "--disk", path, "--", "/bin/sh", "-c",
                 "wc -c < /dev/vdb; dd if=/dev/zero of=/dev/vdb bs=512 seek=2047 count=1"
                 " conv=fsync,notrunc 2>/dev/null")
    check(r.rc == 0 and r.out == b"1048576\n", str(r))
    with open(path, "rb") as f:
        got = f.read()
    check(got == data[:-812] + bytes(512) + data[-300:], "bytes past the end changed")


@case("full")
def BL_009_sixteen_disks_all_answer(host, work):
    words = []
    for i in range(14):
        words += ["--disk", image(work, "d%d" % i, b"disk %02d" % i + bytes(505))]
    r = mote_run(host, *words, "--", "/bin/sh", "-c",
                 "for d in b c d e f g h i j k l m n o; do head -c 7 /dev/vd$d; done")
    check(r.out == b"".join(b"disk %02d" % i for i in range(14)), str(r))


@case("full")
def one_device_too_many_is_refused_with_the_limit(host, work):
    words = []
    for i in range(20):
        words += ["--disk", image(work, "d%d" % i, bytes(512))]
    r = mote_run(host, *words, "--", "true")
    check(r.rc == 125 and (b"16" in r.err or b"18" in r.err), str(r))


@case("full")
def a_file_system_survives_a_run(host, work):
    path = image(work, "fs.img", b"")
    os.truncate(path, 16 << 20)
    check(run(["/sbin/mke2fs", "-q", "-t", "ext4", path], 60).rc == 0, "mke2fs")
    r = mote_run(host, "--disk", path, "--", "/bin/sh", "-c",
                 "mount /dev/vdb /mnt && head -c 1000000 /dev/urandom > /mnt/f &&"
                 " sha256sum < /mnt/f && umount /mnt")
    check(r.rc == 0, str(r))
    r2 = mote_run(host, "--disk", path + ":ro", "--", "/bin/sh", "-c",
                  "mount -o ro /dev/vdb /mnt && sha256sum < /mnt/f")
    check(r2.out == r.out, "%s then %s" % (r, r2))
    check(run(["/sbin/e2fsck", "-fn", path], 60).rc == 0, "e2fsck finds faults")


@case("full")
def two_machines_do_not_write_one_disk(host, work):
    from harness import Vm
    path = image(work, "d.img", bytes(4096))
    with Vm(host, "--disk", path):
        r = run([MOTE, "run", "--kernel", host.kernel, "--disk", path, "--", "true"],
                host.guard(60))
        check(r.rc == 125 and path.encode() in r.err, str(r))
