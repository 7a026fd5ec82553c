# SPDX-License-Identifier: Apache-2.0
"""Clients of the control socket, and monitors that have one."""

import http.client
import json
import os
import socket
import subprocess
import time

from harness import Failure, PATIENCE, Vm

AFTER = "The requested operation is not supported after starting the microVM."
BEFORE = "The requested operation is not supported before starting the microVM."
BODY = "An error occurred when deserializing the json body of a request"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = dial(self.path)


def dial(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)  # with a time limit, a full backlog would be an error
    s.settimeout(PATIENCE)
    return s


class Reply:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)


class Api:
    """One keep-alive connection to a monitor, and judgement of its answers."""

    def __init__(self, t, path):
        self.t = t
        self.path = path
        self.connection = UnixConnection(path)

    def call(self, method, path, body=None):
        """Any request; a body that is no string is sent as JSON."""
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        self.connection.request(method, path, body)
        r = self.connection.getresponse()
        return Reply(r.status, r.headers, r.read().decode())

    def ok(self, method, path, body=None):
        """204, as every mutation that succeeds."""
        r = self.call(method, path, body)
        if r.status != 204 or r.body:
            raise Failure(f"{method} {path}: {r.status} {r.body}")
        return r

    def get(self, path):
        r = self.call("GET", path)
        if r.status != 200:
            raise Failure(f"GET {path}: {r.status} {r.body}")
        return r.json

    def bad(self, method, path, body, *words):
        """400 with a fault message that holds all the words."""
        r = self.call(method, path, body)
        if r.status != 400:
            raise Failure(f"{method} {path} {body}: {r.status} {r.body}")
        message = r.json["fault_message"]
        self.t.eq(list(r.json), ["fault_message"], "fields of an error")
        for word in words:
            self.t.check(word in message, f"{method} {path} {body}: no "
                                          f"{word!r} in: {message}")
        return message

    def start(self):
        self.ok("PUT", "/actions", {"action_type": "InstanceStart"})

    def state(self):
        return self.get("/")["state"]

    def pause(self):
        self.ok("PATCH", "/vm", {"state": "Paused"})

    def resume(self):
        self.ok("PATCH", "/vm", {"state": "Resumed"})

    def boot_source(self, payload, words="quiet"):
        self.ok("PUT", "/boot-source", {
            "kernel_image_path": self.t.host.payload(payload),
            "boot_args": words})

    def drive(self, name, path, **more):
        self.ok("PUT", f"/drives/{name}", {
            "drive_id": name, "path_on_host": path, "is_root_device": False,
            "cache_type": "Writeback", **more})

    def again(self):
        """A further connection."""
        return Api(self.t, self.path)


def launch(t, args=(), config=None, stdin=subprocess.DEVNULL, sock=None,
           exit_file=True, wrap=(), pass_fds=()):
    """A monitor with a control socket that is about to answer."""
    n = len(t.vms)
    sock = sock or t.path(f"s{n}")
    argv = [*wrap, t.host.vmm, "--api-sock", sock, "--test-exit", *args]
    if config is not None:
        t.file(f"vm{n}.json", json.dumps(config).encode())
        argv += ["--config-file", f"vm{n}.json"]
    if exit_file:
        argv += ["--exit-file", f"vm{n}.exit"]
    vm = Vm(t, argv, stdin, None, pass_fds)
    vm.exit_path = t.path(f"vm{n}.exit")
    vm.sock = sock
    t.vms.append(vm)
    return vm


def connect(t, vm):
    """Its first client: as clients do, it tries until somebody answers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            api = Api(t, vm.sock)
            api.get("/version")
            return api
        except (OSError, http.client.HTTPException) as e:
            if vm.process.poll() is not None:
                raise Failure(f"{vm.name}: ended with code "
                              f"{vm.process.poll()}: {vm.err}") from e
            if time.monotonic() > deadline:
                raise Failure(f"{vm.name}: {vm.sock}: {e}") from e
            time.sleep(0.005)


def monitor(t, args=(), **options):
    """-> (vm, api)"""
    vm = launch(t, args, **options)
    return vm, connect(t, vm)


def ends(t, vm, code=0):
    """SIGTERM ends it and leaves no socket."""
    vm.process.terminate()
    t.eq(vm.wait(), code, "exit code after SIGTERM")
    t.check(not os.path.lexists(vm.sock), "the socket was left behind")


def parked(t, args=(), cpus=1, set_up=None):
    """A guest that has halted for good, started by the socket."""
    vm, api = monitor(t, args)
    api.ok("PUT", "/machine-config", {"vcpu_count": cpus, "mem_size_mib": 128})
    api.boot_source("park")
    if set_up:
        set_up(api)
    api.start()
    vm.wait_output(b"parked\n")
    return vm, api
