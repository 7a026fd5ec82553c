#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How long a guest takes to start, and what the monitor costs beside it.

usage: start.py [-n RUNS] [--kernel tiny|sandbox] [--mem SIZE]
Prints median and range; it judges nothing.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(TOP, "build")
LINE = re.compile(r"boot ([\d.]+) ms \(start ([\d.]+), kernel ([\d.]+), agent ([\d.]+)\), "
                  r"command ([\d.]+) ms, total ([\d.]+) ms")


def config(work, kernel, mem_mib):
    guest = os.path.join(BUILD, "guest")
    doc = {"boot-source": {"kernel_image_path": os.path.join(guest, kernel, "vmlinux"),
                           "initrd_path": os.path.join(guest, "agent.cpio"),
                           "boot_args": "console=null quiet panic=-1"},
           "machine-config": {"vcpu_count": 1, "mem_size_mib": mem_mib},
           "drives": [{"drive_id": "root", "path_on_host": os.path.join(guest, "rootfs.img"),
                       "is_root_device": True, "is_read_only": True}],
           "vsock": {"guest_cid": 3, "uds_path": os.path.join(work, "v.sock")}}
    path = os.path.join(work, "c.json")
    with open(path, "w") as f:
        json.dump(doc, f)
    return path


def first_run_us(kernel, mem_mib):
    """exec of mote-vmm to its first KVM_RUN, told by its exit file."""
    with tempfile.TemporaryDirectory() as work:
        exit_file = os.path.join(work, "exit.json")
        now = time.monotonic_ns() // 1000
        p = subprocess.Popen(
            [os.path.join(BUILD, "mote-vmm"), "--config-file", config(work, kernel, mem_mib),
             "--no-api", "--exit-file", exit_file, "--start-time-us", str(now)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        # The agent connects out when it is up: until then the VM runs.
        time.sleep(0.5)  # long after the first KVM_RUN, which is what counts
        p.send_signal(signal.SIGTERM)
        p.wait(60)
        with open(exit_file) as f:
            return json.load(f)["first_run_us"]


def cpu_ms(argv):
    """Processor time of a process, from its exec to its end."""
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as p:
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise SystemExit("%s failed" % argv)
    return (usage.ru_utime + usage.ru_stime) * 1000


def jail_ms(runs):
    """The monitor's --version as it is, and in the jail that mote run uses."""
    vmm = os.path.join(BUILD, "mote-vmm")
    user = ["--uid", "54321", "--gid", "54321"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as work:
        jail = [os.path.join(BUILD, "mote-jail"), "--id", "bench", "--exec-file", vmm, *user,
                "--new-net-ns", "--in-place", work, "--", "--version"]
        return zip(*((cpu_ms([vmm, "--version"]), cpu_ms(jail)) for _ in range(runs)))


def memory_kib(pid):
    """Private and proportional KiB of a process, guest memory left out."""
    private = pss = 0
    guest = False
    with open("/proc/%d/smaps" % pid) as f:
        for line in f:
            head = line.split()
            if re.match(r"^[0-9a-f]+-[0-9a-f]+ ", line):
                name = head[5] if len(head) > 5 else ""
                guest = "mote-guest-ram" in name or name.endswith(("vmlinux", "agent.cpio"))
            elif not guest and head[0] in ("Private_Clean:", "Private_Dirty:"):
                private += int(head[1])
            elif not guest and head[0] == "Pss:":
                pss += int(head[1])
    return private, pss


def show(name, values, unit="ms"):
    print("%-44s %9.1f %s  (%.1f to %.1f, n=%d)" % (
        name, statistics.median(values), unit, min(values), max(values), len(values)))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("-n", type=int, default=5)
    a.add_argument("--kernel", default="tiny")
    a.add_argument("--mem", type=int, default=128, help="MiB")
    a = a.parse_args()
    plain, jailed = jail_ms(20 * a.n)
    first = [first_run_us(a.kernel, a.mem) / 1000 for _ in range(a.n)]
    rows = []
    for _ in range(a.n):
        r = subprocess.run([os.path.join(BUILD, "mote"), "run", "-v", "--kernel", a.kernel,
                            "--mem", "%dM" % a.mem, "--", "echo", "x"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
        m = LINE.search(r.stderr)
        if r.returncode or not m:
            raise SystemExit("mote run failed: %s" % r.stderr)
        rows.append([float(x) for x in m.groups()])
    p = subprocess.Popen([os.path.join(BUILD, "mote"), "run", "--kernel", a.kernel, "--mem",
                          "%dM" % a.mem, "--name", "bench", "--", "/bin/sh", "-c", "echo up; cat"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    p.stdout.readline()
    ls = json.loads(subprocess.run([os.path.join(BUILD, "mote"), "ls", "--json"],
                                   stdout=subprocess.PIPE).stdout)
    pid = [v["pid"] for v in ls["sandboxes"] if v["name"] == "bench"][0]
    private, pss = memory_kib(pid)
    p.stdin.close()
    p.wait()
    show("processor time of mote-vmm --version", plain)
    show("the same in a jail", jailed)
    show("exec of mote-vmm to the first KVM_RUN", first)
    show("start of mote run to the guest's user space", [r[1] + r[2] for r in rows])
    show("start of mote run to agent ready", [r[0] for r in rows])
    show("start of mote run to the command's end", [r[0] + r[4] for r in rows])
    print("%-44s %9.2f MiB private, %.2f MiB proportional" % (
        "monitor's memory beside the guest's", private / 1024, pss / 1024))


if __name__ == "__main__":
    main()
