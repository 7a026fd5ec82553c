# SPDX-License-Identifier: Apache-2.0
"""Exit codes, signals, kills, and what is left after them."""
import os
import signal
import subprocess
import time

from harness import alive, cgroup_dirs, root_test, until


@root_test
def exit_code_is_handed_through(box):
    for code in (0, 1, 20, 148, 255):
        box.run(f"exit={code}", code=code)


@root_test
def a_signal_is_handed_through(box):
    for sig in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
        box.run(f"raise={sig.value}", code=-sig)


@root_test
def signals_to_the_jailer_reach_the_monitor(box):
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        jail = box.start(f"catch={sig.value}", "wait")
        jail.line("waiting")
        jail.process.send_signal(sig)
        assert jail.wait() == 100 + sig


@root_test
def a_signal_before_process_1_has_a_handler_is_not_lost(box):
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        jail = box.start("say=no handler", "until=/run/go", f"take={sig.value}",
                         flags=["--new-pid-ns", "--purge"], popen={"stderr": None})
        jail.line("no handler")
        os.kill(box.pid(jail), sig)
        with open(jail.root + "/run/go", "w", encoding="ascii"):
            pass
        assert jail.wait() == 0
        assert jail.seen["got"] == str(sig.value), jail.out


@root_test
def BL_014_killed_jailers_leave_no_monitor(box):
    jails = [box.start("orphans=1", "socket=/s", "wait",
                       flags=["--new-net-ns" if i % 2 else "--purge", "--cgroup", "pids.max=20"])
             for i in range(20)]
    pids = []
    for jail in jails:
        jail.line("waiting")
        pids.append(box.pid(jail))
    for jail in jails:
        jail.process.kill()
    until("the monitors are gone", lambda: not any(alive(p) for p in pids))
    # Directories, cgroups, processes, mounts: nothing_left() after each test.


@root_test
def BL_014_a_killed_process_group_leaves_no_monitor(box):
    jail = box.start("wait", popen={"start_new_session": True})
    jail.line("waiting")
    pid = box.pid(jail)
    os.killpg(jail.process.pid, signal.SIGKILL)
    until("the monitor is gone", lambda: not alive(pid))


@root_test
def BL_014_a_jailer_killed_at_any_moment_of_its_start_leaves_nothing(box):
    # The delays are the test: they lie all over the start, which takes some 5 ms.
    for i in range(40):
        jail = box.start("orphans=1", "wait", flags=["--purge", "--cgroup", "pids.max=20"],
                         popen={"start_new_session": True})
        time.sleep(i * 0.0004)
        if i % 2:
            jail.process.kill()
        else:
            os.killpg(jail.process.pid, signal.SIGKILL)


def keeper_of(jail):
    with open(f"/proc/{jail.process.pid}/task/{jail.process.pid}/children",
              encoding="ascii") as f:
        return int(f.read().split()[0])


@root_test
def a_killed_keeper_leaves_nothing(box):
    jail = box.start("socket=/s", "wait", flags=["--cgroup", "pids.max=50"])
    jail.line("waiting")
    pid = box.pid(jail)
    os.kill(keeper_of(jail), signal.SIGKILL)
    assert jail.wait() == 1 and "keeper" in jail.err, jail.err
    assert not alive(pid)


@root_test
def orphans_of_the_monitor_are_killed(box):
    jail = box.start("orphans=10", "wait")
    jail.line("waiting")
    os.kill(box.pid(jail), signal.SIGKILL)
    assert jail.wait() == -9


@root_test
def daemonize_returns_and_lets_go_of_the_streams(box):
    jail = box.start("wait", flags=["--daemonize"])
    assert jail.wait() == 0  # reads its streams to their end
    pid = box.pid(jail)
    assert jail.out == "" and jail.err == ""
    assert {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)} == {"/dev/null"}
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        assert int(f.read().rsplit(")", 1)[1].split()[3]) != os.getsid(0)
    os.kill(pid, signal.SIGTERM)
    until("the monitor is gone", lambda: not alive(pid))


@root_test
def data_stays_and_the_rest_goes(box):
    jail = box.run("file=/snapshot", "file=/run/log", "empty=/e", "socket=/s", "fifo=/f",
                   "link=/l")
    assert "2 files with data stay" in jail.err, jail.err
    found = sorted(os.path.relpath(os.path.join(d, f), jail.root)
                   for d, dirs, files in os.walk(jail.root) for f in files)
    assert found == ["run/log", "snapshot"], found
    for name in found:
        os.remove(os.path.join(jail.root, name))
    os.removedirs(jail.root + "/run")


@root_test
def hard_links_of_the_caller_go_and_their_files_stay(box):
    disk = os.path.join(box.dir, "disk")
    with open(disk, "w", encoding="ascii") as f:
        f.write("bytes")
    jail = box.start("wait")
    jail.line("waiting")
    os.link(disk, jail.root + "/disk")
    jail.process.terminate()
    assert jail.wait() == -15 and jail.err == ""
    with open(disk, encoding="ascii") as f:
        assert f.read() == "bytes"


@root_test
def purge_removes_everything_and_follows_no_link(box):
    outside = os.path.join(box.dir, "precious")
    os.mkdir(outside)
    with open(outside + "/file", "w", encoding="ascii") as f:
        f.write("x")
    jail = box.start("file=/a", "link=/l", "deep=200", "mode0=/closed", "wait", flags=["--purge"])
    jail.line("waiting")
    os.symlink(outside, jail.root + "/out")
    jail.process.terminate()
    assert jail.wait() == -15 and jail.err == "", jail.err
    assert os.listdir(outside) == ["file"]


@root_test
def mounts_in_the_jail_are_not_entered_by_the_clean_up(box):
    root = os.path.join(box.base, "jail_probe", "mounts", "root")
    os.makedirs(root + "/bound")
    precious = os.path.join(box.dir, "precious")  # on the same file system
    os.makedirs(precious + "/sub")
    for name in ("/file", "/sub/file"):
        with open(precious + name, "w", encoding="ascii"):
            pass
    subprocess.run(["mount", "--bind", precious, root + "/bound"], check=True)
    try:
        jail = box.run("report", ident="mounts", flags=["--purge"])
        assert "tree:/bound/sub/file" in jail.seen  # as in Firecracker's jail
        assert os.path.exists(precious + "/file") and os.path.exists(precious + "/sub/file")
        assert "1 things" in jail.err and "removed" in jail.err, jail.err
    finally:
        subprocess.run(["umount", root + "/bound"], check=True)
    os.removedirs(root + "/bound")


@root_test
def an_id_in_use_is_refused_and_free_after_it(box):
    jail = box.start("wait", ident="same")
    jail.line("waiting")
    box.refused("--id same", "in use", ident="same")
    assert os.path.exists(jail.root + "/jail_probe")
    jail.process.terminate()
    assert jail.wait() == -15
    box.run("say=again", ident="same")


@root_test
def an_id_is_free_as_soon_as_its_monitor_is_gone(box):
    for _ in range(5):
        jail = box.start("wait", ident="again", flags=["--daemonize", "--cgroup", "pids.max=5"])
        assert jail.wait() == 0, jail.err
        pid = box.pid(jail)
        os.kill(pid, signal.SIGKILL)
        until("the monitor is gone", lambda: not alive(pid))


@root_test
def remains_of_a_crash_are_taken_over(box):
    jail = box.start("wait", ident="crash", popen={"start_new_session": True})
    jail.line("waiting")
    keeper = keeper_of(jail)
    pid = box.pid(jail)
    jail.process.send_signal(signal.SIGSTOP)  # it cannot take anything down
    os.kill(keeper, signal.SIGKILL)
    until("the monitor is gone", lambda: not alive(pid))
    jail.process.kill()
    jail.process.wait()
    assert os.path.exists(jail.root + "/jail_probe.pid")
    assert "again\n" in box.run("say=again", ident="crash").out


@root_test
def thirty_at_once_leave_nothing(box):
    start = time.monotonic()
    memory = "memory.max" if len(cgroup_dirs()) == 1 else "memory.limit_in_bytes"
    flags = ["--purge", "--new-net-ns", "--cgroup", "pids.max=20", "--cgroup", memory + "=64M"]
    jails = [box.start("orphans=1", "socket=/run/s", "file=/log", "wait", flags=flags)
             for _ in range(30)]
    for jail in jails:
        jail.line("waiting")
    print(f"# 30 jails in {time.monotonic() - start:.2f} s")
    for jail in jails:
        jail.process.terminate()
    for jail in jails:
        assert jail.wait() == -15 and jail.err == "", jail.err
    print(f"# and gone after {time.monotonic() - start:.2f} s")
