# SPDX-License-Identifier: Apache-2.0
"""A guest under the monitor alone: a kernel, a busybox shell, a serial port.

For what `mote run` has no option for. The shell reads commands from the
serial port; sh() sends one and takes its output. Serial output is slow: keep
it short.
"""

import http.client
import importlib.util
import json
import os
import re
import select
import socket
import subprocess
import time

from harness import TOP, VMM, Failed, Skip

INIT = b"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev; mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs -o size=4g tmp /tmp
stty -echo -onlcr
echo ready
while read -r line; do eval "$line"; done
"""


def kernel(flavour):
    """The kernel's file, or a skip: cases do not build one."""
    path = os.path.join(TOP, "build", "guest", flavour, "vmlinux")
    if not os.path.exists(path):
        raise Skip("no kernel %s; make kernel-%s" % (flavour, flavour))
    return path


def initramfs(path):
    spec = importlib.util.spec_from_file_location(
        "mkinitrd", os.path.join(TOP, "guest", "agent", "mkinitrd.py"))
    m = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(m)
    busybox = next((p for p in ("/usr/bin/busybox", "/bin/busybox") if os.path.exists(p)), None)
    if not busybox:
        raise Skip("no busybox; install busybox-static")
    with open(busybox, "rb") as f:
        program = f.read()
    out, number = b"", 1
    for name in ("bin", "dev", "proc", "sys", "tmp"):
        out += m.entry(number, name, m.S_IFDIR | 0o755)
        number += 1
    for name, mode, major, minor in m.NODES:
        out += m.entry(number, name, m.S_IFCHR | mode, device=(major, minor))
        number += 1
    for name, data in (("init", INIT), ("bin/busybox", program)):
        out += m.entry(number, name, m.S_IFREG | 0o755, data)
        number += 1
    with open(path, "wb") as f:
        f.write(out + m.entry(0, "TRAILER!!!", 0))
    return path


class Api:
    """The monitor's control socket."""

    def __init__(self, path):
        self.path = path

    def request(self, method, target, body=None):
        """The status and the document that came back, {} for none."""
        c = http.client.HTTPConnection("localhost", timeout=60)
        c.sock = socket.socket(socket.AF_UNIX)
        c.sock.settimeout(60)
        c.sock.connect(self.path)
        c.request(method, target, None if body is None else json.dumps(body))
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, json.loads(data) if data else {}

    def must(self, method, target, body=None):
        status, doc = self.request(method, target, body)
        if status not in (200, 204):
            raise Failed("%s %s: %d %s" % (method, target, status, doc))
        return doc


def has_api():
    """Whether this monitor has a control socket at all."""
    out = subprocess.run([VMM, "--help"], stdout=subprocess.PIPE, timeout=60).stdout
    return b"--api-sock" in out


class Bare:
    """One monitor and its guest's shell; ends with the `with` block."""

    def __init__(self, host, work, mem, sections, flavour="sandbox", options=(), words=""):
        self.host = host
        self.work = work
        self.out = b""
        doc = {
            "boot-source": {
                "kernel_image_path": kernel(flavour),
                "initrd_path": initramfs(os.path.join(work, "initrd.cpio")),
                "boot_args": "console=ttyS0 quiet panic=-1 rdinit=/init " + words},
            "machine-config": {"vcpu_count": 1, "mem_size_mib": mem},
            **sections}
        config = os.path.join(work, "vm.json")
        with open(config, "w", encoding="utf-8") as f:
            json.dump(doc, f)
        sock = os.path.join(work, "api.sock")
        self.api = Api(sock)
        if has_api():
            options = ("--api-sock", sock, *options)
        self.err_path = os.path.join(work, "vmm.err")
        with open(self.err_path, "wb") as err:
            self.proc = subprocess.Popen([VMM, "--config-file", config, *options],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=err)
        try:
            self.wait_for(b"ready\n", 40)
        except Failed:
            self.close()
            raise

    def errors(self):
        with open(self.err_path, "rb") as f:
            return f.read()[-800:]

    def wait_for(self, pattern, guard):
        """Until the regular expression is in the output; the match."""
        end = time.monotonic() + self.host.guard(guard)
        while True:
            found = re.search(pattern, self.out)
            if found:
                return found
            left = end - time.monotonic()
            ready = select.select([self.proc.stdout], [], [], max(0, left))[0]
            data = os.read(self.proc.stdout.fileno(), 65536) if ready else b""
            if not data:
                raise Failed("no %r from the guest: %r %r" % (pattern, self.out[-600:],
                                                              self.errors()))
            self.out += data

    def sh(self, script, guard=60):
        """Runs one line in the guest's shell; what it printed."""
        self.out = b""
        self.proc.stdin.write(script.encode() + b"; echo '-end' $?\n")
        self.proc.stdin.flush()
        end = self.wait_for(rb"-end (\d+)\n", guard)
        out = self.out[:end.start()].decode(errors="replace")
        if end.group(1) != b"0":
            raise Failed("%s: exit code %s: %r" % (script, end.group(1).decode(), out[-300:]))
        return out

    def ram_bytes(self):
        """Guest memory that the host has pages for, and the monitor's RSS."""
        base = "/proc/%d/fd" % self.proc.pid
        held = 0
        for fd in os.listdir(base):
            path = os.path.join(base, fd)
            if "mote-guest-ram" in os.readlink(path):
                held = os.stat(path).st_blocks * 512
        with open("/proc/%d/status" % self.proc.pid, encoding="ascii") as f:
            rss = next(int(x.split()[1]) * 1024 for x in f if x.startswith("VmRSS:"))
        return held, rss

    def wait_ram(self, holds, what, guard=60):
        """Until holds(bytes) is true of both figures; returns them."""
        end = time.monotonic() + self.host.guard(guard)
        while True:
            got = self.ram_bytes()
            if all(holds(n) for n in got):
                return got
            if time.monotonic() > end:
                raise Failed("%s: the host holds %d MiB, RSS is %d MiB" % (
                    what, got[0] >> 20, got[1] >> 20))
            time.sleep(0.2)  # nothing tells of it but the figure itself

    def close(self):
        if self.proc.poll() is None:
            self.proc.terminate()
            try:
                self.proc.wait(self.host.guard(20))
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        self.proc.stdin.close()
        self.proc.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
