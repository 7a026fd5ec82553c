# SPDX-License-Identifier: Apache-2.0
"""Without root: a user namespace, and devices as bind mounts."""
import ctypes
import os
import subprocess

from harness import GUARD, UID, Skip, test

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000  # linux/sched.h
USER = 54400  # what the caller is, where the tests run as root

# A /dev/kvm that everybody may open, in a mount namespace of the test's own.
AS_USER = """
set -e
mount -t tmpfs none "$1"
mknod -m "$2" "$1/kvm" c 10 232
chown "0:$4" "$1/kvm"
mount --bind "$1/kvm" /dev/kvm
user=$3
groups=$5
shift 5
exec setpriv --reuid "$user" --regid "$user" --groups "$groups" "$@"
"""
KVM_GROUP = 54500


def wrap(box, mode="666", group=USER):
    """The words before mote-jail that make its caller an ordinary user."""
    try:
        with open("/proc/sys/user/max_user_namespaces", encoding="ascii") as f:
            if int(f.read()) == 0:
                raise Skip("user namespaces are switched off")
    except FileNotFoundError:
        raise Skip("no user namespaces") from None
    os.makedirs(box.base, exist_ok=True)
    if os.geteuid() != 0:
        if not os.access("/dev/kvm", os.R_OK | os.W_OK):
            raise Skip("/dev/kvm cannot be opened, and only root can make another")
        return []
    if not os.path.exists("/dev/kvm"):
        raise Skip("no /dev/kvm")
    os.chown(box.base, USER, USER)
    os.makedirs(box.dir + "/devices", exist_ok=True)
    return ["unshare", "-m", "--propagation", "private", "sh", "-c", AS_USER, "sh",
            box.dir + "/devices", mode, str(USER), str(KVM_GROUP), str(group)]


@test
def user_ns_jail_holds_as_tight(box):
    seen = box.run("report", wrap=wrap(box), flags=["--purge"]).seen
    assert set(seen["caps"]) <= {"0", " "} and seen["bounding"] == "0", seen
    assert seen["no_new_privs"] == "1" and seen["fds"] == "0 1 2" and seen["env"] == "0", seen
    assert seen["uid"].split()[0] == "54321", seen["uid"]
    for path in ("/etc/passwd", "/proc/self", "/sys", "/home", "/tmp"):
        assert seen["open:" + path] == "No such file or directory", seen
    for what in ("mount", "umount", "remount", "mknod", "chroot", "hostname"):
        assert seen["can:" + what] == "Operation not permitted", (what, seen)
    assert seen["can:dev_write"] == "Read-only file system", seen
    assert seen["can:root_write"] == "yes", seen


@test
def user_ns_devices_are_bind_mounts(box):
    seen = box.run("report", wrap=wrap(box)).seen
    assert seen["open:/dev/kvm"] == "ok", seen["open:/dev/kvm"]
    assert seen["open:/dev/urandom"] == "ok", seen
    kind, _, _, number = seen["tree:/dev/kvm"].split()
    assert kind.startswith("020") and int(number) == os.makedev(10, 232)


@test
def user_ns_needs_no_uid(box):
    argv = box.argv("report")
    for flag in ("--uid", "--gid"):
        at = argv.index(flag)
        del argv[at:at + 2]
    p = subprocess.run([*wrap(box), *argv], capture_output=True, text=True, timeout=GUARD,
                       check=False)
    assert p.returncode == 0, p.stderr
    user = USER if os.geteuid() == 0 else os.geteuid()
    assert f"uid={user} {user} {user}\n" in p.stdout, p.stdout


@test
def user_ns_with_pid_and_net_namespaces(box):
    jail = box.start("report", "wait", wrap=wrap(box),
                     flags=["--new-pid-ns", "--new-net-ns"], popen={"stderr": None})
    jail.line("waiting")
    assert jail.process.wait(30) == 0
    assert jail.seen["pid"] == "1" and jail.seen["interfaces"] == "lo"
    os.kill(box.pid(jail), 9)


@test
def BL_027_a_kvm_out_of_reach_is_named_before_anything_starts(box):
    if os.geteuid() != 0:
        raise Skip("needs root")
    with_group = wrap(box, "660", KVM_GROUP)
    assert box.run("report", wrap=with_group).seen["open:/dev/kvm"] == "ok"
    without = wrap(box, "660")
    box.refused("/dev/kvm", str(USER), f"group {KVM_GROUP}", argv=without + box.argv("say=x"))


def enter_container():
    """This process becomes root of a user namespace with many users, as podman makes them."""
    go, done = os.pipe(), os.pipe()
    me = os.getpid()
    helper = os.fork()
    if helper == 0:
        os.read(go[0], 1)
        for kind in ("uid_map", "gid_map"):
            with open(f"/proc/{me}/{kind}", "w", encoding="ascii") as f:
                f.write("0 0 100000")
        os.write(done[1], b"x")
        os._exit(0)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
    os.write(go[1], b"x")
    os.read(done[0], 1)
    os.waitpid(helper, 0)


@test
def devices_are_bind_mounts_for_root_of_a_container(box):
    if os.geteuid() != 0:
        raise Skip("needs root")
    seen = box.run("report", popen={"preexec_fn": enter_container}).seen
    assert seen["uid"] == f"{UID} {UID} {UID}" and seen["groups"] == "", seen
    assert set(seen["caps"]) <= {"0", " "} and seen["bounding"] == "0", seen
    assert seen["open:/dev/urandom"] == "ok" and "tree:/dev/kvm" in seen, seen


@test
def user_ns_signals_and_codes(box):
    before = wrap(box)
    box.run("exit=23", wrap=before, code=23)
    jail = box.start("catch=15", "wait", wrap=before)
    jail.line("waiting")
    jail.process.terminate()
    assert jail.wait() == 115


@test
def user_ns_purge_enters_closed_directories(box):
    jail = box.run("mode0=/closed", "file=/f", wrap=wrap(box), flags=["--purge"])
    assert jail.err == "", jail.err
