# SPDX-License-Identifier: Apache-2.0
"""The virtio console's further ports, as Linux sees them."""

import os
import socket

from bare import Bare
from harness import Failed, check

CASES = []


def case(*tiers):
    def wrap(fn):
        fn.tiers = tiers
        CASES.append(fn)
        return fn
    return wrap


def dial(path, guard):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(guard)
    s.connect(path)
    return s


def receive(s, count):
    got = b""
    while len(got) < count:
        try:
            data = s.recv(65536)
        except socket.timeout:
            raise Failed("%d of %d bytes came" % (len(got), count))
        if not data:
            break
        got += data
    return got


@case("full")
def console_ports_have_names_and_carry_bytes(host, work):
    paths = [os.path.join(work, n) for n in ("a.sock", "b.sock")]
    mote = {"virtio_console": True, "console_ports": [
        {"name": "org.mote.a", "path": paths[0]}, {"name": "b", "path": paths[1]}]}
    with Bare(host, work, 128, {"mote": mote}) as vm:
        names = vm.sh("cd /sys/class/virtio-ports; for p in vport0p*; do"
                      " echo $p $(cat $p/name 2>/dev/null); done; cd /")
        check(names == "vport0p0\nvport0p1 org.mote.a\nvport0p2 b\n", repr(names))
        a = dial(paths[0], host.guard(20))
        b = dial(paths[1], host.guard(20))
        vm.sh("echo to-a > /dev/vport0p1; echo to-b > /dev/vport0p2")
        check(receive(a, 5) == b"to-a\n" and receive(b, 5) == b"to-b\n", "the wrong port")
        a.sendall(b"from the host\n")
        got = vm.sh("head -n 1 < /dev/vport0p1")
        check(got == "from the host\n", repr(got))
        # More than any buffer between them holds, to a reader that waits.
        vm.sh("(seq 1 100000 > /dev/vport0p1) & seq 1 100000 | md5sum > /tmp/sum")
        got = receive(a, 588895)
        check(got == b"".join(b"%d\n" % i for i in range(1, 100001)), "%d bytes" % len(got))
        # A client that goes: the guest reads the end; the next one is let in.
        vm.sh("(cat /dev/vport0p2 > /tmp/b; echo over >> /tmp/b) & true")
        b.sendall(b"bye\n")
        b.close()
        vm.sh("while ! grep -q over /tmp/b; do sleep 0.1; done", 30)
        b = dial(paths[1], host.guard(20))
        vm.sh("echo again > /dev/vport0p2", 20)
        check(receive(b, 6) == b"again\n", "the second client")
        a.close()
        b.close()
    check(not os.path.exists(paths[0]), "the socket is left behind")
