#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""System calls of the monitor's loop thread for each block request.

usage: blk_calls.py [FILE]     (default: a file of 64 MiB in /var/tmp)
Runs build/bench/blk_ring under strace and counts what the loop's thread does
from the first request on. A kick and a vCPU's KVM_RUN are not in it.
"""

import collections
import os
import re
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.join(TOP, "build", "bench", "blk_ring")
RUNS = [(1, 1, 2000), (32, 16, 16000), (32, 1, 16000)]
CALL = re.compile(r"^(\d+) +(\w+)\(")


def count(path, depth, batch, number, kind, direct):
    with tempfile.NamedTemporaryFile(mode="r") as out:
        argv = [PROGRAM, path, str(depth), str(batch), str(number), kind] + direct
        run = subprocess.run(["strace", "-f", "-qq", "-o", out.name] + argv,
                             stdout=subprocess.PIPE, timeout=600, check=True)
        lines = out.read().splitlines()
    loop = next(l.split()[0] for l in lines if 'PR_SET_NAME, "loop"' in l)
    calls = collections.Counter()
    for line in lines:
        m = CALL.match(line)
        if m and m.group(1) == loop:
            calls[m.group(2)] += 1
    return run.stdout.decode().strip(), calls


def main(argv):
    if len(argv) > 1:
        path, made = argv[1], None
    else:
        fd, path = tempfile.mkstemp(dir="/var/tmp")
        made = path
        os.write(fd, bytes(64 << 20))
        os.close(fd)
    try:
        for direct in [], ["direct"]:
            for kind in "read", "write":
                for depth, batch, number in RUNS:
                    said, calls = count(path, depth, batch, number, kind, direct)
                    total = sum(calls.values())
                    print("%-6s %-5s depth %2d batch %2d: %.3f system calls a request (%s) %s" % (
                        "direct" if direct else "cached", kind, depth, batch, total / number,
                        ", ".join("%s %d" % c for c in calls.most_common(3)), said), flush=True)
    finally:
        if made:
            os.unlink(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
