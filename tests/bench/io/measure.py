#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The measuring half of tests/bench/io.sh; see there.

usage: measure.py [--only blk,net,vsock] [--qemu yes|no] [--n RUNS] WORK
WORK holds bench.img, stream and vmlinux. Prints; judges nothing.
"""
import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
VMM = os.path.join(TOP, "build", "mote-vmm")
TRACE = "/sys/kernel/debug/tracing"
ENTER = TRACE + "/events/raw_syscalls/sys_enter"
VERBOSE = bool(os.environ.get("VERBOSE"))  # the guest's console
BEGAN = time.monotonic()
GUARD_S = 900  # against a hang; a TCG host is slow
WORDS = "console=ttyS0 quiet panic=-1 root=/dev/vda ro init=/bench bench="
NAMES = {16: "ioctl", 426: "io_uring_enter", 0: "read", 1: "write", 19: "readv",
         20: "writev", 7: "poll", 271: "ppoll", 202: "futex", 295: "preadv",
         232: "epoll_wait", 441: "epoll_pwait2", 281: "epoll_pwait", 47: "recvmsg",
         46: "sendmsg", 45: "recvfrom", 44: "sendto", 228: "clock_gettime"}


class Syscalls:
    """Counts the system calls of all threads of a process, by kernel trace."""

    possible = os.path.exists(ENTER)

    def __init__(self, pid):
        self.pid = pid
        self.trigger = "hist:keys=common_pid,id"

    def threads(self):
        return {int(t) for t in os.listdir("/proc/%d/task" % self.pid)}

    def start(self):
        self._write("!" + self.trigger, quiet=True)
        self._write(self.trigger)

    def stop(self):
        mine, counts = self.threads(), {}
        with open(ENTER + "/hist") as f:
            text = f.read()
        self._write("!" + self.trigger)
        for pid, nr, hits in re.findall(
                r"\{ common_pid:\s*(\d+), id:\s*(\d+)[^}]*\} hitcount:\s*(\d+)", text):
            if int(pid) in mine:
                counts[int(nr)] = counts.get(int(nr), 0) + int(hits)
        return counts

    @staticmethod
    def _write(word, quiet=False):
        try:
            with open(ENTER + "/trigger", "w") as f:
                f.write(word)
        except OSError:
            if not quiet:
                raise


class Guest:
    """A monitor with the bench image; its console is read line by line."""

    def __init__(self, argv, pass_fds=()):
        self.argv = argv
        self.proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, pass_fds=pass_fds)
        self.lines = []
        self.timer = threading.Timer(GUARD_S, self.proc.kill)
        self.timer.start()

    def wait(self, *starts):
        for raw in self.proc.stdout:
            line = raw.decode(errors="replace").strip()
            self.lines.append(line)
            if VERBOSE:
                print("%8.2f | %s" % (time.monotonic() - BEGAN, line), flush=True)
            if line.startswith(starts):
                return line
        raise SystemExit("measure: the guest ended early: %s\n%s" % (
            " ".join(self.argv), "\n".join(self.lines[-30:])))

    def run(self):
        """{"iops": ..., "calls": {...}} of the work in the guest."""
        out = {}
        self.wait("mark start")
        counter = Syscalls(self.proc.pid) if Syscalls.possible else None
        if counter:
            counter.start()
        self.wait("mark end")
        if counter:
            out["calls"] = counter.stop()
        while True:
            line = self.wait("result", "done")
            if line == "done":
                return out
            _, name, value = line.split()
            out[name] = float(value)

    def close(self):
        self.timer.cancel()
        self.proc.send_signal(signal.SIGTERM)
        try:
            self.proc.wait(20)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()


class Bench:
    def __init__(self, work, runs, with_qemu):
        self.work, self.runs = work, runs
        self.monitors = ["mote", "qemu"] if with_qemu else ["mote"]
        self.kernel = os.path.join(work, "vmlinux")
        self.root = os.path.join(work, "bench.img")
        self.disk = os.path.join(work, "disk.img")
        self.shown = set()

    # --- the two monitors, as their users run them

    def mote(self, words, tap=None, vsock=None):
        doc = {"boot-source": {"kernel_image_path": self.kernel, "boot_args": WORDS + words},
               "machine-config": {"vcpu_count": 1, "mem_size_mib": 256},
               "drives": [{"drive_id": "root", "path_on_host": self.root,
                           "is_root_device": False, "is_read_only": True},
                          {"drive_id": "disk", "path_on_host": self.disk,
                           "is_root_device": False, "is_read_only": False,
                           "cache_type": "Writeback"}]}
        if tap:
            doc["network-interfaces"] = [{"iface_id": "eth0", "host_dev_name": tap,
                                          "guest_mac": "06:00:00:00:00:01"}]
        if vsock:
            doc["vsock"] = {"guest_cid": 3, "uds_path": vsock}
        path = os.path.join(self.work, "mote.json")
        with open(path, "w") as f:
            json.dump(doc, f)
        return [VMM, "--no-api", "--config-file", path]

    def qemu(self, words, tap=None, vsock=None):
        argv = ["qemu-system-x86_64", "-M",
                "microvm,acpi=off,x-option-roms=on,pit=on,pic=on,isa-serial=on,auto-kernel-cmdline=on",
                "-bios", "bios-microvm.bin", "-accel", "kvm", "-cpu", "host", "-m", "256",
                "-smp", "1", "-nodefaults", "-no-user-config", "-display", "none",
                "-no-reboot", "-serial", "stdio", "-kernel", self.kernel,
                "-append", WORDS + words, "-object", "iothread,id=io0"]
        for name, path, ro in (("root", self.root, "on"), ("disk", self.disk, "off")):
            argv += ["-drive", "if=none,id=%s,file=%s,format=raw,aio=io_uring,read-only=%s" % (
                name, path, ro),
                "-device", "virtio-blk-device,drive=%s,iothread=io0" % name]
        if tap:
            argv += ["-netdev", "tap,id=n0,ifname=%s,script=no,downscript=no,vnet_hdr=on" % tap,
                     "-device", "virtio-net-device,netdev=n0,mac=06:00:00:00:00:01"]
        return argv

    def guest(self, monitor, words, **kw):
        argv = getattr(self, monitor)(words, **kw)
        if (monitor, "tap" in kw) not in self.shown:
            self.shown.add((monitor, "tap" in kw))
            print("# %s: %s" % (monitor, " ".join(argv)))
        return Guest(argv)

    def measure(self, monitor, words, **kw):
        g = self.guest(monitor, words, **kw)
        try:
            return g.run()
        finally:
            g.close()

    # --- block

    def blk(self, ios):
        print("%-26s %10s %10s %8s   %s" % ("block, 4 KiB", "mote", "qemu", "ratio",
                                            "system calls per request (mote)"))
        for name, rw, depth, batch, engine in (
                ("randread depth 1", "randread", 1, 1, "psync"),
                ("randread depth 32", "randread", 32, 1, "io_uring"),
                ("randread depth 32 batch 16", "randread", 32, 16, "io_uring"),
                ("randwrite depth 32", "randwrite", 32, 1, "io_uring")):
            words = "fio,%s,%s,%d,%d,%d,%s" % (rw, rw, depth, batch, ios, engine)
            got = {m: [] for m in self.monitors}
            for _ in range(self.runs):
                for m in self.monitors:  # in turn
                    got[m].append(self.measure(m, words))
            self.row(name, got, "iops", ios)

    def row(self, name, got, key, requests):
        values = {m: statistics.median(g[key] for g in got[m]) for m in got}
        calls = got["mote"][-1].get("calls", {})
        total = sum(calls.values())
        text = ""
        if calls:
            text = "%.2f (%s)" % (total / requests, ", ".join(
                "%s %.2f" % (NAMES.get(nr, nr), n / requests)
                for nr, n in sorted(calls.items(), key=lambda kv: -kv[1])[:4]))
        qemu = values.get("qemu")
        print("%-26s %10.0f %10s %8s   %s" % (
            name, values["mote"], "%.0f" % qemu if qemu else "-",
            "%.2f" % (values["mote"] / qemu) if qemu else "-", text))
        if "qemu" in got and got["qemu"][-1].get("calls"):
            calls = got["qemu"][-1]["calls"]
            print("%-26s %55s %.2f (qemu)" % ("", "", sum(calls.values()) / requests))
        sys.stdout.flush()

    # --- net

    def net(self, mib):
        tap = "motebench0"
        subprocess.run(["ip", "tuntap", "add", tap, "mode", "tap", "vnet_hdr"], check=True)
        server = None
        try:
            subprocess.run(["ip", "addr", "add", "10.99.0.1/24", "dev", tap], check=True)
            subprocess.run(["ip", "link", "set", tap, "up"], check=True)
            server = subprocess.Popen(["iperf3", "-s", "-B", "10.99.0.1"],
                                      stdout=subprocess.DEVNULL)
            print("%-26s %10s %10s %8s   %s" % ("net, iperf3, Mbit/s", "mote", "qemu", "ratio",
                                                "system calls per MiB (mote)"))
            for name, way in (("guest to host", "out"), ("host to guest", "in")):
                words = "net,10.99.0.2,10.99.0.1,%d,%s" % (mib, way)
                got = {m: [] for m in self.monitors}
                for _ in range(self.runs):
                    for m in self.monitors:
                        got[m].append(self.measure(m, words, tap=tap))
                self.row(name, got, "mbit", mib)
        finally:
            if server:
                server.terminate()
                server.wait()
            subprocess.run(["ip", "link", "del", tap], check=True)

    # --- vsock beside a relay between two processes

    def stream(self, *words):
        return subprocess.Popen([os.path.join(self.work, "stream"), *words],
                                stdout=subprocess.PIPE, text=True)

    def receiver(self, *words):
        p = self.stream(*words)
        p.stdout.readline()  # "listening"
        return p

    @staticmethod
    def rate(p, size):
        got, ns = map(int, p.communicate(timeout=GUARD_S)[0].split())
        if got != size:
            raise SystemExit("measure: %d of %d bytes arrived" % (got, size))
        return size / (ns / 1e9) / (1 << 20)

    def path(self, name):
        path = os.path.join(self.work, name)
        if os.path.exists(path):
            os.unlink(path)
        return path

    def relay_rate(self, size):
        a, b = self.path("a.sock"), self.path("b.sock")
        out = self.receiver("recv", b)
        relay = self.receiver("relay", a, b)
        send = self.stream("send", a, str(size))
        rate = self.rate(out, size)
        relay.wait(GUARD_S)
        send.wait(GUARD_S)
        return rate

    def vsock_out_rate(self, size):
        uds = self.path("v.sock")
        out = self.receiver("recv", self.path("v.sock_52"))
        g = self.guest("mote", "vsock,send,52,%d" % size, vsock=uds)
        try:
            g.run()
            return self.rate(out, size)
        finally:
            g.close()

    def vsock_in_rate(self, size):
        uds = self.path("v.sock")
        g = self.guest("mote", "vsock,recv,52", vsock=uds)
        try:
            g.wait("listening")
            send = self.stream("send", uds + ":52", str(size))
            got, ns = map(int, g.wait("%d " % size).split())
            send.wait(GUARD_S)
            return got / (ns / 1e9) / (1 << 20)
        finally:
            g.close()

    def vsock(self, size):
        relay = [self.relay_rate(size) for _ in range(max(3, self.runs))]
        out = [self.vsock_out_rate(size) for _ in range(self.runs)]
        into = [self.vsock_in_rate(size) for _ in range(self.runs)]
        r, o, i = (statistics.median(v) for v in (relay, out, into))
        print("%-26s %10s %10s %8s" % ("stream, MiB/s", "vsock", "relay", "ratio"))
        print("%-26s %10.0f %10.0f %8.2f" % ("guest to host", o, r, o / r))
        print("%-26s %10.0f %10.0f %8.2f" % ("host to guest", i, r, i / r))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--only", default="blk,net,vsock")
    a.add_argument("--qemu", default="yes", choices=("yes", "no"))
    a.add_argument("-n", "--runs", type=int, default=3)
    a.add_argument("--ios", type=int, default=4096)
    a.add_argument("--mib", type=int, default=64)
    a.add_argument("work")
    o = a.parse_args()
    b = Bench(o.work, o.runs, o.qemu == "yes")
    with open(b.disk, "wb") as f:  # every block written: reads find data
        for _ in range(64):
            f.write(os.urandom(1 << 20))
    start = time.monotonic()
    for what in o.only.split(","):
        {"blk": lambda: b.blk(o.ios), "net": lambda: b.net(o.mib),
         "vsock": lambda: b.vsock(o.mib << 20)}[what]()
        sys.stdout.flush()
    print("# %.0f s on this machine's clock, n=%d" % (time.monotonic() - start, o.runs))


if __name__ == "__main__":
    main()
