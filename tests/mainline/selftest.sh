#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests run.sh: about fifteen short machines, two minutes. Prints "ok NAME" or
# "not ok NAME", then one line of totals. Exit code 0 if nothing failed.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
run=$here/run.sh
passed=0 failed=0 skipped=0

work=$(mktemp -d "${TMPDIR:-/tmp}/mote-selftest.XXXXXX")
trap 'rm -rf "$work"' EXIT
# run.sh makes its directories here: leftovers cannot hide among others'.
mkdir "$work/tmp" "$work/cwd"
export TMPDIR=$work/tmp
cd "$work/cwd" || exit 1

ok() {
    echo "ok $1"
    passed=$((passed + 1))
}

not_ok() {
    echo "not ok $1: $2"
    failed=$((failed + 1))
}

# is NAME GOT WANTED
is() {
    if [ "$2" = "$3" ]; then
        ok "$1"
    else
        not_ok "$1" "got '$2', wanted '$3'"
    fi
}

# has NAME FILE PATTERN
has() {
    if grep -q -- "$3" "$2"; then
        ok "$1"
    else
        not_ok "$1" "no '$3' in: $(head -c 300 "$2")"
    fi
}

no_leftovers() {
    is "$1 leaves no file" "$(ls -A "$TMPDIR")" ""
    is "$1 leaves no process" "$(pgrep -f "$TMPDIR" | grep -v "^$$\$")" ""
}

# An unused TCP port of 127.0.0.1.
free_port() {
    /usr/bin/python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

test_streams() {
    head -c 1048576 /dev/urandom >data
    "$run" -- sh -c 'cat data; echo oops >&2; exit 7' >out 2>err
    is "exit code 7" $? 7
    is "1 MiB of bytes is exact" "$(cmp data out 2>&1)" ""
    is "standard error is separate" "$(cat err)" "oops"
    no_leftovers "a normal run"
}

# What the command finds; probe.py prints "NAME VALUE" lines.
test_inside() {
    cat >probe.py <<'PY'
import fcntl, os, sys, time
print("cwd", os.getcwd())
print("word", os.environ.get("WORD"), os.environ.get("GIVEN"))
print("hidden", os.environ.get("NOT_NAMED"))
print("stdin", repr(sys.stdin.read()))
vm = fcntl.ioctl(os.open("/dev/kvm", os.O_RDWR), 0xAE01, 0)
print("kvm", vm > 0 and os.readlink(f"/proc/self/fd/{vm}"))
print("cgroup", "memory" in open("/sys/fs/cgroup/cgroup.controllers").read())
os.mkdir("/sys/fs/cgroup/t")
print("limit", os.path.exists("/sys/fs/cgroup/t/memory.max"))
print("clock", abs(time.time() - int(sys.argv[1])) < 60)
for path in ("/etc/new", "/tmp/new", "/run/new", "/dev/shm/new", "new"):
    open(path, "w").write("x")
print("written", open("new").read())
print("argument", repr(sys.argv[2]))
PY
    GIVEN=from-caller NOT_NAMED=1 "$run" --env 'WORD=a b' --env GIVEN -- \
        /usr/bin/python3 probe.py "$(date +%s)" $'two\nlines ' >out 2>err </dev/zero
    is "exit code 0" $? 0
    is "nothing on standard error" "$(cat err)" ""
    has "current directory" out "^cwd $PWD\$"
    has "environment" out "^word a b from-caller\$"
    has "environment not named stays out" out "^hidden None\$"
    has "standard input is at its end" out "^stdin ''\$"
    has "KVM_CREATE_VM" out "^kvm anon_inode:kvm-vm\$"
    has "cgroup v2" out "^cgroup True\$"
    has "cgroup v2 limits" out "^limit True\$"
    has "clock" out "^clock True\$"
    has "everything is writable" out "^written x\$"
    has "arguments are exact" out "^argument 'two.nlines '\$"
    is "the tree outside is untouched" "$(find . -name new)" ""
}

test_system() {
    # shellcheck disable=SC2016 # it expands inside
    "$run" --cpus 3 --mem 1024 --disk 64M -- bash -c '
        nproc; unshare -Ur id -u; ip link add d0 type dummy && echo dummy
        awk "/MemTotal/ { print (\$2 < 1048576) }" /proc/meminfo
        : >/dev/net/tun || echo notun
        mke2fs -q /dev/vda && mount /dev/vda /mnt && df --output=size /mnt |
            awk "NR == 2 { print (\$1 > 50000) }"
        hostname; : </dev/ptmx && echo pty; kill -9 $$' >out 2>err
    is "death by a signal" $? 137
    is "processors, namespaces, modules, memory, disk, name, pty" \
        "$(tr '\n' ' ' <out)" "3 0 dummy 1 1 mainline pty "
}

test_codes() {
    "$run" -- ./no-such-program 2>err
    is "missing program" $? 127
    has "missing program is named" err no-such-program
    echo x >plain
    "$run" -- ./plain 2>err
    is "program that is not executable" $? 126
    "$run" --timeout 3 -- sleep 1000 2>err
    is "time limit" $? 124
    has "time limit is said" err "no end within 3 s"
    no_leftovers "a time limit"
}

# refused NAME PATTERN OPTION...: exit code 125 and one line with PATTERN.
refused() {
    local name=$1 pattern=$2
    shift 2
    timeout 120 "$run" "$@" >out 2>err
    is "$name: exit code" $? 125
    has "$name: reason" err "$pattern"
    is "$name: one line" "$(wc -l <err)" 1
}

test_refusals() {
    refused "no command" "no command"
    refused "unknown option" "unknown option" --nonsense -- true
    refused "bad number" "needs a number" --cpus two -- true
    refused "too many processors" "1 to 32" --cpus 99 -- true
    refused "bad disk size" "takes a size" --disk huge -- true
    refused "bad forward" "two port numbers" --forward 80 -- true
    refused "icount on two processors" "one processor" --icount --cpus 2 -- true
    refused "console that cannot be written" "not writable" \
        --console /nonexistent/file -- true
    refused "parameter of an absent module" "no module nosuch" \
        --param nosuch.x=1 -- true
    MOTE_MAINLINE_DEB=$work/cwd/plain refused "a package that is none" \
        "not a Debian package" -- true
    no_leftovers "a refusal"
}

test_forward() {
    local port pid answer
    port=$(free_port)
    cat >serve.py <<'PY'
import socket
s = socket.create_server(("0.0.0.0", 8080))
c = s.accept()[0]
c.sendall(b"got " + c.recv(100))
c.close()
PY
    "$run" --forward "$port:8080" --timeout 120 -- \
        /usr/bin/python3 serve.py 2>err &
    pid=$!
    # QEMU accepts at once and answers when the guest does: ask until then.
    answer=$(/usr/bin/python3 - "$port" <<'PY'
import socket, sys, time
end = time.time() + 100
while time.time() < end:
    try:
        with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as c:
            c.settimeout(60)
            c.sendall(b"ping")
            data = c.recv(100)
            if data:
                print(data.decode())
                break
    except OSError:
        pass
    time.sleep(0.1)
PY
    )
    is "forwarded port" "$answer" "got ping"
    wait $pid
    is "server inside ends" $? 0
    # Now somebody has that port.
    /usr/bin/python3 -c 'import socket, sys, time
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
time.sleep(300)' "$port" >busy &
    pid=$!
    until [ -s busy ]; do sleep 0.05; done
    refused "forward of a port in use" "forward" --forward "$port:80" -- true
    kill $pid
    wait $pid 2>/dev/null
}

test_output_end() {
    # The reader sleeps while the machine could already end: nothing is lost.
    "$run" -- sh -c 'head -c 400000 /dev/zero; echo end' |
        { sleep 12 && tail -c 4; } >out 2>err
    is "a slow reader gets the last bytes" "$(cat out)" "end"
    "$run" -- sh -c 'sleep 1000 & echo early' >out 2>err
    is "a background process does not hold the machine" "$?$(cat out)" 0early
    timeout 120 "$run" -- yes 2>err | head -n 1 >out
    is "a reader that goes away ends the machine" "${PIPESTATUS[0]}" 141
    no_leftovers "a broken pipe"
}

test_signal() {
    local signal pid rc
    for signal in TERM INT; do
        # A background job of a script ignores INT, unless told otherwise.
        setsid /usr/bin/env --default-signal=INT \
            "$run" -- sh -c 'echo started; sleep 1000' >out 2>err &
        pid=$!
        until grep -q started out; do sleep 0.1; done
        kill -$signal $pid
        wait $pid
        rc=$?
        is "SIG$signal ends it" $rc $((128 + $(kill -l $signal)))
        no_leftovers "SIG$signal"
    done
}

test_two_at_once() {
    local a b
    "$run" -- sh -c 'echo one; exit 1' >out1 2>&1 &
    a=$!
    "$run" -- sh -c 'echo two; exit 2' >out2 2>&1 &
    b=$!
    wait $a
    is "two at once, first" "$?$(cat out1)" 1one
    wait $b
    is "two at once, second" "$?$(cat out2)" 2two
}

# The same program takes the same virtual time.
test_icount() {
    local i a b
    cat >count.py <<'PY'
import time
start = time.monotonic_ns()
for i in range(1000000):
    pass
print((time.monotonic_ns() - start) // 1000)
PY
    for i in 1 2; do
        "$run" --icount --env PYTHONHASHSEED=0 -- setarch -R \
            /usr/bin/python3 count.py >out$i 2>err ||
            cat err
    done
    a=$(cat out1) b=$(cat out2)
    if [ $((100 * (a - b))) -le $((3 * a)) ] &&
        [ $((100 * (b - a))) -le $((3 * a)) ] && [ "$a" -gt 1000 ]; then
        ok "icount repeats ($a and $b us)"
    else
        not_ok "icount repeats" "$a and $b us"
    fi
}

"$here/image.sh" >/dev/null || exit 1
test_streams
test_inside
test_system
test_codes
test_refusals
test_forward
test_output_end
test_signal
test_two_at_once
test_icount
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
