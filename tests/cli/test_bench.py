# SPDX-License-Identifier: Apache-2.0
"""bench boot, exits, profile, density: against a monitor without KVM."""
import glob
import json
import os
import re
import signal
import struct
import time

from harness import check, one_line, test, wait_for


def leftovers():
    return set(glob.glob("/tmp/mote-boot-*"))


def peer(box, name, text):
    path = os.path.join(box.dir, name)
    with open(path, "w") as f:
        f.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)
    return path


def report(box, **more):
    """What the fake monitor adds to its exit file."""
    path = os.path.join(box.dir, "report.json")
    with open(path, "w") as f:
        json.dump(more, f)
    return {"MOTE_FAKE_REPORT": path}


def symbols(box):
    """An ELF file of two functions at kernel addresses."""
    names = b"\0init\0idle\0"
    sym = b"\0" * 24
    for name, addr in ((1, 0xffffffff81001000), (6, 0xffffffff81002000)):
        sym += struct.pack("<IBBHQQ", name, 2, 0, 1, addr, 0x100)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, 3, 0)
    at = 64 + 3 * 64
    sections = b"\0" * 64
    sections += struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, at, len(sym), 2, 0, 8, 24)
    sections += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, at + len(sym), len(names), 0, 0, 1, 0)
    path = os.path.join(box.lib, "guest/tiny/vmlinux.debug")
    with open(path, "wb") as f:
        f.write(head + sections + sym + names)
    return path


# --- all of them -----------------------------------------------------------------


@test
def benches_of_a_boot_have_help_and_refuse_operands(box):
    for name in ("boot", "exits", "profile", "density"):
        code, out, err = box.run("bench", name, "--help")
        assert code == 0 and err == b"", (name, err)
        assert out.startswith(b"usage: mote bench " + name.encode()), out
        for option in (b"--kernel", b"--initrd", b"--mem", b"--cpus", b"--json"):
            assert option in out, (name, option)
        check(box.run("bench", name, "x"), 2, b"",
              one_line(rb"bench %s: takes no operand, such as x" % name.encode()))
        check(box.run("bench", name, "--mem", "1M"), 2, b"", one_line(rb"--mem"))
    check(box.run("bench", "boot", "-n", "0"), 2, b"", one_line(rb"--runs"))
    check(box.run("bench", "profile", "--hz", "10001"), 2, b"", one_line(rb"--hz"))
    check(box.run("bench", "density", "-n", "10001"), 2, b"", one_line(rb"--count"))
    assert not leftovers()


@test
def benches_name_what_is_missing(box):
    os.unlink(box.lib + "/guest/tiny/vmlinux")
    for name in ("boot", "exits", "profile", "density"):
        check(box.run("bench", name, "-k", "tiny"), 1, b"", one_line(rb"guest/tiny/vmlinux"))


# --- boot ------------------------------------------------------------------------


@test
def bench_boot_tells_phases_and_draws_them(box):
    svg = os.path.join(box.dir, "b.svg")
    env = report(box, configured_us=2000, first_run_us=3000)
    code, out, err = box.run("bench", "boot", "-n", "2", "--json", "--svg", svg, env=env)
    assert (code, err) == (0, b""), (code, err)
    doc = json.loads(out)
    assert doc["n"] == 2 and doc["mem_mib"] == 128 and doc["cpus"] == 1, doc
    mote, = doc["monitors"]
    assert mote["name"] == "mote" and "ratio" not in mote
    assert mote["phase_ms"]["configured"]["p50"] == 2, mote
    assert mote["phase_ms"]["kvm_run"]["p50"] == 1, mote
    at = mote["since_exec_ms"]
    assert at["kvm_run"]["max"] == 3 and at["ready"]["n"] == 2, at
    assert at["ready"]["p50"] <= at["output"]["p50"] <= at["output"]["p95"], at
    with open(svg) as f:
        text = f.read()
    assert text.startswith("<svg ") and "agent ready" in text and "href" not in text
    code, out, err = box.run("bench", "boot", "-n", "1", "--warm-ups", "0", env=env)
    assert (code, err) == (0, b""), (code, err)
    assert re.search(rb"^  to first output +[\d.]+ +[\d.]+", out, re.M), out
    assert not leftovers()


@test
def bench_boot_of_peers_in_turn(box):
    qemu = peer(box, "q", "printf '\\002'; sleep 0.05; printf '\\003\\004'; exec sleep 60\n")
    lkvm = peer(box, "k", "echo noise; sleep 0.05; echo 'usage: mote-agent x'; exec sleep 60\n")
    fire = peer(box, "f", 'exec "%s/mote-vmm" "$@"\n' % box.lib)
    code, out, err = box.run("bench", "boot", "-n", "2", "--json", "--peer", "qemu=" + qemu,
                             "--peer", "kvmtool=" + lkvm, "--peer", "firecracker=" + fire)
    assert (code, err) == (0, b""), (code, err)
    by = {m["name"]: m for m in json.loads(out)["monitors"]}
    assert list(by) == ["mote", "qemu", "kvmtool", "firecracker"]
    assert set(by["qemu"]["since_exec_ms"]) == {"init", "root", "ready"}, by["qemu"]
    assert by["qemu"]["ratio"]["to"] == "ready" and by["qemu"]["ratio"]["to_mote"]["n"] == 2
    assert set(by["kvmtool"]["since_exec_ms"]) == {"init"}
    assert by["firecracker"]["ratio"]["to"] == "output"
    assert "isa-debugcon,iobase=0x504" in by["qemu"]["command"]
    assert "microvm" in by["qemu"]["command"]
    assert by["firecracker"]["command"].endswith("--no-api --config-file DIR/config.json")
    assert not leftovers()


@test
def bench_boot_refuses_peers(box):
    for spec, pattern in (("vbox", rb"'vbox' is unknown"), ("qemux", rb"unknown"),
                          ("kvmtool=/none", rb"/none is not there; build it"),
                          ("firecracker=/none", rb"take a release of it")):
        check(box.run("bench", "boot", "--peer", spec), 1, b"", one_line(pattern))
    four = [w for _ in range(4) for w in ("--peer", "qemu=/bin/true")]
    check(box.run("bench", "boot", *four), 1, b"", one_line(rb"--peer: at most 3"))
    check(box.run("bench", "boot", "--peer", "qemu=/bin/true", "-n", "1"), 1, b"",
          one_line(rb"qemu: it ended before its guest was up"))
    loud = peer(box, "l", "echo 'no \033[1mKVM' >&2; exit 1\n")
    check(box.run("bench", "boot", "--peer", "qemu=" + loud, "-n", "1"), 1, b"",
          one_line(rb"it said: no \?\[1mKVM"))
    slow = peer(box, "s", "exec sleep 60\n")
    code, out, err = box.run("bench", "boot", "--peer", "qemu=" + slow, "-n", "1",
                             "--timeout", "1", "--json")
    assert (code, out) == (1, b"") and json.loads(err)["error"]["code"] == "timed_out", err
    check(box.run("bench", "boot", "-n", "1", "--svg", "/none/x"), 1, b"", one_line(rb"--svg"))
    assert not leftovers()


@test
def bench_boot_ends_all_on_ctrl_c(box):
    pid = os.path.join(box.dir, "pid")
    slow = peer(box, "s", "echo $$ >%s; exec sleep 60\n" % pid)
    p = box.start("bench", "boot", "--peer", "qemu=" + slow)
    wait_for(lambda: os.path.exists(pid) and open(pid).read().strip(), "the peer")
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=30)
    assert p.returncode == 130 and out == b"" and b"signal" in err, (p.returncode, err)
    assert not os.path.exists("/proc/" + open(pid).read().strip())
    assert not leftovers()


# --- exits and profile -----------------------------------------------------------


@test
def bench_exits_names_registers(box):
    rows = [{"kind": "mmio_write", "addr": "0xd0000f70", "device": "virtio-mmio",
             "base": "0xd0000f00", "count": 5},
            {"kind": "pio_out", "addr": "0x80", "base": "0x80", "count": 2}]
    env = report(box, exits={"dropped": 3, "rows": rows})
    code, out, err = box.run("bench", "exits", env=env)
    assert (code, err) == (0, b""), (code, err)
    assert out.startswith(b"7 exits to user space"), out
    assert re.search(rb"^ +5  mmio_write +0xd0000f70 +virtio-mmio +Status$", out, re.M), out
    assert re.search(rb"^ +2  pio_out +0x80 +- *$", out, re.M), out
    assert out.endswith(b"and 3 at addresses that found no row\n"), out
    assert "--count-exits" in box.notes()["argv"]
    code, out, err = box.run("bench", "exits", "--json", env=env)
    doc = json.loads(out)
    assert doc["total"] == 7 and doc["dropped"] == 3 and doc["exits"] == rows, doc
    check(box.run("bench", "exits"), 1, b"", one_line(rb"counted no exits"))


@test
def bench_profile_sums_by_symbol(box):
    symbols(box)
    rows = [{"ip": "0xffffffff81001000", "count": 3}, {"ip": "0xffffffff81002001", "count": 5},
            {"ip": "0xffffffff810010ff", "count": 4}, {"ip": "0x401000", "count": 6},
            {"ip": "0xffffffff82000000", "count": 2}]
    env = report(box, profile={"dropped": 0, "rows": rows})
    code, out, err = box.run("bench", "profile", "--json", "--hz", "77", env=env)
    assert (code, err) == (0, b""), (code, err)
    doc = json.loads(out)
    assert doc["samples"] == 20 and doc["hz"] == 77, doc
    assert [(r["symbol"], r["samples"], r["percent"]) for r in doc["top"]] == [
        ("init", 7, 35), ("[user space and early boot]", 6, 30), ("idle", 5, 25),
        ("[kernel, no symbol]", 2, 10)], doc
    argv = box.notes()["argv"]
    assert argv[argv.index("--profile-hz") + 1] == "77"
    code, out, err = box.run("bench", "profile", "--top", "1", env=env)
    assert code == 0 and out.endswith(b"35.00   35.00  init\nand 3 more symbols\n"), out


@test
def bench_profile_wants_symbols(box):
    check(box.run("bench", "profile"), 1, b"", one_line(rb"vmlinux.debug: .*--symbols"))
    path = symbols(box)
    with open(path, "r+b") as f:
        f.truncate(200)
    check(box.run("bench", "profile"), 1, b"", one_line(rb"cut or damaged"))
    check(box.run("bench", "profile", "--symbols", "/bin/sh"), 1, b"",
          one_line(rb"unstripped|no ELF"))
    symbols(box)
    check(box.run("bench", "profile"), 1, b"", one_line(rb"took no samples"))


# --- density ---------------------------------------------------------------------


@test
def bench_density_measures_and_ends_all(box):
    code, out, err = box.run("bench", "density", "-n", "3", "--idle", "200ms", "--json")
    assert (code, err) == (0, b""), (code, err)
    doc = json.loads(out)
    assert doc["n"] == 3 and doc["idle_ms"] == 200, doc
    for name in ("start_ms", "private_mib", "proportional_mib", "idle_cpu_percent"):
        assert doc["figures"][name]["n"] == 3, doc
    assert doc["figures"]["private_mib"]["min"] > 0
    assert doc["figures"]["private_mib"]["p50"] <= doc["figures"]["private_mib"]["max"]
    assert json.loads(box.run("ls", "--json")[1])["sandboxes"] == []


@test
def bench_density_refuses_more_than_there_is(box):
    before = time.monotonic()
    check(box.run("bench", "density", "-n", "10", "--need", "1000G"), 1, b"",
          one_line(rb"10 machines: about \d+ MiB are needed, \d+ MiB are available; take fewer"))
    assert time.monotonic() - before < 5


@test
def bench_density_ends_all_on_ctrl_c(box):
    p = box.start("bench", "density", "-n", "2", "--idle", "60s")

    def up():
        vms = json.loads(box.run("ls", "--json")[1])["sandboxes"]
        return len(vms) == 2 and all(v["state"] == "running" for v in vms)
    wait_for(up, "both machines")
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=30)
    assert p.returncode == 130 and out == b"", (p.returncode, out, err)
    assert json.loads(box.run("ls", "--json")[1])["sandboxes"] == []
