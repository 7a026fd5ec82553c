#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of `mote` without KVM: fake_vmm.py in the place of the monitor, the
real agent in its test mode in the place of the guest.

Prints `ok NAME`, `not ok NAME` or `skip NAME: why`, and a closing line. Names begin with the
public bug report that they stand for, if there is one.
"""
import argparse
import os
import sys
import traceback

import harness
import test_bench  # noqa: F401  the import registers its tests
import test_commands  # noqa: F401
import test_disks  # noqa: F401
import test_fork  # noqa: F401
import test_install  # noqa: F401
import test_jail  # noqa: F401
import test_machines  # noqa: F401
import test_options  # noqa: F401
import test_signals  # noqa: F401
import test_snapshot  # noqa: F401
import test_streams  # noqa: F401

def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(harness.TOP, "build"))
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    build = os.path.abspath(args.build)
    for program in ("mote", "mote-agent"):
        if not os.access(os.path.join(build, program), os.X_OK):
            print(f"not ok {program}: missing in {build}; run make first")
            print("0 passed, 1 failed, 0 skipped")
            return 1
    passed = failed = skipped = 0
    for function in harness.TESTS:
        name = function.__name__
        if args.names and not any(n in name for n in args.names):
            continue
        box = harness.Box(build)
        try:
            function(box)
            passed += 1
            print(f"ok {name}", flush=True)
        except harness.Skip as reason:
            skipped += 1
            print(f"skip {name}: {reason}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {name}", flush=True)
            print(traceback.format_exc(), file=sys.stderr, flush=True)
        finally:
            box.close()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


sys.exit(main())
