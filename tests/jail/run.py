#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of mote-jail: jail_probe.c in the place of the monitor, and the real one.

Prints `ok NAME`, `not ok NAME` or `skip NAME: why`, and a closing line. Names begin with the
public bug report that they stand for, if there is one.
"""
import argparse
import os
import sys
import traceback

import harness
import test_cgroup  # noqa: F401  the import registers its tests
import test_end  # noqa: F401
import test_in_place  # noqa: F401
import test_inside  # noqa: F401
import test_monitor  # noqa: F401
import test_refusals  # noqa: F401
import test_user_ns  # noqa: F401


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(harness.TOP, "build"))
    parser.add_argument("--vmm", help="the monitor (default: mote-vmm of the build)")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    build = os.path.abspath(args.build)
    vmm = os.path.abspath(args.vmm or os.path.join(build, "mote-vmm"))
    for program in (os.path.join(build, "mote-jail"), os.path.join(build, "tests", "jail_probe")):
        if not os.access(program, os.X_OK):
            print(f"not ok {program}: missing; run make build-gcc first")
            print("0 passed, 1 failed, 0 skipped")
            return 1
    count = {"ok": 0, "not ok": 0, "skip": 0}
    for function in harness.TESTS:
        name = function.__name__
        if args.names and not any(n in name for n in args.names):
            continue
        box = harness.Box(build, vmm)
        verdict, why = "ok", ""
        try:
            function(box)
            box.nothing_left()
        except harness.Skip as reason:
            verdict, why = "skip", f": {reason}"
        except Exception:
            verdict = "not ok"
            print(traceback.format_exc(), file=sys.stderr, flush=True)
        finally:
            box.close()
        count[verdict] += 1
        print(f"{verdict} {name}{why}", flush=True)
    print(f"{count['ok']} passed, {count['not ok']} failed, {count['skip']} skipped")
    return 1 if count["not ok"] else 0


sys.exit(main())
