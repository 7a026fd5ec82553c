# SPDX-License-Identifier: Apache-2.0
"""Machines that end or misbehave, and what they leave behind."""
import json
import os
import shutil
import signal
import stat
import subprocess
import time

from harness import (
    GUARD, Skip, alive, check, cmdline, machine, one_line, test, wait_for)


# --- how machines end ----------------------------------------------------------


@test
def monitor_that_dies_before_ready(box):
    for fake, pattern in (
            ("refused-config", rb"kernel x: not a kernel; name another"),
            ("panic", rb"kernel panicked.*--console"),
            ("triple-fault", rb"triple fault.*--console"),
            ("killed", rb"mote-vmm: killed by signal 9")):
        begin = time.monotonic()
        check(box.run("run", "--boot-args", "fake=" + fake, "--", "true"), 125,
              b"", one_line(pattern))
        assert time.monotonic() - begin < GUARD / 4
        assert box.slots() == [], fake


@test
def BL_013_monitor_that_dies_during_the_command(box):
    for fake, pattern in (
            ("panic-later", rb"kernel panicked before the command ended"),
            ("poweroff-later", rb"switched itself off before the command"),
            ("killed-later", rb"mote-vmm: killed by signal 9")):
        begin = time.monotonic()
        check(box.run("run", "--boot-args", "fake=" + fake, "--", "/bin/sh",
                      "-c", "echo on; sleep 1000"), 125, b"on\n",
              one_line(pattern))
        assert time.monotonic() - begin < GUARD / 4
        assert box.slots() == [], fake


@test
def guest_that_is_never_ready(box):
    check(box.run("run", "--boot-timeout", "300ms", "--boot-args",
                  "fake=no-ready", "--", "true"), 125, b"",
          one_line(rb"not ready after"))
    check(box.run("run", "--boot-args", "fake=bad-report", "--", "true"), 125,
          b"", one_line(rb"malformed"))
    check(box.run("run", "--boot-args", "fake=failed-report", "--", "true"),
          125, b"", one_line(rb"get ready: cannot mount /dev/vda: \?\[31mbad"))
    assert box.slots() == []


@test
def a_time_limit_that_the_guest_does_not_keep(box):
    p = box.start("run", "--timeout", "500ms", "--", "/bin/sh", "-c",
                  "echo on; sleep 1000")
    assert p.stdout.readline() == b"on\n"
    agent = box.lib.encode() + b"/mote-agent\0"
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if cmdline(pid).startswith(agent):
            os.kill(int(pid), signal.SIGSTOP)
    begin = time.monotonic()
    out, err = p.communicate(timeout=GUARD)
    assert p.returncode == 124, (p.returncode, err)
    assert one_line(rb"did not end by its time limit").search(err), err
    assert 5 < time.monotonic() - begin < GUARD


@test
def guest_that_breaks_the_protocol(box):
    for fake, pattern in (("garbage", rb"broke the agent protocol"),
                          ("future", rb"another protocol version"),
                          ("refuse", rb"does not listen")):
        check(box.run("run", "--boot-args", "fake=" + fake, "--", "true"), 125,
              b"", one_line(pattern))


@test
def writable_disks_are_written_back(box):
    disk = box.touch("disk.img")
    check(box.run("run", "-d", disk, "--", "true"), 0)
    # A guest that does not do as told is waited for, unless we insist.
    p = box.start("run", "-d", disk, "--boot-args", "fake=mute", "--",
                  "/bin/sh", "-c", "echo on; sleep 1000")
    assert p.stdout.readline() == b"on\n"
    p.terminate()
    time.sleep(0.3)
    assert p.poll() is None
    p.terminate()
    out, err = p.communicate(timeout=GUARD)
    assert p.returncode == 143 and one_line(rb"not flushed").search(err), err


@test
def the_monitor_gets_what_it_needs_and_no_more(box):
    r, w = os.pipe()  # a descriptor of the caller's that leaks into mote
    check(box.run("run", "--", "true", pass_fds=[r, w],
                  env={"SECRET": "1", "LC_ALL": "C"}), 0)
    os.close(r)
    os.close(w)
    notes = box.notes()
    kinds = {k: v.split(":")[0] for k, v in notes["fds"].items()
             if int(k) < 4}
    assert set(kinds) == {"0", "1", "2", "3"}, kinds
    assert notes["fds"]["0"] == notes["fds"]["1"] == "/dev/null"
    assert notes["fds"]["2"].endswith("/log") and kinds["3"] == "pipe"
    assert not any(v.startswith("pipe") for k, v in notes["fds"].items()
                   if int(k) > 3), notes["fds"]
    assert "SECRET" not in notes["env"] and notes["env"]["LC_ALL"] == "C"
    assert notes["sid"] == notes["pid"]
    argv = notes["argv"]
    config = argv[argv.index("--config-file") + 1]
    assert (argv[argv.index("--api-sock") + 1] ==
            os.path.join(os.path.dirname(config), "api.sock")), argv


@test
def BL_014_no_monitor_outlives_a_killed_mote(box):
    with machine(box, "k") as p:
        pid = box.notes()["pid"]
        assert alive(pid)
        p.kill()
        wait_for(lambda: not alive(pid), "the monitor has ended", 5)
    code, out, _ = box.run("ls", "--json")
    assert code == 0 and json.loads(out) == {"sandboxes": []}
    assert box.slots() == [] and box.names() == []


@test
def no_residue(box):
    for _ in range(3):
        check(box.run("run", "--name", "a", "--", "true"), 0)
    assert box.slots() == [] and box.names() == []
    assert not alive(box.notes()["pid"])
    assert sorted(os.listdir(box.run_dir)) == ["lock", "names", "vm"]
    assert sorted(os.listdir(box.dir)) == ["lib", "notes", "run"]


# --- the run-time directory ----------------------------------------------------


@test
def stale_slots_are_swept(box):
    vm = os.path.join(box.run_dir, "vm")
    check(box.run("ls"), 0, None)
    os.makedirs(vm + "/aaaaaaaaaaaa", 0o700)
    for name in ("lock", "vsock.sock", "log"):
        box.touch(f"run/vm/aaaaaaaaaaaa/{name}")
    os.symlink("../vm/aaaaaaaaaaaa", box.run_dir + "/names/old")
    os.makedirs(vm + "/not-a-slot")
    check(box.run("run", "--name", "old", "--", "echo", "x"), 0, b"x\n")
    assert box.slots() == ["not-a-slot"] and box.names() == []


@test
def a_run_time_directory_of_others_is_refused(box):
    if os.geteuid() != 0:
        raise Skip("needs root to give a directory away")
    os.mkdir(box.run_dir, 0o700)
    os.chown(box.run_dir, 12345, 12345)
    check(box.run("run", "--", "true"), 125, b"",
          one_line(rb"belongs to another user; set MOTE_RUNTIME_DIR"))


@test
def run_time_directory_in_tmp_is_not_taken_from_others(box):
    if os.geteuid() != 0:
        raise Skip("needs root to become another user")
    uid = 54321
    trap = f"/tmp/mote-{uid}"
    os.chmod(box.dir, 0o755)
    elsewhere = os.path.join(box.dir, "elsewhere")
    os.mkdir(elsewhere, 0o777)
    env = {k: v for k, v in box.env.items() if k != "MOTE_RUNTIME_DIR"}

    def ls():
        p = subprocess.run(box.argv("ls"), env=env, user=uid, group=uid,
                           capture_output=True, timeout=GUARD)
        return p.returncode, p.stdout, p.stderr
    try:
        os.symlink(elsewhere, trap)
        check(ls(), 1, b"", one_line(rb"is a link or no directory"))
        assert os.listdir(elsewhere) == []
        os.unlink(trap)
        os.mkdir(trap, 0o755)
        check(ls(), 1, b"", one_line(rb"belongs to another user"))
        os.chown(trap, uid, uid)
        os.chmod(trap, 0o777)
        check(ls(), 0, None)
        assert stat.S_IMODE(os.stat(trap).st_mode) == 0o700
    finally:
        if os.path.islink(trap):
            os.unlink(trap)
        else:
            shutil.rmtree(trap)


@test
def BL_023_socket_paths(box):
    deep = os.path.join(box.dir, "d" * 80)
    check(box.run("run", "--", "true", env={"MOTE_RUNTIME_DIR": deep}), 125,
          b"", one_line(rb"longer than the 65 bytes .*set MOTE_RUNTIME_DIR"))
    fits = box.dir + "/" + "e" * (65 - len(box.dir) - 1)
    check(box.run("run", "--", "echo", "x", env={"MOTE_RUNTIME_DIR": fits}), 0,
          b"x\n")
    # XDG_RUNTIME_DIR that is too deep does not keep anybody from running.
    if os.geteuid() == 0:
        return
    env = {"MOTE_RUNTIME_DIR": "", "XDG_RUNTIME_DIR": deep}
    check(box.run("run", "--", "echo", "x", env=env), 0, b"x\n")


@test
def two_starts_at_once_with_one_name(box):
    ps = [box.start("run", "--name", "m", "--", "sleep", "2")
          for _ in range(4)]
    codes = []
    for p in ps:
        p.communicate(timeout=GUARD)
        codes.append(p.returncode)
    assert sorted(codes) == [0, 125, 125, 125], codes
    assert box.slots() == [] and box.names() == []
