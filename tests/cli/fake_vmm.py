#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for mote-vmm that needs no KVM.

It takes mote-vmm's command line and configuration, listens on the vsock
socket, and instead of a guest it runs mote-agent in its test mode and joins
the two by Firecracker's CONNECT convention. A word `fake=WHAT` among the boot
arguments, or in $MOTE_FAKE, makes it misbehave; see main(). It notes what it
was given in $MOTE_FAKE_NOTES. Its control socket knows what a snapshot takes
(fake_api.py).
"""
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import fake_api

CLOCK_SET, POWER, RESTORE = 3, 4, 0x0F
UNSUPPORTED = b"\x0c\0\0\0\x85\0\0\0\x30\0\0\0\x04\0\0\0\x03\0\0\0"
HELLO = b"MOTE\x01\x00\x01\x00"
OK_FRAME = b"\x00\x00\x00\x00\x86\x00\x00\x00"

PROBE = {
    "kvm": {"present": True, "api_version": 12, "module": "kvm_fake",
            "error": None, "max_vcpus": 64,
            "capabilities": {"irqfd": True, "ioeventfd": True}},
    "ring0": {"emulated": False, "ns_per_instruction": 0.31},
    "io_uring": {"available": False, "errno": "EPERM", "features": []},
}


def option(name, default=None):
    argv = sys.argv
    return argv[argv.index(name) + 1] if name in argv else default


def die_with_parent():
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Monitor:
    def __init__(self):
        self.parent = self.agent = self.config = self.given = None
        self.agent_path = None
        self.fakes = []
        self.waits = option("--fork-from")
        if self.waits:
            self.load = True
            return
        with open(option("--config-file")) as f:
            self.given = json.load(f)
        self.load = self.given.get("snapshot-load")
        if self.load:
            self.parent, config = fake_api.overridden(self.load)
        self.set_config(config if self.load else self.given)

    def set_config(self, config):
        self.config = config
        words = config["boot-source"]["boot_args"].split()
        words += os.environ.get("MOTE_FAKE", "").split()
        self.fakes = [w[5:] for w in words if w.startswith("fake=")]
        self.vsock = config["vsock"]["uds_path"]
        self.agent_path = self.vsock + ".agent"

    def end(self, reason, detail="", code=0):
        """The guest has ended."""
        report = {"reason": reason, "detail": detail}
        if os.environ.get("MOTE_FAKE_REPORT"):  # what else it holds
            with open(os.environ["MOTE_FAKE_REPORT"]) as f:
                report.update(json.load(f))
        if option("--exit-file"):
            with open(option("--exit-file"), "w") as f:
                json.dump(report, f)
        self.stop_agent()
        os._exit(code)

    def stop_agent(self):
        if not self.config:
            return
        if self.agent:
            self.agent.kill()
            self.agent.wait()
        if os.path.exists(self.agent_path):
            os.unlink(self.agent_path)

    def note(self):
        path = os.environ.get("MOTE_FAKE_NOTES")
        if not path:
            return
        fds = {}
        for fd in os.listdir("/proc/self/fd"):
            try:
                fds[fd] = os.readlink("/proc/self/fd/" + fd)
            except OSError:
                pass  # the listing's own
        with open(path, "w") as f:
            json.dump({"argv": sys.argv, "env": dict(os.environ), "fds": fds,
                       "config": self.given, "pid": os.getpid(),
                       "sid": os.getsid(0), "cwd": os.getcwd()}, f)

    def watch_lifeline(self):
        if not option("--lifeline-fd"):
            return
        fd = int(option("--lifeline-fd"))
        select.select([fd], [], [])
        self.stop_agent()
        os._exit(0)

    def start_agent(self):
        libdir = os.environ["MOTE_LIBDIR"]
        # A process namespace is as good as a machine: nothing outlives it.
        argv = ["unshare", "-pf" if os.geteuid() == 0 else "-Urpf",
                "--mount-proc", "--kill-child", libdir + "/mote-agent",
                "--test-socket", self.agent_path]
        if "no-restore" not in self.fakes:
            argv += ["--test-restore", os.environ.get("MOTE_FAKE_HOOKS",
                                                      self.vsock + ".none")]
        if "no-ready" not in self.fakes and not self.load:
            argv += ["--test-ready", self.vsock + "_1025"]
        self.agent = subprocess.Popen(argv, stdin=subprocess.DEVNULL,
                                      preexec_fn=die_with_parent)
        deadline = time.monotonic() + 10
        while not os.path.exists(self.agent_path):
            if time.monotonic() > deadline or self.agent.poll() is not None:
                self.end("internal", "the agent does not start", 1)
            time.sleep(0.005)

    def pump(self, a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
        except OSError:
            pass
        for s, how in ((b, socket.SHUT_WR), (a, socket.SHUT_RD)):
            try:
                s.shutdown(how)
            except OSError:
                pass

    def serve(self, client):
        line = b""
        while not line.endswith(b"\n"):
            byte = client.recv(1)
            if not byte:
                return
            line += byte
        if line != b"CONNECT 1024\n" or "refuse" in self.fakes:
            client.close()
            return
        agent = socket.socket(socket.AF_UNIX)
        while agent.connect_ex(self.agent_path):
            time.sleep(0.005)  # it is there and does not listen yet
        client.sendall(b"OK 1073741824\n")
        if "garbage" in self.fakes:
            client.sendall(HELLO + b"\xff" * 64)
            return
        if "future" in self.fakes:
            client.sendall(b"MOTE\x07\x00\x09\x00")
            return
        head = client.recv(16, socket.MSG_WAITALL)
        if len(head) == 16 and head[12] == POWER and "mute" not in self.fakes:
            client.sendall(HELLO + OK_FRAME)
            self.end("poweroff")
        if len(head) == 16 and "old-agent" in self.fakes and \
                head[12] in (CLOCK_SET, RESTORE):
            client.sendall(HELLO + (OK_FRAME if head[12] == CLOCK_SET
                                    else UNSUPPORTED))
            client.recv(65536)
            client.close()
            return
        agent.sendall(head)
        other = threading.Thread(target=self.pump, args=(agent, client),
                                 daemon=True)
        other.start()
        self.pump(client, agent)
        other.join()
        client.close()
        agent.close()

    def after(self, seconds, call):
        timer = threading.Timer(seconds, call)
        timer.daemon = True
        timer.start()

    def report(self, data):
        """What stands in the place of the agent's report."""
        s = socket.socket(socket.AF_UNIX)
        s.connect(self.vsock + "_1025")
        s.sendall(data)
        time.sleep(60)

    def misbehave_before_ready(self):
        if "refused-config" in self.fakes:
            sys.stderr.write("mote-vmm: kernel x: not a kernel; name another\n")
            sys.exit(152)
        if "panic" in self.fakes:
            self.end("panic", "", 20)
        if "triple-fault" in self.fakes:
            self.end("triple_fault", "", 21)
        if "killed" in self.fakes:
            os.kill(os.getpid(), signal.SIGKILL)
        if "bad-report" in self.fakes:
            self.report(b"GET / HTTP/1.1\r\n\r\n")
        if "failed-report" in self.fakes:
            text = b"cannot mount /dev/vda: \x1b[31mbad"
            attr = b"\x31\0\0\0" + len(text).to_bytes(4, "little") + text
            self.report(HELLO + len(attr).to_bytes(4, "little") +
                        b"\x85\0\0\0" + attr)

    def main(self):
        self.note()
        if option("--api-sock"):
            fake_api.serve(self, option("--api-sock"))
        # As the real one: a signal is an orderly end.
        signal.signal(signal.SIGTERM, lambda *_: self.end("request"))
        threading.Thread(target=self.watch_lifeline, daemon=True).start()
        if self.waits:
            self.set_config(fake_api.wait_fork(self.waits))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.vsock)
        listener.listen(64)
        if "console" in self.fakes:
            os.write(1, b"hello from the console\r\n")
        os.write(2, b"mote-vmm: a line of the log\n")
        self.misbehave_before_ready()
        self.start_agent()
        if "panic-later" in self.fakes:
            self.after(0.5, lambda: self.end("panic", "", 20))
        if "poweroff-later" in self.fakes:
            self.after(0.5, lambda: self.end("poweroff"))
        if "killed-later" in self.fakes:
            self.after(0.5, lambda: os.kill(os.getpid(), signal.SIGKILL))
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self.serve, args=(client,),
                             daemon=True).start()


if "--probe" in sys.argv:
    print(json.dumps(PROBE))
else:
    Monitor().main()
