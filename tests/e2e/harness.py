# SPDX-License-Identifier: Apache-2.0
"""Starting guests and judging them; the cases are in cases_*.py."""

import json
import os
import subprocess
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MOTE = os.path.join(TOP, "build", "mote")
VMM = os.path.join(TOP, "build", "mote-vmm")


class Skip(Exception):
    """The case cannot run here; the text says why."""


class Failed(Exception):
    """The case ran and its outcome is wrong."""


def check(cond, text):
    if not cond:
        raise Failed(text)


def probe():
    out = subprocess.run([VMM, "--probe"], stdout=subprocess.PIPE, timeout=60)
    return json.loads(out.stdout)


class Host:
    """What the cases need to know of this machine."""

    def __init__(self):
        report = probe()
        self.kvm = report["kvm"]["present"]
        self.emulated = bool(report["ring0"] and report["ring0"].get("emulated"))
        # A hang guard, not a measure: ten times what a healthy run takes.
        self.scale = 10 if self.emulated else 3
        self.kernel = "tiny"

    def guard(self, seconds):
        return seconds * self.scale


class Result:
    def __init__(self, proc, out, err, seconds):
        self.rc, self.out, self.err, self.seconds = proc.returncode, out, err, seconds

    def __str__(self):
        return "rc=%s out=%r err=%r" % (self.rc, self.out[-300:], self.err[-600:])


def run(argv, guard, stdin=b"", env=None, **kw):
    """Runs to the end within the guard; stdin is bytes or a file."""
    start = time.monotonic()
    feed = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    try:
        p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           timeout=guard, env=env, **feed, **kw)
    except subprocess.TimeoutExpired as e:
        raise Failed("no end after %d s: %s; so far out=%r err=%r" % (
            guard, " ".join(argv), (e.stdout or b"")[-300:], (e.stderr or b"")[-600:]))
    return Result(p, p.stdout, p.stderr, time.monotonic() - start)


class Vm:
    """A named guest that sleeps; commands go in by `mote exec`."""

    def __init__(self, host, *options, kernel=None, tag="t"):
        self.host = host
        self.name = "%s-%d-%d" % (tag, os.getpid(), int(time.monotonic() * 1000) % 100000)
        self.log = tempfile.TemporaryFile()
        self.proc = subprocess.Popen(
            [MOTE, "run", "--name", self.name, "--kernel", kernel or host.kernel,
             *options, "--", "/bin/sh", "-c", "echo up; exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)
        line = self._wait_up(host.guard(60))
        if line != b"up\n":
            err = self._errors()
            self.close()
            raise Failed("the guest did not come up: %r %r" % (line, err))

    def _wait_up(self, guard):
        import select
        ready, _, _ = select.select([self.proc.stdout], [], [], guard)
        return self.proc.stdout.readline() if ready else b"(nothing)"

    def _errors(self):
        self.log.seek(0)
        return self.log.read()[-800:]

    def sh(self, script, *options, guard=60, stdin=b"", **kw):
        return self.exec("/bin/sh", "-c", script, options=options, guard=guard,
                         stdin=stdin, **kw)

    def exec(self, *argv, options=(), guard=60, stdin=b"", **kw):
        return run([MOTE, "exec", *options, self.name, "--", *argv],
                   self.host.guard(guard), stdin=stdin, **kw)

    def popen(self, *argv, options=(), **kw):
        return subprocess.Popen([MOTE, "exec", *options, self.name, "--", *argv], **kw)

    def directory(self):
        base = "/run" if os.geteuid() == 0 else os.environ["XDG_RUNTIME_DIR"]
        return os.path.join(base, "mote", "vm", self.info()["id"])

    def log_tail(self):
        """The end of the monitor's log, while it runs."""
        try:
            with open(os.path.join(self.directory(), "log"), "rb") as f:
                return f.read()[-800:]
        except (OSError, TypeError):
            return b""

    def info(self):
        out = run([MOTE, "ls", "--json"], 60).out
        for vm in json.loads(out)["sandboxes"]:
            if vm.get("name") == self.name:
                return vm
        return None

    def vmm_pid(self):
        return self.info()["pid"]

    def close(self):
        """Ends the guest by closing its command's input."""
        try:
            if self.proc.stdin and not self.proc.stdin.closed:
                self.proc.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.proc.wait(self.host.guard(30))
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
            raise Failed("the guest did not end when its command's input ended")
        finally:
            self.proc.stdout.close()
            self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is not None:
            # Why the case failed may be what the monitor said of its end.
            end = "runs" if self.proc.poll() is None else "ended with %s" % self.proc.poll()
            print("    | %s %s; said: %r; log: %r" % (self.name, end, self._errors(),
                                                      self.log_tail()), flush=True)
        self.close()


def count_fds(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def rss_kib(pid):
    with open("/proc/%d/status" % pid) as f:
        for line in f:
            if line.startswith("RssAnon:"):
                return int(line.split()[1])
    return 0
