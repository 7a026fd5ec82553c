# SPDX-License-Identifier: Apache-2.0
"""Networks: TAPs in namespaces of our own, and passt."""

import os
import re
import socket
import subprocess
import time

from harness import MOTE, Skip, Vm, check, run
from netns import GUEST, HOST, Namespace, Server, ip, net

CASES = []


def case(*tiers):
    def wrap(fn):
        fn.tiers = tiers
        CASES.append(fn)
        return fn
    return wrap


def size(host):
    """Bytes each way that take some seconds at most."""
    return (64 << 10) if host.emulated else (8 << 20)


def run_net(host, mode, script, *options, guard=120):
    return run([MOTE, "run", "--kernel", host.kernel, "--mem", "128M", "--net", mode,
                *options, "--", "/bin/sh", "-c", script], host.guard(guard))


def transfer(host, mode, bytes_each_way, *options):
    """TCP both ways at once; both ends hash."""
    server = Server(bytes_each_way)
    r = run_net(host, mode,
                "head -c %d /dev/urandom > /tmp/o; sha256sum < /tmp/o;"
                " nc %s 5000 < /tmp/o | sha256sum; ip link show dev eth0"
                % (bytes_each_way, HOST), *options)
    got = server.finish(host.guard(60))
    lines = r.out.decode().split("\n")
    check(r.rc == 0 and len(lines) >= 3, str(r))
    check(lines[0].split()[0] == got, "host got other bytes (%d): %s" % (
        server.got_bytes, r))
    check(lines[1].split()[0] == server.digest(), "guest got other bytes: %s" % r)
    return int(re.search(r"mtu (\d+)", r.out.decode()).group(1))


def tso_of(name):
    out = subprocess.run(["ethtool", "-k", name], stdout=subprocess.PIPE).stdout.decode()
    return {k: v.startswith("on") for k, v in re.findall(r"^\s*([\w-]+): (\w+)", out, re.M)}


@case("quick", "full")
def tcp_through_a_tap_both_ways(host, work):
    with Namespace() as ns:
        ns.tap()
        check(transfer(host, net(), size(host)) == 1500, "another MTU")


COMBINATIONS = [
    "csum", "guest_csum", "mrg_rxbuf", "guest_tso4+guest_tso6", "host_tso4+host_tso6",
    "guest_csum+mrg_rxbuf", "csum+guest_csum", "ctrl_vq",
    "csum+guest_csum+mrg_rxbuf+ctrl_vq+mtu+status", "guest_ecn+host_ecn",
]


@case("full")
def tcp_through_a_tap_with_each_offload_combination(host, work):
    if host.emulated:
        raise Skip("ten boots: run on hardware or on the mainline machine")
    for without in COMBINATIONS:
        with Namespace() as ns:
            ns.tap()
            transfer(host, net(without=without), 2 << 20)


@case("full")
def a_guest_that_declines_gets_no_large_frames(host, work):
    with Namespace() as ns:
        ns.tap()
        for without, want in ("ctrl_vq", True), ("guest_tso4+guest_tso6", False):
            with Vm(host, "--mem", "128M", "--net", net(without=without)):
                check(tso_of("tap0").get("tx-tcp-segmentation") == want,
                      "without %s: %s" % (without, tso_of("tap0")))
            if host.emulated:
                break


@case("full")
def several_queue_pairs_carry_tcp(host, work):
    with Namespace() as ns:
        ns.tap(multi=True)
        transfer(host, net(queues=4), size(host), "--cpus", "2")


def udp_limit(mtu):
    """What the host itself can send to the guest unfragmented."""
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
    s.sendto(bytes(mtu - 28), (GUEST, 9))
    try:
        s.sendto(bytes(mtu - 27), (GUEST, 9))
        return False
    except OSError:
        return True
    finally:
        s.close()


@case("full")
def BL_046_the_guest_takes_the_mtu_of_its_tap(host, work):
    for mtu in (1400, 9000):
        with Namespace() as ns:
            ns.tap(mtu=mtu)
            with Vm(host, "--mem", "128M", "--net", net()) as vm:
                link = vm.sh("ip link show dev eth0")
                check(b"mtu %d " % mtu in link.out, "%d: %s" % (mtu, link))
                check(vm.sh("ping -c 1 %s" % HOST).rc == 0, "no ping at all")
                before = ns.links()["tap0"]["stats64"]["rx"]["packets"]
                r = vm.sh("ping -c 1 -s %d %s" % (mtu - 28, HOST))
                check(r.rc == 0, "ping at the limit: %s" % r)
                middle = ns.links()["tap0"]["stats64"]["rx"]["packets"]
                check(vm.sh("ping -c 1 -s %d %s" % (mtu - 27, HOST)).rc == 0,
                      "ping above the limit")
                after = ns.links()["tap0"]["stats64"]["rx"]["packets"]
                check(after - middle > middle - before,
                      "one above the limit was not fragmented")
                check(udp_limit(mtu), "the host sends more than the limit")
        if host.emulated:
            break


@case("full")
def BL_047_bad_taps_fail_at_once_and_stop_nobody_else(host, work):
    many = 4 if host.emulated else 20
    with Namespace() as ns:
        for i in range(many):
            ns.tap("tap%d" % i, address=None)
        busy = subprocess.Popen([MOTE, "run", "--kernel", host.kernel, "--mem", "128M",
                                 "--net", "tap=tap1", "--", "/bin/sh", "-c", "echo; cat"],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        check(busy.stdout.readline() == b"\n", "the one that holds tap1 is not up")
        ip("link", "del", "tap0")
        starts = [(time.monotonic(), subprocess.Popen(
            [MOTE, "run", "--kernel", host.kernel, "--mem", "128M", "--net", "tap=tap%d" % i,
             "--", "true"], stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            for i in range(many)]
        for i in (0, 1):
            start, p = starts[i]
            _, err = p.communicate(timeout=host.guard(60))
            took = time.monotonic() - start
            word = (b"does not exist", b"in use")[i]
            check(p.returncode == 125 and word in err and b"tap%d" % i in err
                  and err.count(b"\n") == 1, "tap%d: %d %r" % (i, p.returncode, err))
            check(took < host.guard(7), "tap%d: the error took %.1f s" % (i, took))
        check("tap0" not in ns.links(), "the deleted TAP was made anew")
        for i in range(2, many):
            out, err = starts[i][1].communicate(timeout=host.guard(300))
            check(starts[i][1].returncode == 0, "tap%d: %r" % (i, err))
        busy.communicate(b"", timeout=host.guard(60))


def vmm_config(work, interface, name="c.json"):
    import json
    top = os.path.dirname(os.path.dirname(MOTE))
    path = os.path.join(work, name)
    with open(path, "w") as f:
        json.dump({"boot-source": {"kernel_image_path":
                                   os.path.join(top, "build/guest/tiny/vmlinux")},
                   "machine-config": {"vcpu_count": 1, "mem_size_mib": 128},
                   "network-interfaces": [interface],
                   "vsock": {"guest_cid": 3, "uds_path": os.path.join(work, "v.sock")}},
                  f)
    return path


@case("full")
def BL_049_a_failed_set_up_leaves_no_interface(host, work):
    from harness import VMM
    made = {"iface_id": "a", "host_dev_name": "mote9", "mtu": 1400,
            "mote": {"create": True}}
    with Namespace() as ns:
        before = sorted(ns.links())
        # A later step fails: the vsock's address is in use.
        taken = os.path.join(work, "v.sock")
        holder = socket.socket(socket.AF_UNIX)
        holder.bind(taken)
        holder.listen(1)
        for _ in range(2):
            r = run([VMM, "--no-api", "--config-file", vmm_config(work, made)], 60)
            check(r.rc != 0 and b"v.sock" in r.err, str(r))
            check(sorted(ns.links()) == before, "left: %s" % sorted(ns.links()))
        holder.close()
        os.unlink(taken)
        p = subprocess.Popen([VMM, "--no-api", "--config-file", vmm_config(work, made)],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE)
        end = time.monotonic() + host.guard(10)
        while not os.path.exists(taken) and time.monotonic() < end and p.poll() is None:
            time.sleep(0.01)
        link = ns.links().get("mote9")
        check(link and link["mtu"] == 1400 and "UP" in link["flags"],
              "the second try made no interface: %s %s" % (link, p.poll()))
        p.kill()
        p.communicate()
        check(sorted(ns.links()) == before, "left at exit: %s" % sorted(ns.links()))


@case("full")
def a_tap_that_goes_away_is_a_link_down_and_the_guest_goes_on(host, work):
    with Namespace() as ns:
        ns.tap()
        with Vm(host, "--mem", "128M", "--net", net(), "-v") as vm:
            check(b"LOWER_UP" in vm.sh("ip link show dev eth0").out, "no carrier")
            ip("link", "del", "tap0")
            r = vm.sh("ping -c 1 -W 1 %s; sleep 1; ip link show dev eth0" % HOST)
            check(b"NO-CARRIER" in r.out, str(r))


@case("full")
def user_network_reaches_a_server_through_passt(host, work):
    if not any(os.path.exists(os.path.join(d, "passt"))
               for d in os.environ["PATH"].split(":")):
        raise Skip("passt is not installed")
    with Namespace():
        ip("link", "add", "up0", "type", "veth", "peer", "name", "up1")
        ip("link", "set", "up1", "up")
        ip("addr", "add", "10.9.0.1/24", "dev", "up0")
        ip("link", "set", "up0", "up")
        ip("route", "add", "default", "via", "10.9.0.2")
        # One way at a time: Debian 12's passt stalls when the guest has closed
        # its half of a connection and still receives on it.
        down = Server(size(host), address="10.9.0.1", port=5000, http=True)
        up = Server(0, address="10.9.0.1", port=5001)
        r = run_net(host, "user",
                    "wget -q -O - http://10.9.0.1:5000/ | sha256sum;"
                    " head -c %d /dev/urandom > /tmp/o; sha256sum < /tmp/o;"
                    " nc 10.9.0.1 5001 < /tmp/o; cat /etc/resolv.conf" % size(host))
        lines = r.out.decode().split("\n")
        check(r.rc == 0 and len(lines) > 2, str(r))
        down.finish(host.guard(60))
        check(lines[0].split()[0] == down.digest(), str(r))
        check(lines[1].split()[0] == up.finish(host.guard(60)), str(r))
        check(lines[2] == "nameserver 10.0.2.3", str(r))
        # The end of the machine is the end of its passt.
        left = subprocess.run(["pgrep", "-f", "passt.*--address 10.0.2.15"],
                              stdout=subprocess.PIPE).stdout.split()
        mine = [p for p in left if os.path.exists("/proc/%d/ns/net" % int(p)) and
                os.readlink("/proc/%d/ns/net" % int(p)) == os.readlink("/proc/self/ns/net")]
        check(not mine, "passt still runs: %s" % mine)


@case("full")
def user_network_without_passt_or_route_says_what_to_do(host, work):
    argv = [MOTE, "run", "--kernel", host.kernel, "--mem", "128M", "--net", "user", "--",
            "true"]
    r = run(argv, host.guard(60), env=dict(os.environ, PATH="/nonexistent"))
    check(r.rc == 125 and b"install the package passt" in r.err, str(r))
    with Namespace():
        r = run(argv, host.guard(60))
        check(r.rc == 125 and b"default route" in r.err, str(r))


@case("quick", "full")
def without_being_asked_a_machine_has_no_network(host, work):
    r = run([MOTE, "run", "--kernel", host.kernel, "--mem", "128M", "--", "/bin/sh", "-c",
             "ip link"], host.guard(60))
    check(r.rc == 0 and b"eth0" not in r.out, str(r))
