# SPDX-License-Identifier: Apache-2.0
"""--jail: where there is none to be had. The jail itself: tests/jail, tests/e2e."""
import json
import os

from harness import check, machine, one_line, test

# Stands in for a mote-jail that is refused something by the host.
REFUSED = """#!/usr/bin/python3 -B
import json, os, sys
argv = sys.argv
with open(os.environ["MOTE_FAKE_NOTES"] + ".jail", "w") as f:
    json.dump(argv, f)
os.write(int(argv[argv.index("--report-fd") + 1]), b"new namespaces: Operation not permitted")
sys.exit(1)
"""
LINE = one_line(rb"without a jail: new namespaces: Operation not permitted;.*mote doctor")


def refusing(box):
    path = os.path.join(box.lib, "mote-jail")
    with open(path, "w", encoding="ascii") as f:
        f.write(REFUSED)
    os.chmod(path, 0o755)
    del box.env["MOTE_JAIL"]


@test
def jail_that_is_refused_is_one_line_and_the_command_runs(box):
    refusing(box)
    check(box.sh("echo hi; exit 3"), 3, b"hi\n", LINE)
    check(box.sh("echo hi", "--jail=auto"), 0, b"hi\n", LINE)
    assert box.slots() == []


@test
def jail_that_is_refused_ends_it_where_it_was_asked_for(box):
    refusing(box)
    check(box.sh("echo hi", "--jail=on"), 125, b"",
          one_line(rb"jail: new namespaces: Operation not permitted;"))
    check(box.sh("echo hi", env={"MOTE_JAIL": "on"}), 125, b"", one_line(rb"jail: "))
    check(box.sh("echo hi", "--jail=auto", env={"MOTE_JAIL": "on"}), 0, b"hi\n", LINE)
    assert box.slots() == []


@test
def jail_off_is_silent(box):
    refusing(box)
    check(box.sh("echo hi", "--jail=off"), 0, b"hi\n")
    check(box.sh("echo hi", env={"MOTE_JAIL": "off"}), 0, b"hi\n")
    assert not os.path.exists(box.notes_file + ".jail")


@test
def jail_program_that_is_missing_is_said(box):
    del box.env["MOTE_JAIL"]
    check(box.sh("echo hi"), 0, b"hi\n", one_line(rb"without a jail: mote-jail: not in"))
    check(box.sh("echo hi", "--jail=on"), 125, b"", one_line(rb"mote-jail: not in"))


@test
def jail_words_are_checked(box):
    check(box.sh("true", "--jail=maybe"), 125, b"", one_line(rb"--jail.*auto, on or off"))
    check(box.sh("true", env={"MOTE_JAIL": "1"}), 125, b"", one_line(rb"MOTE_JAIL.*'1'"))


@test
def jail_is_given_descriptors_and_no_paths(box):
    refusing(box)
    disk = box.touch("disk.img")
    check(box.sh("true", "--disk", disk, "--initrd", disk), 0, b"", LINE)
    with open(box.notes_file + ".jail", encoding="ascii") as f:
        argv = json.load(f)
    at = argv.index("--")
    own, words = argv[:at], argv[at + 1:]
    # Lifeline, network, kernel, initrd, root disk, disk, configuration.
    assert own[own.index("--pass-fd") + 1] == "3-9", own
    assert own[own.index("--report-fd") + 1] == "10", own
    assert "--new-net-ns" in own, own
    assert ("--uid" in own) == (os.geteuid() == 0), own
    assert words[words.index("--config-file") + 1].startswith("/dev/fd/9/"), words
    assert words[words.index("--api-sock") + 1] == "/run/api.sock", words
    # What ran in its stead saw paths again.
    assert box.notes()["config"]["drives"][1]["path_on_host"] == disk


@test
def jail_files_that_are_missing_are_told_and_nothing_starts(box):
    refusing(box)
    for option, role in (("--kernel", rb"kernel"), ("--initrd", rb"initrd"), ("--disk", rb"disk")):
        check(box.sh("true", option, "/none/x"), 125, b"", one_line(role + rb" /none/x: .*No such"))
    assert not os.path.exists(box.notes_file + ".jail")
    assert box.slots() == []


@test
def machines_are_found_where_a_jail_was_tried(box):
    refusing(box)
    with machine(box, "j", script="sleep 1000"):
        check(box.run("exec", "j", "--", "echo", "there"), 0, b"there\n")
        slot = os.path.join(box.run_dir, "vm", box.slots()[0])
        for name in ("api.sock", "vsock.sock"):
            assert os.readlink(os.path.join(slot, name)) == "run/" + name
        assert os.path.exists(os.path.join(slot, "vsock.sock"))
    assert box.slots() == []
