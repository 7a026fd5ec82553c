# SPDX-License-Identifier: Apache-2.0
"""Signals and terminals."""
import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import termios
import threading
import time

from harness import GUARD, Terminal, alive, feed, test, wait_for


# --- signals -------------------------------------------------------------------


@test
def first_interrupt_is_the_commands(box):
    script = "trap 'echo got; exit 5' INT; echo on; while :; do sleep 0.1; done"
    p = box.start("run", "--", "/bin/sh", "-c", script)
    assert p.stdout.readline() == b"on\n"
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=GUARD)
    assert (p.returncode, out, err) == (5, b"got\n", b"")


@test
def interrupt_without_a_trap_is_130(box):
    p = box.start("run", "--", "/bin/sh", "-c", "echo on; exec sleep 1000")
    assert p.stdout.readline() == b"on\n"
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=GUARD)
    assert p.returncode == 130


@test
def interrupt_passes_input_that_nobody_reads(box):
    p = box.start("run", "--", "/bin/sh", "-c", "echo on; exec sleep 1000",
                  stdin=subprocess.PIPE)
    assert p.stdout.readline() == b"on\n"
    feeder = threading.Thread(target=feed, args=(p.stdin, 4_000_000))
    feeder.start()
    time.sleep(0.5)
    p.send_signal(signal.SIGINT)
    assert p.wait(GUARD) == 130
    feeder.join()
    p.stdout.close()
    p.stderr.close()


@test
def second_interrupt_ends_the_machine(box):
    p = box.start("run", "--", "/bin/sh", "-c",
                  "trap 'echo got' INT; echo on; while :; do sleep 0.1; done")
    assert p.stdout.readline() == b"on\n"
    p.send_signal(signal.SIGINT)
    assert p.stdout.readline() == b"got\n"
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=GUARD)
    assert p.returncode == 130 and box.slots() == []


@test
def other_signals_end_the_machine(box):
    for signo in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        p = box.start("run", "--", "/bin/sh", "-c", "echo on; sleep 1000")
        assert p.stdout.readline() == b"on\n"
        pid = box.notes()["pid"]
        p.send_signal(signo)
        p.communicate(timeout=GUARD)
        assert p.returncode == 128 + signo, signo
        assert box.slots() == [] and not alive(pid)


@test
def signal_during_the_boot(box):
    for signo in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(box.notes_file)
        p = box.start("run", "--boot-args", "fake=no-ready", "--", "true")
        wait_for(lambda: os.path.exists(box.notes_file), "it boots")
        p.send_signal(signo)
        out, err = p.communicate(timeout=GUARD)
        assert (p.returncode, out, err) == (128 + signo, b"", b""), err
        assert box.slots() == []


@test
def nohup_is_honoured(box):
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    p = box.start("run", "--", "/bin/sh", "-c", "echo on; sleep 1; exit 3",
                  preexec_fn=ignore)
    assert p.stdout.readline() == b"on\n"
    p.send_signal(signal.SIGHUP)
    p.communicate(timeout=GUARD)
    assert p.returncode == 3


# --- terminals -----------------------------------------------------------------


@test
def shell_on_a_terminal(box):
    t = Terminal(box, "run", rows=40, columns=120)
    t.expect(rb"[#$] ")
    t.type(b"stty size; echo $TERM; tty\r")
    t.expect(rb"40 120\r\nvt100\r\n/dev/pts/\d+\r\n")
    t.type(b"exit 6\r")
    assert t.finish() == 6


@test
def BL_122_resize_is_passed_on(box):
    t = Terminal(box, "run", "-t", "--", "/bin/sh", "-c",
                 "trap 'stty size' WINCH; stty size; while :; do sleep 0.1; "
                 "done", rows=40, columns=120)
    t.expect(rb"40 120\r\n")
    fcntl.ioctl(t.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
    t.expect(rb"50 100\r\n")
    t.type(b"\x03")
    assert t.finish() == 130


@test
def BL_123_terminal_output_is_whole(box):
    for _ in range(3):
        t = Terminal(box, "run", "-t", "--", "seq", "1", "20000")
        t.expect(rb"\r\n19999\r\n20000\r\n")
        assert t.finish() == 0


@test
def interrupt_key_on_a_terminal(box):
    t = Terminal(box, "run", "--", "/bin/sh", "-c", "echo on; exec sleep 1000")
    t.expect(rb"on\r\n")
    t.type(b"\x03")
    assert t.finish() == 130


@test
def way_out_of_a_terminal_session(box):
    t = Terminal(box, "run", "-t", "--", "/bin/sh", "-c",
                 "trap '' INT QUIT TERM; stty raw -echo; echo on; sleep 1000")
    t.expect(rb"on\r?\n")
    t.type(b"\x1d\x1d\x1d")
    assert t.finish() == 129
    assert box.slots() == []


@test
def terminal_restored_after_a_dead_machine(box):
    t = Terminal(box, "run", "-t", "--boot-args", "fake=panic-later")
    t.expect(rb"kernel panicked before the command ended[^\r]*\r\n")
    assert t.finish() == 125


@test
def background_session_leaves_the_terminal_alone(box):
    """Input that is typed for others must not stop mote, or be taken."""
    t = Terminal(box, "run", "--", "true")  # a terminal to borrow
    t.p.wait(GUARD)

    script = f'"$0" "$@" & sleep 1.5; read line; echo "read:$line"; wait $!; ' \
             'echo "code:$?"'
    argv = box.argv("run", "--", "/bin/sh", "-c", "sleep 2; exit 4")

    def own():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # -m: jobs in groups of their own, as in an interactive shell.
    t.p = subprocess.Popen(["/bin/bash", "-mc", script, *argv], stdin=t.slave,
                           stdout=t.slave, stderr=t.slave, preexec_fn=own,
                           env=box.env)
    time.sleep(0.7)
    t.type(b"for-the-shell\r")
    t.expect(rb"read:for-the-shell\r\n")
    t.expect(rb"code:4\r\n")
    assert t.finish() == 0
