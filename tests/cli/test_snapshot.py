# SPDX-License-Identifier: Apache-2.0
"""mote snapshot save, load, info, merge, verify."""
import contextlib
import json
import os
import re
import signal
import socket

import snapfile
from harness import GUARD, check, machine, one_line, test, wait_for

CONFIG = {"boot-source": {"boot_args": ""}, "vsock": {"guest_cid": 3,
                                                      "uds_path": "x"},
          "machine-config": {"vcpu_count": 2, "mem_size_mib": 8},
          "drives": [], "entropy": {}}


def path(box, name):
    return os.path.join(box.dir, name)


def save(box, name="m", where="s", *options):
    check(box.run("snapshot", "save", name, path(box, where), *options), 0)
    return path(box, where)


def info(box, where):
    code, out, err = box.run("snapshot", "info", "--json", where)
    assert code == 0, err
    return json.loads(out)


def states(box):
    """Pauses and resumes that the monitor was told, in order."""
    for slot in box.slots():
        with contextlib.suppress(OSError):
            with open(f"{box.run_dir}/vm/{slot}/vsock.sock.states") as f:
                return f.read().split()
    return []


def made(box, name, pages, parent=None, ident=None, config=CONFIG, disks=()):
    """A snapshot made by hand."""
    where = path(box, name)
    os.mkdir(where)
    ident = snapfile.write(where + "/state", where + "/memory", config, pages,
                           parent, ident)
    with open(where + "/snapshot.json", "w") as f:
        json.dump({"version": 1, "id": ident.hex(), "parent": None,
                   "name": "hand", "created_ms": 1796133969771,
                   "disks": list(disks)}, f)
    return where, ident


# --- save ------------------------------------------------------------------------


@test
def snapshot_save_makes_a_directory_and_the_machine_runs_on(box):
    disk = box.touch("disk.img")
    with open(disk, "wb") as f:
        f.truncate(1 << 20)
        f.write(b"content")
    with machine(box, "m", "-d", disk):
        where = save(box)
        assert states(box) == ["Paused", "Running"], states(box)
        check(box.run("exec", "m", "echo", "on"), 0, b"on\n")
        check(box.run("snapshot", "save", "m", where), 1, b"",
              one_line(rb"is there already; remove it"))
        assert states(box) == ["Paused", "Running"]  # it was not touched
    assert sorted(os.listdir(where)) == ["disk-1", "memory", "snapshot.json",
                                         "state"]
    assert os.stat(where).st_mode & 0o777 == 0o700
    with open(where + "/disk-1", "rb") as f:
        assert f.read(7) == b"content" and os.fstat(f.fileno()).st_size == 1 << 20
        assert os.fstat(f.fileno()).st_blocks * 512 <= 65536
    told = info(box, where)
    assert told["kind"] == "full" and told["name"] == "m", told
    assert [(d["id"], d["read_only"]) for d in told["disks"]] == [
        ("vda", True), ("vdb", False)], told
    assert told["disks"][0]["path"] == os.path.realpath(
        box.lib + "/guest/rootfs.img")
    check(box.run("snapshot", "verify", where), 0)


@test
def snapshot_save_resumes_when_it_fails(box):
    for fake, pattern in (("no-create", rb"no space left on this fake"),
                          ("die-in-create", rb"has ended")):
        p = box.start("run", "--name", "m", "--boot-args", "fake=" + fake,
                      "--", "sleep", "1000")
        box.wait_running("m")
        check(box.run("snapshot", "save", "m", path(box, "s")), 1, b"",
              one_line(pattern))
        if fake == "no-create":
            assert states(box) == ["Paused", "Running"], states(box)
        assert not os.path.exists(path(box, "s"))
        assert not os.path.exists(path(box, "s.part"))
        p.terminate()
        p.communicate(timeout=GUARD)
    missing = path(box, "gone.img")
    with open(missing, "wb") as f:
        f.truncate(4096)
    with machine(box, "m", "-d", missing):
        os.unlink(missing)
        check(box.run("snapshot", "save", "m", path(box, "s")), 1, b"",
              one_line(rb"disk vdb: .*gone.img: No such file"))
        assert states(box) == ["Paused", "Running"], states(box)
        assert not os.path.exists(path(box, "s.part"))


@test
def snapshot_save_of_a_paused_machine_leaves_it_paused(box):
    with machine(box, "m"):
        slot = f"{box.run_dir}/vm/{box.slots()[0]}"
        s = socket.socket(socket.AF_UNIX)
        s.connect(slot + "/api.sock")
        body = b'{"state":"Paused"}'
        s.sendall(b"PATCH /vm HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
                  + body)
        assert b" 204 " in s.recv(4096)
        save(box)
        assert states(box) == ["Paused"], states(box)
        # Unless it was a save that died: its note is still there.
        with open(slot + "/save.lock", "w") as f:
            f.write("paused")
        save(box, "m", "t")
        assert states(box)[-1] == "Running", states(box)


@test
def snapshot_save_one_at_a_time_and_after_a_crash(box):
    with machine(box, "m", "--boot-args", "fake=slow-create"):
        first = box.start("snapshot", "save", "m", path(box, "s"))
        creating = f"{box.run_dir}/vm/{box.slots()[0]}/vsock.sock.creating"
        wait_for(lambda: os.path.exists(creating), "it writes")
        check(box.run("snapshot", "save", "m", path(box, "t")), 1, b"",
              one_line(rb"another snapshot of it is being saved"))
        first.kill()
        first.communicate()
        assert not os.path.exists(path(box, "s"))
        assert os.path.isdir(path(box, "s.part"))
        save(box)  # takes the remains over, and resumes
        assert states(box)[-1] == "Running"
        assert not os.path.exists(path(box, "s.part"))


@test
def snapshot_save_refusals(box):
    check(box.run("snapshot", "save", "nope", path(box, "s")), 1, b"",
          one_line(rb"'nope': none of that name"))
    with machine(box, "m"):
        for where, pattern in ((path(box, "no/such"), rb"No such file"),
                               ("/", rb"not the name of a directory"),
                               ("..", rb"not the name of a directory")):
            check(box.run("snapshot", "save", "m", where), 1, b"",
                  one_line(pattern))
        base, _ = made(box, "base", {})
        check(box.run("snapshot", "save", "m", path(box, "s"), "--diff", base),
              1, b"", one_line(rb"does not note .*--track-writes"))
        assert states(box) == []
    for words in (("save",), ("save", "m"), ("save", "m", "a", "b")):
        check(box.run("snapshot", *words), 2, b"",
              one_line(rb"takes 2 operands"))


@test
def snapshot_diffs_build_on_the_last(box):
    with machine(box, "m", "--track-writes"):
        one = save(box, "m", "one")
        two = save(box, "m", "two", "--diff", one)
        three = save(box, "m", "three", "--diff", two)
        check(box.run("snapshot", "save", "m", path(box, "no"), "--diff", one),
              1, b"", one_line(rb"is not the last snapshot"))
        check(box.run("snapshot", "save", "m", path(box, "no"), "--diff",
                      path(box, "nowhere")), 1, b"", one_line(rb"nowhere"))
        assert not os.path.exists(path(box, "no.part"))
    assert info(box, two)["parent"] == info(box, one)["id"]
    assert info(box, three)["parent"] == info(box, two)["id"]
    check(box.run("snapshot", "load", two), 125, b"",
          one_line(rb"is a diff.*snapshot merge"))
    check(box.run("snapshot", "merge", one, two, path(box, "full")), 0)
    check(box.run("snapshot", "merge", path(box, "full"), three,
                  path(box, "last")), 0)
    check(box.run("snapshot", "load", path(box, "last"), "--", "echo", "x"), 0,
          b"x\n")


# --- load ------------------------------------------------------------------------


@test
def snapshot_load_runs_a_command(box):
    with machine(box, "m"):
        where = save(box)
    check(box.run("snapshot", "load", where, "--", "/bin/sh", "-c",
                  "cat; echo e >&2; exit 7", input=b"in"), 7, b"in", b"e\n")
    load = box.notes()["config"]["snapshot-load"]
    assert load["snapshot_path"] == where + "/state", load
    assert load["mem_backend"] == {"backend_type": "File",
                                   "backend_path": where + "/memory"}
    assert load["resume_vm"] is True and load["track_dirty_pages"] is False
    assert load["vsock_override"]["uds_path"].startswith(box.run_dir)
    check(box.run("snapshot", "load", where, "nope-nope"), 127, b"",
          one_line(rb"nope-nope"))
    check(box.run("snapshot", "load", "--timeout", "300ms", where, "--",
                  "sleep", "100"), 124, b"", one_line(rb"time limit"))
    assert box.slots() == []


@test
def snapshot_load_stays_and_others_find_it(box):
    with machine(box, "m"):
        where = save(box)
    p = box.start("snapshot", "load", where, "--name", "copy")
    assert p.stdout.readline() == b"copy\n"
    check(box.run("exec", "copy", "echo", "hi"), 0, b"hi\n")
    listed = json.loads(box.run("ls", "--json")[1])["sandboxes"]
    assert listed[0]["name"] == "copy" and listed[0]["state"] == "running"
    assert listed[0]["mem_bytes"] == 512 << 20
    save(box, "copy", "second")
    check(box.run("snapshot", "load", "--name", "copy", where), 125, b"",
          one_line(rb"'copy': taken"))
    check(box.run("stop", "copy"), 0, None)
    p.communicate(timeout=GUARD)
    assert p.returncode == 143 and box.slots() == []
    p = box.start("snapshot", "load", where)
    assert re.fullmatch(rb"[a-z0-9]{12}\n", p.stdout.readline())
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=GUARD)
    assert p.returncode == 130


@test
def snapshot_load_runs_the_hooks_before_anything_else(box):
    hooks = path(box, "hooks")
    os.mkdir(hooks)
    for name, text in (("1", "sleep 0.3; echo one >>$0.log"),
                       ("2", "exit 4")):
        with open(f"{hooks}/{name}", "w") as f:
            f.write("#!/bin/sh\n" + text + "\n")
        os.chmod(f"{hooks}/{name}", 0o755)
    with machine(box, "m"):
        where = save(box)
    check(box.run("snapshot", "load", where, "--", "cat", hooks + "/1.log",
                  env={"MOTE_FAKE_HOOKS": hooks}), 0, b"one\n",
          one_line(rb"guest: restore.d/2: exit code 4"))


@test
def snapshot_load_goes_on_with_an_older_agent(box):
    with machine(box, "m"):
        where = save(box)
    check(box.run("snapshot", "load", where, "--", "echo", "x",
                  env={"MOTE_FAKE": "fake=old-agent"}), 0, b"x\n",
          one_line(rb"its agent is older than this mote"))
    check(box.run("snapshot", "load", where, "--", "echo", "x",
                  env={"MOTE_FAKE": "fake=no-restore"}), 125, b"",
          one_line(rb"not PID 1 .*not made one of its own"))
    check(box.run("snapshot", "load", where, "--", "echo", "x",
                  env={"MOTE_FAKE": "fake=refuse"}), 125, b"",
          one_line(rb"does not listen"))
    check(box.run("snapshot", "load", where, "--", "echo", "x",
                  env={"MOTE_FAKE": "fake=refused-config"}), 125, b"",
          one_line(rb"kernel x: not a kernel"))
    assert box.slots() == []


@test
def snapshot_load_disks(box):
    disk = box.touch("disk.img")
    with open(disk, "wb") as f:
        f.write(b"as saved".ljust(8192, b"\0"))
    with machine(box, "m", "-d", disk):
        where = save(box)
    with open(disk, "wb") as f:
        f.write(b"later")
    p = box.start("snapshot", "load", where)
    assert p.stdout.readline()
    over = box.notes()["config"]["snapshot-load"]["drive_overrides"]
    assert over[0] == {"drive_id": "vda", "path_on_host": os.path.realpath(
        box.lib + "/guest/rootfs.img")}, over
    assert over[1]["path_on_host"].startswith("/proc/%d/fd/" % p.pid), over
    with open(over[1]["path_on_host"], "r+b") as f:  # a copy of its own
        assert f.read() == b"as saved".ljust(8192, b"\0")
        f.write(b"x")
    p.terminate()
    p.communicate(timeout=GUARD)
    check(box.run("snapshot", "verify", where), 0)
    check(box.run("snapshot", "load", where, "-d", "vdb=" + disk, "--", "true"),
          0)
    over = box.notes()["config"]["snapshot-load"]["drive_overrides"]
    assert over[1]["path_on_host"] == disk
    for value, pattern in (("vdz=/x", rb"disk vdz: .*no drive of that name"),
                           ("vdb", rb"is not ID=FILE"),
                           ("=x", rb"is not ID=FILE")):
        check(box.run("snapshot", "load", where, "-d", value), 125, b"",
              one_line(pattern))
    root = box.lib + "/guest/rootfs.img"
    os.utime(root, (1, 1))
    check(box.run("snapshot", "load", where, "--", "true"), 125, b"",
          one_line(rb"disk vda: .*was changed since .*--disk vda=FILE"))
    check(box.run("snapshot", "load", where, "-d", "vda=" + root, "--", "true"),
          0)
    os.unlink(root)
    check(box.run("snapshot", "load", where, "--", "true"), 125, b"",
          one_line(rb"disk vda: .*No such file.*--disk vda=FILE"))


@test
def snapshot_load_network_refusals(box):
    with machine(box, "m"):
        where = save(box)
    check(box.run("snapshot", "load", where, "--net", "tap=t0"), 125, b"",
          one_line(rb"has no network interface; load it without --net"))
    check(box.run("snapshot", "load", where, "--net", "none", "--", "echo",
                  "x"), 0, b"x\n")
    config = {**CONFIG, "network-interfaces": [
        {"iface_id": "eth0", "host_dev_name": "t0",
         "guest_mac": "02:00:00:00:00:01", "mote": {}}]}
    net, _ = made(box, "net", {}, config=config)
    check(box.run("snapshot", "load", net, "--net", "none"), 125, b"",
          one_line(rb"has a network interface, which cannot be taken away"))
    check(box.run("snapshot", "load", net, "--net", "tap=t1", "--", "true"), 0)
    over = box.notes()["config"]["snapshot-load"]["network_overrides"]
    assert over == [{"iface_id": "eth0", "host_dev_name": "t1", "mote": {}}]


# --- damage, info, verify --------------------------------------------------------


@test
def BL_083_damaged_snapshots_are_refused(box):
    page = os.urandom(4096)
    where, _ = made(box, "s", {3: page, 700: page})
    check(box.run("snapshot", "verify", where), 0)

    def spoil(name, change, pattern, words=("load", "info", "verify", "merge")):
        file = f"{where}/{name}"
        with open(file, "rb") as f:
            data = f.read()
        with open(file, "wb") as f:
            f.write(change(data))
        for word in words:
            more = [where, path(box, "out")] if word == "merge" else []
            result = box.run("snapshot", word, where, *more)
            check(result, 125 if word == "load" else 1, b"", one_line(pattern))
        assert not os.path.exists(path(box, "out")) and box.slots() == []
        assert not os.path.exists(path(box, "out.part"))
        with open(file, "wb") as f:
            f.write(data)

    flip = lambda at: lambda d: d[:at] + bytes([d[at] ^ 1]) + d[at + 1:]
    spoil("state", lambda d: d[:-1], rb"/state: ")
    spoil("state", flip(200), rb"/state: ")
    spoil("state", lambda d: b"", rb"/state: ")
    spoil("state", flip(8), rb"/state: ")
    spoil("memory", lambda d: d[:-4096], rb"/memory: has \d+ bytes")
    spoil("memory", flip(3 * 4096 + 5), rb"/memory: .*0x0 on is damaged",
          ("verify",))
    spoil("memory", flip(700 * 4096), rb"/memory: .*0x200000 on is damaged",
          ("verify",))
    spoil("memory", flip(5 * 4096), rb"is damaged", ("verify",))
    spoil("snapshot.json", lambda d: d[:-5], rb"snapshot.json: is damaged")
    spoil("snapshot.json", lambda d: d.replace(b'"version": 1', b'"version": 2'),
          rb"has version 2, this mote reads 1")
    other, _ = made(box, "other", {3: page})
    with open(other + "/state", "rb") as f:
        foreign = f.read()
    spoil("state", lambda d: foreign, rb"another snapshot|two snapshots")
    check(box.run("snapshot", "info", path(box, "lib")), 1, b"",
          one_line(rb"is no snapshot: it has no snapshot.json"))
    check(box.run("snapshot", "info", path(box, "nowhere")), 1, b"",
          one_line(rb"nowhere: No such file"))
    check(box.run("snapshot", "verify", where), 0)


@test
def snapshot_names_in_it_lead_nowhere_else(box):
    for disk in ({"file": "../x"}, {"file": "disk-1/../../x"},
                 {"path": "relative"}, {"size_bytes": -1}, {"crc32": 1 << 32}):
        where, _ = made(box, "s", {}, disks=[
            {"id": "vda", "read_only": False, "file": "disk-0", "path": "/x",
             "size_bytes": 0, "crc32": 0, **disk}])
        check(box.run("snapshot", "verify", where), 1, b"",
              one_line(rb"is damaged"))
        for name in os.listdir(where):
            os.unlink(where + "/" + name)
        os.rmdir(where)


@test
def snapshot_info_golden(box):
    where, ident = made(box, "s", {1: b"x" * 4096})
    code, out, err = box.run("snapshot", "info", where)
    text = re.sub(r", [\d.]+ MiB on disk", ", N MiB on disk", out.decode())
    assert code == 0 and not err and text == f"""\
id       {ident.hex()}
kind     full
machine  hand
created  2026-12-01T14:06:09.771Z
cpus     2
memory   8 MiB, N MiB on disk
state    0.0 MiB
host     AuthenticAMD family 25 model 33: sse2 sse4.2 aes
devices  vsock entropy
""", text
    told = info(box, where)
    assert told["created_at"] == "2026-12-01T14:06:09.771Z"
    assert told["cpus"] == 2 and told["mem_bytes"] == 8 << 20
    assert told["devices"] == ["vsock", "entropy"] and told["disks"] == []
    code, out, err = box.run("snapshot", "info", "--json", path(box, "no"))
    assert code == 1 and json.loads(err)["error"]["message"], err


@test
def snapshot_usage(box):
    code, out, err = box.run("snapshot", "--help")
    assert code == 0 and all(w in out for w in (
        b"save NAME DIR", b"load DIR", b"info DIR", b"merge BASE DIFF OUT",
        b"verify DIR")), out
    for word in ("save", "load", "info", "merge", "verify"):
        code, out, err = box.run("snapshot", word, "--help")
        assert code == 0 and b"usage: mote snapshot " + word.encode() in out
    check(box.run("snapshot"), 2, b"", one_line(rb"is none of save, load"))
    check(box.run("snapshot", "nope"), 2, b"", one_line(rb"nope: is none of"))
    check(box.run("snapshot", "load"), 125, b"", one_line(rb"takes 1 operand;"))
    check(box.run("snapshot", "merge", "a", "b"), 2, b"",
          one_line(rb"takes 3 operands"))
    check(box.run("snapshot", "verify", "--nope", "x"), 2, b"",
          one_line(rb"--nope"))


# --- merge -----------------------------------------------------------------------


def page_of(where, number):
    with open(where + "/memory", "rb") as f:
        f.seek(number * 4096)
        return f.read(4096)


@test
def snapshot_merge_tells_a_zero_page_from_a_hole(box):
    old, new = b"o" * 4096, b"n" * 4096
    base, ident = made(box, "base", {1: old, 2: old, 3: old, 600: old,
                                     1300: old})
    diff, _ = made(box, "diff", {2: new, 3: bytes(4096), 601: new,
                                 1300: bytes(4096)}, parent=ident)
    out = path(box, "out")
    check(box.run("snapshot", "merge", base, diff, out), 0)
    for number, content in ((1, old), (2, new), (3, bytes(4096)), (600, old),
                            (601, new), (1300, bytes(4096))):
        assert page_of(out, number) == content, number
    check(box.run("snapshot", "verify", out), 0)
    told = info(box, out)
    assert told["kind"] == "full" and told["parent"] is None
    assert told["id"] == info(box, diff)["id"]
    assert told["mem_stored_bytes"] <= 64 << 10, told
    for where in (base, diff):  # as they were
        check(box.run("snapshot", "verify", where), 0)
    assert page_of(base, 3) == old


@test
def snapshot_merge_refusals(box):
    page = os.urandom(4096)
    base, ident = made(box, "base", {1: page})
    diff, second = made(box, "diff", {2: page}, parent=ident)
    foreign, _ = made(box, "foreign", {2: page}, parent=bytes(16))
    small, _ = made(box, "small", {2: page}, parent=ident, config={
        **CONFIG, "machine-config": {"mem_size_mib": 4}})
    out = path(box, "out")
    for words, pattern in (
            ((base, base, out), rb"is a full snapshot; nothing"),
            ((diff, diff, out), rb"is a diff itself"),
            ((base, foreign, out), rb"does not build on"),
            ((base, small, out), rb"another size of memory"),
            ((base, diff, diff), rb"is there already"),
            ((base, path(box, "no"), out), rb"no: No such file")):
        check(box.run("snapshot", "merge", *words), 1, b"", one_line(pattern))
        assert not os.path.exists(out) and not os.path.exists(out + ".part")
    # Damage of either must not get a good checksum.
    for where in (base, diff):
        with open(where + "/memory", "r+b") as f:
            f.seek(4096 if where == base else 8192)
            f.write(b"?")
        check(box.run("snapshot", "merge", base, diff, out), 1, b"",
              one_line(rb"is damaged"))
        assert not os.path.exists(out) and not os.path.exists(out + ".part")


@test
def snapshot_merge_killed_at_any_moment_is_whole_or_not_there(box):
    config = {**CONFIG, "machine-config": {"mem_size_mib": 64}}
    pages = {i: bytes([i % 251 + 1]) * 4096 for i in range(0, 16384, 4)}
    base, ident = made(box, "base", pages, config=config)
    diff, _ = made(box, "diff", {i: b"d" * 4096 for i in range(0, 16384, 64)},
                   parent=ident, config=config)
    seen = set()
    for i in range(24):
        out = path(box, "out%d" % i)
        p = box.start("snapshot", "merge", base, diff, out)
        with contextlib.suppress(Exception):
            p.wait(timeout=i * 0.012)
        p.kill()
        p.communicate()
        there = os.path.exists(out)
        seen.add(there)
        if there:
            check(box.run("snapshot", "verify", out), 0)
    # What was left there does not stand in the way.
    if not os.path.exists(path(box, "out0")):
        check(box.run("snapshot", "merge", base, diff, path(box, "out0")), 0)
    assert False in seen, "nothing was ever cut short"
