#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of tests/kvm one after the other on this host's /dev/kvm.

usage: run.sh [--vmm PATH] [--payloads DIR] [--filter GLOB] [--out DIR] [--list]

Prints `ok NAME`, `not ok NAME (why)` or `skip NAME (why)` for each case and a
closing line `N passed, N failed, N skipped`; exit code 1 when one failed.
"""

import argparse
import fnmatch
import os
import shutil
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)

from harness import Failure, Host, Skip, Test  # noqa: E402


def options(about):
    p = argparse.ArgumentParser(description=about.split("\n\n")[0])
    p.add_argument("--vmm", default=os.path.join(ROOT, "build", "mote-vmm"),
                   help="the monitor (default: build/mote-vmm)")
    p.add_argument("--payloads",
                   help="directory of the guest programs (default: "
                        "guest/payloads beside the monitor)")
    p.add_argument("--filter", default="*", metavar="GLOB",
                   help="only the cases whose name matches")
    p.add_argument("--kvm", choices=("with", "without"),
                   help="only the cases that need /dev/kvm, or the others")
    p.add_argument("--out", metavar="DIR",
                   help="keep each case's files in a new directory there")
    p.add_argument("--list", action="store_true",
                   help="print the cases' names and end")
    return p.parse_args()


def run_case(host, case, directory):
    """-> ("ok" | "not ok" | "skip", why, report for the reader)."""
    t = Test(host, case.name, directory)
    try:
        if case.needs_kvm and host.kvm_missing:
            if os.environ.get("CI") == "true":
                raise Failure(host.kvm_missing)
            raise Skip(host.kvm_missing)
        case.function(t)
    except Skip as e:
        return "skip", str(e), ""
    except Failure as e:
        return "not ok", str(e), t.report()
    except Exception as e:  # a case that breaks is a case that failed
        return "not ok", repr(e), traceback.format_exc() + t.report()
    finally:
        t.end()
    return "ok", "", ""


def run_all(host, cases, out):
    count = {"ok": 0, "not ok": 0, "skip": 0}
    start = time.monotonic()
    for case in cases:
        directory = os.path.join(out, case.name)
        os.mkdir(directory, 0o755)
        began = time.monotonic()
        verdict, why, report = run_case(host, case, directory)
        took = time.monotonic() - began
        count[verdict] += 1
        print(verdict, case.name, f"({why})" if why else f"{took:.2f} s",
              flush=True)
        for line in report.splitlines():
            print("    |", line, flush=True)
    print(f"# {time.monotonic() - start:.0f} s", flush=True)
    print(f"{count['ok']} passed, {count['not ok']} failed, "
          f"{count['skip']} skipped", flush=True)
    return 1 if count["not ok"] else 0


def wanted(case, o):
    return (fnmatch.fnmatchcase(case.name, o.filter) and
            (not o.kvm or case.needs_kvm == (o.kvm == "with")))


def main(cases, about):
    """Runs what the command line asks for; the exit code."""
    o = options(about)
    cases = [c for c in cases if wanted(c, o)]
    if o.list:
        for c in cases:
            print(c.name)
        return 0
    if not cases:
        sys.exit(f"run.py: no case matches {o.filter}; --list shows them")
    vmm = os.path.abspath(o.vmm)
    payloads = os.path.abspath(
        o.payloads or os.path.join(os.path.dirname(vmm), "guest", "payloads"))
    if not os.access(vmm, os.X_OK):
        sys.exit(f"run.py: {vmm}: no such program; build it with make")
    if not os.path.isdir(payloads):
        sys.exit(f"run.py: {payloads}: no guest programs; make payloads")
    host = Host(vmm, payloads)
    print("#", host.describe(), flush=True)
    if o.out:
        os.makedirs(o.out, exist_ok=True)
        out = tempfile.mkdtemp(prefix="kvm-", dir=os.path.abspath(o.out))
        print("# files in", out, flush=True)
        return run_all(host, cases, out)
    out = tempfile.mkdtemp(prefix="mote-kvm-")
    os.chmod(out, 0o755)  # one case runs as another user
    try:
        return run_all(host, cases, out)
    finally:
        shutil.rmtree(out, ignore_errors=True)


if __name__ == "__main__":
    import guest_cases
    import life_cases
    import monitor_cases
    sys.exit(main(guest_cases.CASES + life_cases.CASES + monitor_cases.CASES,
                  __doc__))
