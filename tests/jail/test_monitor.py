# SPDX-License-Identifier: Apache-2.0
"""The real monitor with a bare-metal program as its guest, jailed."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys

from harness import GID, GUARD, UID, Skip, alive, cgroup_dirs, root_test, until

NAME = "mote-vmm"
ID = f"mj{os.getpid()}"


def kernel_of(box, payload):
    if not os.path.exists("/dev/kvm"):
        raise Skip("no /dev/kvm")
    kernel = os.path.join(box.build, "guest", "payloads", f"p_{payload}.elf")
    if not os.path.exists(kernel) or not os.access(box.vmm, os.X_OK):
        raise Skip("no monitor or payload; make all payloads")
    words = subprocess.run([box.vmm, "--help"], capture_output=True, text=True, timeout=GUARD,
                           check=False).stdout
    if "--parent-cpu-time-us" not in words:
        raise Skip("this mote-vmm does not take the jailer's timing flags yet")
    return kernel


def prepare(box, ident, payload, vsock=None):
    """Guest and configuration where the jail's root will be."""
    kernel = kernel_of(box, payload)
    root = os.path.join(box.base, NAME, ident, "root")
    os.makedirs(root)
    shutil.copy(kernel, root + "/kernel")
    doc = {"boot-source": {"kernel_image_path": "/kernel", "boot_args": "quiet"},
           "machine-config": {"vcpu_count": 1, "mem_size_mib": 128}, "drives": []}
    if vsock:
        doc["vsock"] = {"guest_cid": 3, "uds_path": vsock}
    with open(root + "/vm.json", "w", encoding="ascii") as f:
        json.dump(doc, f)
    for name in ("kernel", "vm.json"):
        os.chmod(os.path.join(root, name), 0o444)
    return root


ARGS = ["--config-file", "/vm.json", "--no-api", "--test-exit"]


@root_test
def monitor_runs_a_guest_on_kvm_in_a_jail(box):
    root = prepare(box, ID, "serial_out")
    p = subprocess.run(box.argv(*ARGS, "--exit-file", "/exit.json", program=box.vmm, ident=ID,
                                flags=["--new-net-ns"]),
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=GUARD, check=False)
    assert p.returncode == 0, (p.returncode, p.stderr)
    assert p.stdout == bytes(range(256)), p.stdout
    with open(root + "/exit.json", encoding="ascii") as f:
        assert json.load(f)["reason"] == "test"
    assert sorted(os.listdir(root)) == ["exit.json", "kernel", "vm.json"]
    shutil.rmtree(os.path.join(box.base, NAME))


@root_test
def monitor_has_its_vsock_inside_and_ends_by_the_jailers_signal(box):
    root = prepare(box, ID, "park", vsock="/run/v.sock")
    jail = box.start(*ARGS, program=box.vmm, ident=ID, flags=["--purge"])
    jail.line("parked")
    path = root + "/run/v.sock"
    st = os.stat(path)
    assert (st.st_uid, st.st_gid) == (UID, GID)
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(GUARD)
        s.connect(path)
    pid = box.pid(jail)
    assert os.readlink(f"/proc/{pid}/root") in (root, "/")
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        status = dict(x.split(":", 1) for x in f.read().splitlines())
    assert status["Uid"].split() == [str(UID)] * 4 and int(status["CapEff"], 16) == 0
    jail.process.terminate()
    assert jail.wait() == 0, jail.err
    assert not os.path.exists(root)


@root_test
def monitor_is_process_1_of_a_pid_namespace(box):
    prepare(box, ID, "park")
    jail = box.start(*ARGS, program=box.vmm, ident=ID, flags=["--purge", "--new-pid-ns"],
                     popen={"stderr": None})
    jail.line("parked")
    assert jail.process.wait(GUARD) == 0
    os.kill(box.pid(jail), 15)
    assert jail.process.stdout.read() == ""  # to the monitor's end


def call(path, method, url, body=None):
    """-> status of one request on the control socket."""
    text = json.dumps(body) if body is not None else ""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(GUARD)
        s.connect(path)
        s.sendall(f"{method} {url} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                  f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}"
                  .encode())
        with s.makefile("rb") as f:
            return int(f.readline().split()[1])


@root_test
def monitor_is_driven_as_firecracker_in_its_jail(box):
    kernel = kernel_of(box, "park")
    # Under its name, and with files linked in once the jail is there: as an SDK does.
    os.symlink(box.vmm, box.dir + "/firecracker")
    shutil.copy(kernel, box.dir + "/vmlinux")
    os.chmod(box.dir + "/vmlinux", 0o444)
    jail = box.start("--no-seccomp", "--api-sock", "/run/firecracker.socket",
                     program=box.dir + "/firecracker")
    path = jail.root + "/run/firecracker.socket"
    until("the control socket", lambda: os.path.exists(path))
    assert call(path, "GET", "/machine-config") == 200
    os.link(box.dir + "/vmlinux", jail.root + "/vmlinux")
    for url, body in (("/machine-config", {"vcpu_count": 1, "mem_size_mib": 128}),
                      ("/boot-source", {"kernel_image_path": "vmlinux", "boot_args": "quiet"}),
                      ("/vsock", {"vsock_id": "1", "guest_cid": 3, "uds_path": "v.sock"}),
                      ("/actions", {"action_type": "InstanceStart"})):
        assert call(path, "PUT", url, body) == 204, url
    jail.line("parked")
    assert os.path.exists(jail.root + "/v.sock")
    jail.process.terminate()
    assert jail.wait() == 0, jail.err
    assert os.path.exists(box.dir + "/vmlinux")



@root_test
def BL_015_a_hundred_jailed_machines_at_once_leave_nothing(box):
    """Each with a cgroup, a network namespace and a vsock; half of them lose their jailer
    (BL-014). What may be left is looked at after each test: nothing."""
    jails = []
    for i in range(100):
        ident = f"{ID}-{i}"
        prepare(box, ident, "park", vsock="/run/v.sock")
        jails.append(box.start(*ARGS, program=box.vmm, ident=ident,
                               flags=["--purge", "--new-net-ns", "--cgroup", "pids.max=20"]))
    for jail in jails:
        jail.line("parked")
    pids = [box.pid(jail) for jail in jails]
    for i, jail in enumerate(jails):
        jail.process.send_signal(signal.SIGKILL if i % 2 else signal.SIGTERM)
    for i, jail in enumerate(jails):
        assert jail.wait() == (-signal.SIGKILL if i % 2 else 0), jail.err
    until("all monitors are gone", lambda: not any(alive(p) for p in pids))


# --- firecracker-go-sdk, its jailer's flags -----------------------------------------------------

TAP = "mote-sdk0"


class Net:
    """A network namespace with a TAP for the jailed user; goes with us."""

    def __init__(self):
        self.process = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", f"ip tuntap add dev {TAP} mode tap user {UID} && echo up"
             " && read x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "up\n"
        self.path = f"/proc/{self.process.pid}/ns/net"

    def close(self):
        self.process.communicate("\n", timeout=GUARD)


def cpuset_flags():
    """What the SDK always passes, on a host that has this controller (cgroup v1)."""
    if not any("cpuset" in os.path.basename(d).split(",") for d in cgroup_dirs()):
        return []
    return ["--cgroup", "cpuset.mems=0", "--cgroup", "cpuset.cpus=0", "--cgroup-version", "1"]


def link_in(jail, path, name):
    """A file of ours inside the jail, the jailed user's, as the SDK links it."""
    os.link(path, os.path.join(jail.root, name))
    os.chown(path, UID, GID)
    return name


@root_test
def monitor_serves_the_go_sdk_behind_the_jailer(box):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                    "api"))
    import sdk
    kernel = kernel_of(box, "keys")
    os.symlink(box.vmm, box.dir + "/firecracker")
    shutil.copy(kernel, box.dir + "/vmlinux")
    for name in ("root.img", "extra.img"):
        with open(os.path.join(box.dir, name), "wb") as f:
            f.truncate(1 << 20)
    net = Net() if os.path.exists("/dev/net/tun") else None
    ident = f"sdk-{os.getpid()}"
    jail = box.start("--no-seccomp", "--api-sock", "api.sock", program=box.dir + "/firecracker",
                     ident=ident, flags=[*cpuset_flags(),
                                         *(["--netns", net.path] if net else ["--new-net-ns"])])
    client = sdk.Sdk(jail.root + "/api.sock")
    client.wait_for_socket(lambda: jail.process.poll() is None)
    readers = [sdk.Reader(os.path.join(box.dir, n)) for n in ("log.fifo", "metrics.fifo")]
    for name in ("vmlinux", "root.img", "extra.img", "log.fifo", "metrics.fifo"):
        link_in(jail, os.path.join(box.dir, name), name)
    client.set_up(lambda name: name, "vmlinux", ["extra.img"], "root.img", net and TAP)
    jail.line("ready")
    client.drive_it("extra.img", net and TAP)
    client.action("SendCtrlAltDel")
    jail.process.terminate()
    assert jail.wait() == 0, jail.err
    sdk.check_outputs(*[r.end() for r in readers], ident)
    assert not os.path.exists(jail.root), os.listdir(jail.root)
    if net:
        net.close()
