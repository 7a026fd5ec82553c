# SPDX-License-Identifier: Apache-2.0
"""Copy-on-write disks: what a guest sees, and what is left on the host."""

import hashlib
import json
import os
import signal

from cases_disk import image
from cases_life import mote_run
from harness import MOTE, Vm, check, run

CASES = []


def case(*tiers):
    def wrap(fn):
        fn.tiers = tiers
        CASES.append(fn)
        return fn
    return wrap


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def disk(*words):
    r = run([MOTE, "disk", *words], 60)
    check(r.rc == 0, "mote disk %s: %s" % (" ".join(words), r))
    return r.out


def info(path):
    return json.loads(disk("info", "--json", path))


def file_system(work, name, mib):
    path = image(work, name, b"")
    os.truncate(path, mib << 20)
    check(run(["/sbin/mke2fs", "-q", "-t", "ext4", path], 60).rc == 0, "mke2fs")
    return path


@case("full")
def a_cow_disk_keeps_what_was_written_and_its_base_as_it_was(host, work):
    base = image(work, "base", os.urandom(256 * 1024))
    before = digest(base)
    top = os.path.join(work, "top")
    disk("create", "--base", base, top)
    r = mote_run(host, "--disk", top + ":cow", "--", "/bin/sh", "-c",
                 "sha256sum < /dev/vdb; echo mote | dd of=/dev/vdb bs=5 seek=1 conv=fsync,notrunc"
                 " 2>/dev/null")
    check(r.rc == 0 and r.out.split()[0] == before.encode(), str(r))
    check(digest(base) == before, "the base changed")
    check(info(top)["allocated_bytes"] == 65536, str(info(top)))
    out = os.path.join(work, "out")
    disk("flatten", top, out)
    with open(base, "rb") as f, open(out, "rb") as g:
        old, new = f.read(), g.read()
    check(new == old[:5] + b"mote\n" + old[10:], "the disk is not what was written")


@case("full")
def a_file_system_on_a_cow_disk_survives_reboots(host, work):
    base = file_system(work, "base", 64)
    r = mote_run(host, "--disk", base, "--", "/bin/sh", "-c",
                 "mount /dev/vdb /mnt && head -c 3000000 /dev/urandom > /mnt/old &&"
                 " sha256sum < /mnt/old && umount /mnt")
    check(r.rc == 0, str(r))
    old = r.out
    before = digest(base)
    lower, top = os.path.join(work, "lower"), os.path.join(work, "top")
    disk("create", "--base", base, lower)
    r = mote_run(host, "--disk", lower + ":cow", "--", "/bin/sh", "-c",
                 "mount /dev/vdb /mnt && head -c 5000000 /dev/urandom > /mnt/new &&"
                 " sha256sum < /mnt/new && umount /mnt")
    check(r.rc == 0, str(r))
    new = r.out
    # the next start, then one more on top of that
    disk("create", "--base", lower + ":cow", top)
    look = "sha256sum < /mnt/old; sha256sum < /mnt/new; umount /mnt"
    for path in (lower + ":ro:cow", top + ":cow"):
        options = "-o ro,noload " if ":ro" in path else ""
        r = mote_run(host, "--disk", path, "--", "/bin/sh", "-c",
                     "mount %s/dev/vdb /mnt && " % options + look)
        check(r.out == old + new, "%s: %s" % (path, r))
    r = mote_run(host, "--disk", top + ":cow", "--", "/bin/sh", "-c",
                 "mount /dev/vdb /mnt && rm /mnt/old && sync && fstrim /mnt; umount /mnt")
    check(r.rc == 0, str(r))
    check(digest(base) == before, "the base changed")
    out = os.path.join(work, "out")
    disk("flatten", top, out)
    check(run(["/sbin/e2fsck", "-fn", out], 60).rc == 0, "e2fsck finds faults")
    r = mote_run(host, "--disk", lower + ":cow", "--", "true")
    check(r.rc == 125 and b"base of others" in r.err, str(r))


@case("full")
def what_was_synced_on_a_cow_disk_outlives_a_killed_monitor(host, work):
    base = file_system(work, "base", 32)
    before = digest(base)
    top = os.path.join(work, "top")
    for cache in ("", ":unsafe"):
        disk("create", "--base", base, top)
        with Vm(host, "--disk", top + ":cow" + cache) as vm:
            r = vm.sh("mount /dev/vdb /mnt && head -c 2000000 /dev/urandom > /mnt/f &&"
                      " sync && sha256sum < /mnt/f")
            check(r.rc == 0, str(r))
            os.kill(vm.vmm_pid(), signal.SIGKILL)
        again = mote_run(host, "--disk", top + ":cow", "--", "/bin/sh", "-c",
                         "mount /dev/vdb /mnt && sha256sum < /mnt/f && umount /mnt")
        check(again.rc == 0 and again.out == r.out, "%r: %s then %s" % (cache, r, again))
        os.unlink(top)
    check(digest(base) == before, "the base changed")
