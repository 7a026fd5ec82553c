# SPDX-License-Identifier: Apache-2.0
"""RESTORE, and connections that a restored machine finds reset."""
import os
import signal
import socket
import struct
import tempfile
import time

import client as c
from harness import Agent, Skip, need_root, own_agent

NOW = c.u64(c.A_TIME, time.time_ns())
SH = "/bin/sh"


class Hooks:
    """A directory of programs, and the file that they write to."""

    def __init__(self, *scripts):
        self.dir = tempfile.TemporaryDirectory(prefix="mote-hooks-")
        self.log = os.path.join(self.dir.name, ".log")
        for name, text, mode in scripts:
            path = os.path.join(self.dir.name, name)
            with open(path, "w") as f:
                f.write("#!/bin/sh\n%s\n" % text.replace("LOG", self.log))
            os.chmod(path, mode)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.dir.cleanup()

    def said(self):
        if not os.path.exists(self.log):
            return []
        with open(self.log) as f:
            return f.read().split()


def restore(agent, payload=NOW, conn=None):
    """The notes of its OK, or the error."""
    with conn or agent.conn() as k:
        k.frame(c.RESTORE, payload)
        kind, payload = k.next()
        if kind == c.ERROR:
            return c.parse_error(payload)
        assert kind == c.OK, kind
        return [v.decode() for t, v in c.attrs(payload) if t == c.A_NOTE]


@own_agent
def test_restore_runs_programs_in_the_order_of_their_names(binary):
    with Hooks(("20-b", "sleep 0.2; echo b >>LOG", 0o755),
               ("10-a", "echo a >>LOG", 0o755),
               ("30-c", "echo c >>LOG; read x && echo input >>LOG", 0o755),
               ("15-not", "echo not >>LOG", 0o644),
               (".hidden", "echo hidden >>LOG", 0o755)) as hooks:
        os.mkdir(os.path.join(hooks.dir.name, "17-dir"))
        with Agent(binary, ["--test-restore", hooks.dir.name]) as agent:
            # The last reads to the end of its input, which is code 1.
            assert restore(agent) == ["restore.d/30-c: exit code 1"]
            assert hooks.said() == ["a", "b", "c"], hooks.said()
            assert restore(agent) and hooks.said() == ["a", "b", "c"] * 2
            assert agent.quiet() and agent.run(["true"]).exited == 0


@own_agent
def test_restore_goes_on_after_a_program_that_fails(binary):
    with Hooks(("1", "exit 3", 0o755), ("2", "kill -9 $$", 0o755),
               ("4", "echo end >>LOG", 0o755)) as hooks:
        with open(os.path.join(hooks.dir.name, "3"), "w") as f:
            f.write("#!/no/such/interpreter\n")
        os.chmod(os.path.join(hooks.dir.name, "3"), 0o755)
        with Agent(binary, ["--test-restore", hooks.dir.name]) as agent:
            before = agent.fds()
            notes = restore(agent)
            assert notes[0] == "restore.d/1: exit code 3", notes
            assert notes[1] == "restore.d/2: killed by signal 9", notes
            assert notes[2].startswith("restore.d/3: cannot run"), notes
            assert len(notes) == 3 and hooks.said() == ["end"]
            assert c.wait_until(lambda: agent.fds() == before)


@own_agent
def test_restore_without_programs_is_done_at_once(binary):
    with Hooks() as hooks:
        missing = os.path.join(hooks.dir.name, "nope")
        with Agent(binary, ["--test-restore", missing]) as agent:
            with agent.conn() as conn:
                for _ in range(3):  # several on one connection
                    conn.frame(c.RESTORE, NOW)
                    assert conn.next() == (c.OK, b"")


def test_restore_is_refused_outside_of_a_machine(agent):
    assert restore(agent)[0] == c.E_DENIED


@own_agent
def test_restore_bad_values_are_refused(binary):
    with Hooks(("1", "echo ran >>LOG", 0o755)) as hooks, \
            Agent(binary, ["--test-restore", hooks.dir.name]) as agent:
        for payload, code in (
                (b"", c.E_BAD_REQUEST),
                (c.attr(c.A_TIME, b"123"), c.E_PROTOCOL),
                (NOW + c.attr(c.A_HOSTNAME, "x" * 65), c.E_BAD_REQUEST),
                (NOW + c.attr(c.A_HOSTNAME, b"a\0b"), c.E_PROTOCOL),
                (NOW + c.attr(c.A_SEED, bytes(65)), c.E_BAD_REQUEST),
                (NOW + c.attr(0x7777, b"", c.REQUIRED), c.E_UNSUPPORTED),
                (NOW + c.attr(c.A_INTERFACE, b"\1"), c.E_PROTOCOL),
                (NOW + c.attr(c.A_INTERFACE, c.attr(c.A_IF_MAC, b"abc")),
                 c.E_PROTOCOL),
                (NOW + 33 * c.attr(c.A_INTERFACE, b""), c.E_BAD_REQUEST),
                (NOW + c.attr(c.A_INTERFACE, b""), c.E_DENIED)):
            got = restore(agent, payload)
            assert got and got[0] == code, (payload, got)
        assert hooks.said() == []  # nothing was begun
        assert restore(agent, NOW + c.attr(0x7777, b"skip me")) == []
        assert hooks.said() == ["ran"]


@own_agent
def test_restore_one_at_a_time_and_the_next_takes_over(binary):
    with Hooks(("1", "echo begin >>LOG; sleep 0.5; echo end >>LOG",
                0o755)) as hooks, \
            Agent(binary, ["--test-restore", hooks.dir.name]) as agent:
        first = agent.conn()
        first.frame(c.RESTORE, NOW)
        assert c.wait_until(lambda: hooks.said() == ["begin"])
        assert restore(agent)[0] == c.E_BUSY
        first.frame(c.PING)  # it has to wait for its answer
        assert first.next()[0] == c.ERROR
        first.close()
        time.sleep(0.1)
        assert restore(agent) == []
        assert hooks.said() == ["begin", "end"] * 2, hooks.said()
        assert agent.run(["true"]).exited == 0


# --- a reset is not a host that went away ---------------------------------------


def reset(conn):
    """What a Unix socket has for it: closed with bytes that nobody read."""
    assert c.wait_until(lambda: _unread(conn) > 0)
    conn.close()


def _unread(conn):
    try:
        return len(conn.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return 0


@own_agent
def test_bl061_a_reset_connection_leaves_the_command_running(binary):
    with Agent(binary, ["--test-reset"]) as agent, \
            tempfile.TemporaryDirectory() as work:
        flag = os.path.join(work, "flag")
        with agent.conn() as probe:
            conn = agent.conn()
            conn.start([SH, "-c", "echo hi; sleep 0.5; yes | head -c 300000;"
                        "touch %s; exec cat" % flag], stdin=True)
            conn.wait(c.STARTED)
            reset(conn)
            assert c.wait_until(lambda: os.path.exists(flag)), agent.tree()
            # Its input is not at its end: cat waits, and can be found.
            time.sleep(0.2)
            assert [n for _, n in agent.tree()] == ["cat"], agent.tree()
            probe.frame(c.LIST)
            kind, payload = probe.next()
            assert kind == c.ITEM and probe.next()[0] == c.END
            pid = dict(c.attrs(payload))[c.A_PID]
            probe.frame(c.KILL, c.attr(c.A_PID, pid) +
                        c.u32(c.A_SIGNAL, signal.SIGTERM))
            assert probe.next()[0] == c.OK
        assert agent.quiet(), agent.tree()


@own_agent
def test_bl061_a_reset_connection_leaves_a_terminal_running(binary):
    with Agent(binary, ["--test-reset"]) as agent, \
            tempfile.TemporaryDirectory() as work:
        flag = os.path.join(work, "flag")
        conn = agent.conn()
        conn.start([SH, "-c", "trap 'echo hup >%s' HUP; echo hi; sleep 0.4;"
                    "echo on; touch %s; exec sleep 1000" % (flag, flag)],
                   stdin=True, pty=(24, 80))
        conn.wait(c.STARTED)
        reset(conn)
        assert c.wait_until(lambda: os.path.exists(flag)), agent.tree()
        time.sleep(0.2)
        assert os.path.getsize(flag) == 0, "it was hung up"
        assert [n for _, n in agent.tree()] == ["sleep"], agent.tree()


@own_agent
def test_a_reset_command_keeps_its_time_limit(binary):
    with Agent(binary, ["--test-reset"]) as agent:
        conn = agent.conn()
        conn.start([SH, "-c", "echo hi; exec sleep 1000"], limit_ms=700)
        conn.wait(c.STARTED)
        reset(conn)
        assert agent.quiet(), agent.tree()


@own_agent
def test_a_client_that_ends_is_no_reset(binary):
    with Agent(binary, ["--test-reset"]) as agent:
        conn = agent.conn()
        conn.start([SH, "-c", "exec sleep 1000"])
        conn.wait(c.STARTED)
        conn.close()
        assert agent.quiet(), agent.tree()


# --- addresses ------------------------------------------------------------------


@own_agent
def test_restore_gives_new_addresses_and_tells_the_network(binary):
    need_root("makes a network namespace")
    with Hooks(("1", "ip addr show m0 >>LOG", 0o755)) as hooks:
        wrap = ["unshare", "--net", "--mount", "sh", "-c",
                "mount -t tmpfs none /etc && ip link set lo up && "
                "ip link add m0 type veth peer name m1 && "
                "ip link set m0 up && ip link set m1 up && "
                "ip addr add 10.5.0.9/24 dev m0 && "
                "ip neigh add 10.5.0.77 lladdr 02:00:00:00:00:77 dev m0 && "
                'exec "$@"', "sh"]
        try:
            agent = Agent(binary, ["--test-net", "--test-restore",
                                   hooks.dir.name], wrap=wrap)
        except AssertionError as err:
            raise Skip("no veth or namespaces here") from err
        with agent:
            check_addresses(agent, hooks)


def listen_arp(agent):
    """A packet socket on the far end, in the agent's network namespace."""
    script = (
        "import socket,sys\n"
        "s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW,socket.htons(0x806))\n"
        "s.bind(('m1',0)); s.settimeout(10); print('on',flush=True)\n"
        "while True:\n"
        "  f=s.recv(2048)\n"
        "  if f[28:32]==bytes([10,1,2,3]): break\n"
        "print(f[:6].hex(),f[22:28].hex(),f[38:42].hex(),flush=True)\n")
    conn = agent.conn()
    conn.start(["/usr/bin/python3", "-c", script])
    conn.output(b"on\n")
    return conn


def check_addresses(agent, hooks):
    ip = lambda prefix, raw: struct.pack("<BBH", 4, prefix, 0) + raw + bytes(12)
    route = struct.pack("<BBHI", 4, 0, 0, 0) + bytes(16) + \
        bytes([10, 1, 2, 1]) + bytes(12)
    arp = listen_arp(agent)
    face = (c.attr(c.A_IF_NAME, "m0") +
            c.attr(c.A_SET_MAC, bytes.fromhex("020000000042")) +
            c.attr(c.A_ADDRESS, ip(24, bytes([10, 1, 2, 3]))) +
            c.attr(c.A_ROUTE, route) +
            c.attr(c.A_RESOLVER, ip(0, bytes([10, 1, 2, 1]))))
    assert restore(agent, NOW + c.attr(c.A_INTERFACE, face)) == []
    said = arp.output(b"\n").decode().split()
    assert said == ["f" * 12, "020000000042", "0a010203"], said
    seen = " ".join(hooks.said())  # the programs see it all
    assert "10.1.2.3/24" in seen and "10.5.0.9" not in seen, seen
    text = agent.sh("ip link show m0; ip route; ip neigh; cat /etc/resolv.conf;"
                    "cat /proc/sys/net/ipv4/conf/all/arp_notify").out.decode()
    for want in ("02:00:00:00:00:42", "default via 10.1.2.1 dev m0",
                 "nameserver 10.1.2.1\n", "\n0\n"):
        assert want in text, (want, text)
    assert "10.5.0.77" not in text, text
    # Without an address nothing but the neighbours' view changes.
    face = (c.attr(c.A_IF_NAME, "m0") +
            c.attr(c.A_SET_MAC, bytes.fromhex("020000000043")))
    assert restore(agent, NOW + c.attr(c.A_INTERFACE, face)) == []
    text = agent.sh("ip addr show m0; ip route").out.decode()
    for want in ("02:00:00:00:00:43", "default via 10.1.2.1", "10.1.2.3/24"):
        assert want in text, (want, text)
    face = c.attr(c.A_IF_NAME, "nope")
    got = restore(agent, NOW + c.attr(c.A_INTERFACE, face))
    assert got[0] == c.E_NOT_FOUND, got
