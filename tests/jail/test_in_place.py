# SPDX-License-Identifier: Apache-2.0
"""--in-place: no process beside the monitor, a root in memory."""
import os
import signal
import subprocess

from harness import GID, GUARD, UID, root_test, test, until, alive
from test_user_ns import USER, wrap


def run_dir(box, owner):
    path = box.dir + "/run"
    os.mkdir(path, 0o700)
    if os.geteuid() == 0:
        os.chown(path, owner, owner)
    return path


def flags(path, *more):
    return ["--in-place", path, *more]


def tight(seen, path):
    assert set(seen["caps"]) <= {"0", " "} and seen["bounding"] == "0", seen
    assert seen["no_new_privs"] == "1" and seen["fds"] == "0 1 2" and seen["env"] == "0", seen
    assert seen["signals"] == "0" and seen["cwd"] == "/" and seen["death"] == "0", seen
    for name in ("/etc/passwd", "/proc/self", "/sys", "/home", "/tmp", "/root"):
        assert seen["open:" + name] == "No such file or directory", (name, seen)
    for what in ("mount", "umount", "remount", "chroot", "hostname"):
        assert seen["can:" + what] == "Operation not permitted", (what, seen)
    for what in ("mknod", "dev_write", "root_write"):
        assert seen["can:" + what] in ("Read-only file system", "Operation not permitted",
                                       "Permission denied"), (what, seen)
    assert seen["can:run_write"] == "yes", seen
    assert seen["open:/dev/kvm"] == "ok" and seen["open:/dev/urandom"] == "ok", seen
    tree = sorted(x[5:] for x in seen if x.startswith("tree:") and x.count("/") == 1)
    assert tree == ["/dev", "/jail_probe", "/run"], tree
    assert os.listdir(path) == []


@root_test
def in_place_jail_holds_as_tight(box):
    path = run_dir(box, UID)
    seen = box.run("report", flags=flags(path, "--new-net-ns")).seen
    tight(seen, path)
    assert seen["uid"] == f"{UID} {UID} {UID}" and seen["gid"] == f"{GID} {GID} {GID}", seen
    assert seen["groups"] == "" and seen["interfaces"] == "lo", seen


@test
def in_place_without_root_holds_as_tight(box):
    prefix = wrap(box)
    path = run_dir(box, USER)
    tight(box.run("report", wrap=prefix, flags=flags(path, "--new-net-ns")).seen, path)


@root_test
def in_place_the_process_itself_becomes_the_monitor(box):
    path = run_dir(box, UID)
    jail = box.start("socket=/run/s", "wait", flags=flags(path))
    jail.line("waiting")
    pid = jail.process.pid
    with open(f"/proc/{pid}/comm", encoding="ascii") as f:
        assert f.read() == "jail_probe\n"
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        assert f.read() == ""
    st = os.stat(path + "/s")
    assert (st.st_uid, st.st_gid) == (UID, GID)
    jail.process.kill()
    assert jail.wait() == -signal.SIGKILL
    assert os.listdir(path) == ["s"]  # the caller's to remove, all else is gone


@root_test
def in_place_descriptors_and_codes_are_handed_through(box):
    path = run_dir(box, UID)
    r, w = os.pipe()
    jail = box.run("report", "exit=20", code=20, flags=flags(path, "--pass-fd", f"{r}-{w}"),
                   popen={"pass_fds": (r, w)})
    os.close(r)
    os.close(w)
    assert jail.seen["fds"] == f"0 1 2 {r} {w}", jail.seen["fds"]


@root_test
def in_place_binds_are_what_they_are_asked_to_be(box):
    path = run_dir(box, UID)
    os.mkdir(box.dir + "/data", 0o777)
    os.chmod(box.dir + "/data", 0o777)
    with open(box.dir + "/base", "w", encoding="ascii") as f:
        f.write("x")
    jail = box.run("report", "file=/disks/rw/new",
                   flags=flags(path, "--bind", f"{box.dir}/data:/disks/rw:rw",
                               "--bind", f"{box.dir}/base:/disks/base.img"))
    assert "tree:/disks/base.img" in jail.seen
    assert os.path.exists(box.dir + "/data/new")
    jail = box.run("report", "file=/ro/new", code=1,
                   flags=flags(path, "--bind", f"{box.dir}/data:/ro"))


def reported(box, path, *more, program=None):
    """What comes out of --report-fd; standard error has to be empty."""
    r, w = os.pipe()
    p = subprocess.run(box.argv("say=hello", program=program,
                                flags=flags(path, "--report-fd", str(w), *more)),
                       pass_fds=(w,), capture_output=True, text=True, timeout=GUARD, check=False)
    os.close(w)
    with os.fdopen(r, encoding="utf-8") as f:
        text = f.read()
    assert p.stderr == "", p.stderr
    return p, text


@root_test
def in_place_failures_are_reported_and_success_is_an_end_of_file(box):
    path = run_dir(box, UID)
    p, text = reported(box, path)
    assert p.returncode == 0 and text == "" and "hello" in p.stdout, (p, text)
    for more, program, word in (((), "/bin/ls", "cannot run in a jail"),
                                ((), box.dir + "/none", "none"),
                                (("--bind", box.dir + "/none:/x"), None, "none"),
                                (("--netns", "/etc/passwd"), None, "--netns")):
        p, text = reported(box, path, *more, program=program)
        assert p.returncode == 1 and p.stdout == "" and word in text, (p, text)
    p, text = reported(box, box.dir + "/none")
    assert p.returncode == 1 and "none" in text, (p, text)


@root_test
def in_place_arguments_are_refused_by_name(box):
    path = run_dir(box, UID)
    for more in (["--daemonize"], ["--new-pid-ns"], ["--purge"], ["--cgroup", "pids.max=5"]):
        box.refused("--in-place", code=153, flags=flags(path, *more))
    for bad in ("x", "/a:b", "/a:/b:ro", "/a:/", "/a:/b/../c", "/a:/b/", ":/b", "/a://b"):
        box.refused("--bind", code=153, flags=flags(path, "--bind", bad))
    for alone in (["--bind", "/a:/b"], ["--report-fd", "5"]):
        box.refused("--in-place", code=153, flags=alone)
    for bad in ("2", "2-4", "5-4", "3-x", "3-", "-5", "3-1024"):
        box.refused("--pass-fd", code=153, flags=flags(path, "--pass-fd", bad))


@root_test
def in_place_links_in_run_lead_nowhere(box):
    path = run_dir(box, UID)
    os.symlink("/jail_probe", path + "/link")
    jail = box.start("until=/run/link", "say=followed", flags=flags(path))
    pid = jail.process.pid
    until("it runs", lambda: os.path.exists(f"/proc/{pid}/root/jail_probe"))
    assert alive(pid)
    jail.process.kill()
    jail.wait()
    assert "followed" not in jail.out.splitlines()
