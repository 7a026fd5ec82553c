#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the agent as an ordinary process: no VM, milliseconds per command.

usage: run.py [--agent FILE] [--quick] [PART-OF-A-NAME]
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import cases_exec
import cases_life
import cases_protocol
import cases_restore
import harness


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--agent", default="build/mote-agent",
                        help="the program to test (default: %(default)s)")
    parser.add_argument("--quick", action="store_true",
                        help="leave out tests of memory and throughput")
    parser.add_argument("only", nargs="?", help="part of a test's name")
    args = parser.parse_args()
    if not os.access(args.agent, os.X_OK):
        sys.exit("%s: not there; build it with make" % args.agent)
    tests = [getattr(m, n) for m in (cases_exec, cases_life, cases_protocol,
                                   cases_restore)
             for n in vars(m) if n.startswith("test_")]
    sys.exit(harness.run_all(tests, args.agent, args.only, args.quick))


if __name__ == "__main__":
    main()
