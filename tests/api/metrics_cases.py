# SPDX-License-Identifier: Apache-2.0
"""What the metrics say: the keys of vmm/metrics.md, and values that a guest
program causes."""

import fnmatch
import json
import os
import re
import select
import time

from client import connect, ends, launch, monitor, parked
from harness import Cases, Network, PATIENCE

CASES = Cases()
MIB = 1 << 20
SECTOR = 512
DOCUMENT = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))), "vmm", "metrics.md")
SPAN = {"min_us", "max_us", "sum_us"}
BUCKETS = 24
BALLOON = {"amount_mib": 0, "deflate_on_oom": True,
           "stats_polling_interval_s": 1, "free_page_hinting": True,
           "free_page_reporting": True}


def documented():
    """The keys in the first column of the table."""
    with open(DOCUMENT, encoding="utf-8") as f:
        rows = [line.split("|")[1] for line in f if line.startswith("| `")]
    return [key for row in rows for key in re.findall(r"`([^`]+)`", row)]


def leaves(t, value, path=()):
    """Dotted keys of what a line holds; a device's own group counts as its
    kind's."""
    if path == ("properties",) or not isinstance(value, dict):
        yield ".".join(path)
        return
    if path and path[-1].endswith("_agg"):
        t.eq(set(value), SPAN, ".".join(path))
        yield ".".join(path)
        return
    for key, inner in value.items():
        if not path:
            key = re.sub(r"^(block|net)_.*", r"\1", key)
        yield from leaves(t, inner, path + (key,))


def compare(t, line):
    patterns = documented()
    said = set(leaves(t, line))
    for key in said:
        hits = [p for p in patterns if fnmatch.fnmatchcase(key, p)]
        t.eq(len(hits), 1, f"rows of metrics.md about {key}")
    for pattern in patterns:
        t.check(fnmatch.filter(said, pattern),
                f"metrics.md has {pattern}, no line does")
    for key, h in line["mote"]["latency_us_log2"].items():
        t.eq(len(h), BUCKETS, f"buckets of {key}")


def lines(t, name="m"):
    return [json.loads(x) for x in t.read(name).splitlines()]


def set_metrics(t, api):
    api.ok("PUT", "/metrics", {"metrics_path": t.path("m"), "emit_id": True,
                               "properties": {"a": "b"}})


def run(t, payload, words="quiet", set_up=None, **options):
    """A guest program to its end -> its only line of metrics."""
    vm, api = monitor(t, **options)
    if os.path.exists(t.path("m")):
        os.unlink(t.path("m"))
    set_metrics(t, api)
    api.boot_source(payload, words)
    if set_up:
        set_up(api)
    api.start()
    t.judge(vm)
    (line,) = lines(t)
    return line


# --- the document ----------------------------------------------------------

@CASES.case("metrics_document_without_a_machine", kvm=False)
def keys_before(t):
    vm, api = monitor(t)
    set_metrics(t, api)
    ends(t, vm)
    (line,) = lines(t)
    compare(t, line)
    t.check(not [k for k in line if k.startswith(("block_", "net_"))],
            "groups of devices that are not there")


@CASES.case("metrics_document_with_every_device")
def keys_with_devices(t):
    disks = [t.file(n, size=MIB) for n in ("d1", "d2")]

    def set_up(api):
        set_metrics(t, api)
        for name, path in zip("ab", disks):
            api.drive(name, path)
        api.ok("PUT", "/network-interfaces/n0", {
            "iface_id": "n0", "mote": {"fd": net["net"]}})
        api.ok("PUT", "/vsock", {"guest_cid": 3, "uds_path": t.path("v")})
        api.ok("PUT", "/entropy", {})
        api.ok("PUT", "/balloon", BALLOON)

    with Network() as net:
        vm, api = monitor(t, pass_fds=net["pass_fds"])
        api.boot_source("park")
        set_up(api)
        api.start()
        vm.wait_output(b"parked\n")
        api.ok("PUT", "/actions", {"action_type": "FlushMetrics"})
        (line,) = lines(t)
        compare(t, line)
        t.eq({k for k in line if k.startswith(("block", "net"))},
             {"block", "block_a", "block_b", "net", "net_n0"}, "groups")
        ends(t, vm)
    t.eq(len(lines(t)), 2, "lines")
    t.eq(set(leaves(t, lines(t)[1])), set(leaves(t, line)), "keys at the end")


# --- what they count -------------------------------------------------------

@CASES.case("metrics_of_a_disk")
def disk(t):
    size = 64 * SECTOR
    path = t.file("disk", size=size)
    other = t.file("other", size=size)

    def set_up(api):
        api.drive("a", path)
        api.drive("b", other)

    line = run(t, "blk_rw", f"sectors={size // SECTOR}", set_up)
    a = line["block_a"]
    t.eq((a["write_count"], a["write_bytes"]), (3, 3 * 4 * SECTOR), "writes")
    t.eq((a["read_count"], a["read_bytes"]), (3, 2 * 4 * SECTOR + 1024),
         "reads")
    t.eq((a["flush_count"], a["execute_fails"], a["invalid_reqs_count"],
          a["event_fails"], a["activate_fails"]), (1, 0, 0, 0, 0), "others")
    t.check(a["queue_event_count"] > 0, "no kick")
    for name, n in (("read", 3), ("write", 3), ("flush", 1)):
        t.eq(sum(line["mote"]["latency_us_log2"]["block_" + name]), n,
             f"requests in the histogram of {name}")
    agg = a["write_agg"]
    t.check(0 <= agg["min_us"] <= agg["max_us"] <= agg["sum_us"] <= 60e6,
            f"time of writes {agg}")
    t.eq(line["block"], a, "the sum of a disk and an idle one")
    t.eq(line["block_b"]["queue_event_count"], 0, "the idle one's kicks")
    t.check(line["interrupts"]["triggers"] > 0, "no interrupt")
    t.check(line["vcpu"]["exit_io_out"] > 0, "no exit by a port")
    t.check(line["vcpu"]["exit_mmio_write"] > 0, "no exit by a register")
    out = line["vcpu"]["exit_io_out_agg"]
    t.check(out["min_us"] <= out["max_us"] <= out["sum_us"] + 1, f"{out}")


@CASES.case("metrics_of_requests_that_fail")
def bounds(t):
    path = t.file("disk", size=MIB)
    line = run(t, "blk_bounds", f"sectors={MIB // SECTOR}",
               lambda api: api.drive("a", path))
    t.check(line["block_a"]["invalid_reqs_count"] > 0, "none was refused")


@CASES.case("metrics_of_a_changed_drive")
def updated(t):
    path = t.file("disk", size=MIB)

    def set_up(api):
        set_metrics(t, api)
        api.drive("a", path)

    vm, api = parked(t, set_up=set_up)
    for _ in range(2):
        api.ok("PATCH", "/drives/a", {"drive_id": "a", "path_on_host": path})
    api.ok("PUT", "/actions", {"action_type": "FlushMetrics"})
    api.ok("PUT", "/actions", {"action_type": "FlushMetrics"})
    t.eq([x["block_a"]["update_count"] for x in lines(t)], [2, 0], "updates")
    ends(t, vm)


@CASES.case("metrics_of_entropy_and_ports")
def entropy(t):
    line = run(t, "rng", "quiet", lambda api: api.ok("PUT", "/entropy", {}))
    e = line["entropy"]
    t.eq((e["entropy_event_count"], e["entropy_bytes"]), (2, 128), "requests")
    line = run(t, "uart_regs")
    t.check(line["uart"]["write_count"] > 0 and
            line["uart"]["read_count"] > 0, "no access of the serial port")


@CASES.case("metrics_of_a_reset_and_a_failure")
def ends_of_vms(t):
    for payload, code, count in (
            ("reset", 0, ("i8042", "reset_count")),
            ("triple_fault", 21, ("vcpu", "failures"))):
        vm = t.start(t.config(t.host.payload(payload)),
                     args=["--metrics-path", payload])
        t.eq(vm.wait(), code, "exit code")
        (line,) = lines(t, payload)
        t.eq(line[count[0]][count[1]], 1, ".".join(count))


@CASES.case("metrics_of_the_balloon")
def balloon(t):
    r, w = os.pipe()
    os.write(w, b"12")  # its two questions, answered ahead
    try:
        line = run(t, "balloon", "do=inflate", lambda api: api.ok(
            "PUT", "/balloon", {"amount_mib": 0, "deflate_on_oom": False,
                                "free_page_reporting": True}), stdin=r)
    finally:
        os.close(r)
        os.close(w)
    b = line["balloon"]
    t.check(b["inflate_count"] > 0 and b["discarded_bytes"] > 0, f"{b}")


@CASES.case("metrics_of_pause_and_signals")
def latencies(t):
    vm, api = parked(t, set_up=lambda a: set_metrics(t, a))
    began = time.monotonic()
    api.pause()
    api.resume()
    spent = (time.monotonic() - began) * 1e6
    api.call("PATCH", "/vm", {"state": "Nonsense"})
    api.ok("PUT", "/actions", {"action_type": "FlushMetrics"})
    (line,) = lines(t)
    us = line["latencies_us"]
    t.check(0 < us["vmm_pause_vm"] <= us["pause_vm"] <= spent, f"{us}")
    t.check(us["vmm_resume_vm"] <= us["resume_vm"] <= spent, f"{us}")
    t.check(line["api_server"]["process_startup_time_us"] > 0 and
            line["api_server"]["process_startup_time_cpu_us"] > 0,
            f"{line['api_server']}")
    patch = line["patch_api_requests"]
    t.eq((patch["vm_count"], patch["vm_fails"]), (3, 1), "PATCH /vm")
    requests = sum(line["mote"]["latency_us_log2"]["api_request"])
    t.check(requests >= 7, f"{requests} requests in the histogram")
    # Paused at its end: a last line all the same.
    api.pause()
    ends(t, vm)
    t.eq(lines(t)[-1]["signals"], {"sighup": 0, "sigint": 0, "sigterm": 1},
         "signals")


@CASES.case("metrics_of_deprecated_fields", kvm=False)
def deprecated(t):
    vm, api = monitor(t)
    set_metrics(t, api)
    api.ok("PUT", "/vsock", {"guest_cid": 3, "uds_path": "v", "vsock_id": "x"})
    api.ok("PUT", "/vsock", {"guest_cid": 3, "uds_path": "v"})
    ends(t, vm)
    (line,) = lines(t)
    t.eq(line["deprecated_api"], {"deprecated_http_api_calls": 1}, "calls")


@CASES.case("metrics_start_times_of_a_jailer", kvm=False)
def jailer_times(t):
    began = time.monotonic_ns() // 1000 - 5_000_000
    vm = launch(t, ["--metrics-path", "m", "--start-time-us", str(began),
                    "--start-time-cpu-us", "0",
                    "--parent-cpu-time-us", "7000000"])
    connect(t, vm)
    ends(t, vm)
    (line,) = lines(t)
    start = line["api_server"]
    t.check(5_000_000 < start["process_startup_time_us"] < 600_000_000 and
            7_000_000 < start["process_startup_time_cpu_us"] < 60_000_000,
            f"{start}")


# --- slow readers ----------------------------------------------------------

def drain(fd):
    got = b""
    while select.select([fd], [], [], 0)[0]:
        data = os.read(fd, 1 << 16)
        if not data:
            break
        got += data
    return got


@CASES.case("BL_020_readers_that_stop_after_64_KiB")
def stopping_readers(t):
    """The VM goes on, what is lost is counted, no line is torn."""
    for name in ("log", "m"):
        os.mkfifo(t.path(name))
    log = os.open(t.path("log"), os.O_RDONLY | os.O_NONBLOCK)
    metrics = os.open(t.path("m"), os.O_RDONLY | os.O_NONBLOCK)

    def set_up(api):
        set_metrics(t, api)
        api.ok("PUT", "/logger", {"log_path": t.path("log"), "level": "Debug"})

    vm, api = parked(t, set_up=set_up)
    got = b""
    said = b""
    versions = 1  # of connect()
    while len(got) < 1 << 16:
        api.get("/version")
        versions += 1
        got += drain(log)
    slowest = 0.0
    flushed = 0
    for _ in range(1500):  # a FIFO holds fewer lines
        began = time.monotonic()
        api.get("/version")
        versions += 1
        if flushed < 40:
            flushed += 1
            api.call("PUT", "/actions", {"action_type": "FlushMetrics"})
        slowest = max(slowest, time.monotonic() - began)
    t.check(slowest < PATIENCE / 2, f"an answer took {slowest:.1f} s")
    # A slow reader finds whole lines, and the count of those it missed.
    deadline = time.monotonic() + PATIENCE
    while True:
        said += drain(metrics)
        missed = [json.loads(x)["logger"] for x in said.splitlines()
                  if x.endswith(b"}")] if said.endswith(b"\n") else []
        if sum(x["missed_log_count"] for x in missed) > 0 and \
                sum(x["missed_metrics_count"] for x in missed) > 0:
            break
        t.check(time.monotonic() < deadline, "lost lines are not counted")
        if said.endswith(b"\n"):
            api.ok("PUT", "/actions", {"action_type": "FlushMetrics"})
    asked = sum(json.loads(x)["get_api_requests"]["vmm_version_count"]
                for x in said.splitlines())
    t.eq(asked, versions, "GET /version in all lines that came")
    got += drain(log)
    for line in got.splitlines():
        t.check(re.fullmatch(rb"\d{4}-\S+ \[\S+\] .*", line), f"line {line!r}")
    os.close(log)
    os.close(metrics)
    ends(t, vm)
