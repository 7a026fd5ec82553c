# SPDX-License-Identifier: Apache-2.0
"""What a case of tests/kvm works with: the host, virtual machines, checks.

Python's standard library alone; every wait has an end, and no process
outlives its case.
"""

import collections
import ctypes
import errno
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time

PASS, FAIL, SKIP = 0, 1, 77  # guest/payloads/payload.h
PATIENCE = 60.0  # seconds until a VM that says nothing is a failure

Case = collections.namedtuple("Case", "name function needs_kvm")


class Failure(Exception):
    """The case failed; its text says why."""


class Skip(Exception):
    """The case cannot run here; its text says why."""


class Cases(list):
    """A table of cases, filled by decorators and loops."""

    def add(self, name, function, *args, kvm=True):
        self.append(Case(name, lambda t: function(t, *args), kvm))

    def case(self, name, kvm=True):
        def register(function):
            self.add(name, function, kvm=kvm)
            return function
        return register


def printable(data):
    """Text of a serial port that may have put out anything."""
    return "".join(chr(b) if 32 <= b < 127 or b == 10 else f"\\x{b:02x}"
                   for b in data)


def die_with_parent():
    """In the child: a runner that is killed leaves no VM behind."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Host:
    """The monitor under test and what this machine's KVM is."""

    def __init__(self, vmm, payloads):
        self.vmm = vmm
        self.payloads = payloads
        self.module = None
        self.emulated = False
        self.kvm_missing = self._open_kvm()
        if not self.kvm_missing:
            self._probe()

    @staticmethod
    def _open_kvm():
        try:
            os.close(os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC))
            return None
        except OSError as e:
            return f"/dev/kvm: {e.strerror}"

    def _probe(self):
        p = subprocess.run([self.vmm, "--probe"], stdin=subprocess.DEVNULL,
                           capture_output=True, timeout=PATIENCE, check=False)
        try:
            doc = json.loads(p.stdout)
            self.module = doc["kvm"]["module"]
            self.emulated = doc["ring0"]["emulated"]
            self.ns = doc["ring0"]["ns_per_instruction"]
        except (ValueError, KeyError, TypeError):
            self.kvm_missing = "mote-vmm --probe: " + p.stderr.decode().strip()

    def describe(self):
        if self.kvm_missing:
            return self.kvm_missing
        kind = "emulates ring 0" if self.emulated else "runs ring 0 natively"
        return f"{self.module} {kind}, {self.ns:.1f} ns an instruction"

    def payload(self, name):
        return os.path.join(self.payloads, f"p_{name}.elf")


class Vm:
    """One monitor process. Files are in the case's directory."""

    def __init__(self, test, argv, stdin, preexec, pass_fds):
        self.test = test
        self.name = f"vm{len(test.vms)}"
        self.out = b""
        self.code = None
        self.err_path = os.path.join(test.dir, self.name + ".stderr")
        self.exit_path = None
        self.argv = argv

        def child():
            die_with_parent()
            os.setpgid(0, 0)  # whoever wraps the monitor ends with it
            if preexec:
                preexec()

        with open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(
                argv, stdin=stdin, stdout=subprocess.PIPE, stderr=err,
                cwd=test.dir, preexec_fn=child, pass_fds=pass_fds)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.pid = self.process.pid

    # --- output -----------------------------------------------------------

    def _read(self, deadline):
        """Takes in what came; False at the end of the stream."""
        fd = self.process.stdout.fileno()
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            raise Failure(f"{self.name}: no end and no output within "
                          f"{PATIENCE:.0f} s")
        data = os.read(fd, 65536)
        self.out += data
        return bool(data)

    def wait_output(self, text):
        """Until `text` has come on the serial port."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.out:
            if not self._read(deadline):
                self.process.wait(PATIENCE)
                raise Failure(f"{self.name}: ended with code "
                              f"{self.process.returncode} before "
                              f"{text!r} came")

    def wait_bytes(self, count):
        deadline = time.monotonic() + PATIENCE
        while len(self.out) < count:
            if not self._read(deadline):
                raise Failure(f"{self.name}: ended after {len(self.out)} of "
                              f"{count} bytes")

    def wait(self):
        """Until the process has ended; its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        try:
            self.code = self.process.wait(
                max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name}: closed its output but does not end")
        return self.code

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self.process.wait()
        self.process.stdout.close()

    # --- what it left -----------------------------------------------------

    @property
    def err(self):
        with open(self.err_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    @property
    def report(self):
        try:
            with open(self.exit_path, encoding="utf-8") as f:
                return json.load(f)
        except (OSError, ValueError) as e:
            raise Failure(f"{self.name}: exit file: {e}")

    # --- what it uses -----------------------------------------------------

    def cpu_seconds(self):
        """CPU time of all threads so far."""
        total = 0
        for tid in os.listdir(f"/proc/{self.pid}/task"):
            with open(f"/proc/{self.pid}/task/{tid}/schedstat",
                      encoding="ascii") as f:
                total += int(f.read().split()[0])
        return total / 1e9

    def guest_bytes(self):
        """Guest memory that the host has pages for."""
        base = f"/proc/{self.pid}/fd"
        for fd in os.listdir(base):
            path = os.path.join(base, fd)
            if "mote-guest-ram" in os.readlink(path):
                return os.stat(path).st_blocks * 512
        raise Failure(f"{self.name}: no guest memory in /proc")

    def resident_bytes(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            for line in f:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise Failure(f"{self.name}: no VmRSS in /proc")


class Test:
    """One run of one case."""

    def __init__(self, host, name, directory):
        self.host = host
        self.name = name
        self.dir = directory
        self.vms = []

    # --- verdicts ---------------------------------------------------------

    def eq(self, got, want, what):
        if got != want:
            raise Failure(f"{what}: got {got!r}, want {want!r}")

    def check(self, ok, what):
        if not ok:
            raise Failure(what)

    # --- files ------------------------------------------------------------

    def path(self, name):
        return os.path.join(self.dir, name)

    def file(self, name, data=b"", size=None):
        """Writes a file, sparse up to `size`; its path."""
        with open(self.path(name), "wb") as f:
            f.write(data)
            if size is not None:
                f.truncate(size)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    # --- VMs --------------------------------------------------------------

    def config(self, kernel, words="", mem=128, cpus=1, drives=(), vsock=None,
               rng=False, initrd=None, mote=None, balloon=None, net=None):
        """A configuration as a dictionary, in Firecracker's format."""
        doc = {
            "boot-source": {"kernel_image_path": kernel, "boot_args": words
                            or "quiet"},
            "machine-config": {"vcpu_count": cpus, "mem_size_mib": mem},
            "drives": list(drives),
        }
        if initrd:
            doc["boot-source"]["initrd_path"] = initrd
        if vsock:
            doc["vsock"] = {"guest_cid": 3, "uds_path": vsock}
        if rng:
            doc["entropy"] = {}
        if balloon:
            doc["balloon"] = balloon
        if net is not None:  # the descriptor of a stream socket
            doc["network-interfaces"] = [{"iface_id": "n", "mote": {"fd": net}}]
        if mote:
            doc["mote"] = mote
        return doc

    def drive(self, name, path, read_only=False, root=False, **more):
        return {"drive_id": name, "path_on_host": path,
                "is_read_only": read_only, "is_root_device": root,
                "cache_type": "Writeback", **more}

    def start(self, config, args=(), stdin=subprocess.DEVNULL, preexec=None,
              pass_fds=(), exit_file=True, test_exit=True, wrap=()):
        """Starts a monitor; `config` is a dictionary, or text as it is."""
        number = len(self.vms)
        name = f"vm{number}.json"
        text = config if isinstance(config, str) else json.dumps(config)
        self.file(name, text.encode())
        argv = [*wrap, self.host.vmm, "--config-file", name, *args]
        if test_exit:
            argv += ["--test-exit"]
        if exit_file:
            argv += ["--exit-file", f"vm{number}.exit"]
        vm = Vm(self, argv, stdin, preexec, pass_fds)
        vm.exit_path = self.path(f"vm{number}.exit")
        self.vms.append(vm)
        return vm

    def run_payload(self, name, words="", **options):
        """Runs a guest program to its end and judges its result."""
        start = {k: options.pop(k) for k in
                 ("args", "stdin", "preexec", "pass_fds")
                 if k in options}
        vm = self.start(self.config(self.host.payload(name), words,
                                    **options), **start)
        self.judge(vm)
        return vm

    def judge(self, vm):
        code = vm.wait()
        said = printable(vm.out).strip().splitlines()
        last = said[-1] if said else ""
        if code == SKIP:
            raise Skip(last.removeprefix("SKIP: "))
        if code != PASS:
            raise Failure(f"{vm.name}: code {code}: " +
                          last.removeprefix("FAIL: "))
        self.eq(vm.report["reason"], "test", "reason in the exit file")

    def parked(self, **options):
        """A VM whose guest has halted for good."""
        start = {k: options.pop(k) for k in
                 ("args", "stdin", "preexec", "pass_fds")
                 if k in options}
        vm = self.start(self.config(self.host.payload("park"), **options),
                        **start)
        vm.wait_output(b"parked\n")
        return vm

    def terminate(self, vm):
        """Asks the monitor to end its VM, as `kill` does."""
        vm.process.send_signal(signal.SIGTERM)
        self.eq(vm.wait(), 0, "exit code after SIGTERM")
        self.eq(vm.report["reason"], "request", "reason in the exit file")

    def refused(self, vm, codes, *words):
        """It ended at once, with one line that has all the words in it."""
        vm.wait()
        lines = vm.err.splitlines()
        self.eq(len(lines), 1, "lines on standard error")
        self.check(lines[0].startswith("mote-vmm: "),
                   f"the line does not begin with mote-vmm: {lines[0]}")
        for word in words:
            self.check(word in lines[0], f"no {word!r} in: {lines[0]}")
        codes = codes if isinstance(codes, tuple) else (codes,)
        self.check(vm.code in codes,
                   f"exit code {vm.code}, want {codes}: {lines[0]}")
        self.eq(vm.out, b"", "standard output")
        self.check(not os.path.lexists(vm.exit_path),
                   "an exit file was left behind")

    def no_stray_files(self, before):
        ours = {f"vm{i}{end}" for i in range(len(self.vms))
                for end in (".json", ".stderr")}
        stray = set(os.listdir(self.dir)) - set(before) - ours
        self.check(not stray, f"stray files: {sorted(stray)}")

    # --- the end ----------------------------------------------------------

    def report(self):
        """What the VMs said, for a reader who looks for the fault."""
        text = ""
        # Of many, those that did not end well come first.
        vms = sorted(self.vms, key=lambda vm: vm.process.poll() == 0)
        for vm in vms[:4]:
            out = printable(vm.out[-3000:])
            text += f"{vm.name}: {' '.join(vm.argv)}\n"
            text += f"{vm.name}: exit code {vm.process.poll()}\n"
            text += "".join(f"serial: {x}\n" for x in out.splitlines())
            text += "".join(f"stderr: {x}\n"
                            for x in vm.err[-3000:].splitlines())
        return text

    def end(self):
        for vm in self.vms:
            vm.kill()
            with open(self.path(vm.name + ".serial"), "wb") as f:
                f.write(vm.out)


class Network:
    """A network that takes all frames and sends none: give it as net=."""

    def __init__(self):
        self.near, self.far = socket.socketpair()
        self.thread = threading.Thread(target=self._drain)
        self.thread.start()

    def _drain(self):
        while self.far.recv(65536):
            pass

    def __enter__(self):
        return {"net": self.near.fileno(), "pass_fds": [self.near.fileno()]}

    def __exit__(self, *exc):
        self.near.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.near.close()
        self.far.close()


def fill_pipe(fd, data):
    """Writes until the pipe has no more room; the bytes it took."""
    os.set_blocking(fd, False)
    total = 0
    try:
        while True:
            total += os.write(fd, data)
    except OSError as e:
        if e.errno != errno.EAGAIN:
            raise
    return total
