# SPDX-License-Identifier: Apache-2.0
"""Somebody who fills a guest's memory page by page: a handler as the clients
of Firecracker's Uffd backend have one. Constants: linux/userfaultfd.h."""

import array
import ctypes
import errno
import fcntl
import json
import mmap
import os
import select
import socket
import struct
import threading

PAGE = 4096
UFFDIO_COPY = 0xc028aa03
UFFDIO_ZEROPAGE = 0xc020aa04
EVENT_PAGEFAULT = 0x12
EVENT_REMOVE = 0x15


class Handler(threading.Thread):
    """Listens at PATH and serves faults from the memory file MEM."""

    def __init__(self, path, mem):
        super().__init__(daemon=True)
        self.door = socket.socket(socket.AF_UNIX)
        self.door.bind(path)
        self.door.listen()
        with open(mem, "rb") as f:
            self.mem = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ,
                                 flags=mmap.MAP_PRIVATE)
        self.regions = None
        self.raw = None
        self.served = 0
        self.removed = set()
        self.error = None
        self.stop = False
        self.uffd = -1
        self.start()

    def run(self):
        try:
            self._take()
            self._serve()
        except Exception as e:  # for whoever looks at it after the case
            self.error = e

    def _take(self):
        s, _ = self.door.accept()
        fds = array.array("i")
        data, extra, _, _ = s.recvmsg(65536, socket.CMSG_LEN(4))
        for level, kind, payload in extra:
            assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            fds.frombytes(payload)
        self.raw = data
        self.regions = json.loads(data)
        self.uffd, = fds
        self.peer = s

    def _serve(self):
        page = ctypes.create_string_buffer(PAGE * 2)
        base = -ctypes.addressof(page) % PAGE + ctypes.addressof(page)
        os.set_blocking(self.uffd, False)
        while not self.stop:
            if not select.select([self.uffd], [], [], 0.05)[0]:
                continue
            try:
                msg = os.read(self.uffd, 32)
            except BlockingIOError:
                continue
            event = msg[0]
            if event == EVENT_REMOVE:
                start, end = struct.unpack_from("<QQ", msg, 8)
                self.removed.update(range(start, end, PAGE))
                continue
            assert event == EVENT_PAGEFAULT, event
            address, = struct.unpack_from("<Q", msg, 16)
            self._fill(address & ~(PAGE - 1), base)

    def _fill(self, at, base):
        region = next(r for r in self.regions
                      if 0 <= at - r["base_host_virt_addr"] < r["size"])
        offset = at - region["base_host_virt_addr"] + region["offset"]
        try:
            if at in self.removed:
                fcntl.ioctl(self.uffd, UFFDIO_ZEROPAGE, bytearray(
                    struct.pack("<QQQq", at, PAGE, 0, 0)))
            else:
                ctypes.memmove(base, self.mem[offset:offset + PAGE], PAGE)
                fcntl.ioctl(self.uffd, UFFDIO_COPY, bytearray(
                    struct.pack("<QQQQq", at, base, PAGE, 0, 0)))
            self.served += 1
        except OSError as e:
            if e.errno not in (errno.EEXIST, errno.EAGAIN, errno.ESRCH):
                raise

    def close(self):
        self.stop = True
        self.join(5)
        self.door.close()
        if self.uffd >= 0:
            os.close(self.uffd)
            self.peer.close()
