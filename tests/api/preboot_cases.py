# SPDX-License-Identifier: Apache-2.0
"""Describing a machine by the control socket, before it is started."""

import gzip
import json
import os
import re
import select
import struct
import subprocess
import time
import zlib

from client import BEFORE, BODY, connect, ends, launch, monitor
from harness import Cases, PATIENCE

CASES = Cases()
MIB = 1 << 20


def case(name):
    return CASES.case(name, kvm=False)


# --- what can be read ------------------------------------------------------

@case("pre_instance_and_version")
def instance(t):
    _, api = monitor(t, ["--id", "my-vm"])
    t.eq(api.get("/"), {"id": "my-vm", "state": "Not started",
                        "vmm_version": "1.17.0", "app_name": "Firecracker"},
         "instance")
    t.eq(api.get("/version"), {"firecracker_version": "1.17.0"}, "version")
    _, api = monitor(t)
    t.eq(api.get("/")["id"], "anonymous-instance", "default id")


@case("pre_machine_config")
def machine_config(t):
    _, api = monitor(t)
    want = {"vcpu_count": 1, "mem_size_mib": 128, "smt": False,
            "track_dirty_pages": False, "huge_pages": "None"}
    t.eq(api.get("/machine-config"), want, "defaults")
    api.ok("PUT", "/machine-config", {"vcpu_count": 4, "mem_size_mib": 512})
    api.ok("PATCH", "/machine-config", {"mem_size_mib": 1024})
    want.update(vcpu_count=4, mem_size_mib=1024)
    t.eq(api.get("/machine-config"), want, "after PUT and PATCH")
    api.ok("PATCH", "/machine-config", {"vcpu_count": 2, "smt": False})
    # PUT says all of it again: what it leaves out is at its default.
    r = api.ok("PUT", "/machine-config",
               {"vcpu_count": 1, "mem_size_mib": 128, "cpu_template": "None"})
    t.eq(r.headers["Deprecation"], "true", "deprecated field")
    for body, word in (
            ({"vcpu_count": 33}, "vcpu_count: must be a whole number from 1"),
            ({"vcpu_count": 0}, "vcpu_count"),
            ({"vcpu_count": "1"}, "vcpu_count"),
            ({"vcpu_count": 1.5}, "vcpu_count"),
            ({"mem_size_mib": 0}, "mem_size_mib"),
            ({"mem_size_mib": -1}, "mem_size_mib"),
            ({"mem_size_mib": 1 << 40}, "mem_size_mib"),
            ({"smt": True}, "smt: not supported"),
            ({"cpu_template": "T2"}, "cpu_template: not supported"),
            ({"huge_pages": "2M"}, "huge_pages: not supported"),
            ({"vcpus": 1}, "vcpus: unknown field"),
            ({}, "Empty PATCH request."),
    ):
        api.bad("PATCH", "/machine-config", body, word)
    api.bad("PUT", "/machine-config", {"vcpu_count": 1},
            BODY + ": missing field `mem_size_mib`")
    api.bad("PUT", "/machine-config", {"mem_size_mib": 128},
            "missing field `vcpu_count`")
    t.eq(api.get("/machine-config")["vcpu_count"], 1, "after refusals")


# --- routes, bodies, ids ---------------------------------------------------

@case("pre_unknown_routes")
def routes(t):
    _, api = monitor(t)
    for method, path in (
            ("GET", "/nope"), ("POST", "/actions"), ("PUT", "/"),
            ("DELETE", "/machine-config"), ("GET", "/version/"),
            ("GET", "/vm/configs"), ("PATCH", "/boot-source"),
            ("PUT", "/drives/a/b"), ("GET", "/drives/a"), ("OPTIONS", "/"),
            ("put", "/actions"), ("GET", "/balloon/hinting")):
        body = "{}" if method in ("PUT", "PATCH", "POST", "put") else None
        t.eq(api.bad(method, path, body),
             f"Invalid request method and/or path: {method} {path}.",
             "message")


@case("pre_bodies_where_there_should_be_none_and_the_reverse")
def bodies(t):
    _, api = monitor(t)
    t.eq(api.bad("GET", "/", "{}"), "GET request cannot have a body.", "GET")
    t.eq(api.bad("PUT", "/actions", None), "Empty PUT request.", "PUT")
    t.eq(api.bad("PATCH", "/vm", None), "Empty PATCH request.", "PATCH")
    t.eq(api.bad("DELETE", "/drives/a", "{}"), "Empty Delete request.",
         "DELETE")
    for body in ("{", "", "[]", "1", '"a"', "null", '{"a":1}{', "{'a':1}",
                 '{"state":"Paused","state":"Paused"}', b"\xff\xfe",
                 b'{"a":"\xc3\x28"}', '{"a":"\x00"}', "[" * 5000):
        if body == "":
            continue
        api.bad("PUT", "/machine-config", body, BODY + ": ")
    t.eq(api.state(), "Not started", "state")


@case("pre_ids")
def ids(t):
    _, api = monitor(t)
    disk = t.file("disk", size=MIB)
    for kind, key in (("drives", "drive_id"), ("network-interfaces",
                                               "iface_id")):
        for path in (f"/{kind}/", f"/{kind}"):
            t.eq(api.bad("PUT", path, {}), "The ID cannot be empty.", path)
        for bad in ("a-b", "a%20b", "a.b", "..", "a" * 62 + "-"):
            t.eq(api.bad("PUT", f"/{kind}/{bad}", {key: bad}),
                 "API Resource IDs can only contain alphanumeric characters "
                 "and underscores.", bad)
        api.bad("PUT", f"/{kind}/a", {key: "b"},
                "The id from the path [a] does not match the id from the "
                "body [b]")
    api.drive("A_9", disk)
    api.bad("PUT", "/drives/a", {"drive_id": 7, "is_root_device": False,
                                 "path_on_host": disk}, "drive_id")


@case("pre_requests_for_a_machine_that_runs")
def phases(t):
    _, api = monitor(t)
    for method, path, body in (
            ("PATCH", "/vm", {"state": "Paused"}),
            ("PATCH", "/drives/a", {"drive_id": "a"}),
            ("PATCH", "/network-interfaces/a", {"iface_id": "a"}),
            ("PATCH", "/balloon", {"amount_mib": 1}),
            ("GET", "/balloon/statistics", None),
            ("PATCH", "/balloon/statistics", {"stats_polling_interval_s": 1}),
            ("PATCH", "/balloon/hinting/start", {}),
            ("PATCH", "/balloon/hinting/start", None),
            ("PATCH", "/balloon/hinting/stop", {}),
            ("GET", "/balloon/hinting/status", None),
            ("DELETE", "/drives/a", None),
            ("PUT", "/actions", {"action_type": "FlushMetrics"}),
            ("PUT", "/actions", {"action_type": "SendCtrlAltDel"})):
        t.eq(api.bad(method, path, body), BEFORE, f"{method} {path}")


@case("BL_105_what_is_not_supported_is_refused")
def unsupported(t):
    _, api = monitor(t)
    disk = t.file("disk", size=MIB)
    for method, path in (("PUT", "/cpu-config"), ("PUT", "/pmem/a"),
                         ("PATCH", "/pmem/a"), ("PUT", "/hotplug/memory"),
                         ("PATCH", "/hotplug/memory")):
        api.bad(method, path, {}, "not supported by this version")
    api.bad("GET", "/hotplug/memory", None, "not supported by this version")
    drive = {"drive_id": "a", "is_root_device": False, "path_on_host": disk}
    for path, body, word in (
            ("/drives/a", {**drive, "socket": "/s"}, "socket: not supported"),
            ("/drives/a", {**drive, "nope": 1}, "nope: unknown field"),
            ("/drives/a", {**drive, "is_read_only": 1}, "is_read_only"),
            ("/entropy", {"rate_limiter": {}}, "rate_limiter: not supported"),
            ("/entropy", {"x": 1}, "entropy.x: unknown field"),
            ("/vsock", {"guest_cid": 3, "uds_path": "v", "x": 1}, "vsock.x"),
            ("/vsock", {"guest_cid": 2, "uds_path": "v"}, "guest_cid"),
            ("/vsock", {"guest_cid": 3}, "missing field `uds_path`"),
            ("/serial", {"x": 1}, "serial.x"),
            ("/serial", {"rate_limiter": {}}, "rate_limiter: not supported"),
            ("/logger", {"x": 1}, "logger.x"),
            ("/logger", {"level": "loud"}, "level"),
            ("/logger", {"module": ""}, "module: must be"),
            ("/logger", {"show_log_origin": 1}, "show_log_origin"),
            ("/metrics", {}, "missing field `metrics_path`"),
            ("/metrics", {"metrics_path": "m", "x": 1}, "metrics.x"),
            ("/balloon", {"amount_mib": 1}, "missing field `deflate_on_oom`"),
            ("/balloon", {"amount_mib": 1, "deflate_on_oom": False, "x": 1},
             "balloon.x"),
            ("/boot-source", {"kernel_image_path": "/k", "x": 1},
             "boot-source.x: unknown field"),
            ("/boot-source", {}, "missing field `kernel_image_path`"),
            ("/actions", {}, "missing field `action_type`"),
            ("/actions", {"action_type": "Nope"}, "action_type"),
            ("/actions", {"action_type": "FlushMetrics", "payload": 1},
             "unknown field `payload`")):
        api.bad("PUT", path, body, word)
    view = api.get("/vm/config")
    t.eq({k: v for k, v in view.items() if v and k != "machine-config"}, {},
         "what the refusals left")


# --- kernel, drives and the rest -------------------------------------------

@case("BL_002_wrong_kernels_and_then_a_right_one")
def kernels(t):
    _, api = monitor(t)
    with open(t.host.payload("exit"), "rb") as f:
        elf = f.read()
    bad = {"zip": gzip.compress(elf), "empty": b"", "text": b"#!/bin/sh\n",
           "elf32": elf[:4] + b"\x01" + elf[5:]}
    for name, data in bad.items():
        path = t.file(name, data)
        api.bad("PUT", "/boot-source", {"kernel_image_path": path}, path)
    api.bad("PUT", "/boot-source", {"kernel_image_path": t.dir}, t.dir)
    api.bad("PUT", "/boot-source", {"kernel_image_path": "/nope"}, "/nope")
    api.bad("PUT", "/boot-source", {
        "kernel_image_path": t.host.payload("exit"), "initrd_path": "/nope"},
        "initrd_path /nope")
    t.eq(api.get("/vm/config")["boot-source"], None, "boot-source")
    api.bad("PUT", "/actions", {"action_type": "InstanceStart"},
            "kernel_image_path")
    api.boot_source("exit")


@case("BL_005_over_long_boot_args_are_refused")
def long_args(t):
    _, api = monitor(t)
    body = {"kernel_image_path": t.host.payload("exit")}
    api.bad("PUT", "/boot-source", {**body, "boot_args": "a" * 5000},
            "command line")
    api.bad("PUT", "/boot-source", {**body, "boot_args": "a\nb"})
    api.ok("PUT", "/boot-source", {**body, "boot_args": "a" * 1000})


@case("pre_drives_replace_each_other_by_id")
def drives(t):
    _, api = monitor(t)
    one, two = t.file("one", size=MIB), t.file("two", size=MIB)
    api.drive("a", one)
    api.drive("b", one, is_read_only=True)
    api.drive("a", two)
    view = api.get("/vm/config")["drives"]
    t.eq([(d["drive_id"], d["path_on_host"]) for d in view],
         [("a", two), ("b", one)], "drives")
    api.drive("a", two, is_root_device=True)
    api.bad("PUT", "/drives/b", {"drive_id": "b", "path_on_host": one,
                                 "is_root_device": True}, "is_root_device")
    api.bad("PUT", "/drives/b", {"drive_id": "b", "path_on_host": "/nope",
                                 "is_root_device": False},
            "path_on_host /nope: No such file")
    api.bad("PUT", "/drives/b", {"drive_id": "b", "is_root_device": False},
            "path_on_host")
    t.eq(len(api.get("/vm/config")["drives"]), 2, "drives after refusals")
    for i in range(14):
        api.drive(f"d{i}", one, is_read_only=True)
    api.bad("PUT", "/drives/one_more", {
        "drive_id": "one_more", "path_on_host": one, "is_root_device": False},
        "16 at most")


@case("BL_023_vsock_path_of_107_and_108_bytes")
def vsock(t):
    _, api = monitor(t)
    r = api.ok("PUT", "/vsock", {"guest_cid": 3, "uds_path": "/" + "v" * 106,
                                 "vsock_id": "1"})
    t.eq(r.headers["Deprecation"], "true", "vsock_id")
    api.bad("PUT", "/vsock", {"guest_cid": 3, "uds_path": "/" + "v" * 107},
            "107")
    api.ok("PUT", "/vsock", {"guest_cid": 4, "uds_path": "v.sock"})
    t.eq(api.get("/vm/config")["vsock"],
         {"guest_cid": 4, "uds_path": "v.sock"}, "the last one")


@case("pre_order_of_sections_does_not_matter")
def order(t):
    _, api = monitor(t)
    # More than the default memory: it is the final size that counts.
    api.ok("PUT", "/balloon", {"amount_mib": 300, "deflate_on_oom": True})
    t.eq(api.get("/balloon")["amount_mib"], 300, "balloon")
    api.boot_source("exit")
    api.bad("PUT", "/actions", {"action_type": "InstanceStart"}, "balloon",
            "amount_mib")
    api.ok("PUT", "/machine-config", {"vcpu_count": 1, "mem_size_mib": 512})
    _, api = monitor(t)
    api.bad("GET", "/balloon", None, "no balloon")


@case("pre_config_can_be_fed_back_as_a_file")
def fed_back(t):
    _, api = monitor(t)
    api.drive("a", t.file("disk", size=MIB))
    api.ok("PUT", "/vsock", {"guest_cid": 3, "uds_path": "v.sock"})
    api.ok("PUT", "/entropy", {})
    api.ok("PUT", "/balloon", {"amount_mib": 1, "deflate_on_oom": False})
    api.ok("PUT", "/machine-config", {"vcpu_count": 2, "mem_size_mib": 256})
    api.ok("PUT", "/logger", {"log_path": t.path("log"), "level": "Debug"})
    api.ok("PUT", "/metrics", {"metrics_path": t.path("metrics")})
    api.ok("PUT", "/serial", {"serial_out_path": t.path("serial")})
    api.ok("PUT", "/mote", {"virtio_console": True})
    api.boot_source("exit")
    view = api.get("/vm/config")
    t.file("again.json", json.dumps(view).encode())
    p = subprocess.run([t.host.vmm, "--config-file", "again.json", "--check"],
                       cwd=t.dir, capture_output=True, timeout=PATIENCE,
                       check=False)
    t.eq((p.returncode, p.stderr), (0, b""), "--check of it")
    for name in ("balloon", "drives", "boot-source", "cpu-config", "logger",
                 "machine-config", "metrics", "mmds-config",
                 "network-interfaces", "vsock", "entropy", "pmem",
                 "memory-hotplug"):
        t.check(name in view, f"no {name} in /vm/config")


# --- logger and metrics ----------------------------------------------------

LINE = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9} "


def take(fd):
    """What a FIFO has now."""
    got = b""
    while select.select([fd], [], [], 0)[0]:
        data = os.read(fd, 1 << 16)
        if not data:
            break
        got += data
    return got


@case("BL_020_fifos_that_nobody_reads")
def fifos(t):
    _, api = monitor(t)
    log, metrics = t.path("log"), t.path("metrics")
    os.mkfifo(log)
    os.mkfifo(metrics)
    began = time.monotonic()
    api.ok("PUT", "/logger", {"log_path": log, "level": "Debug",
                              "show_level": True})
    api.ok("PUT", "/metrics", {"metrics_path": metrics})
    t.check(time.monotonic() - began < 10, "a PUT waits for a reader")
    for _ in range(2000):  # far more than a FIFO holds
        api.get("/version")
    # A reader that comes late finds the oldest lines, whole.
    fd = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    lines = take(fd).split(b"\n")
    os.close(fd)
    t.check(len(lines) > 100, f"{len(lines)} lines in the FIFO")
    t.eq(lines[-1], b"", "end of the last line")
    for line in lines[:-1]:
        t.check(re.fullmatch(LINE + rb"\[anonymous-instance:main:DEBUG\] "
                             rb"API: .*", line), f"line {line!r}")


@case("BL_021_log_lines_come_at_once")
def at_once(t):
    vm, api = monitor(t)
    log = t.path("log")
    api.ok("PUT", "/logger", {"log_path": log, "level": "Debug"})
    for i in range(10):
        api.call("GET", f"/nope{i}")
        t.check(f"/nope{i}".encode() in t.read("log"), "no line yet")
    # Repeated: what is left out stays, the level falls back to Info.
    api.ok("PUT", "/logger", {"show_level": True})
    api.call("GET", "/version")
    api.call("GET", "/other")
    text = t.read("log")
    t.check(b"/version" not in text, "a line of level Debug")
    t.check(b":main:INFO] API: 400: Invalid request method" in
            text.splitlines()[-1], "the last line")
    api.bad("PUT", "/logger", {"log_path": "/nowhere/log"}, "/nowhere/log")
    api.call("GET", "/yet_another")
    t.check(b"/yet_another" in t.read("log"), "the old log goes on")
    ends(t, vm)


@case("pre_log_lines_are_firecracker_s")
def log_form(t):
    """The form of a line by what is asked for, and the filter by module."""
    vm, api = monitor(t, ["--id", "l-1", "--log-path", "log", "--level",
                          "Debug", "--show-level", "--show-log-origin"])

    def last():
        return t.read("log").splitlines()[-1]

    def is_like(form):
        t.check(re.fullmatch(LINE + form, last()), f"line {last()!r}")

    api.call("GET", "/nope")
    is_like(rb"\[l-1:main:INFO:vmm/api_routes\.c:\d+\] API: 400: .*")
    # What is left out stays, wherever it was said.
    api.ok("PUT", "/logger", {"show_level": False})
    api.call("GET", "/nope")
    is_like(rb"\[l-1:main:vmm/api_routes\.c:\d+\] API: 400: .*")
    api.ok("PUT", "/logger", {"show_log_origin": False})
    api.call("GET", "/nope")
    is_like(rb"\[l-1:main\] API: 400: .*")
    n = len(t.read("log"))
    api.ok("PUT", "/logger", {"module": "devices/"})
    api.call("GET", "/nope")
    t.eq(len(t.read("log")), n, "bytes of the log, lines of devices only")
    api.ok("PUT", "/logger", {"module": "vmm/api"})
    api.call("GET", "/nope")
    t.check(len(t.read("log")) > n, "no line of vmm/api")
    ends(t, vm)


@case("pre_metrics_lines")
def metrics(t):
    vm, api = monitor(t, ["--id", "m1"])
    api.bad("PUT", "/metrics", {"metrics_path": "/nowhere/m"}, "/nowhere/m")
    api.ok("PUT", "/metrics", {"metrics_path": t.path("m"), "emit_id": True,
                               "properties": {"zone": "a"}})
    api.bad("PUT", "/metrics", {"metrics_path": t.path("n")}, "already")
    t.check(not os.path.exists(t.path("n")), "the second file was made")
    api.get("/version")
    ends(t, vm)
    lines = t.read("m").splitlines()
    t.eq(len(lines), 1, "lines at the end")
    line = json.loads(lines[0])
    t.eq((line["id"], line["properties"]), ("m1", {"zone": "a"}), "labels")
    t.eq(line["put_api_requests"]["metrics_count"], 3, "PUT /metrics")
    t.eq(line["put_api_requests"]["metrics_fails"], 2, "refused")
    t.eq(line["get_api_requests"]["vmm_version_count"], 2, "GET /version")
    t.check(line["utc_timestamp_ms"] > 1700000000000, "time stamp")
    t.eq(set(line["logger"].values()), {0}, "lost lines")


@case("pre_metrics_path_option")
def metrics_option(t):
    vm, api = monitor(t, ["--metrics-path", "m"])
    t.eq(api.get("/vm/config")["metrics"], {"metrics_path": "m"}, "section")
    api.bad("PUT", "/metrics", {"metrics_path": "n"}, "already")
    ends(t, vm)
    t.eq(len(t.read("m").splitlines()), 1, "lines at the end")


# --- the end ---------------------------------------------------------------

@case("pre_end_before_a_start")
def end(t):
    vm, _ = monitor(t)
    ends(t, vm)
    t.eq(vm.report["reason"], "request", "reason")
    t.eq(vm.report["detail"], "Terminated", "detail")
    t.eq(vm.err, "", "log")
    r, w = os.pipe()
    vm = launch(t, ["--lifeline-fd", str(r)], pass_fds=[r])
    connect(t, vm).get("/")
    os.close(r)
    os.close(w)
    t.eq(vm.wait(), 0, "exit code without its starter")


@case("pre_under_the_name_firecracker")
def as_firecracker(t):
    os.symlink(t.host.vmm, t.path("firecracker"))
    p = subprocess.run([t.path("firecracker"), "--version"],
                       capture_output=True, timeout=PATIENCE, check=False)
    t.check(p.stdout.startswith(b"Firecracker v1.17.0 (mote "),
            f"--version prints {p.stdout!r}")


@case("pre_versions_of_snapshots")
def versions_of_snapshots(t):
    def run(*words):
        p = subprocess.run([t.host.vmm, *words], capture_output=True,
                           timeout=PATIENCE, check=False)
        return p.returncode, p.stdout, p.stderr
    t.eq(run("--snapshot-version"), (0, b"v1.0.0\n", b""), "the version written")
    # An empty state: a header and its checksum (vmm/state.h).
    head = b"MOTESNAP" + struct.pack("<HHIQ", 1, 0, 0, 48) + bytes(20)
    state = head + struct.pack("<I", zlib.crc32(head))
    for name, data, code, said in (
            ("good", state, 0, b""), ("cut", state[:-1], 1, b"cut: "),
            ("newer", b"MOTESNAP\2" + state[9:], 1, b"newer: "),
            ("empty", b"", 1, b"empty: "), (None, b"", 1, b"nowhere: ")):
        path = t.path(name or "nowhere")
        if name:
            with open(path, "wb") as f:
                f.write(data)
        rc, out, err = run("--describe-snapshot", path)
        t.eq((rc, out), (code, b"" if code else b"v1.0.0\n"), f"of {name}")
        t.check(said in err, f"of {name}: {err!r}")
    t.eq(run("--describe-snapshot")[0], 153, "without a file")
