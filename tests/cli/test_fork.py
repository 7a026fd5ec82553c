# SPDX-License-Identifier: Apache-2.0
"""mote fork."""
import contextlib
import json
import signal

from harness import GUARD, check, machine, one_line, test, wait_for


@contextlib.contextmanager
def forked(box, *options, name="m"):
    """A fork in the background and the document that it prints."""
    p = box.start("fork", "--json", *options, name)
    try:
        text = b""
        while not text.endswith(b"\n}\n"):
            line = p.stdout.readline()
            assert line, (text, p.wait(GUARD), p.stderr.read())
            text += line
        yield p, json.loads(text)
    finally:
        if p.poll() is None:
            p.terminate()
        p.communicate(timeout=GUARD)


def names(box):
    code, out, err = box.run("ls", "--json")
    assert code == 0, err
    return sorted(m["name"] for m in json.loads(out)["sandboxes"])


@test
def fork_makes_machines_of_their_own(box):
    with machine(box, "m"):
        with forked(box, "-n", "3", "--name", "k") as (p, doc):
            assert [c["name"] for c in doc["children"]] == ["k-1", "k-2", "k-3"]
            assert doc["stopped_ms"] == 1.5 and doc["copied_bytes"] == 4096, doc
            assert len({c["id"] for c in doc["children"]}) == 3, doc
            for c in doc["children"]:
                assert 0 < c["ready_ms"] <= doc["ready_ms"], doc
            assert 0 < doc["answers_ms"] <= doc["ready_ms"], doc
            assert names(box) == ["k-1", "k-2", "k-3", "m"]
            check(box.run("exec", "k-2", "echo", "x"), 0, b"x\n")
            check(box.run("exec", "m", "echo", "on"), 0, b"on\n")
            # One ends without the others, however it is told to.
            check(box.run("stop", "k-2"), 0)
            assert names(box) == ["k-1", "k-3", "m"]
            check(box.run("stop", "-f", doc["children"][2]["id"]), 0)
            assert names(box) == ["k-1", "m"]
            check(box.run("exec", "k-1", "echo", "x"), 0, b"x\n")
            p.send_signal(signal.SIGTERM)
            assert p.wait(GUARD) == 143, p.returncode
            assert names(box) == ["m"] and len(box.slots()) == 1, box.slots()
        check(box.run("exec", "m", "echo", "on"), 0, b"on\n")


@test
def fork_prints_names_or_ids_and_ends_with_the_last_copy(box):
    with machine(box, "m"):
        for options, count in ((("--name", "solo"), 1), (("-n", "2"), 2)):
            p = box.start("fork", *options, "m")
            called = [p.stdout.readline().decode().strip()
                      for _ in range(count)]
            if count == 1:
                assert called == ["solo"], called
            for name in called:
                check(box.run("exec", name, "echo", "x"), 0, b"x\n")
                check(box.run("stop", name), 0)
            out, err = p.communicate(timeout=GUARD)
            assert p.returncode == 0 and not out, (p.returncode, out, err)
        assert len(box.slots()) == 1


@test
def fork_of_a_fork(box):
    with machine(box, "m"), forked(box, "--name", "a"), \
            forked(box, "--name", "b", name="a") as (_, doc):
        assert doc["children"][0]["name"] == "b"
        check(box.run("stop", "a"), 0)
        check(box.run("exec", "b", "echo", "x"), 0, b"x\n")
        assert names(box) == ["b", "m"]


@test
def fork_a_failed_copy_leaves_nothing(box):
    with machine(box, "m", "--boot-args", "fake=fork-one-fails"):
        with forked(box, "-n", "3", "--name", "k") as (p, doc):
            assert "id" not in doc["children"][1]
            assert doc["children"][1]["error"] == "TAP x: busy on this fake"
            assert names(box) == ["k-1", "k-3", "m"]
            assert len(box.slots()) == 3 and "k-2" not in box.names()
            check(box.run("stop", "k-1", "k-3"), 0)
            _, err = p.communicate(timeout=GUARD)
            assert p.returncode == 1 and err == \
                b"mote: copy 2: TAP x: busy on this fake\n", (p.returncode, err)


@test
def fork_that_the_source_refuses_leaves_nothing(box):
    for fake, pattern in (("no-fork", rb"no memory for a copy"),
                          ("die-in-fork", rb"has ended")):
        p = box.start("run", "--name", "m", "--boot-args", "fake=" + fake,
                      "--", "sleep", "1000")
        box.wait_running("m")
        check(box.run("fork", "-n", "3", "--name", "k", "m"), 1, b"",
              one_line(pattern))
        assert [n for n in names(box) if n != "m"] == []
        p.terminate()
        p.communicate(timeout=GUARD)
        wait_for(lambda: not box.slots(), "the source is gone")


@test
def fork_name_that_is_taken_fails_that_copy(box):
    with machine(box, "m"), machine(box, "k-2"), \
            forked(box, "-n", "2", "--name", "k") as (_, doc):
        assert "id" in doc["children"][0] and "k-2" in doc["children"][1]["error"]
        assert names(box) == ["k-1", "k-2", "m"]


@test
def fork_interrupted_leaves_nothing(box):
    # The copies' agents never answer.
    with machine(box, "m"):
        p = box.start("fork", "-n", "2", "m", env={"MOTE_FAKE": "fake=refuse"})
        wait_for(lambda: len(box.slots()) == 3, "the monitors are there")
        p.send_signal(signal.SIGINT)
        out, _ = p.communicate(timeout=GUARD)
        assert p.returncode == 130 and not out, (p.returncode, out)
        assert len(box.slots()) == 1, box.slots()


@test
def BL_094_two_forks_at_once(box):
    with machine(box, "m"), forked(box, "-n", "4", "--name", "a") as (_, one):
        with forked(box, "-n", "4", "--name", "b") as (_, two):
            for doc in (one, two):
                assert all("id" in c for c in doc["children"]), doc
            check(box.run("stop", "m"), 0)  # the copies need no source
            assert len(names(box)) == 8
        assert len(names(box)) == 4
    assert not box.slots()


@test
def fork_refusals(box):
    check(box.run("fork"), 2, b"", one_line(rb"fork: takes 1 operand"))
    check(box.run("fork", "-n", "0", "m"), 2, b"", one_line(rb"--copies"))
    check(box.run("fork", "-n", "1025", "m"), 2, b"", one_line(rb"--copies"))
    check(box.run("fork", "gone"), 1, b"", one_line(rb"machine 'gone'"))
    with machine(box, "m"):
        check(box.run("fork", "--name", "A", "m"), 1, b"", one_line(rb"name"))
        check(box.run("fork", "--net", "user", "m"), 1, b"",
              one_line(rb"no network interface"))
        check(box.run("fork", "-n", "3", "--net", "user", "--net", "user", "m"),
              1, b"", one_line(rb"given 2 times for 3"))
    disk = box.touch("disk.img")
    with open(disk, "wb") as f:
        f.truncate(1 << 20)
    with machine(box, "m", "-d", disk):
        check(box.run("fork", "m"), 1, b"", one_line(rb"can write to its disk vdb"))
    assert not box.slots()
