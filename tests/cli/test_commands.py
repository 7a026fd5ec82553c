# SPDX-License-Identifier: Apache-2.0
"""exec, ls, stop, doctor and bench."""
import glob
import json
import os
import re
import signal

from harness import GUARD, check, cmdline, machine, one_line, test, wait_for


# --- exec, ls, stop ------------------------------------------------------------


@test
def exec_in_a_named_machine(box):
    with machine(box, "m"):
        check(box.run("exec", "m", "--", "/bin/sh", "-c",
                      "echo hi; echo e >&2; exit 7"), 7, b"hi\n", b"e\n")
        check(box.run("exec", "m", "cat", input=b"abc"), 0, b"abc")
        check(box.run("exec", "m", "--", "nope-nope"), 127, b"",
              one_line(rb"nope-nope"))
        check(box.run("exec", "--timeout", "300ms", "m", "sleep", "100"), 124,
              b"", one_line(rb"time limit"))
        check(box.run("exec", "m", input=b"echo $((6*7)); exit 9"), 9, b"42\n")
        vm_id = json.loads(box.run("ls", "--json")[1])["sandboxes"][0]["id"]
        check(box.run("exec", vm_id, "-e", "echo", "x"), 127, None,
              re.compile(rb"-e"))
        check(box.run("exec", vm_id, "echo", "by id"), 0, b"by id\n")
    check(box.run("exec", "m", "true"), 125, b"", one_line(rb"'m': none"))
    check(box.run("exec"), 125, b"", one_line(rb"NAME is missing"))


@test
def BL_111_a_blocked_command_blocks_no_other(box):
    with machine(box, "m"):
        slow = [box.start("exec", "m", "sleep", "1000") for _ in range(2)]
        for _ in range(5):
            check(box.run("exec", "m", "echo", "ok"), 0, b"ok\n")
        for p in slow:
            p.send_signal(signal.SIGINT)
            p.communicate(timeout=GUARD)
            assert p.returncode == 130


@test
def ending_exec_leaves_the_machine(box):
    with machine(box, "m"):
        mark = f"{os.getpid()}8642"
        p = box.start("exec", "m", "/bin/sh", "-c", f"echo on; sleep {mark}")
        assert p.stdout.readline() == b"on\n"
        p.terminate()
        p.communicate(timeout=GUARD)
        assert p.returncode == 143
        wait_for(lambda: not any(
            mark.encode() in cmdline(pid)
            for pid in filter(str.isdigit, os.listdir("/proc"))),
            "its command has ended", 10)
        check(box.run("exec", "m", "echo", "on"), 0, b"on\n")


@test
def BL_057_exec_waits_for_a_machine_that_boots(box):
    slot = re.compile(r"[a-z0-9]{12}")
    p = box.start("run", "--name", "m", "--", "sleep", "1000")
    try:
        wait_for(lambda: any(map(slot.fullmatch, box.slots())) and
                 os.path.exists(f"{box.run_dir}/vm/{box.slots()[0]}/vm.json"),
                 "the machine is known")
        check(box.run("exec", "m", "echo", "first"), 0, b"first\n")
    finally:
        p.terminate()
        p.communicate(timeout=GUARD)


@test
def exec_sees_the_machine_die(box):
    with machine(box, "m"):
        p = box.start("exec", "m", "/bin/sh", "-c", "echo on; sleep 1000")
        assert p.stdout.readline() == b"on\n"
        os.kill(box.notes()["pid"], signal.SIGKILL)
        out, err = p.communicate(timeout=GUARD)
        assert p.returncode == 125 and one_line(rb"").search(err), err


@test
def taken_name_is_refused(box):
    with machine(box, "m"):
        check(box.run("run", "--name", "m", "--", "true"), 125, b"",
              one_line(rb"name 'm': taken by a running machine; .*mote stop m"))
        assert len(box.slots()) == 1
    check(box.run("run", "--name", "m", "--", "echo", "free"), 0, b"free\n")


@test
def ls_table_and_json(box):
    check(box.run("ls"), 0, None)
    with machine(box, "web-1", "--mem", "256M", "--cpus", "2") as p:
        with machine(box, "db"):
            code, out, err = box.run("ls")
            assert code == 0 and err == b""
            lines = out.decode().splitlines()
            assert lines[0].split() == ["NAME", "ID", "STATE", "PID", "CPUS",
                                        "MEM", "UPTIME"]
            assert [row.split()[0] for row in lines[1:]] == ["web-1", "db"]
            assert re.search(r"running +\d+ +2 +256MiB  \d+s$", lines[1])
            m = json.loads(box.run("ls", "--json")[1])["sandboxes"][0]
    assert m["name"] == "web-1" and m["cpus"] == 2
    assert m["mem_bytes"] == 256 << 20 and m["owner_pid"] == p.pid
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z",
                        m["started_at"])
    assert 0 <= m["uptime_ms"] < GUARD * 1000


@test
def stop_ends_machines(box):
    p = box.start("run", "--name", "a", "--", "sleep", "1000")
    q = box.start("run", "--name", "b", "--", "sleep", "1000")
    box.wait_running("a")
    box.wait_running("b")
    check(box.run("stop", "a"), 0)
    p.communicate(timeout=GUARD)
    assert p.returncode == 143
    check(box.run("stop", "--force", "b"), 0)
    q.communicate(timeout=GUARD)
    assert q.returncode == -9
    assert box.slots() == [] and box.names() == []
    check(box.run("stop", "a"), 1, b"", one_line(rb"'a': none"))
    code, _, err = box.run("stop", "--json", "a")
    error = json.loads(err)["error"]
    assert code == 1 and error["code"] == "not_found" and error["remedy"]


# --- doctor --------------------------------------------------------------------


@test
def doctor_with_and_without_problems(box):
    code, out, err = box.run("doctor", "--json")
    doc = json.loads(out)
    checks = {c["name"]: c for c in doc["checks"]}
    assert err == b"" and doc["ok"] == (code == 0), (code, err)
    assert doc["probe"]["kvm"]["api_version"] == 12
    assert checks["guest_code"]["status"] == "ok"
    assert "0.31 ns" in checks["guest_code"]["detail"]
    assert checks["io_uring"]["status"] == "warning"
    assert "EPERM" in checks["io_uring"]["detail"]
    assert "not needed" in checks["vsock"]["detail"]
    for name in ("agent", "rootfs", "kernel_tiny", "kernel_sandbox"):
        assert checks[name]["status"] == "ok", checks[name]
    os.unlink(box.lib + "/guest/agent.cpio")
    code, out, _ = box.run("doctor", "--json")
    checks = {c["name"]: c for c in json.loads(out)["checks"]}
    assert code == 1 and checks["agent"]["status"] == "error"
    assert "make run" in checks["agent"]["remedy"]
    code, out, _ = box.run("doctor")
    assert code == 1 and re.search(rb"^agent +error +guest/agent.cpio: not "
                                   rb"built$", out, re.M), out
    assert b"\033" not in out
    os.unlink(box.lib + "/mote-vmm")
    code, out, _ = box.run("doctor")
    assert code == 1 and b"mote-vmm" in out


# --- bench ---------------------------------------------------------------------


def use_monitor(box, path):
    os.unlink(box.lib + "/mote-vmm")
    os.symlink(path, box.lib + "/mote-vmm")


@test
def bench_start_measures_the_monitor(box):
    use_monitor(box, os.path.join(os.path.dirname(box.mote), "mote-vmm"))
    before = set(glob.glob("/tmp/mote-bench-*"))
    code, out, err = box.run("bench", "start", "-n", "4", "--json")
    assert (code, err) == (0, b""), (code, err)
    doc = json.loads(out)
    assert doc["n"] == 4 and doc["api_cpu_bar_ms"] == 3, doc
    for name in ("api_wall", "api_cpu"):
        f = doc[name]
        assert 0 < f["min_ms"] <= f["median_ms"] <= f["p95_ms"] <= f["max_ms"], doc
    code, out, err = box.run("bench", "start", "-n", "1")
    assert (code, err) == (0, b""), (code, err)
    assert re.fullmatch(rb"exec of mote-vmm to its API answering, n=1\n"
                        rb"  wall .* ms, p95 .*\n  CPU time .*; bar 3 ms: (met|missed)\n",
                        out), out
    assert set(glob.glob("/tmp/mote-bench-*")) == before


@test
def bench_start_of_a_monitor_that_does_not_answer(box):
    use_monitor(box, "/bin/false")
    check(box.run("bench", "start"), 1, b"", one_line(rb"ended before it answered"))
    os.unlink(box.lib + "/mote-vmm")
    check(box.run("bench", "start"), 1, b"", one_line(rb"mote-vmm"))


@test
def bench_usage(box):
    check(box.run("bench"), 2, b"", one_line(rb"one of: start"))
    check(box.run("bench", "stop"), 2, b"", one_line(rb"bench stop: one of: start"))
    check(box.run("bench", "start", "x"), 2, b"", one_line(rb"takes no operand, such as x"))
    check(box.run("bench", "start", "-n", "0"), 2, b"", one_line(rb"--runs"))
