# SPDX-License-Identifier: Apache-2.0
"""Commands in a running guest: the cases of the area `exec`."""

import hashlib
import os
import subprocess
import threading

from harness import MOTE, TOP, Skip, Vm, check, rss_kib

CASES = []


def case(*tiers):
    def wrap(fn):
        fn.tiers = tiers
        CASES.append(fn)
        return fn
    return wrap


@case("quick", "full")
def BL_117_exit_codes(host, work):
    with Vm(host) as vm:
        for argv, want in ((("/bin/sh", "-c", "kill -9 $$"), 137),
                           (("/bin/sh", "-c", "exit 255"), 255),
                           (("/no/such/program",), 127), (("nosuch",), 127),
                           (("/etc/passwd",), 126), (("/etc",), 126)):
            r = vm.exec(*argv)
            check(r.rc == want, "%r: want %d: %s" % (argv, want, r))
        r = vm.exec("true", options=("--workdir", "/nope"))
        check(r.rc == 125 and b"/nope" in r.err, str(r))
        r = vm.exec("true", options=("--user", "nobody-here"))
        check(r.rc == 125 and b"nobody-here" in r.err, str(r))


@case("quick", "full")
def env_workdir_and_user_are_as_asked(host, work):
    with Vm(host) as vm:
        r = vm.exec("/bin/sh", "-c", "echo $A; pwd; id -u",
                    options=("--env", "A=b c", "--workdir", "/tmp", "--user", "1000"))
        check(r.out == b"b c\n/tmp\n1000\n", str(r))


@case("quick", "full")
def avx_registers_of_two_programs_stay_apart(host, work):
    """Where ring 0 is emulated they did not, and programs died by SIGSEGV
    when they lost the processor in the middle of a copy or a search."""
    with Vm(host) as vm:
        with open(os.path.join(TOP, "build", "tests", "avx"), "rb") as f:
            r = vm.sh("cat >/tmp/avx && chmod 755 /tmp/avx && /tmp/avx 100",
                      stdin=f.read())
        if r.rc == 77:
            raise Skip("no AVX on this processor")
        check(r.rc == 0, str(r))


@case("full")
def BL_110_64_mib_arrive_whole_on_both_streams(host, work):
    script = ("dd if=/dev/urandom bs=65536 count=512 2>/dev/null > /tmp/r;"
              " sha256sum < /tmp/r > /tmp/sum;"
              " (cat /tmp/r >&2) & cat /tmp/r; wait")
    with Vm(host, "--mem", "512M") as vm:
        r = vm.sh(script, guard=300)
        want = vm.sh("cat /tmp/sum").out.split()[0]
        check(len(r.out) == len(r.err) == 32 << 20, "%d %d" % (len(r.out), len(r.err)))
        for stream in (r.out, r.err):
            check(hashlib.sha256(stream).hexdigest().encode() == want, "hash differs")


@case("full")
def BL_110_16_mib_up_and_down(host, work):
    data = os.urandom(1 << 20) * 16
    with Vm(host) as vm:
        r = vm.exec("sha256sum", stdin=data, guard=300)
        check(r.out.split()[0] == hashlib.sha256(data).hexdigest().encode(), str(r))
        r = vm.exec("cat", stdin=data, guard=300)
        check(r.out == data, "came back changed (%d bytes)" % len(r.out))


@case("full")
def BL_111_a_stuck_command_blocks_no_other(host, work):
    with Vm(host) as vm:
        stuck = vm.popen("/bin/sh", "-c", "mkfifo /tmp/f; read x < /tmp/f",
                         stdin=subprocess.DEVNULL)
        for _ in range(20):
            r = vm.exec("echo", "ok", guard=20)
            check(r.out == b"ok\n", str(r))
        check(stuck.poll() is None, "the stuck one ended")
        stuck.kill()
        stuck.wait()


@case("quick", "full")
def BL_112_exit_is_told_while_a_grandchild_holds_the_pipe(host, work):
    with Vm(host) as vm:
        r = vm.sh("sleep 300 & echo hi", guard=20)
        check(r.rc == 0 and r.out == b"hi\n", str(r))


@case("full")
def BL_113_a_time_limit_ends_the_whole_tree(host, work):
    with Vm(host) as vm:
        r = vm.sh('(while :; do :; done) & trap "" TERM; sleep 30', "--timeout", "1s")
        check(r.rc == 124, str(r))
        r = vm.sh("ps | grep -c '[s]leep 30'")
        check(r.out == b"0\n", str(r))


@case("full")
def BL_114_open_stdin_does_not_hold_the_end_back(host, work):
    with Vm(host) as vm:
        for options in ((), ("--timeout", "50s")):
            feed = subprocess.Popen(["tail", "-f", "/dev/null"], stdout=subprocess.PIPE)
            try:
                r = vm.exec("printf", "ok", options=options, stdin=feed.stdout, guard=20)
                check(r.rc == 0 and r.out == b"ok", str(r))
            finally:
                feed.kill()
                feed.wait()
                feed.stdout.close()


@case("full")
def BL_115_output_without_stdin_is_whole(host, work):
    with Vm(host) as vm:
        r = vm.exec("/bin/sh", "-c", "for i in 1 2 3; do echo $i; sleep 1; done",
                    stdin=subprocess.DEVNULL)
        check(r.rc == 0 and r.out == b"1\n2\n3\n", str(r))


@case("full")
def BL_116_no_stdin_is_an_end_of_file(host, work):
    with Vm(host) as vm:
        r = vm.exec("cat", stdin=subprocess.DEVNULL, guard=20)
        check(r.rc == 0 and r.out == b"", str(r))
        r = vm.exec("cat", stdin=b"one\ntwo\n", guard=20)
        check(r.out == b"one\ntwo\n", str(r))


@case("full")
def BL_119_no_zombies(host, work):
    with Vm(host) as vm:
        r = vm.sh("i=0; while [ $i -lt 300 ]; do sh -c '(sleep 0.05 &)'; i=$((i+1)); done;"
                  " while ps -o args | grep -q '^sleep 0.05'; do sleep 0.1; done;"
                  " ps -o stat | grep -c '^Z'", guard=200)
        check(r.out == b"0\n", str(r))


@case("full")
def BL_120_hundreds_of_commands_leave_no_descriptor(host, work):
    with Vm(host) as vm:
        count = "ls /proc/1/fd | wc -l; ls /dev/pts | wc -l"
        vm.exec("true")
        before = vm.sh(count).out
        for i in range(150):
            check(vm.exec("true", guard=20).rc == 0, "exec %d" % i)
        for i in range(20):
            p = vm.popen("sleep", "100", stdin=subprocess.DEVNULL)
            p.kill()
            p.wait()
        # The agent ends the trees and closes the connections of clients that
        # went away when it hears of it; a leak makes these waits hang.
        fds, ptys = before.split()
        vm.sh("while ps | grep -q '[s]leep 100'; do sleep 0.1; done")
        r = vm.sh("while [ $(ls /proc/1/fd | wc -l) -gt %d ]; do sleep 0.1; done; ls /dev/pts | wc -l"
                  % int(fds), guard=20)
        check(r.rc == 0 and r.out.strip() == ptys, str(r))


@case("full")
def BL_121_many_files_may_be_open(host, work):
    with Vm(host) as vm:
        r = vm.sh("ulimit -n; ulimit -Hn")
        soft, hard = (int(x) for x in r.out.split())
        check(soft >= 65536 and hard >= soft, str(r))


@case("full")
def BL_125_a_slow_reader_holds_memory_down(host, work):
    with Vm(host) as vm:
        pid = vm.vmm_pid()
        before = rss_kib(pid)
        p = vm.popen("yes", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        for _ in range(200):
            check(len(p.stdout.read(1024)) == 1024, "stream ended")
        grown = rss_kib(pid) - before
        own = rss_kib(p.pid)
        p.kill()
        p.wait()
        p.stdout.close()
        check(grown < 64 * 1024 and own < 64 * 1024, "monitor +%d KiB, mote %d KiB" % (grown, own))


@case("full")
def BL_127_commands_get_through_a_busy_guest(host, work):
    with Vm(host) as vm:
        hog = vm.popen("/bin/sh", "-c", "(while :; do :; done) & while :; do :; done",
                       stdin=subprocess.DEVNULL)
        for _ in range(20):
            check(vm.exec("echo", "x", guard=20).rc == 0, "exec")
        hog.kill()
        hog.wait()


@case("full")
def BL_128_memory_exhaustion_ends_the_hog_only(host, work):
    with Vm(host, "--mem", "256M") as vm:
        r = vm.exec("tail", "/dev/zero", guard=200)
        check(r.rc == 137, str(r))
        r = vm.exec("echo", "alive")
        check(r.out == b"alive\n", str(r))


@case("full")
def BL_129_and_130_values_are_nowhere_to_be_read(host, work):
    secret = "x1y2z3secret"
    with Vm(host) as vm:
        env = dict(os.environ, TOKEN=secret)
        p = vm.popen("/bin/sh", "-c", "echo up; sleep 1000", options=("--env", "TOKEN"),
                     env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        check(p.stdout.readline() == b"up\n", "no start")
        ps = subprocess.run(["ps", "axww", "-o", "args"], stdout=subprocess.PIPE).stdout
        check(secret.encode() not in ps, "in the host's process list")
        r = vm.sh("tr '\\0' '\\n' < /proc/1/environ; cat /proc/cmdline; ps")
        check(secret.encode() not in r.out, "in the guest's process list or PID 1")
        p.kill()
        p.wait()
        p.stdout.close()


@case("full")
def BL_057_the_first_command_right_after_the_start_succeeds(host, work):
    for _ in range(5):
        with Vm(host) as vm:
            check(vm.exec("echo", "x", guard=20).out == b"x\n", "first exec")


@case("full")
def BL_059_two_hundred_commands_at_once(host, work):
    results = []
    with Vm(host, "--mem", "512M") as vm:
        def one(i):
            results.append(vm.exec("echo", str(i), guard=200).out == b"%d\n" % i)
        for base in range(0, 200, 50):
            threads = [threading.Thread(target=one, args=(base + i,)) for i in range(50)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
    check(len(results) == 200 and all(results), "%d of 200" % sum(results))


@case("full")
def a_terminal_has_its_size(host, work):
    import pty
    import fcntl
    import struct
    import termios
    with Vm(host) as vm:
        pid, fd = pty.fork()
        if pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
            os.execv(MOTE, [MOTE, "exec", "--tty", vm.name, "--", "stty", "size"])
        got = b""
        try:
            while True:
                piece = os.read(fd, 4096)
                if not piece:
                    break
                got += piece
        except OSError:
            pass
        os.close(fd)
        os.waitpid(pid, 0)
        check(b"40 120" in got, repr(got))
