# SPDX-License-Identifier: Apache-2.0
"""Starts agents for the tests, and runs test functions one after another."""
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import traceback

import client


class Skip(Exception):
    """The test cannot run here; the text says why."""


def die_with_parent():
    """An agent must not outlive a runner that was killed."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Agent:
    """A mote-agent as an ordinary process on a Unix socket.

    wrap: a command line to put in front (unshare ...). With it the process
    that we start is not the agent; `pid` is then found below it.
    """

    def __init__(self, binary, args=(), wrap=()):
        self.dir = tempfile.mkdtemp(prefix="mote-agent-")
        self.path = os.path.join(self.dir, "s")
        self.process = subprocess.Popen(
            [*wrap, os.path.abspath(binary), "--test-socket", self.path,
             *args], stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
        assert client.wait_until(lambda: os.path.exists(self.path)), \
            "the agent did not come up"
        self.pid = self.process.pid
        if wrap:
            name = os.path.basename(binary)[:15]
            below = [p for p, _, n in client.children_of(self.pid)
                     if n == name]
            self.pid = below[0] if below else self.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Ends what it runs, then itself; returns its exit code."""
        if self.process.poll() is None:
            for pid, _, _ in client.children_of(self.pid):
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    pass
            if self.pid == self.process.pid:
                self.process.terminate()
            else:  # PID 1 of a namespace does not hear SIGTERM
                with self.conn() as conn:
                    conn.frame(client.POWER, client.u8(client.A_POWER, 1))
                    conn.wait(client.OK)
        code = self.process.wait(10)
        shutil.rmtree(self.dir, ignore_errors=True)
        return code

    def conn(self, **options):
        return client.Conn(self.path, **options)

    def run(self, argv, *args, **options):
        return client.run(self.path, argv, *args, **options)

    def sh(self, script, *args, **options):
        return client.run(self.path, ["/bin/sh", "-c", script], *args,
                          **options)

    def rss_kib(self):
        with open("/proc/%d/status" % self.pid) as f:
            for line in f:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1])
        raise AssertionError("no VmRSS")

    def fds(self):
        return len(os.listdir("/proc/%d/fd" % self.pid))

    def tree(self):
        """Descendants that still run."""
        return [(p, n) for p, s, n in client.children_of(self.pid)
                if s not in "ZX"]

    def zombies(self):
        return [p for p, s, _ in client.children_of(self.pid) if s in "ZX"]

    def clear(self):
        """Ends what a failed test left behind, so that the next is fair."""
        for pid, _ in self.tree():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.quiet()

    def quiet(self, seconds=10):
        """Waits until nothing of the commands is left."""
        return client.wait_until(lambda: not client.children_of(self.pid),
                                 seconds)


class ReadyListener:
    """The host's side of MOTE_READY_PORT."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="mote-ready-")
        self.path = os.path.join(self.dir, "r")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.bind(self.path)
        self.sock.listen(1)
        self.sock.settimeout(10)

    def accept(self, **options):
        return client.Conn(sock=self.sock.accept()[0], **options)

    def close(self):
        self.sock.close()
        shutil.rmtree(self.dir, ignore_errors=True)


def need_root(why):
    if os.geteuid() != 0:
        raise Skip("needs root: " + why)


def run_all(tests, binary, only=None, quick=False):
    """quick leaves out what tells nothing about a build with sanitizers.

    tests: functions taking a running Agent, or with `own_agent` set the
    binary's path. Prints a line per test and the sum; returns the exit code.
    """
    counts = {"ok": 0, "not ok": 0, "skip": 0}
    shared = Agent(binary)
    for test in tests:
        name = test.__name__
        if (only and only not in name) or \
                (quick and getattr(test, "shipped_only", False)):
            continue
        begin = time.monotonic()
        try:
            test(binary if getattr(test, "own_agent", False) else shared)
            state, more = "ok", ""
        except Skip as why:
            state, more = "skip", ": %s" % why
        except Exception:  # pylint: disable=broad-except
            state, more = "not ok", "\n" + traceback.format_exc()
        counts[state] += 1
        print("%s %s (%.1f s)%s" % (state, name, time.monotonic() - begin,
                                    more), flush=True)
        if state == "not ok" and shared.process.poll() is None:
            shared.clear()
        if shared.process.poll() is not None:
            print("# the agent is gone (%d): starting another"
                  % shared.process.returncode)
            counts["not ok"] += state == "ok"
            shared = Agent(binary)
    shared.stop()
    print("%d passed, %d failed, %d skipped"
          % (counts["ok"], counts["not ok"], counts["skip"]))
    failed = counts["not ok"] > 0
    if os.environ.get("CI") == "true" and counts["skip"] > 0:
        failed = True
    return 1 if failed else 0


def own_agent(test):
    """Marks a test that starts its own agent."""
    test.own_agent = True
    return test


def shipped_only(test):
    """Marks a test of memory or throughput."""
    test.shipped_only = True
    return test
