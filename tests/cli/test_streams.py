# SPDX-License-Identifier: Apache-2.0
"""Standard streams and exit codes of a command."""
import hashlib
import os
import re
import select
import socket
import subprocess
import threading
import time

from harness import GUARD, check, feed, one_line, test


@test
def streams_go_to_their_descriptors_and_the_code_is_the_commands(box):
    check(box.sh("echo hi; echo err >&2; exit 7"), 7, b"hi\n", b"err\n")


@test
def bytes_are_exact(box):
    every = bytes(range(256)) * 300
    check(box.run("run", "--", "cat", input=every), 0, every)


@test
def BL_117_exit_codes(box):
    plain = box.touch("plain")
    check(box.sh("kill -9 $$"), 137)
    check(box.sh("kill -SEGV $$"), 139)
    check(box.sh("exit 255"), 255)
    check(box.run("run", "--", "no-such-program"), 127, b"",
          one_line(rb"no-such-program"))
    check(box.run("run", "--", "/no/such/program"), 127, b"",
          one_line(rb"/no/such/program"))
    check(box.run("run", "--", plain), 126, b"", one_line(rb"plain"))
    check(box.run("run", "--", "/tmp"), 126, b"", one_line(rb"/tmp"))
    check(box.run("run", "-w", "/no/dir", "--", "true"), 125, b"",
          one_line(rb"/no/dir"))
    check(box.run("run", "-u", "nobody-here", "--", "true"), 125, b"",
          one_line(rb"nobody-here"))


@test
def BL_116_no_stdin_is_end_of_file(box):
    check(box.run("run", "--", "cat"), 0)
    closed = lambda: os.close(0)  # noqa: E731
    check(box.run("run", "--", "cat", preexec_fn=closed), 0)
    check(box.run("run", "--", "cat", input=b"one\ntwo\n"), 0, b"one\ntwo\n")


@test
def closed_output_descriptors_are_no_trap(box):
    def closed():
        os.close(1)
    p = box.start("run", "--", "/bin/sh", "-c", "echo x; echo e >&2",
                  preexec_fn=closed)
    out, err = p.communicate(timeout=GUARD)
    assert (p.returncode, out, err) == (0, b"", b"e\n"), (p.returncode, err)


@test
def BL_114_end_of_command_does_not_wait_for_stdin(box):
    for options in ([], ["--timeout", "5s"]):
        r, w = os.pipe()
        begin = time.monotonic()
        try:
            check(box.run("run", *options, "--", "printf", "ok", stdin=r), 0,
                  b"ok")
        finally:
            os.close(r)
            os.close(w)
        assert time.monotonic() - begin < GUARD / 4
    check(box.run("run", "--", "cat", input=b"abc"), 0, b"abc")


@test
def BL_115_output_after_stdin_is_closed_is_whole(box):
    script = "exec 0<&-; for i in 1 2 3; do echo $i; sleep 0.2; done"
    check(box.sh(script), 0, b"1\n2\n3\n")
    check(box.sh(script, input=b""), 0, b"1\n2\n3\n")
    # And when we cannot deliver what it does not read.
    check(box.sh(script, input=b"x" * 3_000_000), 0, b"1\n2\n3\n")


@test
def BL_112_a_grandchild_with_the_pipe_does_not_hold_the_end(box):
    begin = time.monotonic()
    check(box.sh("sleep 300 & echo hi"), 0, b"hi\n")
    assert time.monotonic() - begin < GUARD / 2


@test
def BL_110_64_mib_arrive_whole_on_both_streams(box):
    size = 64 << 20
    script = f"head -c {size} /dev/zero | tr '\\0' a; head -c 1000000 " \
             "/dev/zero | tr '\\0' b >&2"
    code, out, err = box.sh(script)
    assert code == 0 and err == b"b" * 1000000, (code, len(err))
    assert hashlib.sha256(out).digest() == \
        hashlib.sha256(b"a" * size).digest(), len(out)


@test
def stdin_of_8_mib_arrives_whole(box):
    data = os.urandom(1 << 20) * 8
    want = hashlib.sha256(data).hexdigest().encode() + b"  -\n"
    check(box.run("run", "--", "sha256sum", input=data), 0, want)


@test
def output_to_file_and_socket(box):
    path = os.path.join(box.dir, "out")
    with open(path, "wb") as f:
        code, _, _ = box.sh("head -c 3000000 /dev/zero", stdout=f)
    assert code == 0 and os.path.getsize(path) == 3000000
    ours, theirs = socket.socketpair()
    p = box.start("run", "--", "head", "-c", "3000000", "/dev/zero",
                  stdout=theirs)
    theirs.close()
    got = 0
    while chunk := ours.recv(65536):
        got += len(chunk)
    ours.close()
    p.communicate(timeout=GUARD)
    assert got == 3000000 and p.returncode == 0, (got, p.returncode)


@test
def a_slow_reader_holds_the_command_back(box):
    p = box.start("run", "--", "/bin/sh", "-c",
                  "yes | head -c 50000000; echo done >&2")
    time.sleep(1)
    with open(f"/proc/{p.pid}/status") as f:
        rss = int(re.search(r"VmRSS:\s+(\d+)", f.read())[1])
    assert rss < 16384, f"{rss} KiB"
    assert not select.select([p.stderr], [], [], 0)[0], "was not held back"
    out, err = p.communicate(timeout=GUARD)
    assert (len(out), err, p.returncode) == (50000000, b"done\n", 0)


@test
def stdin_flows_while_output_is_held(box):
    """A peer that writes everything before it reads anything."""
    size = 4_000_000  # more than all buffers on the way together
    p = box.start("run", "--", "/bin/sh", "-c",
                  "head -c 1000000 /dev/zero & cat >/dev/null; wait",
                  stdin=subprocess.PIPE)
    feeder = threading.Thread(target=feed, args=(p.stdin, size))
    feeder.start()
    feeder.join(GUARD)
    held_up = feeder.is_alive()
    p.stdin = None  # the feeder has closed it
    out, err = p.communicate(timeout=GUARD)
    assert not held_up and (len(out), err, p.returncode) == (1000000, b"", 0)


@test
def no_reader_ends_like_any_tool(box):
    p = box.start("run", "--", "yes")
    assert p.stdout.read(4) == b"y\ny\n"
    p.stdout.close()
    assert p.wait(GUARD) == 141
    assert p.stderr.read() == b""
    p.stderr.close()
    assert box.slots() == []


@test
def full_output_device_is_told(box):
    with open("/dev/full", "wb") as full:
        code, _, err = box.sh("echo x", stdout=full)
    assert code == 125 and re.match(rb"mote: standard output: No space", err), \
        (code, err)
