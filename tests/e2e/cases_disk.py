# SPDX-License-Identifier: Apache-2.0
"""Disks as the guest's kernel sees them."""

import contextlib
import ctypes
import hashlib
import os
import shutil
import signal
import subprocess
import time

from cases_life import mote_run
from harness import MOTE, TOP, VMM, Skip, Vm, check, run

CASES = []
SYS_TGKILL = 234
SIGRTMIN = signal.SIGRTMIN


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
    path = image(work, "d.img", bytes(4096))
    with Vm(host, "--disk", path):
        r = run([MOTE, "run", "--kernel", host.kernel, "--disk", path, "--", "true"],
                host.guard(60))
        check(r.rc == 125 and path.encode() in r.err, str(r))


def blocks_of(path):
    with open(path, "rb") as f:
        os.fsync(f.fileno())
    return os.stat(path).st_blocks


@case("quick", "full")
def discarded_blocks_are_given_back_to_the_host(host, work):
    path = image(work, "d.img", os.urandom(4 << 20))
    with open(path, "rb") as f:
        data = f.read()
    before = blocks_of(path)
    r = mote_run(host, "--disk", path, "--", "/bin/sh", "-c",
                 "blkdiscard -o 1048576 -l 2097152 /dev/vdb")
    check(r.rc == 0, str(r))
    check(blocks_of(path) <= before - 4096, "%d blocks of %d are left" % (
        blocks_of(path), before))
    with open(path, "rb") as f:
        got = f.read()
    check(got == data[:1 << 20] + bytes(2 << 20) + data[3 << 20:], "other bytes changed")


@case("full")
def a_trimmed_file_system_shrinks_on_the_host(host, work):
    path = image(work, "fs.img", b"")
    os.truncate(path, 64 << 20)
    check(run(["/sbin/mke2fs", "-q", "-t", "ext4", path], 60).rc == 0, "mke2fs")
    r = mote_run(host, "--disk", path, "--", "/bin/sh", "-c",
                 "mount /dev/vdb /mnt && dd if=/dev/urandom of=/mnt/f bs=1M count=32 conv=fsync"
                 " 2>/dev/null && umount /mnt")
    check(r.rc == 0, str(r))
    full = blocks_of(path)
    r = mote_run(host, "--disk", path, "--", "/bin/sh", "-c",
                 "mount /dev/vdb /mnt && rm /mnt/f && sync && fstrim /mnt && umount /mnt")
    check(r.rc == 0, str(r))
    check(blocks_of(path) < full - 30 * 2048, "%d blocks before, %d after" % (
        full, blocks_of(path)))
    check(run(["/sbin/e2fsck", "-fn", path], 60).rc == 0, "e2fsck finds faults")


def unfiltered(work):
    """The environment of a mote whose monitor has no filter of system calls: a
    call that strace fails for it reaches the filter as number -1."""
    lib = os.path.join(work, "lib")
    if not os.path.exists(lib):
        os.mkdir(lib)
        os.symlink(os.path.join(TOP, "build", "guest"), os.path.join(lib, "guest"))
        with open(os.path.join(lib, "mote-vmm"), "w") as f:
            f.write('#!/bin/sh\nexec "%s" --no-seccomp "$@"\n' % VMM)
        os.chmod(os.path.join(lib, "mote-vmm"), 0o755)
    # A script finds no shell in a jail.
    return dict(os.environ, MOTE_LIBDIR=lib, MOTE_JAIL="off")


def traced(host, work, inject, *words):
    """mote under strace, which also keeps io_uring from it: what the loop asks
    of the kernel shows as system calls. The result and the trace."""
    if not shutil.which("strace"):
        raise Skip("no strace")
    trace = os.path.join(work, "trace")
    argv = ["strace", "-f", "-qq", "-o", trace, "-e", "trace=fdatasync,io_uring_setup",
            "-e", "inject=io_uring_setup:error=EPERM"]
    if inject:
        argv += ["-e", "inject=" + inject]
    r = run(argv + [MOTE, "run", "--kernel", host.kernel, *words], host.guard(120),
            env=unfiltered(work))
    with open(trace) as f:
        return r, f.read().count("fdatasync(")


@case("full")
def BL_032_a_flush_of_the_guest_is_a_sync_of_the_file(host, work):
    path = image(work, "d.img", bytes(1 << 20))
    write = "dd if=/dev/zero of=/dev/vdb bs=4096 count=4 conv=notrunc%s 2>/dev/null"
    r, syncs = traced(host, work, None, "--disk", path, "--", "/bin/sh", "-c",
                      write % ",fsync")
    check(r.rc == 0 and syncs > 0, "%d syncs, %s" % (syncs, r))
    # and none where the user wants none
    r, syncs = traced(host, work, None, "--disk", path + ":unsafe", "--", "/bin/sh", "-c",
                      write % ",fsync")
    check(r.rc == 0 and syncs == 0, "%d syncs, %s" % (syncs, r))


@case("full")
def BL_032_a_failed_sync_is_an_error_in_the_guest(host, work):
    path = image(work, "d.img", bytes(1 << 20))
    r, syncs = traced(host, work, "fdatasync:error=EIO", "--disk", path, "--",
                      "/bin/sh", "-c",
                      "dd if=/dev/zero of=/dev/vdb bs=4096 count=4 conv=notrunc,fsync"
                      " 2>/dev/null && echo synced; echo alive")
    check(syncs > 0 and r.out == b"alive\n", "%d syncs, %s" % (syncs, r))


@case("full")
def a_full_store_fails_writes_and_the_machine_goes_on(host, work):
    if os.geteuid() != 0:
        raise Skip("needs root, for a file system of its own")
    script = ("mount -t tmpfs -o size=2m none %s && truncate -s 8M %s/d.img && exec \"$@\""
              % (work, work))
    r = run(["unshare", "-m", "/bin/sh", "-c", script, "sh", MOTE, "run", "--kernel",
             host.kernel, "--disk", work + "/d.img", "--", "/bin/sh", "-c",
             "dd if=/dev/urandom of=/tmp/x bs=1M count=1 2>/dev/null;"
             "dd if=/tmp/x of=/dev/vdb conv=notrunc,fsync 2>/dev/null && echo one;"
             "dd if=/dev/zero of=/dev/vdb bs=1M seek=2 count=6 conv=notrunc,fsync"
             " 2>/dev/null && echo all;"
             "head -c 1048576 /dev/vdb | cmp - /tmp/x && echo same"], host.guard(60))
    check(r.out == b"one\nsame\n", str(r))


@case("full")
def written_data_is_right_while_signals_rain_on_the_monitor(host, work):
    path = image(work, "d.img", bytes(16 << 20))
    with Vm(host, "--disk", path) as vm:
        pid = vm.vmm_pid()
        work_in_guest = vm.popen(
            "/bin/sh", "-c",
            "i=0; while [ $i -lt 8 ]; do"
            " dd if=/dev/urandom of=/tmp/x bs=1M count=2 2>/dev/null;"
            " dd if=/tmp/x of=/dev/vdb bs=$((4096 << (i % 4))) seek=$(((i << 21) /"
            " (4096 << (i % 4)))) oflag=direct conv=notrunc,fsync 2>/dev/null || echo write $i;"
            " dd if=/dev/vdb bs=2M skip=$i count=1 iflag=direct 2>/dev/null | cmp - /tmp/x"
            " || echo differs $i;"
            " i=$((i + 1)); done; echo end",
            stdout=subprocess.PIPE)
        # The kick of a vCPU: handled, and it interrupts what the thread waits for.
        rain = 0
        end = time.monotonic() + host.guard(60)
        while work_in_guest.poll() is None and time.monotonic() < end:
            for thread in os.listdir("/proc/%d/task" % pid):
                if ctypes.CDLL(None).syscall(SYS_TGKILL, pid, int(thread), SIGRTMIN) == 0:
                    rain += 1
            time.sleep(0.001)
        out = work_in_guest.communicate(timeout=host.guard(30))[0]
        check(out == b"end\n" and rain > 100, "%d signals: %r" % (rain, out))


@contextlib.contextmanager
def loop_of_4k_sectors(path):
    if os.geteuid() != 0:
        raise Skip("needs root, for a loop device")
    run(["modprobe", "-q", "loop"], 60)  # else it may have no control device
    r = run(["losetup", "--show", "-f", "-b", "4096", path], 60)
    if r.rc:
        raise Skip("no loop device: %s" % r.err.decode().strip())
    device = r.out.decode().strip()
    try:
        yield device
    finally:
        run(["losetup", "-d", device], 60)


@case("quick", "full")
def BL_038_direct_io_on_4k_sectors_takes_any_request(host, work):
    data = os.urandom(1 << 20)
    path = image(work, "d.img", data)
    with loop_of_4k_sectors(path) as device:
        r = mote_run(host, "--disk", device + ":direct", "--", "/bin/sh", "-c",
                     "blockdev --getss /dev/vdb;"
                     "dd if=/dev/vdb bs=512 skip=3 count=1 iflag=direct 2>/dev/null |"
                     " dd of=/dev/vdb bs=512 seek=9 oflag=direct conv=notrunc,fsync 2>/dev/null")
    check(r.rc == 0 and r.out == b"512\n", str(r))
    with open(path, "rb") as f:
        got = f.read()
    check(got == data[:4608] + data[1536:2048] + data[5120:], "the file is not what was written")
