# SPDX-License-Identifier: Apache-2.0
"""Runs the end-to-end cases of a tier and prints one line for each."""

import fnmatch
import os
import shutil
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import cases_balloon
import cases_cow
import cases_exec
import cases_fork
import cases_jail
import cases_life
import cases_console
import cases_disk
import cases_mmds
import cases_net
import cases_snapshot
import cases_soak
import cases_vsock
from harness import Failed, Host, Skip

MODULES = {"quick": [cases_snapshot, cases_fork, cases_life, cases_jail, cases_disk, cases_exec, cases_vsock, cases_net],
           "full": [cases_snapshot, cases_fork, cases_life, cases_jail, cases_disk, cases_cow, cases_exec, cases_vsock, cases_balloon,
                    cases_console, cases_net, cases_mmds],
           "soak": [cases_soak]}


def cases(tier):
    for module in MODULES[tier]:
        yield from (c for c in module.CASES if tier in c.tiers)


def main(argv):
    if len(argv) < 2 or argv[1] not in MODULES:
        print("usage: run.sh quick|full|soak [--filter GLOB]", file=sys.stderr)
        return 2
    tier = argv[1]
    glob = argv[argv.index("--filter") + 1] if "--filter" in argv else "*"
    counts = {"ok": 0, "not ok": 0, "skip": 0}
    host = Host()
    if not host.kvm:
        word = "not ok" if os.environ.get("CI") == "true" else "skip"
        print("%s e2e (no usable /dev/kvm on this host)" % word)
        counts[word] += 1
    else:
        for case in cases(tier):
            if fnmatch.fnmatch(case.__name__, glob):
                counts[judge(case, host)] += 1
    print("%d passed, %d failed, %d skipped" % (
        counts["ok"], counts["not ok"], counts["skip"]))
    return 1 if counts["not ok"] else 0


def judge(case, host):
    work = tempfile.mkdtemp(prefix="mote-e2e-")
    start = time.monotonic()
    try:
        case(host, work)
        word, why = "ok", ""
    except Skip as e:
        word, why = "skip", " (%s)" % e
    except Failed as e:
        word, why = "not ok", " (%s)" % e
    except Exception:
        word, why = "not ok", " (%s)" % traceback.format_exc()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print("%s %s%s  [%.1f s]" % (word, case.__name__, why, time.monotonic() - start),
          flush=True)
    return word


if __name__ == "__main__":
    sys.exit(main(sys.argv))
