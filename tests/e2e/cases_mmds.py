# SPDX-License-Identifier: Apache-2.0
"""The metadata service in a real guest: busybox's wget and nc ask."""

import hashlib
import json
import os
import socket
import struct
import threading

from bare import Bare
from harness import Failed, check
from netns import BITS, GUEST, HOST, Namespace, ip

CASES = []
ADDRESS = "169.254.169.254"
URL = "http://" + ADDRESS
ETH_P_ALL = 3


def case(*tiers):
    def wrap(fn):
        fn.tiers = tiers
        CASES.append(fn)
        return fn
    return wrap


class Sniffer:
    """What the host's end of a TAP gets from its guest, about an address."""

    def __init__(self, tap, address=ADDRESS):
        self.wanted = socket.inet_aton(address)
        self.other = 0
        self.found = []
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.sock.bind((tap, ETH_P_ALL))
        self.sock.settimeout(0.1)
        self.running = True
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while self.running:
            try:
                frame, where = self.sock.recvfrom(65536)
            except socket.timeout:
                continue
            if where[2] == socket.PACKET_OUTGOING:
                continue
            kind, = struct.unpack("!H", frame[12:14])
            to = {0x0800: frame[30:34], 0x0806: frame[38:42]}.get(kind)
            if to == self.wanted:
                self.found.append(frame.hex()[:160])
            else:
                self.other += 1

    def finish(self):
        self.running = False
        self.thread.join()
        self.sock.close()


def sections(**config):
    doc = {"network-interfaces": [{"iface_id": "eth0", "host_dev_name": "tap0"}]}
    if config:
        doc["mmds-config"] = {"network_interfaces": ["eth0"], **config}
    return doc


def boot(host, work, options=(), **config):
    vm = Bare(host, work, 128, sections(**config), flavour="tiny", options=options)
    try:
        vm.sh("ip addr add %s/%d dev eth0; ip link set eth0 up; ip link set lo up;"
              " ip route add %s dev eth0" % (GUEST, BITS, ADDRESS))
    except Failed:
        vm.close()
        raise
    return vm


def get(vm, path, *headers):
    words = " ".join("--header '%s'" % h for h in headers)
    return vm.sh("wget -q -O - %s %s%s" % (words, URL, path))


def status(vm, method, path, *headers):
    """Of a request as it is written on the wire, and its body."""
    text = "".join(h + r"\r\n" for h in (*headers, ""))
    out = vm.sh(r"printf '%s %s HTTP/1.0\r\n%s' | nc %s 80" % (method, path, text, ADDRESS))
    head, _, body = out.replace("\r\n", "\n").partition("\n\n")
    return int(head.split()[1]), body


@case("full")
def mmds_v1_in_a_guest(host, work):
    with Namespace() as ns:
        ns.tap()
        metrics = os.path.join(work, "metrics")
        with boot(host, work, options=("--metrics-path", metrics), version="V1") as vm:
            big = "".join("%08x" % (i * 2654435761 % (1 << 32)) for i in range(5120))
            vm.api.must("PUT", "/mmds", {"latest": {
                "meta-data": {"id": "i-1", "net": {"mac": "m"}, "n": 5}, "big": big}})
            sniffer = Sniffer("tap0")
            check(get(vm, "/latest/meta-data/") == "id\nn\nnet/", "a list of keys")
            check(get(vm, "/latest/meta-data/id") == "i-1", "a value")
            check(json.loads(get(vm, "/latest/meta-data", "Accept: application/json")) == {
                "id": "i-1", "net": {"mac": "m"}, "n": 5}, "JSON")
            want = hashlib.sha256(big.encode()).hexdigest()
            out = vm.sh("wget -q -O - %s/latest/big | sha256sum" % URL)
            check(out.split()[0] == want, "40 KiB: %s" % out)
            out = vm.sh("for i in $(seq 20); do wget -q -O - %s/latest/meta-data/id;"
                        " echo; done" % URL, 120)
            check(out == "i-1\n" * 20, "20 one after another: %r" % out)
            vm.api.must("PATCH", "/mmds", {"latest": {"meta-data": {"id": "i-2"}}})
            check(get(vm, "/latest/meta-data/id") == "i-2", "changed while it runs")
            for method, path, code in (("GET", "/nope", 404), ("GET", "/latest/meta-data/n", 501),
                                       ("POST", "/", 405), ("GET", "nope", 400)):
                got, body = status(vm, method, path)
                check(got == code, "%s %s: %d %s" % (method, path, got, body))
            vm.sh("ping -c 1 %s" % HOST)
            vm.sh("! ping -c 1 -W 1 %s" % ADDRESS)
            sniffer.finish()
            check(sniffer.other > 0, "the sniffer heard nothing at all")
            check(not sniffer.found, "on the TAP: %s" % sniffer.found[:3])
            vm.api.must("PUT", "/actions", {"action_type": "FlushMetrics"})
            with open(metrics, encoding="utf-8") as f:  # a line a minute, and this one
                lines = [json.loads(line)["mmds"] for line in f]
            counts = {name: sum(line[name] for line in lines) for name in lines[0]}
            check(counts["connections_created"] == counts["connections_destroyed"] >= 28 and
                  counts["rx_count"] == counts["tx_count"] >= 28 and
                  counts["rx_accepted_err"] == 0, str(counts))


@case("full")
def mmds_v2_in_a_guest(host, work):
    with Namespace() as ns:
        ns.tap()
        with boot(host, work, version="V2") as vm:
            vm.api.must("PUT", "/mmds", {"a": "secret"})
            ttl = "X-metadata-token-ttl-seconds: %d"
            ask = ("PUT", "/latest/api/token")
            code, token = status(vm, *ask, ttl % 60)
            check(code == 200 and len(token) >= 32, "%d %s" % (code, token))
            check(get(vm, "/a", "X-metadata-token: " + token) == "secret", "with a token")
            check(get(vm, "/a", "X-aws-ec2-metadata-token: " + token) == "secret", "other name")
            wrong = token[:-1] + ("0" if token[-1] != "0" else "1")
            for words, want in ((("GET", "/a"), 401),
                                (("GET", "/a", "X-metadata-token: " + wrong), 401),
                                ((*ask,), 400), ((*ask, ttl % 0), 400), ((*ask, ttl % 21601), 400),
                                ((*ask, ttl % 9, "X-Forwarded-For: 1.2.3.4"), 400)):
                code, body = status(vm, *words)
                check(code == want and "secret" not in body, "%s: %d %s" % (words, code, body))
            code, short = status(vm, *ask, ttl % 1)
            vm.sh("sleep 2")  # its time is over
            code, body = status(vm, "GET", "/a", "X-metadata-token: " + short)
            check(code == 401, "a token of one second after two: %d %s" % (code, body))


@case("full")
def mmds_that_is_not_configured_does_not_answer(host, work):
    with Namespace() as ns:
        ns.tap()
        with boot(host, work) as vm:
            vm.api.request("PUT", "/mmds", {"a": "b"})  # refused; makes no difference
            sniffer = Sniffer("tap0")
            vm.sh("! wget -q -T 2 -O - %s/a" % URL)
            vm.sh("! nc -w 2 %s 80 < /dev/null" % ADDRESS)
            sniffer.finish()
            check(sniffer.found, "the guest's question did not reach the network")


class Listener:
    """Of the host, at the address itself."""

    def __init__(self):
        self.taken = 0
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind((ADDRESS, 80))
        self.sock.listen(5)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            while True:
                c, _ = self.sock.accept()
                self.taken += 1
                c.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhost!")
                c.close()
        except OSError:
            pass

    def close(self):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


@case("full")
def BL_159_the_hosts_own_metadata_address_is_out_of_reach(host, work):
    with Namespace() as ns:
        ns.tap()
        ip("addr", "add", ADDRESS + "/32", "dev", "tap0")
        listener = Listener()
        with boot(host, work, version="V1") as vm:
            vm.api.must("PUT", "/mmds", {"a": "mine"})
            check(get(vm, "/a") == "mine", "the guest's own")
            vm.sh("! wget -q -T 2 -O - http://%s:8080/" % ADDRESS)
            # By another way to the same address: the host as a gateway.
            vm.sh("ip route del %s; ip route add default via %s" % (ADDRESS, HOST))
            check(get(vm, "/a") == "mine", "through a gateway")
        check(listener.taken == 0, "the host's listener was reached")
        listener.close()
