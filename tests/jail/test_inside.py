# SPDX-License-Identifier: Apache-2.0
"""What a monitor sees and can reach from inside its jail."""
import os
import socket
import subprocess

from harness import GID, UID, Skip, root_test

REFUSED = "Operation not permitted"
NOWHERE = "No such file or directory"


@root_test
def user_groups_and_capabilities_are_gone(box):
    seen = box.run("report").seen
    assert seen["uid"] == f"{UID} {UID} {UID}", seen["uid"]
    assert seen["gid"] == f"{GID} {GID} {GID}", seen["gid"]
    assert seen["groups"] == "", seen["groups"]
    assert set(seen["caps"]) <= {"0", " "}, seen["caps"]
    assert seen["bounding"] == "0" and seen["no_new_privs"] == "1", seen
    assert seen["umask"] == "0077", seen["umask"]


@root_test
def user_0_has_no_capabilities_either(box):
    seen = box.run("report", uid=0, gid=0).seen
    assert seen["uid"] == "0 0 0", seen["uid"]
    assert set(seen["caps"]) <= {"0", " "} and seen["bounding"] == "0", seen
    for what in ("mount", "umount", "remount", "mknod", "chroot", "setgroups", "hostname"):
        assert seen["can:" + what] == REFUSED, (what, seen["can:" + what])


@root_test
def the_hosts_files_cannot_be_reached(box):
    with open(os.path.join(box.dir, "input"), "w+", encoding="ascii") as f:
        seen = box.run("report", popen={"stdin": f}).seen
    for path in ("/etc/passwd", "/../../../../etc/passwd", "/proc/self", "/sys", "/home", "/tmp",
                 "/root"):
        assert seen["open:" + path] == NOWHERE, (path, seen["open:" + path])
    assert all(seen[f"can:up_from_{fd}"] == "no" for fd in range(3)), seen
    assert seen["cwd"] == "/"
    for what in ("mount", "umount", "remount", "mknod", "chroot", "setuid", "setgroups",
                 "hostname"):
        assert seen["can:" + what] == REFUSED, (what, seen["can:" + what])


@root_test
def the_tree_holds_program_devices_run_and_pid_file(box):
    seen = box.run("report").seen
    tree = {k[5:]: v.split() for k, v in seen.items() if k.startswith("tree:")}
    names = {"/jail_probe", "/jail_probe.pid", "/dev", "/dev/kvm", "/dev/net", "/dev/net/tun",
             "/dev/urandom", "/run"}
    if os.path.exists("/dev/userfaultfd"):
        names.add("/dev/userfaultfd")
    assert set(tree) == names, set(tree) ^ names
    mine = [str(UID), str(GID)]
    assert tree["/jail_probe"][:3] == ["100555", "0", "0"], tree
    assert tree["/run"][:3] == ["040700", *mine], tree
    for name, number in (("kvm", os.makedev(10, 232)), ("net/tun", os.makedev(10, 200)),
                         ("urandom", os.makedev(1, 9))):
        assert tree["/dev/" + name] == ["020600", *mine, str(number)], (name, tree)
    assert seen["can:root_write"] == seen["can:run_write"] == "yes", seen
    assert seen["can:dev_write"] == "Read-only file system", seen["can:dev_write"]
    assert seen["open:/jail_probe"] in ("Permission denied", "Text file busy"), seen


@root_test
def devices_can_be_opened(box):
    seen = box.run("report").seen
    for device in ("/dev/kvm", "/dev/net/tun", "/dev/urandom"):
        if os.path.exists(device):
            assert seen["open:" + device] == "ok", (device, seen["open:" + device])


@root_test
def descriptors_environment_and_signals_are_clean(box):
    r, w = os.pipe()
    os.set_inheritable(r, True)
    seen = box.run("report", popen={"close_fds": False, "env": {"SECRET": "x", "PATH": "/bin"}}).seen
    os.close(r)
    os.close(w)
    assert seen["fds"] == "0 1 2", seen["fds"]
    assert seen["env"] == "0" and seen["signals"] == "0", seen
    assert seen["death"] == "9", seen["death"]


@root_test
def pass_fd_keeps_what_is_asked_for(box):
    r, w = os.pipe()
    seen = box.run("report", flags=["--pass-fd", str(r)], popen={"pass_fds": (r, w)}).seen
    assert seen["fds"] == f"0 1 2 {r}", seen["fds"]
    os.close(w)
    os.close(r)


@root_test
def pass_fd_is_closed_in_the_jailer_once_the_monitor_has_it(box):
    r, w = os.pipe()
    jail = box.start("wait", flags=["--pass-fd", str(w)], popen={"pass_fds": (w,)})
    jail.line("waiting")
    os.close(w)
    os.kill(box.pid(jail), 9)
    assert os.read(r, 1) == b""  # nobody else holds the writing end
    os.close(r)
    assert jail.wait() == -9


@root_test
def closed_streams_stay_harmless(box):
    script = 'exec "$@" <&- 2>&-'
    seen = box.run("report", wrap=["sh", "-c", script, "sh"]).seen
    assert seen["fds"] == "0 1 2", seen["fds"]


@root_test
def limits_are_set(box):
    seen = box.run("report").seen
    assert seen["no_file"] == "2048 2048" and seen["core"] == "0", seen
    seen = box.run("report", flags=["--resource-limit", "no-file=100", "--resource-limit",
                                    "fsize=12345"]).seen
    assert seen["no_file"] == "100 100" and seen["fsize"] == "12345", seen


def namespaces(pid):
    return {n: os.readlink(f"/proc/{pid}/ns/{n}")
            for n in ("mnt", "ipc", "uts", "cgroup", "net", "pid", "user")}


@root_test
def namespaces_are_its_own(box):
    jail = box.start("wait")
    jail.line("waiting")
    theirs, ours = namespaces(box.pid(jail)), namespaces("self")
    different = {n for n in ours if ours[n] != theirs[n]}
    assert different == {"mnt", "ipc", "uts", "cgroup"}, different
    jail.process.terminate()
    assert jail.wait() == -15


@root_test
def netns_is_joined(box):
    name = f"mj{os.getpid()}"
    p = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if p.returncode:
        raise Skip("ip netns add: " + p.stderr.strip())
    try:
        path = "/run/netns/" + name
        inside = subprocess.run(["stat", "-Lc", "%i", path], capture_output=True, text=True,
                                check=True).stdout.strip()
        jail = box.start("wait", flags=["--netns", path])
        jail.line("waiting")
        assert inside in namespaces(box.pid(jail))["net"]
        jail.process.terminate()
        assert jail.wait() == -15
        box.mounts = box._mounts()
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)
        box.mounts = box._mounts()


@root_test
def new_net_ns_has_a_loopback_only(box):
    assert box.run("report", flags=["--new-net-ns"]).seen["interfaces"] == "lo"


@root_test
def new_pid_ns_makes_it_process_1_and_the_jailer_returns(box):
    jail = box.start("report", "wait", flags=["--new-pid-ns"], popen={"stderr": None})
    jail.line("waiting")
    jail.process.wait(30)
    assert jail.process.returncode == 0
    pid = box.pid(jail)
    assert jail.seen["pid"] == "1"
    assert namespaces(pid)["pid"] != namespaces("self")["pid"]
    os.kill(pid, 9)


@root_test
def command_line_is_firecrackers(box):
    seen = box.run("say=x", "--api-sock", "/run/a.sock").seen
    assert seen["arg0"] == "/jail_probe"
    assert (seen["arg1"], seen["arg2"]) == ("--id", box.ident)
    words = [seen[f"arg{i}"] for i in (3, 4, 5)]
    for word, name in zip(words, ("start-time-us", "start-time-cpu-us", "parent-cpu-time-us")):
        assert word.startswith(f"--{name}=") and word.split("=")[1].isdigit(), word
    assert [seen[f"arg{i}"] for i in (6, 7, 8)] == ["say=x", "--api-sock", "/run/a.sock"], seen


@root_test
def host_name_is_the_id(box):
    assert box.run("report").seen["host"] == box.ident != socket.gethostname()


@root_test
def a_socket_in_the_jail_is_seen_from_outside(box):
    jail = box.start("socket=/run/firecracker.socket", "wait")
    jail.line("waiting")
    assert os.path.exists(jail.root + "/run/firecracker.socket")
    jail.process.terminate()
    assert jail.wait() == -15


@root_test
def files_of_the_caller_are_there_inside(box):
    root = os.path.join(box.base, "jail_probe", "mine", "root")
    os.makedirs(root)
    with open(root + "/kernel", "w", encoding="ascii") as f:
        f.write("x")
    seen = box.run("report", ident="mine").seen
    assert "tree:/kernel" in seen
    with open(root + "/kernel", encoding="ascii") as f:
        assert f.read() == "x"  # and are there after it
    assert sorted(os.listdir(root)) == ["kernel"]
    os.remove(root + "/kernel")
    os.removedirs(root)


@root_test
def relative_paths_and_links_of_root_are_followed(box):
    os.makedirs(box.dir + "/real")
    os.symlink("real", box.dir + "/base")
    os.symlink(box.probe, box.dir + "/firecracker")
    jail = box.run("say=hi", program="firecracker", popen={"cwd": box.dir})
    assert jail.seen["arg0"] == "/firecracker" and "hi\n" in jail.out
