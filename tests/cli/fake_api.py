# SPDX-License-Identifier: Apache-2.0
"""The control socket of fake_vmm.py, and what it makes of a snapshot."""
import json
import os
import re
import socket
import threading
import time

import snapfile


def overridden(load):
    """The id and the configuration of the snapshot, with the overrides."""
    ident, config = snapfile.read_config(load["snapshot_path"])
    config["vsock"].update(load["vsock_override"])
    config["machine-config"]["track_dirty_pages"] = load["track_dirty_pages"]
    for section, key, items in (
            ("drives", "drive_id", load.get("drive_overrides", [])),
            ("network-interfaces", "iface_id",
             load.get("network_overrides", []))):
        for over in items:
            for item in config.get(section, []):
                if item[key] == over[key]:
                    item.update(over)
    return ident, config


def wait_fork(path):
    """The configuration of the machine that another fake hands over."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path + ".new")
    listener.listen(4)
    os.rename(path + ".new", path)  # nobody finds it before it listens
    source, _ = listener.accept()
    with source, source.makefile("r") as lines:
        config = json.loads(lines.readline())
        source.sendall(b"ok")
    listener.close()
    return config


def hand_over(config, child):
    """To one waiting fake; what PUT /mote/fork says of it."""
    config = json.loads(json.dumps(config))
    config["vsock"].update(child["vsock_override"])
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(child["socket"])
        s.sendall(json.dumps(config).encode() + b"\n")
        assert s.recv(2) == b"ok"
    return {"socket": child["socket"], "ok": True}


class Api:
    def __init__(self, monitor):
        self.monitor = monitor
        self.state = "Running"
        self.count = 0

    def fault(self, text):
        return 400, {"fault_message": text}

    def create(self, body):
        m = self.monitor
        if self.state != "Paused":
            return self.fault("Create snapshot: the microVM runs")
        if "no-create" in m.fakes:
            return self.fault("no space left on this fake")
        if "die-in-create" in m.fakes:
            m.end("internal", "", 1)
        if "slow-create" in m.fakes:
            with open(m.vsock + ".creating", "w"):
                pass
            time.sleep(2)
        track = m.config["machine-config"].get("track_dirty_pages")
        diff = body["snapshot_type"] == "Diff" and track and m.parent
        self.count += 1
        pages = {1: b"\1" * 4096, 600: bytes([self.count]) * 4096}
        if diff:
            pages = {2: b"\2" * 4096, 600: bytes(4096)}
        m.parent = snapfile.write(
            body["snapshot_path"], body["mem_file_path"], m.config, pages,
            m.parent if diff else None)
        return 204, None

    def fork(self, body):
        m = self.monitor
        if "no-fork" in m.fakes:
            return self.fault("no memory for a copy on this fake")
        if "die-in-fork" in m.fakes:
            m.end("internal", "", 1)
        children = []
        for i, child in enumerate(body["children"]):
            if i == 1 and "fork-one-fails" in m.fakes:
                children.append({"socket": child["socket"], "ok": False,
                                 "error": "TAP x: busy on this fake"})
            else:
                children.append(hand_over(m.config, child))
        return 200, {"stopped_us": 1500, "copied_bytes": 4096,
                     "children": children}

    def answer(self, method, target, body):
        if (method, target) == ("GET", "/"):
            return 200, {"state": self.state, "id": "fake"}
        if (method, target) == ("GET", "/vm/config"):
            return 200, self.monitor.config
        if (method, target) == ("PATCH", "/vm"):
            while not self.monitor.agent_path:  # it is just being handed over
                time.sleep(0.01)
            self.state = "Paused" if body["state"] == "Paused" else "Running"
            with open(self.monitor.vsock + ".states", "a") as f:
                f.write(self.state + "\n")
            return 204, None
        if (method, target) == ("PUT", "/snapshot/create"):
            return self.create(body)
        if (method, target) == ("PUT", "/mote/fork"):
            return self.fork(body)
        return self.fault("Invalid request method and/or path")

    def client(self, s):
        data = b""
        while b"\r\n\r\n" not in data:
            data += s.recv(65536)
        head, body = data.split(b"\r\n\r\n", 1)
        length = int(re.search(rb"Content-Length: (\d+)", head).group(1))
        while len(body) < length:
            body += s.recv(65536)
        method, target, _ = head.split(b"\r\n")[0].decode().split()
        status, doc = self.answer(method, target,
                                  json.loads(body) if body else None)
        text = json.dumps(doc).encode() if doc is not None else b""
        s.sendall(b"HTTP/1.1 %d \r\nServer: fake\r\ncontent-length: %d\r\n\r\n"
                  % (status, len(text)) + text)
        s.close()


def serve(monitor, path):
    """Listens there on a thread of its own."""
    api = Api(monitor)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(8)

    def loop():
        while True:
            client, _ = listener.accept()
            try:
                api.client(client)
            except OSError:
                pass
    threading.Thread(target=loop, daemon=True).start()
