# SPDX-License-Identifier: Apache-2.0
"""firecracker-go-sdk's calls in its documented order, for tests/api and
tests/jail: what it passes, what it waits for, and how long it would wait.

A call has to end within ten times the SDK's own limit, which is a guard
against a hang; the time that it took is printed.
"""

import http.client
import json
import os
import socket
import threading
import time

INIT_S = 3.0     # until the socket answers
POLL_S = 0.010
SETUP_S = 0.5    # most calls before the start
DRIVE_S = 0.25
OTHERS_S = 30.0  # vsock, actions, PATCH
GUARD = 10


class _Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Reader(threading.Thread):
    """Reads a FIFO to its end, as the SDK's goroutine does."""

    def __init__(self, path, mode=0o700):
        super().__init__(daemon=True)
        os.mkfifo(path, mode)
        os.chmod(path, mode)
        # Both ways, or the first writer's end would be the last.
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self.wake_r, self.wake_w = os.pipe()
        self.got = b""
        self.start()

    def run(self):
        import select
        while True:
            ready, _, _ = select.select([self.fd, self.wake_r], [], [])
            if self.fd in ready:
                self.got += os.read(self.fd, 1 << 16)
            elif self.wake_r in ready:
                return

    def end(self):
        """What came; nobody writes any more."""
        os.close(self.wake_w)
        self.join()
        os.close(self.fd)
        os.close(self.wake_r)
        return self.got


class Sdk:
    """One machine's client. `sock` is the socket as the client sees it."""

    def __init__(self, sock, say=print):
        self.sock = sock
        self.say = say
        self.connection = None

    # --- one call -----------------------------------------------------------

    def call(self, method, path, body=None, limit=SETUP_S, want=204):
        text = None if body is None else json.dumps(body)
        headers = {"Accept": "application/json",
                   "Content-Type": "application/json"}
        began = time.monotonic()
        if self.connection is None:
            self.connection = _Connection(self.sock, limit * GUARD)
            self.connection.connect()
        self.connection.sock.settimeout(limit * GUARD)
        self.connection.request(method, path, text, headers)
        r = self.connection.getresponse()
        data = r.read()
        spent = time.monotonic() - began
        self.say(f"    {method} {path}: {r.status}, {spent * 1000:.2f} ms "
                 f"(limit {limit * 1000:.0f})")
        assert r.status == want, f"{method} {path}: {r.status} {data!r}"
        assert (want != 204) or (data == b"" and
                                 r.headers["Content-Length"] is None), data
        assert spent < limit * GUARD, f"{method} {path}: {spent:.2f} s"
        return json.loads(data) if data else None

    def put(self, path, body, limit=SETUP_S):
        self.call("PUT", path, body, limit)

    # --- the steps ----------------------------------------------------------

    def wait_for_socket(self, alive):
        """stat, then GET /machine-config, every 10 ms."""
        began = time.monotonic()
        while True:
            assert alive(), "the monitor ended before it answered"
            assert time.monotonic() - began < INIT_S * GUARD, "no socket"
            try:
                os.stat(self.sock)
                self.call("GET", "/machine-config", want=200)
                break
            except (FileNotFoundError, ConnectionRefusedError):
                self.connection = None
                time.sleep(POLL_S)
        spent = time.monotonic() - began
        self.say(f"    spawn to GET /machine-config: {spent * 1000:.1f} ms "
                 f"(limit {INIT_S * 1000:.0f})")

    def set_up(self, where, kernel, extras, root, tap=None):
        """All up to the start. `where(name)` is a path as the monitor sees
        it; drives are such paths already."""
        self.put("/logger", {"log_path": where("log.fifo"), "level": "Debug",
                             "show_level": True, "show_log_origin": False})
        self.put("/metrics", {"metrics_path": where("metrics.fifo")})
        self.put("/machine-config", {"vcpu_count": 1, "mem_size_mib": 128,
                                     "smt": False})
        got = self.call("GET", "/machine-config", want=200)
        assert (got["vcpu_count"], got["mem_size_mib"]) == (1, 128), got
        self.put("/boot-source", {"kernel_image_path": kernel,
                                  "boot_args": "quiet"})
        drives = [(str(i), path, False) for i, path in enumerate(extras)]
        for name, path, is_root in [*drives, ("root_drive", root, True)]:
            self.put(f"/drives/{name}", {
                "drive_id": name, "is_root_device": is_root,
                "is_read_only": False, "path_on_host": path}, DRIVE_S)
        if tap:
            self.put("/network-interfaces/1", {
                "iface_id": "1", "host_dev_name": tap,
                "guest_mac": "AA:FC:00:00:00:01"})
        self.put("/vsock", {"guest_cid": 3, "uds_path": where("v.sock"),
                            "vsock_id": "1"}, OTHERS_S)
        if tap:
            self.put("/mmds/config", {"network_interfaces": ["1"],
                                      "version": "V1",
                                      "ipv4_address": "169.254.169.254"})
            self.put("/mmds", {"a": 1}, OTHERS_S)
        self.put("/balloon", {"amount_mib": 0, "deflate_on_oom": True,
                              "stats_polling_interval_s": 1})
        self.action("InstanceStart")

    def action(self, name):
        self.put("/actions", {"action_type": name}, OTHERS_S)

    def drive_it(self, extra, tap=None):
        """What a client may ask of a machine that runs."""
        assert self.call("GET", "/", want=200)["state"] == "Running"
        assert self.call("GET", "/version", want=200)["firecracker_version"]
        config = self.call("GET", "/vm/config", want=200)
        assert config["drives"][-1]["drive_id"] == "root_drive", config
        for state in ("Paused", "Resumed"):
            self.call("PATCH", "/vm", {"state": state})
        self.call("PATCH", "/drives/0", {"drive_id": "0",
                                         "path_on_host": extra}, OTHERS_S)
        if tap:
            self.call("PATCH", "/network-interfaces/1", {
                "iface_id": "1", "rx_rate_limiter": {
                    "ops": {"size": 100, "refill_time": 100}}})
            self.call("PATCH", "/mmds", {"b": 2}, OTHERS_S)
            got = self.call("GET", "/mmds", limit=OTHERS_S, want=200)
            assert got == {"a": 1, "b": 2}, got
        self.call("PATCH", "/balloon", {"amount_mib": 0}, OTHERS_S)
        self.call("GET", "/balloon", want=200)
        self.action("FlushMetrics")


def check_outputs(log, metrics, ident):
    """Bytes of the two FIFOs after a run."""
    import re
    lines = log.decode().splitlines()
    assert lines, "nothing in the log"
    form = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9} \[" +
                      re.escape(ident) + r":[\w ]+:[A-Z]+\] .+")
    for line in lines:
        assert form.fullmatch(line), f"line of the log: {line!r}"
    docs = [json.loads(x) for x in metrics.splitlines()]
    assert len(docs) >= 2, f"{len(docs)} lines of metrics"
    started = sum(d["put_api_requests"]["actions_count"] for d in docs)
    assert started >= 2, f"{started} actions in the metrics"
    assert "block_root_drive" in docs[-1], docs[-1].keys()
