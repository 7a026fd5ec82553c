#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of tests/api one after the other.

Options, output and exit code are those of tests/kvm/run.py, whose harness it
uses; `--kvm without` leaves out what needs /dev/kvm.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[0:0] = [HERE, os.path.join(os.path.dirname(HERE), "kvm")]

import importlib.util  # noqa: E402


def runner():
    """tests/kvm/run.py, which has the same name as this file."""
    path = os.path.join(os.path.dirname(HERE), "kvm", "run.py")
    spec = importlib.util.spec_from_file_location("kvm_run", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tables():
    """The modules with cases: every file *_cases.py of this folder."""
    for name in sorted(os.listdir(HERE)):
        if name.endswith("_cases.py"):
            yield importlib.import_module(name[:-3])


if __name__ == "__main__":
    kvm_run = runner()
    sys.exit(kvm_run.main([c for t in tables() for c in t.CASES], __doc__))
