# SPDX-License-Identifier: Apache-2.0
"""Options, usage errors, help, what the monitor is given."""
import contextlib
import os
import re
import time

from harness import GUARD, check, cmdline, machine, one_line, test, wait_for


@test
def environment_workdir_user(box):
    check(box.sh("echo $A $B; pwd", "-e", "A=1 2", "--env=B", "-w", "/tmp",
                 env={"B": "from-us"}), 0, b"1 2 from-us\n/tmp\n")
    check(box.sh('echo "[$B]"', "-e", "B"), 0, b"[]\n")


@test
def BL_130_values_of_env_are_not_in_argument_lists_or_logs(box):
    secret = "x1y2" + os.urandom(8).hex()
    with machine(box, "s", "-v", "-e", "TOKEN=" + secret, "-e", "OTHER",
                 script="sleep 1000", env={"OTHER": secret}) as p:
        for pid in filter(str.isdigit, os.listdir("/proc")):
            for what in ("cmdline", "environ"):
                # mote's own environment is its caller's; the command's is
                # what was asked for.
                if what == "environ" and (int(pid) == p.pid or
                                          is_command(pid)):
                    continue
                with contextlib.suppress(OSError):
                    with open(f"/proc/{pid}/{what}", "rb") as f:
                        assert secret.encode() not in f.read(), (pid, what)
        for root, _, files in os.walk(box.dir):
            for name in files:
                with contextlib.suppress(OSError):
                    with open(os.path.join(root, name), "rb") as f:
                        assert secret.encode() not in f.read(), name
        p.terminate()
        assert secret.encode() not in p.stderr.read()


def is_command(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return b"sleep" in f.read()
    return False


@test
def BL_113_timeout_ends_the_whole_tree(box):
    mark = f"{os.getpid()}7531"
    begin = time.monotonic()
    result = box.sh(f"(trap '' TERM; exec sleep {mark}) & trap '' TERM; "
                    "echo on; sleep 30", "--timeout", "1s")
    check(result, 124, b"on\n", one_line(rb"time limit"))
    assert time.monotonic() - begin < GUARD / 3
    wait_for(lambda: not any(
        mark.encode() in cmdline(pid)
        for pid in filter(str.isdigit, os.listdir("/proc"))),
        "the tree has ended", 5)


@test
def options_reach_the_configuration(box):
    disk = box.touch("data:x.img")
    root = box.touch("root.img")
    check(box.run("run", "--cpus", "3", "--mem", "1G", "--disk", disk + ":ro",
                  "--root", root + ":rw", "--kernel", "tiny", "-n", "box-1",
                  "--boot-args", "fake=console a=b", "--", "true"), 0)
    notes = box.notes()
    config = notes["config"]
    assert config["machine-config"] == {"vcpu_count": 3, "mem_size_mib": 1024}
    drives = [(d["drive_id"], d["path_on_host"], d["is_root_device"],
               d["is_read_only"]) for d in config["drives"]]
    assert drives == [("vda", root, True, False), ("vdb", disk, False, True)]
    boot = config["boot-source"]
    assert boot["kernel_image_path"] == box.lib + "/guest/tiny/vmlinux"
    assert boot["initrd_path"] == box.lib + "/guest/agent.cpio"
    words = boot["boot_args"].split()
    for word in ("root=/dev/vda", "rw", "mote.hostname=box-1", "a=b",
                 "console=null", "quiet", "mote.exit=0x500"):
        assert word in words, (word, words)
    assert "mote.overlay=tmpfs" not in words
    assert config["entropy"] == {} and config["vsock"]["guest_cid"] >= 3


@test
def words_behind_a_disk_say_how_it_is_stored(box):
    disks = [box.touch("a.img"), box.touch("b.img"), box.touch("c:direct.img")]
    check(box.run("run", "-d", disks[0], "-d", disks[1] + ":direct:ro",
                  "-d", disks[2] + ":unsafe:direct", "-d", disks[0] + ":ro:cow",
                  "--", "true"), 0)
    drives = [(d["path_on_host"], d["is_read_only"], d["cache_type"],
               d.get("mote_direct", d.get("mote", {}).get("format", False)))
              for d in box.notes()["config"]["drives"][1:]]
    assert drives == [(disks[0], False, "Writeback", False),
                      (disks[1], True, "Writeback", True),
                      (disks[2], False, "Unsafe", True),
                      (disks[0], True, "Writeback", "cow")], drives


@test
def net_tap_reaches_the_configuration(box):
    check(box.run("run", "--net", "tap=t0,queues=2,without=mq+csum", "--", "true"), 0)
    (net,) = box.notes()["config"]["network-interfaces"]
    mac = net.pop("guest_mac")
    assert re.fullmatch("[0-9a-f]{2}(:[0-9a-f]{2}){5}", mac), mac
    assert int(mac[:2], 16) & 3 == 2, mac
    assert net == {"iface_id": "eth0", "host_dev_name": "t0", "mtu": None,
                   "mote": {"queue_pairs": 2, "without": ["mq", "csum"]}}, net


@test
def without_net_there_is_no_network(box):
    for words in ([], ["--net", "none"]):
        check(box.run("run", *words, "--", "true"), 0)
        assert "network-interfaces" not in box.notes()["config"]


@test
def bad_values_of_net_are_refused(box):
    for value in ("", "tap", "tap=", "bridge", "tap=a,queues=5", "tap=a,queues=0",
                  "tap=a,x=1", "tap=a,ip", "tap=a,tap=b", "tap=a,without=+",
                  "user,ip=1.2.3.4/8", "tap=" + "a" * 300):
        check(box.run("run", "--net", value, "--", "true"), 125, b"",
              one_line(rb"--net"))
    for value, word in (("tap=a,ip=10.0.0.2", rb"10\.0\.0\.2"),
                        ("tap=a,ip=10.0.0.2/33", rb"/33"),
                        ("tap=a,ip=x/8", rb"x/8"),
                        ("tap=a,gw=10.0.0.1", rb"gw"),
                        ("tap=a,ip=10.0.0.2/8,gw=10.0.0", rb"gateway"),
                        ("tap=a,ip=10.0.0.2/8,dns=no", rb"resolver")):
        check(box.run("run", "--net", value, "--", "true"), 125, b"", one_line(word))


@test
def net_user_without_passt_names_the_package(box):
    check(box.run("run", "--net", "user", "--", "true", env={"PATH": "/nonexistent"}),
          125, b"", one_line(rb"install the package passt"))


@test
def defaults_are_those_of_the_help(box):
    check(box.run("run", "--", "true"), 0)
    config = box.notes()["config"]
    assert config["machine-config"] == {"vcpu_count": 1, "mem_size_mib": 512}
    assert len(config["drives"]) == 1
    assert config["drives"][0]["is_read_only"]
    words = config["boot-source"]["boot_args"].split()
    assert "ro" in words and "mote.overlay=tmpfs" in words
    assert config["boot-source"]["kernel_image_path"].endswith(
        "sandbox/vmlinux")
    os.unlink(box.lib + "/guest/sandbox/vmlinux")
    code, _, err = box.run("run", "-v", "--", "true")
    assert code == 0 and b"using tiny" in err, err
    check(box.run("run", "--root", "none", "--", "true"), 0)
    config = box.notes()["config"]
    assert config["drives"] == []
    assert "root=" not in config["boot-source"]["boot_args"]


@test
def console_goes_to_stderr_on_request(box):
    fake = ("--boot-args", "fake=console")
    check(box.run("run", *fake, "--", "echo", "x"), 0, b"x\n")
    code, out, err = box.run("run", "--console", *fake, "--", "echo", "x")
    assert (code, out, err) == (0, b"x\n", b"hello from the console\r\n")
    assert "console=ttyS0" in box.notes()["config"]["boot-source"]["boot_args"]


@test
def verbose_tells_times_and_the_log(box):
    code, out, err = box.run("run", "-v", "--", "true")
    assert (code, out) == (0, b""), (code, err)
    lines = err.decode().splitlines()
    assert lines[0] == "mote-vmm: a line of the log", lines
    assert re.fullmatch(r"mote: boot \d+ ms.*, command \d+ ms, total \d+ ms",
                        lines[-1]), lines


@test
def usage_errors(box):
    for args, pattern in (
            (["--cpus", "0"], rb"--cpus '0': out of range; use 1 to 32"),
            (["--cpus", "x"], rb"--cpus 'x': not a number"),
            (["--cpus"], rb"--cpus: its value is missing"),
            (["--mem", "lots"], rb"--mem 'lots': not a size"),
            (["--mem", "1M"], rb"--mem '1M': out of range"),
            (["--timeout", "soon"], rb"--timeout 'soon': not a time"),
            (["--console=yes"], rb"--console: takes no value"),
            (["--frob"], rb"--frob: unknown; `mote run --help`"),
            (["-Z"], rb"-Z: unknown"),
            (["--name", "No_Name"], rb"'No_Name': not a name"),
            (["--name", "a" * 58], rb"not a name"),
            (["--kernel", "tiny", "--initrd"], rb"value is missing")):
        check(box.run("run", *args), 125, b"", one_line(pattern))
    for args in (["frob"], ["ls", "x"], ["ls", "-q"], ["stop"],
                 ["doctor", "--frob"], ["help", "frob"]):
        code, out, err = box.run(*args)
        assert code == 2 and out == b"" and err.startswith(b"mote: "), args
    check(box.run(), 2, b"", re.compile(rb"usage: mote"))
    assert not os.path.exists(box.run_dir), "usage errors leave nothing"


@test
def help_has_a_line_for_each_option(box):
    code, out, err = box.run("run", "--help")
    assert code == 0 and err == b""
    for name in (b"--cpus", b"--mem", b"--kernel", b"--disk", b"--env",
                 b"--workdir", b"--user", b"--timeout", b"--console",
                 b"--verbose", b"--name", b"--tty", b"--root", b"--initrd"):
        assert name in out, name
    assert b"(default: 512M)" in out and b"(default: sandbox)" in out
    check(box.run("help", "run"), 0, out)
    check(box.run("--version"), 0, None)
    for command in ("exec", "ls", "stop", "doctor", "bench", "version", "help"):
        code, out, _ = box.run(command, "--help")
        assert code == 0 and out.startswith(b"usage: mote " +
                                            command.encode()), command


@test
def missing_parts_are_named(box):
    os.unlink(box.lib + "/guest/agent.cpio")
    check(box.run("run", "--", "true"), 125, b"", one_line(rb"agent\.cpio"))
    box.touch("lib/guest/agent.cpio")
    os.unlink(box.lib + "/mote-vmm")
    check(box.run("run", "--", "true"), 125, b"", one_line(rb"mote-vmm"))
    box.touch("lib/mote-vmm")
    check(box.run("run", "--", "true"), 125, b"",
          one_line(rb"mote-vmm: cannot be started: Permission denied"))
    for flavour in ("tiny", "sandbox"):
        os.unlink(box.lib + f"/guest/{flavour}/vmlinux")
    check(box.run("run", "--", "true"), 125, b"",
          one_line(rb"kernel sandbox: not built"))
    assert box.slots() == []
