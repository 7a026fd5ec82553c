# SPDX-License-Identifier: Apache-2.0
"""What a test of tests/jail works with: a base directory, jails, checks."""
import glob
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GUARD = 60  # seconds, against a hang
UID, GID = 54321, 54322  # of nobody on this machine
CONFIG, ARGUMENTS = 1, 153
OURS = ("mote-jail", "jail_probe", "mote-vmm")  # programs in a jail and around it
TESTS = []
NUMBERS = itertools.count(1)


class Skip(Exception):
    """The test cannot run here; its text says why."""


def test(function):
    TESTS.append(function)
    return function


def root_test(function):
    def run(box):
        if os.geteuid() != 0:
            assert os.environ.get("CI") != "true", "needs root"
            raise Skip("needs root")
        function(box)
    run.__name__ = function.__name__
    TESTS.append(run)
    return run


def until(what, condition):
    end = time.monotonic() + GUARD
    while not condition():
        assert time.monotonic() < end, f"never came true: {what}"
        time.sleep(0.005)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def cgroup_dirs():
    found = []
    with open("/proc/self/mountinfo", encoding="ascii") as f:
        for line in f:
            left, right = line.split(" - ", 1)
            if right.split()[0] in ("cgroup", "cgroup2"):
                found.append(left.split()[4])
    return found


class Jail:
    """One mote-jail process."""

    def __init__(self, box, argv, **popen):
        self.box = box
        popen.setdefault("stdin", subprocess.DEVNULL)
        popen.setdefault("stdout", subprocess.PIPE)
        popen.setdefault("stderr", subprocess.PIPE)
        self.process = subprocess.Popen(argv, text=True, **popen)
        self.out = self.err = ""

    def line(self, wanted):
        """Reads lines until `wanted`."""
        while True:
            text = self.process.stdout.readline()
            assert text, f"ended before {wanted!r}: {self.out} {self.process.stderr.read()}"
            self.out += text
            if text == wanted + "\n":
                return

    def wait(self):
        """-> exit code; negative: of a signal."""
        out, self.err = self.process.communicate(timeout=GUARD)
        self.out += out or ""
        return self.process.returncode

    @property
    def seen(self):
        return dict(x.split("=", 1) for x in self.out.splitlines() if "=" in x)


class Box:
    def __init__(self, build, vmm):
        self.jailer = os.path.join(build, "mote-jail")
        self.probe = os.path.join(build, "tests", "jail_probe")
        self.build = build
        self.vmm = vmm
        self.dir = tempfile.mkdtemp(prefix="mote-jail-test-")
        os.chmod(self.dir, 0o755)
        self.base = os.path.join(self.dir, "base")
        self.jails = []
        self.mounts = self._mounts()

    @staticmethod
    def _mounts():
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            return f.read()

    def argv(self, *words, flags=(), uid=UID, gid=GID, ident=None, program=None):
        """The command line; `words` are for the program in the jail."""
        self.ident = ident or f"j{os.getpid()}-{next(NUMBERS)}"
        return [self.jailer, "--id", self.ident, "--exec-file", program or self.probe,
                "--uid", str(uid), "--gid", str(gid), "--chroot-base-dir", self.base,
                *flags, "--", *words]

    def start(self, *words, popen=None, wrap=(), **options):
        jail = Jail(self, [*wrap, *self.argv(*words, **options)], **(popen or {}))
        jail.ident = self.ident
        jail.name = os.path.basename(options.get("program") or self.probe)
        jail.root = os.path.join(self.base, jail.name, jail.ident, "root")
        self.jails.append(jail)
        return jail

    def run(self, *words, code=0, **options):
        jail = self.start(*words, **options)
        got = jail.wait()
        assert got == code, (got, jail.out, jail.err)
        return jail

    def pid(self, jail):
        path = os.path.join(jail.root, jail.name + ".pid")
        until("a pid file", lambda: os.path.exists(path) and os.path.getsize(path) > 0)
        with open(path, encoding="ascii") as f:
            return int(f.read())

    def refused(self, *said, argv=None, code=1, **options):
        """It ends at once with one line that has all the words in it."""
        p = subprocess.run(argv or self.argv("say=hello", **options), capture_output=True,
                           stdin=subprocess.DEVNULL, text=True, timeout=GUARD, check=False)
        assert p.returncode == code, (p.returncode, p.stderr)
        assert p.stdout == "", p.stdout
        assert p.stderr.count("\n") == 1 and p.stderr.startswith("mote-jail: "), p.stderr
        for word in said:
            assert word in p.stderr, (word, p.stderr)

    # --- what may be left: nothing ------------------------------------------

    def left(self):
        """Directories, cgroups and processes of this box's jails."""
        found = glob.glob(os.path.join(self.base, "*"))
        for jail in self.jails:
            for top in cgroup_dirs():
                found += glob.glob(f"{top}/**/{jail.ident}", recursive=True)
        for proc in glob.glob("/proc/[0-9]*"):
            try:
                exe = os.readlink(proc + "/exe")
                with open(proc + "/cmdline", encoding="utf-8", errors="replace") as f:
                    words = f.read().split("\0")
            except OSError:
                continue
            if os.path.basename(exe.split(" ")[0]) in OURS and any(j.ident in words
                                                                    for j in self.jails):
                found.append(f"{proc}: {exe}")
        return found

    def nothing_left(self):
        # A keeper of a jail that has said goodbye may still be at it.
        end = time.monotonic() + 5
        while self.left() and time.monotonic() < end:
            time.sleep(0.01)
        assert not self.left(), self.left()
        assert self._mounts() == self.mounts, "a mount was left behind"

    def close(self):
        for jail in self.jails:
            if jail.process.poll() is None:
                jail.process.send_signal(signal.SIGKILL)
            for stream in (jail.process.stdout, jail.process.stderr):
                if stream:
                    stream.close()
            jail.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)
