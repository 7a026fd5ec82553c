# SPDX-License-Identifier: Apache-2.0
"""What the tests of `mote` have in common: a box with a mote of its own, a
machine in the background, a terminal."""
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import tempfile
import termios
import threading
import time


HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
GUARD = 60  # seconds; against hangs, no test needs a tenth of it
TESTS = []


class Skip(Exception):
    pass


def test(function):
    TESTS.append(function)
    return function


def wait_for(condition, what, seconds=GUARD / 2):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not after {seconds} s"
        time.sleep(0.01)


class Box:
    """A directory with a mote of its own: helpers, guest files, run time."""

    def __init__(self, build):
        self.mote = os.path.join(build, "mote")
        self.dir = tempfile.mkdtemp(prefix="mote-cli-", dir="/tmp")
        self.lib = os.path.join(self.dir, "lib")
        self.run_dir = os.path.join(self.dir, "run")
        self.notes_file = os.path.join(self.dir, "notes")
        for flavour in ("sandbox", "tiny"):
            os.makedirs(os.path.join(self.lib, "guest", flavour))
            self.touch(f"lib/guest/{flavour}/vmlinux")
        self.touch("lib/guest/agent.cpio")
        self.touch("lib/guest/rootfs.img")
        os.symlink(os.path.join(HERE, "fake_vmm.py"), self.lib + "/mote-vmm")
        os.symlink(os.path.join(build, "mote-agent"), self.lib + "/mote-agent")
        self.env = {
            "PATH": os.environ["PATH"], "HOME": self.dir,
            "MOTE_LIBDIR": self.lib, "MOTE_RUNTIME_DIR": self.run_dir,
            "MOTE_FAKE_NOTES": self.notes_file,
            "MOTE_JAIL": "off",  # a script cannot run in one
        }
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                self.env[name] = os.environ[name]

    def touch(self, name):
        path = os.path.join(self.dir, name)
        with open(path, "a"):
            pass
        return path

    def argv(self, *args):
        return [self.mote, *args]

    def start(self, *args, env=None, **more):
        more.setdefault("stdin", subprocess.DEVNULL)
        more.setdefault("stdout", subprocess.PIPE)
        more.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen(self.argv(*args),
                                env={**self.env, **(env or {})}, **more)

    def run(self, *args, input=None, **more):
        """Runs mote to its end: (code, stdout, stderr), all of it bytes."""
        if input is not None:
            more["stdin"] = subprocess.PIPE
        p = self.start(*args, **more)
        try:
            out, err = p.communicate(input, timeout=GUARD)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            raise AssertionError(f"hangs: mote {args}\n{out}\n{err}") from None
        return p.returncode, out, err

    def sh(self, script, *options, **more):
        return self.run("run", *options, "--", "/bin/sh", "-c", script, **more)

    def slots(self):
        path = os.path.join(self.run_dir, "vm")
        return sorted(os.listdir(path)) if os.path.isdir(path) else []

    def names(self):
        return sorted(os.listdir(os.path.join(self.run_dir, "names")))

    def notes(self):
        with open(self.notes_file) as f:
            return json.load(f)

    def wait_running(self, name):
        def running():
            code, out, _ = self.run("ls", "--json")
            return code == 0 and any(
                m["name"] == name and m["state"] == "running"
                for m in json.loads(out)["sandboxes"])
        wait_for(running, f"machine {name} runs")

    def close(self):
        shutil.rmtree(self.dir)


@contextlib.contextmanager
def machine(box, name, *options, script="sleep 1000", **more):
    """A machine in the background, ended on leaving."""
    p = box.start("run", "--name", name, *options, "--", "/bin/sh", "-c",
                  script, **more)
    try:
        box.wait_running(name)
        yield p
    finally:
        if p.poll() is None:
            p.terminate()
        p.communicate(timeout=GUARD)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def check(result, code, out=b"", err=b""):
    """Exact code and stdout; stderr exact, or a compiled pattern."""
    assert result[0] == code, f"code {result[0]}, not {code}: {result[1:]}"
    if out is not None:
        assert result[1] == out, f"stdout {result[1][:500]!r}, not {out!r}"
    if isinstance(err, re.Pattern):
        assert err.search(result[2]), f"stderr {result[2]!r}: no {err.pattern}"
    else:
        assert result[2] == err, f"stderr {result[2]!r}, not {err!r}"


def one_line(pattern):
    """A complaint of mote: a single line that holds the pattern."""
    return re.compile(rb"\Amote: [^\n]*(?:" + pattern + rb")[^\n]*\n\Z")


def cmdline(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read()
    return b""


def feed(pipe, size):
    with contextlib.suppress(BrokenPipeError):
        pipe.write(b"x" * size)
        pipe.flush()
    with contextlib.suppress(BrokenPipeError):
        pipe.close()


class Terminal:
    """mote on a terminal of its own."""

    def __init__(self, box, *args, rows=24, columns=80):
        self.master, slave = pty.openpty()
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.seen = b""

        def own():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.p = box.start(*args, stdin=slave, stdout=slave, stderr=slave,
                           preexec_fn=own, env={"TERM": "vt100"})

    def expect(self, pattern):
        deadline = time.monotonic() + GUARD
        while not (m := re.search(pattern, self.seen)):
            left = deadline - time.monotonic()
            assert left > 0, f"no {pattern} in {self.seen!r}"
            if select.select([self.master], [], [], left)[0]:
                self.seen += os.read(self.master, 65536)
        self.seen = self.seen[m.end():]
        return m

    def type(self, data):
        os.write(self.master, data)

    def finish(self):
        """Exit code; the terminal must be as it was."""
        reader = threading.Thread(target=self.drain, daemon=True)
        reader.start()
        code = self.p.wait(GUARD)
        after = termios.tcgetattr(self.slave)
        os.close(self.slave)
        reader.join(1)
        os.close(self.master)
        assert after == self.before, "the terminal was not restored"
        return code

    def drain(self):
        with contextlib.suppress(OSError):
            while chunk := os.read(self.master, 65536):
                self.seen += chunk
