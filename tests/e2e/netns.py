# SPDX-License-Identifier: Apache-2.0
"""A network namespace of our own for a test, and hosts' ends in it."""

import ctypes
import hashlib
import json
import os
import random
import socket
import subprocess
import threading

from harness import Failed, Skip, check

CLONE_NEWNET = 0x40000000
GUEST, HOST, BITS = "10.7.0.2", "10.7.0.1", 24


def ip(*words, ok=True):
    p = subprocess.run(["ip", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if ok and p.returncode:
        raise Failed("ip %s: %s" % (" ".join(words), p.stderr.decode()))
    return p.stdout.decode()


class Namespace:
    """This process, and what it starts, lives in a new namespace meanwhile."""

    def __enter__(self):
        if os.geteuid() != 0:
            raise Skip("needs root for a network namespace")
        if not os.path.exists("/dev/net/tun"):
            raise Skip("no /dev/net/tun on this host")
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.old = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        if self.libc.unshare(CLONE_NEWNET):
            raise Skip("unshare: %s" % os.strerror(ctypes.get_errno()))
        ip("link", "set", "lo", "up")
        return self

    def __exit__(self, *exc):
        rc = self.libc.setns(self.old, CLONE_NEWNET)
        os.close(self.old)
        if rc:
            os._exit(3)  # never go on with tests in the wrong namespace

    def tap(self, name="tap0", mtu=1500, address=HOST, multi=False):
        ip("tuntap", "add", name, "mode", "tap", *(["multi_queue"] if multi else []))
        ip("link", "set", name, "mtu", str(mtu), "up")
        if address:
            ip("addr", "add", "%s/%d" % (address, BITS), "dev", name)
        return name

    def links(self):
        return {l["ifname"]: l for l in json.loads(ip("-s", "-d", "-j", "link") or "[]")}


def net(tap="tap0", **more):
    words = ["tap=" + tap, "ip=%s/%d" % (GUEST, BITS)]
    return ",".join(words + ["%s=%s" % kv for kv in more.items()])


class Server:
    """Takes one connection: sends `size` bytes, takes what comes, hashes both.
    With `http` it answers a request with them and closes."""

    def __init__(self, size, address=HOST, port=5000, http=False):
        self.data = random.Random(1).randbytes(size)
        self.head = b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % size if http else b""
        self.got = hashlib.sha256()
        self.got_bytes = 0
        self.error = None
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind((address, port))
        self.sock.listen(5)
        self.sock.settimeout(600)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def digest(self):
        return hashlib.sha256(self.data).hexdigest()

    def _run(self):
        try:
            conn, self.peer = self.sock.accept()
            conn.settimeout(600)
            sender = threading.Thread(target=self._send, args=(conn,), daemon=True)
            sender.start()
            while True:
                part = conn.recv(1 << 16)
                if not part:
                    break
                self.got.update(part)
                self.got_bytes += len(part)
            sender.join(600)
            conn.close()
        except OSError as e:
            self.error = e

    def _send(self, conn):
        try:
            if self.data:
                conn.sendall(self.head + self.data)
                conn.shutdown(socket.SHUT_WR)
        except OSError as e:
            self.error = e

    def finish(self, guard):
        self.thread.join(guard)
        self.sock.close()
        check(not self.thread.is_alive() and not self.error,
              "the server did not get to its end: %s after %d bytes" % (
                  self.error, self.got_bytes))
        return self.got.hexdigest()
