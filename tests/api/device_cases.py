# SPDX-License-Identifier: Apache-2.0
"""Devices of a running machine, changed by the control socket."""

import json
import os
import socket
import struct
import subprocess

from client import ends, monitor, parked
from harness import Cases, Skip

CASES = Cases()
MIB = 1 << 20
SECTOR = 512


def case(name):
    return CASES.case(name)


# --- drives ----------------------------------------------------------------

@case("a_running_monitor_opens_no_file_of_the_kernels")
def kernels_files(t):
    """Landlock: with /proc/self/mem code could be written."""
    vm, api = parked(t, ["--level", "Debug"], set_up=lambda a: a.drive(
        "a", t.file("disk", size=MIB)))
    if "landlock: in force" not in vm.err:
        raise Skip("no Landlock on this host")
    for path in ("/proc/self/mem", "/proc/version", "/sys/kernel/notes"):
        if os.path.exists(path):
            api.bad("PATCH", "/drives/a",
                    {"drive_id": "a", "path_on_host": path},
                    path, "Permission denied")
    ends(t, vm)


@case("BL_024_no_call_is_missing_in_the_filter")
def whole_life(t):
    """The C library is part of the program, so no other one can need more."""
    disks = [t.file(f"disk{i}", size=MIB * (i + 1)) for i in range(2)]

    def set_up(api):
        api.ok("PUT", "/vsock", {"guest_cid": 3, "uds_path": t.path("v")})
        api.ok("PUT", "/entropy", {})
        api.ok("PUT", "/balloon", {"amount_mib": 0, "deflate_on_oom": True,
                                   "stats_polling_interval_s": 1})
        api.ok("PUT", "/logger", {"log_path": t.path("log"),
                                  "level": "Debug"})
        api.ok("PUT", "/metrics", {"metrics_path": t.path("m")})
        api.drive("a", disks[0])
    vm, api = parked(t, cpus=2, set_up=set_up)
    with open(t.host.vmm, "rb") as f:
        head = f.read(4096)
    at, size, count = (struct.unpack_from("<Q", head, 32)[0],
                       *struct.unpack_from("<HH", head, 54))
    kinds = [struct.unpack_from("<I", head, at + i * size)[0]
             for i in range(count)]
    t.check(3 not in kinds, "the monitor has an interpreter")  # PT_INTERP
    os.rename(t.path("log"), t.path("log.1"))  # as logs are rotated
    for i in range(3):
        api.pause()
        api.ok("PATCH", "/drives/a", {"drive_id": "a",
                                      "path_on_host": disks[(i + 1) % 2]})
        api.ok("PATCH", "/balloon", {"amount_mib": i})
        api.ok("PATCH", "/balloon/statistics", {"stats_polling_interval_s": 2})
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(t.path("v"))
            s.sendall(b"CONNECT 1024\n")
        api.ok("PUT", "/actions", {"action_type": "FlushMetrics"})
        api.ok("PUT", "/actions", {"action_type": "FlushMetrics"})
        api.resume()
        api.again().get("/vm/config")
    ends(t, vm)
    t.check("forbidden" not in vm.err, vm.err)


@case("BL_031_drive_grown_swapped_and_shrunk_while_it_runs")
def change(t):
    vm, api = monitor(t)
    disk = t.file("disk", size=MIB)
    api.drive("a", disk)
    api.boot_source("blk_change", f"first={MIB // SECTOR} "
                    f"grown={65 * MIB // SECTOR} shrunk={MIB // 2 // SECTOR}")
    api.start()
    vm.wait_output(b"first\n")
    # Missing, unfit: 400, and the old one works (the guest goes on with it).
    t.file("empty")
    for path in ("/nope", t.path("empty"), t.dir):
        api.bad("PATCH", "/drives/a", {"drive_id": "a", "path_on_host": path},
                path)
        t.eq(api.get("/vm/config")["drives"][0]["path_on_host"], disk,
             "the path after a refusal")
    os.truncate(disk, 65 * MIB)
    api.ok("PATCH", "/drives/a", {"drive_id": "a", "path_on_host": disk})
    vm.wait_output(b"grown\n")
    other = t.file("other", size=MIB // 2)
    api.ok("PATCH", "/vm", {"state": "Paused"})  # else it may end before the GET
    api.ok("PATCH", "/drives/a", {"drive_id": "a", "path_on_host": other})
    t.eq(api.get("/vm/config")["drives"][0]["path_on_host"], other, "path")
    api.ok("PATCH", "/vm", {"state": "Resumed"})
    t.judge(vm)
    t.eq(os.path.getsize(disk), 65 * MIB, "size of the first file")
    t.eq(os.path.getsize(other), MIB // 2, "size of the second file")
    t.check(any(t.read("other")[-SECTOR:]), "the second file was not written")


def mote_disk(t, *words):
    return subprocess.run([os.path.join(os.path.dirname(t.host.vmm), "mote"), "disk",
                           *words], check=True, stdout=subprocess.PIPE).stdout


@case("run_cow_drive_swapped_under_the_filter")
def change_cow(t):
    vm, api = monitor(t)
    raw = [t.file(f"raw{i}", size=n) for i, n in enumerate((MIB, MIB, MIB // 2))]
    cow = [path + ".cow" for path in raw]
    for i in (0, 2):
        mote_disk(t, "create", "--base", raw[i], cow[i])
    api.bad("PUT", "/drives/a", {
        "drive_id": "a", "path_on_host": cow[0], "is_root_device": False,
        "mote": {"format": "qcow2"}}, "format")
    api.drive("a", cow[0], mote={"format": "cow"})
    api.boot_source("blk_change", f"first={MIB // SECTOR} "
                    f"grown={65 * MIB // SECTOR} shrunk={MIB // 2 // SECTOR}")
    api.start()
    vm.wait_output(b"first\n")
    for path in ("/nope", raw[1]):  # missing, not of the format
        api.bad("PATCH", "/drives/a", {"drive_id": "a", "path_on_host": path}, path)
    api.ok("PATCH", "/drives/a", {"drive_id": "a", "path_on_host": cow[0]})
    # Let go of, it becomes the base of a larger one.
    api.ok("PATCH", "/drives/a", {"drive_id": "a", "path_on_host": cow[2]})
    mote_disk(t, "create", "--base", cow[0] + ":cow", "--size", "65M", cow[1])
    api.ok("PATCH", "/drives/a", {"drive_id": "a", "path_on_host": cow[1]})
    vm.wait_output(b"grown\n")
    api.ok("PATCH", "/vm", {"state": "Paused"})
    api.ok("PATCH", "/drives/a", {"drive_id": "a", "path_on_host": cow[2]})
    api.ok("PATCH", "/vm", {"state": "Resumed"})
    t.judge(vm)
    for i in (0, 2):
        t.check(not any(t.read(f"raw{i}")), "a base was written")
    info = json.loads(mote_disk(t, "info", "--json", cow[2]))
    t.eq(info["allocated_bytes"], 65536, "what was written")


@case("run_drive_refusals")
def drive_refusals(t):
    disk = t.file("disk", size=MIB)
    vm, api = parked(t, set_up=lambda a: a.drive("a", disk))
    limit = {"bandwidth": {"size": 1, "refill_time": 1}}
    for body, word in (
            ({}, "missing field `drive_id`"),
            ({"drive_id": "b"}, "does not match"),
            ({"drive_id": "a"}, "neither path_on_host nor rate_limiter"),
            ({"drive_id": "a", "path_on_host": None}, "neither"),
            ({"drive_id": "a", "is_read_only": True},
             "unknown field `is_read_only`"),
            ({"drive_id": "a", "path_on_host": 1}, "path_on_host"),
            ({"drive_id": "a", "rate_limiter": 1}, "rate_limiter"),
            ({"drive_id": "a", "rate_limiter": {"x": 1}}, "x: unknown field"),
            ({"drive_id": "a", "rate_limiter": {"ops": {"size": 1}}}, "ops"),
            # All or nothing: the path is fine, the limiter is not.
            ({"drive_id": "a", "path_on_host": disk, "rate_limiter": 1},
             "rate_limiter")):
        api.bad("PATCH", "/drives/a", body, word)
    api.bad("PATCH", "/drives/zz", {"drive_id": "zz", "rate_limiter": limit},
            "there is no device with the ID zz")
    ends(t, vm)


@case("BL_037_drive_limits_are_changed_and_taken_off")
def drive_limits(t):
    disk = t.file("disk", size=MIB)
    bucket = {"size": 1 << 20, "refill_time": 100}
    vm, api = parked(t, set_up=lambda a: a.drive(
        "a", disk, rate_limiter={"bandwidth": bucket, "ops": bucket}))

    def limiter(body):
        api.ok("PATCH", "/drives/a", {"drive_id": "a", "rate_limiter": body})
        return api.get("/vm/config")["drives"][0]["rate_limiter"]

    off = {"size": 0, "refill_time": 0}
    t.eq(limiter({"ops": off}), {"bandwidth": bucket, "ops": off},
         "a bucket that is not named")
    t.eq(limiter({"bandwidth": off, "ops": None}),
         {"bandwidth": off, "ops": off}, "all off")
    ends(t, vm)


# --- network ---------------------------------------------------------------

@case("run_network_limits")
def network(t):
    s = socket.socket(socket.AF_UNIX)
    s.bind(t.path("net"))
    s.listen()
    bucket = {"size": 1000, "refill_time": 100}
    off = {"size": 0, "refill_time": 0}
    vm, api = parked(t, set_up=lambda a: a.ok(
        "PUT", "/network-interfaces/e", {
            "iface_id": "e", "mote": {"socket": t.path("net")},
            "tx_rate_limiter": {"ops": bucket}}))

    def limits(body):
        api.ok("PATCH", "/network-interfaces/e", {"iface_id": "e", **body})
        item = api.get("/vm/config")["network-interfaces"][0]
        return item.get("rx_rate_limiter"), item["tx_rate_limiter"]

    t.eq(limits({"rx_rate_limiter": {"bandwidth": bucket}}),
         ({"bandwidth": bucket}, {"ops": bucket}), "the other one stays")
    t.eq(limits({"tx_rate_limiter": {"ops": off}, "rx_rate_limiter": None}),
         ({"bandwidth": bucket}, {"ops": off}), "off")
    for body, word in (
            ({}, "missing field `iface_id`"),
            ({"iface_id": "e"}, "neither rx_rate_limiter nor"),
            ({"iface_id": "f"}, "does not match"),
            ({"iface_id": "e", "host_dev_name": "x"}, "unknown field"),
            ({"iface_id": "e", "tx_rate_limiter": 1}, "tx_rate_limiter"),
            ({"iface_id": "e", "tx_rate_limiter": {"x": 1}}, "unknown")):
        api.bad("PATCH", "/network-interfaces/e", body, word)
    ends(t, vm)


# --- balloon ---------------------------------------------------------------

@case("run_balloon")
def balloon(t):
    def set_up(stats):
        return lambda a: a.ok("PUT", "/balloon", {
            "amount_mib": 16, "deflate_on_oom": True,
            "stats_polling_interval_s": stats,
            "free_page_hinting": stats > 0})
    vm, api = parked(t, set_up=set_up(1))
    api.ok("PATCH", "/balloon", {"amount_mib": 32})
    t.eq(api.get("/balloon")["amount_mib"], 32, "target")
    t.eq(api.get("/vm/config")["balloon"]["amount_mib"], 32, "configuration")
    api.bad("PATCH", "/balloon", {"amount_mib": 129}, "128 MiB")
    api.bad("PATCH", "/balloon", {"amount_mib": "1"}, "amount_mib")
    api.bad("PATCH", "/balloon", {"amount_mib": 1, "deflate_on_oom": True},
            "unknown field `deflate_on_oom`")
    api.bad("PATCH", "/balloon", {}, "missing field `amount_mib`")
    t.eq(api.get("/balloon")["amount_mib"], 32, "target after refusals")
    t.eq(api.get("/balloon/statistics"), {
        "target_pages": 8192, "actual_pages": 0, "target_mib": 32,
        "actual_mib": 0}, "statistics without a driver")
    api.ok("PATCH", "/balloon/statistics", {"stats_polling_interval_s": 2})
    t.eq(api.get("/balloon")["stats_polling_interval_s"], 2, "interval")
    api.bad("PATCH", "/balloon/statistics", {"stats_polling_interval_s": 0},
            "turned on or off")
    for body in ({}, None, {"acknowledge_on_stop": True}):
        api.bad("PATCH", "/balloon/hinting/start", body, "driver")
    api.bad("PATCH", "/balloon/hinting/start", {"acknowledge_on_stop": 1},
            "true or false")
    api.bad("PATCH", "/balloon/hinting/stop", {"x": 1}, "unknown field")
    ends(t, vm)
    vm, api = parked(t, set_up=set_up(0))
    api.bad("GET", "/balloon/statistics", None, "not enabled")
    api.ok("PATCH", "/balloon/statistics", {"stats_polling_interval_s": 0})
    api.bad("PATCH", "/balloon/statistics", {"stats_polling_interval_s": 1},
            "turned on or off")
    api.bad("PATCH", "/balloon/hinting/start", {}, "not enabled")
    api.bad("GET", "/balloon/hinting/status", None, "not enabled")
    ends(t, vm)
