# SPDX-License-Identifier: Apache-2.0
"""The monitor in the place of firecracker under firecracker-go-sdk: its
command line, its calls in their order, its end."""

import os
import signal
import uuid

import sdk
from harness import Cases, Vm

CASES = Cases()
MIB = 1 << 20
TAP = "mote-sdk0"


def case(name):
    return CASES.case(name)


def can_have_tap():
    return os.geteuid() == 0 and os.path.exists("/dev/net/tun")


def spawn(t, ident, tap):
    """Under firecracker's name, with its flags and no other."""
    binary = t.path("firecracker")
    if not os.path.lexists(binary):
        os.symlink(t.host.vmm, binary)
    sock = t.path(f"{ident}.sock")
    t.check(not os.path.lexists(sock), "the socket is there before the start")
    argv = [binary, "--api-sock", sock, "--id", ident, "--no-seccomp"]
    if tap:  # in a network of its own, where it may be made
        argv = ["unshare", "-n", "sh", "-c", f"ip tuntap add dev {TAP} mode tap"
                " && exec \"$@\"", "sh", *argv]
    vm = Vm(t, argv, None, None, ())
    vm.sock = sock
    t.vms.append(vm)
    return vm


def run(t, payload, use):
    """A machine from its start to its end; `use(vm, client)` between."""
    ident = str(uuid.uuid4())
    tap = TAP if can_have_tap() else None
    kernel = t.host.payload(payload)
    extra = t.file("extra.img", size=MIB)
    root = t.file("root.img", size=MIB)
    for path in (kernel, root):
        os.stat(path)
    vm = spawn(t, ident, tap)
    client = sdk.Sdk(vm.sock)
    client.wait_for_socket(lambda: vm.process.poll() is None)
    log = sdk.Reader(t.path("log.fifo"))
    metrics = sdk.Reader(t.path("metrics.fifo"))
    client.set_up(t.path, kernel, [extra], root, tap)
    use(vm, client)
    code = vm.wait()
    said = [x.end() for x in (log, metrics)]
    for name in ("log.fifo", "metrics.fifo"):
        os.unlink(t.path(name))
    t.eq(code, 0, "exit code")
    t.check(not os.path.lexists(vm.sock), "the socket was left behind")
    t.check(not os.path.lexists(t.path("v.sock")), "vsock's socket is left")
    return ident, said


@case("sdk_start_drive_keys_and_stop_by_SIGTERM")
def whole(t):
    def use(vm, client):
        vm.wait_output(b"ready\n")
        client.drive_it(t.path("extra.img"),
                        TAP if can_have_tap() else None)
        client.action("SendCtrlAltDel")  # Shutdown
        vm.process.send_signal(signal.SIGTERM)  # StopVMM

    ident, (log, metrics) = run(t, "keys", use)
    sdk.check_outputs(log, metrics, ident)


@case("sdk_guest_that_reboots_ends_it_with_0")
def reboot(t):
    run(t, "reset", lambda vm, client: None)


@case("sdk_stop_right_after_the_start")
def stop_early(t):
    for _ in range(3):
        run(t, "park", lambda vm, client: vm.process.terminate())
