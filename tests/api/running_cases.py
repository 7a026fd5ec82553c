# SPDX-License-Identifier: Apache-2.0
"""A machine that is started, driven and ended by the control socket."""

import http.client
import json
import os
import socket
import subprocess
import time

from client import AFTER, connect, ends, launch, monitor, parked
from harness import Cases, PATIENCE

CASES = Cases()
MIB = 1 << 20
MEASURED = 0.5  # seconds over which CPU time is taken


def case(name):
    return CASES.case(name)


# --- start -----------------------------------------------------------------

@case("run_from_nothing_to_the_end")
def whole(t):
    vm, api = monitor(t)
    api.boot_source("compute", "loops=1")
    api.start()
    t.judge(vm)
    t.check(not os.path.lexists(vm.sock), "the socket was left behind")


@case("run_calls_in_the_order_of_a_client_library")
def sdk_order(t):
    vm, api = monitor(t, ["--id", "a-1", "--no-seccomp"])
    disk = t.file("disk", size=MIB)
    began = time.monotonic()
    for name in ("log", "metrics"):
        os.mkfifo(t.path(name))
    api.get("/machine-config")
    api.ok("PUT", "/logger", {"log_path": t.path("log"), "show_level": True,
                              "show_log_origin": False})
    api.ok("PUT", "/metrics", {"metrics_path": t.path("metrics")})
    api.ok("PUT", "/machine-config", {"vcpu_count": 1, "mem_size_mib": 128,
                                      "smt": False})
    api.get("/machine-config")
    api.boot_source("park")
    api.ok("PUT", "/drives/0", {
        "drive_id": "0", "is_root_device": False, "is_read_only": True,
        "path_on_host": disk, "cache_type": "Writeback"})
    api.ok("PUT", "/vsock", {"guest_cid": 3, "uds_path": t.path("v"),
                             "vsock_id": "1"})
    spent = time.monotonic() - began
    t.check(spent < 5, f"the calls before the start took {spent:.2f} s")
    api.start()
    t.eq(api.state(), "Running", "state")
    vm.wait_output(b"parked\n")
    ends(t, vm)


@case("run_a_failed_start_leaves_the_process_usable")
def failed_start(t):
    vm, api = monitor(t)
    disk = t.file("disk", size=MIB)
    api.boot_source("park")
    api.drive("a", disk)
    os.unlink(disk)
    before = len(os.listdir(f"/proc/{vm.pid}/fd"))
    for _ in range(3):
        api.bad("PUT", "/actions", {"action_type": "InstanceStart"}, disk,
                "No such file")
        t.eq(api.state(), "Not started", "state")
    t.file("small", b"")
    api.ok("PUT", "/machine-config", {"vcpu_count": 1, "mem_size_mib": 128})
    t.eq(len(os.listdir(f"/proc/{vm.pid}/fd")), before, "descriptors")
    t.file("disk", size=MIB)
    api.start()
    vm.wait_output(b"parked\n")
    ends(t, vm)
    t.eq(vm.report["reason"], "request", "reason")


@case("run_starts_that_fail_late_take_all_down_again")
def failed_late(t):
    """The initrd does not fit: by then every device and vCPU is there."""
    vm, api = monitor(t)
    initrd = t.file("initrd", b"x", size=256 * MIB)
    api.drive("a", t.file("disk", size=MIB))
    api.ok("PUT", "/vsock", {"guest_cid": 3, "uds_path": t.path("v")})
    api.ok("PUT", "/entropy", {})
    api.ok("PUT", "/mote", {"virtio_console": True})
    api.ok("PUT", "/balloon", {"amount_mib": 1, "deflate_on_oom": True,
                               "stats_polling_interval_s": 1})
    api.ok("PUT", "/machine-config", {"vcpu_count": 4, "mem_size_mib": 128})
    source = {"kernel_image_path": t.host.payload("park")}
    api.ok("PUT", "/boot-source", {**source, "initrd_path": initrd})
    before = len(os.listdir(f"/proc/{vm.pid}/fd"))
    for _ in range(10):
        api.bad("PUT", "/actions", {"action_type": "InstanceStart"}, "initrd")
        t.check(not os.path.lexists(t.path("v")), "the vsock's file is left")
    t.eq(api.state(), "Not started", "state")
    t.eq(len(os.listdir(f"/proc/{vm.pid}/fd")), before, "descriptors")
    t.eq(len(os.listdir(f"/proc/{vm.pid}/task")), 1, "threads")
    api.ok("PUT", "/boot-source", source)
    api.start()
    vm.wait_output(b"parked\n")
    ends(t, vm)


@case("run_only_once")
def once(t):
    vm, api = parked(t)
    t.eq(api.bad("PUT", "/actions", {"action_type": "InstanceStart"}), AFTER,
         "a second start")
    disk = t.file("disk", size=MIB)
    for path, body in (
            ("/machine-config", {"vcpu_count": 1, "mem_size_mib": 128}),
            ("/boot-source", {"kernel_image_path": t.host.payload("exit")}),
            ("/drives/a", {"drive_id": "a", "path_on_host": disk,
                           "is_root_device": False}),
            ("/network-interfaces/a", {"iface_id": "a",
                                       "host_dev_name": "tap0"}),
            ("/vsock", {"guest_cid": 3, "uds_path": "v"}), ("/entropy", {}),
            ("/serial", {}), ("/logger", {}), ("/mote", {}),
            ("/metrics", {"metrics_path": "m"}),
            ("/balloon", {"amount_mib": 1, "deflate_on_oom": False})):
        t.eq(api.bad("PUT", path, body), AFTER, path)
    t.eq(api.bad("PATCH", "/machine-config", {"vcpu_count": 2}), AFTER,
         "PATCH")
    t.eq(api.state(), "Running", "state")
    ends(t, vm)


@case("run_with_a_file_and_a_socket")
def both(t):
    config = t.config(t.host.payload("park"), vsock="v.sock", rng=True)
    vm = launch(t, config=config)
    api = connect(t, vm)
    t.eq(api.state(), "Running", "state")
    view = api.get("/vm/config")
    t.eq(view["boot-source"], config["boot-source"], "boot-source")
    t.eq(view["vsock"], config["vsock"], "vsock")
    t.eq(api.bad("PUT", "/entropy", {}), AFTER, "PUT")
    vm.wait_output(b"parked\n")
    ends(t, vm)


@case("run_the_same_again_from_vm_config")
def again(t):
    vm, api = parked(t, cpus=2)
    view = api.get("/vm/config")
    ends(t, vm)
    vm = launch(t, config=view)
    vm.wait_output(b"parked\n")
    t.eq(connect(t, vm).get("/vm/config"), view, "the configuration")
    ends(t, vm)


@case("run_serial_port_to_a_file")
def serial(t):
    vm, api = monitor(t)
    api.boot_source("serial_out")
    api.bad("PUT", "/serial", {"serial_out_path": "/nowhere/x"}, "/nowhere/x")
    api.ok("PUT", "/serial", {"serial_out_path": t.path("out")})
    api.start()
    vm.wait()
    t.eq(vm.out, b"", "standard output")
    t.check(len(t.read("out")) > 0, "the file is empty")


# --- pause -----------------------------------------------------------------

@case("run_pause_stops_the_vcpus_and_resume_goes_on")
def pause(t):
    vm, api = monitor(t)
    api.ok("PUT", "/machine-config", {"vcpu_count": 2, "mem_size_mib": 128})
    api.boot_source("compute", f"loops={1 << 62}")
    api.start()
    deadline = time.monotonic() + PATIENCE
    while vm.cpu_seconds() < 0.2:
        t.check(time.monotonic() < deadline, "the guest does not run")
    for _ in range(3):
        api.pause()
        api.pause()  # idempotent
        t.eq(api.state(), "Paused", "state")
        before = vm.cpu_seconds()
        time.sleep(MEASURED)  # a measurement, nobody is waited for
        used = vm.cpu_seconds() - before
        t.check(used < 0.1 * MEASURED, f"{used:.3f} s of CPU while paused")
        api.resume()
        api.resume()
        t.eq(api.state(), "Running", "state")
        before = vm.cpu_seconds()
        deadline = time.monotonic() + PATIENCE
        while vm.cpu_seconds() < before + 0.05:
            t.check(time.monotonic() < deadline, "the guest does not go on")
    for body, word in (({"state": "Off"}, "Paused or Resumed"),
                       ({"state": 1}, "Paused or Resumed"),
                       ({"state": "Paused", "x": 1}, "unknown field `x`"),
                       ({}, "missing field `state`")):
        api.bad("PATCH", "/vm", body, word)
    ends(t, vm)


def pause_rain(t, payload, words, set_up, cpus=1):
    """Pauses rain on a guest that works; its result is right. How many."""
    vm, api = monitor(t)
    api.ok("PUT", "/machine-config", {"vcpu_count": cpus,
                                      "mem_size_mib": 128})
    if set_up:
        set_up(t, api)
    api.boot_source(payload, words)
    api.start()
    rounds = 0
    while vm.process.poll() is None and rounds < 3000:
        try:
            api.pause()
            api.resume()
        except (OSError, http.client.HTTPException):
            break  # it has come to its end
        rounds += 1
    t.judge(vm)
    return rounds


def one_disk(t, api):
    api.drive("a", t.file("disk", size=MIB))


CASES.add("run_pauses_rain_on_a_disk", pause_rain, "blk_rw",
          f"sectors={MIB // 512}", one_disk)
CASES.add("run_pauses_rain_on_four_vcpus", pause_rain, "smp", "cpus=4", None,
          4)

@case("run_pauses_rain_on_a_computation")
def pause_compute(t):
    loops = 1 << (19 if t.host.emulated else 30)
    rounds = pause_rain(t, "compute", f"loops={loops}", None)
    t.check(rounds > 10, f"only {rounds} pauses before its end")


@case("run_ends_while_paused")
def end_paused(t):
    vm, api = parked(t, cpus=4)
    api.pause()
    ends(t, vm)
    t.eq(vm.report["reason"], "request", "reason")


@case("BL_028_300_cycles_leak_nothing")
def cycles(t):
    disks = [t.file(f"disk{i}", size=MIB * (i + 1)) for i in range(2)]

    def set_up(api):
        api.ok("PUT", "/vsock", {"guest_cid": 3, "uds_path": t.path("v")})
        api.drive("a", disks[0])
    vm, api = parked(t, set_up=set_up)

    def fds():
        return sorted(os.listdir(f"/proc/{vm.pid}/fd"))

    before = fds()
    for i in range(1, 301):
        api.pause()
        api.ok("PATCH", "/drives/a", {"drive_id": "a",
                                      "path_on_host": disks[i % 2]})
        s = socket.socket(socket.AF_UNIX)
        s.connect(t.path("v"))
        s.sendall(b"CONNECT 1024\n")
        api.resume()
        s.close()
    deadline = time.monotonic() + PATIENCE
    while len(fds()) != len(before):
        t.check(time.monotonic() < deadline,
                f"{len(fds())} descriptors, {len(before)} before")
        api.get("/")
    ends(t, vm)


# --- the rest --------------------------------------------------------------

@case("run_ctrl_alt_del_reaches_the_guest")
def keys(t):
    vm, api = monitor(t)
    api.boot_source("keys")
    api.start()
    vm.wait_output(b"ready\n")
    api.ok("PUT", "/actions", {"action_type": "SendCtrlAltDel"})
    t.judge(vm)


@case("run_ctrl_alt_del_that_nobody_reads")
def no_keys(t):
    vm, api = parked(t)
    api.ok("PUT", "/actions", {"action_type": "SendCtrlAltDel"})
    api.bad("PUT", "/actions", {"action_type": "SendCtrlAltDel"},
            "keyboard driver")
    ends(t, vm)


@case("run_flush_metrics")
def flush(t):
    vm, api = parked(t, set_up=lambda a: a.ok(
        "PUT", "/metrics", {"metrics_path": t.path("m")}))

    def lines():
        return [json.loads(x) for x in t.read("m").splitlines()]

    for n in range(1, 4):
        api.get("/version")
        api.ok("PUT", "/actions", {"action_type": "FlushMetrics"})
        t.eq(len(lines()), n, "lines")
        t.eq(lines()[-1]["get_api_requests"]["vmm_version_count"],
             2 if n == 1 else 1, "requests since the line before")
    # While the VM is paused its metrics wait.
    api.pause()
    api.ok("PUT", "/actions", {"action_type": "FlushMetrics"})
    t.eq(len(lines()), 3, "lines while paused")
    api.resume()
    ends(t, vm)
    t.eq(len(lines()), 4, "lines at the end")
    vm, api = parked(t)
    api.bad("PUT", "/actions", {"action_type": "FlushMetrics"}, "metrics_path")


@case("run_devices_that_are_not_there")
def no_devices(t):
    vm, api = parked(t)
    api.bad("PATCH", "/drives/a", {"drive_id": "a", "path_on_host": "/x"},
            "drives: there is no device with the ID a")
    api.bad("PATCH", "/network-interfaces/e", {"iface_id": "e"},
            "there is no device with the ID e")
    for method, path, body in (
            ("PATCH", "/balloon", {"amount_mib": 1}),
            ("GET", "/balloon", None), ("GET", "/balloon/statistics", None),
            ("PATCH", "/balloon/statistics", {"stats_polling_interval_s": 1}),
            ("PATCH", "/balloon/hinting/start", None),
            ("PATCH", "/balloon/hinting/stop", None),
            ("GET", "/balloon/hinting/status", None)):
        api.bad(method, path, body, "There is no balloon device.")
    for path in ("/drives/a", "/network-interfaces/a"):
        api.bad("DELETE", path, None, "not supported by this version")
    ends(t, vm)


@case("BL_035_requests_are_answered_while_the_guest_works")
def answered(t):
    vm, api = monitor(t)
    api.boot_source("compute", f"loops={1 << 62}")
    api.start()
    worst = 0.0
    for _ in range(50):
        began = time.monotonic()
        api.get("/")
        worst = max(worst, time.monotonic() - began)
    t.check(worst < 1.0, f"{worst:.3f} s for GET /")
    ends(t, vm)


class TapSpace:
    """A network namespace in which monitors make TAPs; without root: none."""

    def __init__(self):
        self.process = None
        if os.geteuid() == 0 and os.path.exists("/dev/net/tun"):
            self.process = subprocess.Popen(
                ["unshare", "-n", "sh", "-c", "echo up; read x"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.process.stdout.readline()

    def __bool__(self):
        return self.process is not None

    @property
    def enter(self):
        return ["nsenter", f"--net=/proc/{self.process.pid}/ns/net"]

    def links(self):
        said = subprocess.run([*self.enter, "ip", "-o", "link"], check=True,
                              capture_output=True, text=True).stdout
        return [line.split(":")[1].strip() for line in said.splitlines()]

    def close(self):
        if self.process:
            self.process.communicate(b"\n")


def processes_about(path):
    """Those with `path` in their command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if path.encode() in f.read() and int(pid) != os.getpid():
                    found.append(int(pid))
        except OSError:
            pass
    return found


@case("BL_015_a_hundred_at_once_leave_nothing")
def many(t):
    """Each with a disk, a TAP, and sockets for its API, vsock and console."""
    disk = t.file("disk", size=MIB)
    kept = set(os.listdir(t.dir))
    fds = len(os.listdir("/proc/self/fd"))
    space = TapSpace()
    vms = [launch(t, wrap=space.enter if space else (), exit_file=False)
           for _ in range(100)]
    for i, vm in enumerate(vms):
        api = connect(t, vm)
        api.boot_source("park")
        api.drive("a", disk, is_read_only=True)
        api.ok("PUT", "/vsock", {"guest_cid": 3, "uds_path": t.path(f"v{i}")})
        api.ok("PUT", "/mote", {"console_ports": [
            {"name": "p", "path": t.path(f"p{i}")}]})
        if space:
            api.ok("PUT", "/network-interfaces/n", {
                "iface_id": "n", "host_dev_name": f"t{i}",
                "mote": {"create": True}})
        api.start()
        api.connection.close()
    for vm in vms:
        vm.wait_output(b"parked\n")
    if space:
        t.eq(len(space.links()), 101, "TAPs and lo while they run")
    t.check(len(processes_about(t.dir)) >= 100, "not all of them run")
    for vm in vms:
        vm.process.terminate()
    for vm in vms:
        t.eq(vm.wait(), 0, "exit code")
        vm.process.stdout.close()
        os.unlink(vm.err_path)
    t.eq(set(os.listdir(t.dir)) - kept, set(), "files that are left")
    t.eq(processes_about(t.dir), [], "processes that are left")
    if space:
        t.eq(space.links(), ["lo"], "interfaces that are left")
    space.close()
    if space:
        space.process.stdout.close()
    t.eq(len(os.listdir("/proc/self/fd")), fds, "descriptors of the client")
