# SPDX-License-Identifier: Apache-2.0
"""Signals, time limits, departure, terminals, memory and leaks."""
import os
import re
import resource
import signal
import struct
import time

import client as c
from harness import Agent, ReadyListener, Skip, need_root, own_agent, shipped_only

SH = "/bin/sh"
PY = "/usr/bin/python3"


def test_bl113_time_limit_ends_the_whole_tree(agent):
    r = agent.sh('(while :; do :; done) & trap "" TERM; sleep 30',
                 limit_ms=500, timeout=20)
    assert r.timed_out and r.signal == 9, r.__dict__
    assert agent.quiet(), agent.tree()


def test_bl113_time_limit_ends_what_left_the_session(agent):
    r = agent.sh("setsid sh -c 'setsid sleep 100 & sleep 101; :' & sleep 30",
                 limit_ms=500, timeout=20)
    assert r.timed_out
    assert agent.quiet(), agent.tree()


def test_grace_lets_a_command_clean_up(agent):
    r = agent.sh('trap "echo bye; exit 3" TERM; echo up; sleep 30 & wait',
                 limit_ms=500, grace_ms=10000, timeout=20)
    assert (r.out, r.exited, r.timed_out) == (b"up\nbye\n", 3, True), r.__dict__
    assert agent.quiet(), agent.tree()


def test_grace_ends(agent):
    r = agent.sh('trap "" TERM; while :; do sleep 1; done', limit_ms=300,
                 grace_ms=300, timeout=20)
    assert (r.signal, r.timed_out) == (9, True)
    assert agent.quiet(), agent.tree()


def test_bl131_no_limit_and_limit_zero_do_not_end_it(agent):
    for limit in (None, 0):
        r = agent.sh("sleep 1.2; echo alive", limit_ms=limit)
        assert (r.out, r.timed_out) == (b"alive\n", False)


def test_a_stopped_tree_ends_too(agent):
    r = agent.sh("kill -STOP $$", limit_ms=300, grace_ms=300, timeout=20)
    assert r.timed_out and agent.quiet()


def test_signal_process_group_and_tree(agent):
    for scope, left in ((c.PROCESS, 1), (c.GROUP, 0), (c.TREE, 0)):
        with agent.conn() as conn:
            conn.start([SH, "-c", "sleep 50 & echo up; wait"])
            conn.output(b"up")
            conn.signal(signal.SIGTERM, scope)
            r = conn.finish()
            assert r.signal == signal.SIGTERM, r.__dict__
        assert c.wait_until(lambda: len(agent.tree()) == left), agent.tree()
        agent.clear()


def test_signal_is_handled_while_stdin_is_not_read(agent):
    with agent.conn() as conn:
        conn.start(["sleep", "60"], stdin=True)
        conn.stdin(b"x" * (200 << 10))  # more than a pipe, less than the queue
        conn.signal(signal.SIGINT)
        assert conn.finish().signal == signal.SIGINT


def test_kill_reaches_a_command_whose_stdin_queue_is_full(agent):
    with agent.conn() as conn, agent.conn() as other:
        conn.start(["sleep", "60"], stdin=True, tag="stuck")
        pid = struct.unpack("<I", dict(c.attrs(conn.wait(c.STARTED)))
                            [c.A_PID])[0]
        conn.sock.settimeout(0.5)
        try:
            while True:
                conn.stdin(b"x" * 65536)
        except TimeoutError:
            pass
        conn.sock.settimeout(30)
        other.frame(c.KILL, c.u32(c.A_PID, pid) + c.u32(c.A_SIGNAL, 15) +
                    c.u8(c.A_SCOPE, c.TREE))
        assert other.next()[0] == c.OK
        assert conn.finish().signal == 15
        other.frame(c.KILL, c.u32(c.A_PID, pid) + c.u32(c.A_SIGNAL, 15))
        kind, payload = other.next()
        assert kind == c.ERROR and c.parse_error(payload)[0] == c.E_NOT_FOUND


def test_list_names_running_commands(agent):
    with agent.conn() as conn, agent.conn() as other:
        conn.start(["sleep", "77"], tag="my tag")
        conn.wait(c.STARTED)
        for _ in range(2):  # a connection may ask again
            other.frame(c.LIST)
            items = []
            while True:
                kind, payload = other.next()
                if kind == c.END:
                    break
                items.append(c.attrs(payload))
            assert len(items) == 1, items
            assert dict(items[0])[c.A_TAG] == b"my tag"
            assert [v for k, v in items[0] if k == c.A_ARG] == [b"sleep",
                                                                b"77"]
    assert agent.quiet()


def test_a_vanished_client_ends_the_tree(agent):
    with agent.conn() as conn:
        conn.start([SH, "-c", "sleep 50 & sleep 51"])
        conn.wait(c.STARTED)
    assert agent.quiet(), agent.tree()


def test_a_vanished_client_is_noticed_while_stdin_is_stuck(agent):
    with agent.conn() as conn:
        conn.start(["sleep", "60"], stdin=True)
        conn.sock.settimeout(0.5)
        try:
            while True:
                conn.stdin(b"x" * 65536)
        except TimeoutError:
            pass
    assert agent.quiet(), agent.tree()


def test_a_vanished_client_is_noticed_while_output_is_stuck(agent):
    with agent.conn() as conn:
        conn.start(["yes"])
        conn.wait(c.STARTED)
        time.sleep(0.2)
    assert agent.quiet(), agent.tree()


def test_detached_survives_its_client_and_keeps_writing(agent):
    path = "/tmp/mote-detached-%d" % os.getpid()
    with agent.conn() as conn:
        conn.start([SH, "-c", "yes | head -c 1000000; cat; echo x >$F"],
                   env=["F=" + path], detached=True, stdin=True)
        conn.stdin(b"abc")
        conn.wait(c.STARTED)
    assert c.wait_until(lambda: os.path.exists(path)), agent.tree()
    os.unlink(path)
    assert agent.quiet()


def test_bl119_orphans_are_reaped(agent):
    for _ in range(150):
        agent.sh("(sleep 0.05 &)")
    agent.run([PY, "-c", """
import os, time
for _ in range(50):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(0.1)
        os._exit(0)
    os.wait()
"""])
    assert agent.quiet(), (agent.tree(), agent.zombies())


@own_agent
def test_bl119_orphans_are_reaped_as_pid_1(binary):
    need_root("makes a process id namespace")
    wrap = ["unshare", "--pid", "--fork", "--mount-proc", "setpriv",
            "--pdeathsig", "KILL"]
    with Agent(binary, wrap=wrap) as agent:
        r = agent.run([PY, "-c", "import os;print(os.getppid())"])
        assert r.out == b"1\n", r.out
        for _ in range(100):
            agent.sh("(sleep 0.05 &)")
        assert agent.quiet(), (agent.tree(), agent.zombies())
        r = agent.sh("setsid sleep 100 & sleep 30", limit_ms=300)
        assert r.timed_out and agent.quiet(), agent.tree()


@own_agent
def test_bl113_cgroup_ends_what_escaped_and_leaves_nothing(binary):
    need_root("mounts a cgroup file system")
    wrap = ["unshare", "--mount", "sh", "-c",
            'mount -t tmpfs t /mnt && mkdir /mnt/c && '
            'mount -t cgroup2 c /mnt/c && exec "$@"', "sh"]
    group = "/mnt/c/mote-test-%d" % os.getpid()
    try:
        agent = Agent(binary, ["--test-cgroups", group], wrap=wrap)
    except AssertionError as err:
        raise Skip("no cgroup version 2 here") from err
    with agent:
        seen = "/proc/%d/root%s" % (agent.pid, group)
        groups = lambda: [d.name for d in os.scandir(seen) if d.is_dir()]
        r = agent.sh("grep mote-test /proc/self/cgroup; ls -d %s/*/" % group)
        assert r.code == 0 and len(r.out.split(b"\n")) == 3, r.__dict__
        r = agent.sh("setsid setsid sleep 100 & sleep 30", limit_ms=500)
        assert r.timed_out and agent.quiet(), agent.tree()
        # A background process keeps its group; a group of its own goes too.
        r = agent.sh("mkdir %s/$(basename $(cat /proc/self/cgroup | "
                     "sed -n 's/^0:://p'))/sub; sleep 0.5 &" % group)
        assert r.code == 0 and len(groups()) == 1, (r.__dict__, groups())
        assert agent.quiet()
        assert c.wait_until(lambda: groups() == []), groups()
        with agent.conn() as conn:  # signals go to all of it
            conn.start(["sh", "-c", "setsid setsid sleep 9 & sleep 0.2;"
                        "echo up; sleep 30"])
            conn.output(b"up")
            conn.signal(signal.SIGTERM, c.TREE)
            assert conn.finish().signal == signal.SIGTERM
        assert agent.quiet(2), agent.tree()
        for _ in range(50):
            agent.run(["true"])
        assert c.wait_until(lambda: groups() == []), groups()
        # A guest that spoils its groups can still run commands.
        with open(seen + "/cgroup.type", "w") as f:
            f.write("threaded")
        r = agent.run(["cat", "/proc/self/cgroup"])
        assert r.code == 0 and b"mote-test" not in r.out, r.__dict__
        assert groups() == [], groups()
        os.rmdir(seen)
        assert agent.run(["true"]).code == 0


def ptys():
    return len([n for n in os.listdir("/dev/pts") if n.isdigit()])


def test_bl120_nothing_leaks(agent):
    assert agent.quiet()
    assert c.wait_until(lambda: agent.fds() < 12), agent.fds()
    fds, terminals = agent.fds(), ptys()
    for i in range(300):
        assert agent.run(["/bin/true"]).code == 0
        if i % 6 == 0:
            assert agent.run(["/bin/true"], pty=(24, 80)).code == 0
            assert agent.run(["/no/such"]).code == 127
            with agent.conn() as conn:
                conn.start(["sh", "-c", "yes & sleep 9"], stdin=True)
                if i % 12 == 0:
                    conn.wait(c.STARTED)
    assert agent.quiet(), agent.tree()
    assert c.wait_until(lambda: agent.fds() == fds), (fds, agent.fds())
    assert ptys() == terminals


def test_bl122_terminal_size_and_resize(agent):
    r = agent.run(["stty", "size"], pty=(40, 120))
    assert r.out == b"40 120\r\n", r.out
    assert agent.run(["stty", "size"], pty=(0, 0)).out == b"24 80\r\n"
    script = """
import os, signal, time
n = []
signal.signal(signal.SIGWINCH, lambda *_: n.append(os.get_terminal_size()))
print("up", os.ttyname(0) == os.ttyname(1) == os.ttyname(2), flush=True)
while not n: time.sleep(0.01)
time.sleep(0.3)
print(len(n), n[0].lines, n[0].columns)
"""
    with agent.conn() as conn:
        conn.start([PY, "-c", script], pty=(40, 120), stdin=True)
        assert b"True" in conn.output(b"\n")
        conn.resize(50, 100)
        r = conn.finish()
    assert r.out == b"1 50 100\r\n", r.out


@shipped_only
def test_bl123_terminal_output_is_whole(agent):
    for _ in range(25):
        r = agent.run(["seq", "1", "200000"], pty=(24, 80), timeout=60)
        assert r.out.endswith(b"\r\n200000\r\n"), r.out[-30:]
        assert len(r.out) == sum(len("%d\r\n" % i) for i in (1,)) * 9 + \
            90 * 4 + 900 * 5 + 9000 * 6 + 90000 * 7 + 100001 * 8, len(r.out)
    script = "import os; os.write(1, b'x' * (1 << 20) + b'last')"
    for _ in range(25):
        r = agent.run([PY, "-c", script], pty=(24, 80), timeout=60)
        assert len(r.out) == (1 << 20) + 4 and r.out.endswith(b"last")


def test_terminal_input_control_c_and_end(agent):
    with agent.conn() as conn:
        conn.start(["sleep", "60"], pty=(24, 80), stdin=True)
        conn.wait(c.STARTED)
        conn.stdin(b"\x03")
        assert conn.finish().code == 130
    with agent.conn() as conn:
        conn.start(["cat"], pty=(24, 80), stdin=True)
        conn.stdin(b"abc\n")
        conn.frame(c.STDIN_EOF)
        r = conn.finish()
    assert (r.out, r.code) == (b"abc\r\nabc\r\n", 0), r.out
    r = agent.run(["cat"], pty=(24, 80), timeout=20)  # without input: an end
    assert (r.out, r.code) == (b"", 0), r.out


def test_closing_its_terminal_does_not_end_a_program(agent):
    for _ in range(20):
        r = agent.sh("exec <&- >&- 2>&-; sleep 0.02; echo again >/dev/tty",
                     pty=(24, 80))
        assert (r.out, r.code) == (b"again\r\n", 0), r.__dict__


def test_terminal_is_the_controlling_one_and_belongs_to_the_user(agent):
    r = agent.sh("tty; ps -o tty= -p $$; echo $TERM", pty=(24, 80))
    tty = r.out.split()[0]
    assert tty.startswith(b"/dev/pts/"), r.out
    assert r.out.split()[1:] == [tty[5:], b"xterm-256color"], r.out
    need_root("changes the user")
    r = agent.sh("echo hi > $(tty); stat -c %u $(tty)", pty=(24, 80),
                 user="12345")
    assert r.out == b"hi\r\n12345\r\n", r.out


def test_background_of_a_terminal_command_lives_on(agent):
    r = agent.sh("trap '' HUP; sleep 60 & echo hi", pty=(24, 80))
    assert (r.out, r.code) == (b"hi\r\n", 0)
    assert len(agent.tree()) == 1, agent.tree()
    agent.clear()
    assert agent.quiet()


@shipped_only
def test_bl125_slow_reader_holds_bounded_memory(agent):
    with agent.conn() as conn:
        conn.start(["yes"])
        conn.wait(c.STARTED)
        before = agent.rss_kib()
        for _ in range(20):
            conn.sock.recv(1024)
            time.sleep(0.1)
        assert agent.rss_kib() - before < 1024, (before, agent.rss_kib())
    assert agent.quiet(), agent.tree()


@shipped_only
def test_bl125_upload_holds_bounded_memory(agent):
    piece = b"x" * (1 << 20)
    with agent.conn(timeout=60) as conn:
        conn.start(["wc", "-c"], stdin=True)
        before = agent.rss_kib()
        for i in range(256):
            conn.stdin(piece)
            if i % 64 == 63:
                assert agent.rss_kib() - before < 2048
        conn.frame(c.STDIN_EOF)
        assert conn.finish().out == b"%d\n" % (256 << 20)


@shipped_only
def test_idle_memory_is_small(agent):
    assert agent.quiet()
    assert agent.rss_kib() < 1536, agent.rss_kib()


@own_agent
def test_ready_is_sent_and_its_connection_serves(binary):
    listener = ReadyListener()
    try:
        with Agent(binary, ["--test-ready", listener.path]):
            conn = listener.accept()
            assert conn.hello() == (c.MAGIC, 1, 1)
            kind, payload = conn.next()
            assert kind == c.READY
            found = c.attrs(payload)
            assert dict(found)[c.A_KERNEL].decode() == os.uname().release
            assert re.match(rb"\d+\.\d+\.\d+$", dict(found)[c.A_AGENT])
            marks = [struct.unpack("<IIQ", v) for k, v in found
                     if k == c.A_MARK]
            assert [m[0] for m in marks] == [2, 4], marks
            assert 0 < marks[0][2] < marks[1][2] < time.monotonic_ns()
            conn.start(["echo", "hi"])
            assert conn.finish().out == b"hi\n"
            conn.close()
    finally:
        listener.close()


@own_agent
def test_power_ends_the_agent_in_test_mode(binary):
    for kind in (1, 2, 3):
        agent = Agent(binary)
        with agent.conn() as conn:
            conn.frame(c.POWER, c.u8(c.A_POWER, kind))
            assert conn.next() == (c.OK, b"")
        assert agent.process.wait(10) == 0
        agent.stop()


@own_agent
def test_agent_out_of_descriptors_recovers(binary):
    need_root("lowers a limit of the agent")
    with Agent(binary) as agent:
        hard = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (20, hard))
        conns = [agent.conn() for _ in range(30)]
        time.sleep(0.2)
        with open("/proc/%d/stat" % agent.pid) as f:
            before = sum(map(int, f.read().split()[13:15]))
        time.sleep(0.5)
        with open("/proc/%d/stat" % agent.pid) as f:
            after = sum(map(int, f.read().split()[13:15]))
        assert after - before < 20, "busy while out of descriptors"
        conns[0].start(["true"])
        r = conns[0].finish()
        assert r.error and r.error[0] == c.E_RESOURCE, r.__dict__
        for conn in conns:
            conn.close()
        resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (1000, hard))
        assert agent.run(["echo", "ok"]).out == b"ok\n"


@own_agent
def test_net_config_in_a_namespace(binary):
    need_root("makes a network namespace")
    wrap = ["unshare", "--net", "--mount", "sh", "-c",
            "mount -t tmpfs none /etc && ip link set lo up && "
            'ip link add m0 type veth peer name m1 && exec "$@"', "sh"]
    try:
        agent = Agent(binary, ["--test-net"], wrap=wrap)
    except AssertionError as err:
        raise Skip("no veth or namespaces here") from err
    with agent:
        check_net(agent)


def ip4(*parts):
    return bytes(parts) + bytes(12)


def check_net(agent):
    ip = lambda prefix, raw, family=4: struct.pack("<BBH", family, prefix,
                                                   0) + raw
    route = lambda prefix, dst, gw: struct.pack("<BBHI", 4, prefix, 0, 0) + \
        dst + gw
    six = bytes.fromhex("fd00") + bytes(13) + b"\x02"
    message = (c.attr(c.A_IF_NAME, "m0") +
               c.attr(c.A_SET_MAC, bytes.fromhex("020000000042")) +
               c.u32(c.A_MTU, 1400) + c.u8(c.A_FLUSH, 1) +
               c.attr(c.A_ROUTE, route(0, bytes(16), ip4(10, 1, 2, 1))) +
               c.attr(c.A_ADDRESS, ip(24, ip4(10, 1, 2, 3))) +
               c.attr(c.A_ADDRESS, ip(64, six, 6)) +
               c.attr(c.A_RESOLVER, ip(0, ip4(10, 1, 2, 1))) +
               c.attr(c.A_RESOLVER, ip(0, six, 6)) +
               c.attr(c.A_SEARCH, "example.org"))
    with agent.conn() as conn:
        for _ in range(2):  # again changes nothing
            conn.frame(c.NET_CONFIG, message)
            kind, payload = conn.next()
            assert kind == c.OK, c.parse_error(payload)
        by_mac = (c.attr(c.A_IF_MAC, bytes.fromhex("020000000042")) +
                  c.u8(c.A_FLUSH, 1) +
                  c.attr(c.A_ADDRESS, ip(16, ip4(10, 9, 0, 7))))
        state = agent.sh("ip addr show m0; ip route; cat /etc/resolv.conf")
        text = state.out.decode()
        for want in ("10.1.2.3/24", "fd00::2/64", "02:00:00:00:00:42",
                     "mtu 1400", "default via 10.1.2.1 dev m0",
                     "nameserver 10.1.2.1\n", "search example.org\n",
                     "nameserver fd00:0000:0000:0000:0000:0000:0000:0002\n"):
            assert want in text, (want, text)
        conn.frame(c.NET_CONFIG, by_mac)
        assert conn.next()[0] == c.OK
        text = agent.sh("ip addr show m0").out.decode()
        assert "10.9.0.7/16" in text and "10.1.2.3" not in text, text
        conn.frame(c.NET_CONFIG, c.attr(c.A_IF_NAME, "nope"))
        kind, payload = conn.next()
        assert kind == c.ERROR and c.parse_error(payload)[0] == c.E_NOT_FOUND
