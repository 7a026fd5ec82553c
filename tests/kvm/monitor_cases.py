# SPDX-License-Identifier: Apache-2.0
"""Cases of wrong input: one line, the documented code, nothing left behind,
no file of the user's changed."""

import ctypes
import gzip
import os
import re
import resource
import struct
import subprocess

from harness import FAIL, Cases, Skip

CASES = Cases()
MIB = 1 << 20

ARGUMENTS = 153
CONFIG = 152


# --- arguments -------------------------------------------------------------

def arguments(t, words, *said):
    vm = t.start(t.config(t.host.payload("serial_out")), args=words)
    t.refused(vm, ARGUMENTS, *said)
    t.no_stray_files([])


for case, words, said in (
        ("unknown_option", ["--frobnicate"], ["--frobnicate", "--help"]),
        ("stray_word", ["vmlinux"], ["vmlinux", "--help"]),
        ("option_without_value", ["--id="], ["--id"]),
        ("value_for_a_switch", ["--no-api=1"], ["--no-api"]),
        ("api_and_no_api", ["--no-api", "--api-sock", "s"],
         ["--no-api", "--api-sock"]),
        ("payload_size", ["--http-api-max-payload-size", "0"],
         ["--http-api-max-payload-size", "0"]),
        ("bad_id", ["--id", "a/b"], ["--id"]),
        ("bad_level", ["--level", "loud"], ["--level", "loud"]),
        ("lifeline_not_open", ["--lifeline-fd", "57"],
         ["--lifeline-fd", "57"]),
        ("log_path_in_no_directory", ["--log-path", "nowhere/log"],
         ["nowhere/log", "No such file"]),
):
    CASES.add("args_" + case, arguments, words, *said, kvm=False)


@CASES.case("args_no_config_file", kvm=False)
def no_config_file(t):
    p = subprocess.run([t.host.vmm], stdin=subprocess.DEVNULL, cwd=t.dir,
                       capture_output=True, timeout=20, check=False)
    t.eq(p.returncode, ARGUMENTS, "exit code")
    t.eq(p.stderr.count(b"\n"), 1, "lines on standard error")
    t.check(b"--config-file" in p.stderr, "the option is not named")


@CASES.case("args_exit_file_exists", kvm=False)
def exit_file_exists(t):
    mine = t.file("mine", b"precious")
    vm = t.start(t.config(t.host.payload("serial_out")), exit_file=False,
                 args=["--exit-file", mine])
    t.refused(vm, ARGUMENTS, "--exit-file", mine, "exists")
    t.eq(t.read("mine"), b"precious", "the file that was there")


@CASES.case("args_help_and_version", kvm=False)
def help_and_version(t):
    for word, said in (("--help", b"--config-file"), ("--version", b"mote")):
        p = subprocess.run([t.host.vmm, word], stdin=subprocess.DEVNULL,
                           capture_output=True, timeout=20, check=False)
        t.eq(p.returncode, 0, word)
        t.eq(p.stderr, b"", f"standard error of {word}")
        t.check(said in p.stdout, f"{word} prints {p.stdout!r}")


# --- the configuration -----------------------------------------------------

def bad_config(t, change, *said):
    """`change` gets a good configuration, and gives a bad one or text."""
    doc = t.config(t.host.payload("serial_out"))
    changed = change(doc)
    vm = t.start(doc if changed is None else changed)
    t.refused(vm, CONFIG, *said)
    t.no_stray_files([])


def setter(section, field, value):
    return lambda doc: doc.setdefault(section, {}).__setitem__(field, value)


def text(value):
    return lambda doc: value


def drives(*items):
    return lambda doc: doc.__setitem__("drives", list(items))


DRIVE = {"drive_id": "a", "path_on_host": "disk", "is_root_device": False}

for case, change, said in (
        ("33_vcpus", setter("machine-config", "vcpu_count", 33),
         ["machine-config.vcpu_count", "1 to 32"]),
        ("no_vcpu", setter("machine-config", "vcpu_count", 0),
         ["machine-config.vcpu_count", "1 to 32"]),
        ("half_a_vcpu", setter("machine-config", "vcpu_count", 1.5),
         ["machine-config.vcpu_count", "whole number"]),
        ("memory_of_15_mib", setter("machine-config", "mem_size_mib", 15),
         ["machine-config.mem_size_mib", "16"]),
        ("memory_as_text", setter("machine-config", "mem_size_mib", "128"),
         ["machine-config.mem_size_mib"]),
        ("unknown_field", setter("machine-config", "vcpus", 1),
         ["machine-config.vcpus", "unknown field"]),
        ("unknown_section", setter("machine_config", "vcpu_count", 1),
         ["machine_config", "unknown section"]),
        ("unsupported_section", setter("memory-hotplug", "total_size_mib", 1),
         ["memory-hotplug", "not supported"]),
        ("no_kernel", lambda d: d["boot-source"].pop("kernel_image_path")
         and None, ["boot-source", "kernel_image_path"]),
        ("empty_kernel_path", setter("boot-source", "kernel_image_path", ""),
         ["boot-source.kernel_image_path", "non-empty"]),
        ("vsock_without_cid", setter("vsock", "uds_path", "v.sock"),
         ["guest_cid"]),
        ("vsock_with_reserved_cid", setter("vsock", "guest_cid", 2),
         ["vsock.guest_cid"]),
        ("vsock_without_path", setter("vsock", "guest_cid", 3),
         ["uds_path"]),
        ("drive_twice", drives(DRIVE, DRIVE), ["drive_id", "a"]),
        ("drive_without_path", drives({"drive_id": "a"}), ["path_on_host"]),
        ("drive_with_odd_id", drives({**DRIVE, "drive_id": "a b"}),
         ["drive_id"]),
        ("two_root_drives",
         drives({**DRIVE, "is_root_device": True},
                {**DRIVE, "drive_id": "b", "is_root_device": True}),
         ["is_root_device"]),
        ("17_drives",
         drives(*({**DRIVE, "drive_id": f"d{i}"} for i in range(17))),
         ["drives", "16"]),
        ("not_json", text("{"), ["vm0.json", "line 1"]),
        ("not_an_object", text("[]"), ["vm0.json", "object"]),
        ("duplicate_keys", text('{"entropy": {}, "entropy": {}}'),
         ["vm0.json", "duplicate", "entropy"]),
        ("text_behind_the_end", text("{} {}"), ["vm0.json"]),
        ("empty_file", text(""), ["vm0.json"]),
):
    CASES.add("config_" + case, bad_config, change, *said, kvm=False)

# Looked at when the machine is built, so after /dev/kvm.
for case, change, said in (
        ("line_feed_in_boot_args", setter("boot-source", "boot_args", "a\nb"),
         ["command line", "0x0a"]),
        ("boot_args_of_5000_bytes",
         setter("boot-source", "boot_args", "a" * 5000),
         ["command line", "2047"]),
):
    CASES.add("config_" + case, bad_config, change, *said)


@CASES.case("config_file_missing", kvm=False)
def config_missing(t):
    vm = t.start("{}")
    vm.wait()
    vm = t.start("{}", args=["--config-file", "nowhere.json"])
    t.refused(vm, CONFIG, "nowhere.json", "No such file", "--config-file")


@CASES.case("config_check_good", kvm=False)
def check_good(t):
    disk = t.file("disk", size=MIB)
    doc = t.config(t.host.payload("serial_out"), vsock="v.sock", rng=True,
                   drives=[t.drive("a", disk, root=True)])
    vm = t.start(doc, args=["--check"])
    t.eq(vm.wait(), 0, "exit code")
    t.eq((vm.out, vm.err), (b"", ""), "output")
    t.no_stray_files(["disk"])


@CASES.case("config_check_reads_the_kernel", kvm=False)
def check_reads_the_kernel(t):
    t.file("text", b"not a kernel\n")
    t.refused(t.start(t.config("text"), args=["--check"]), CONFIG, "kernel text")
    t.refused(t.start(t.config("nowhere"), args=["--check"]), CONFIG, "nowhere")


@CASES.case("config_check_reads_the_command_line", kvm=False)
def check_reads_the_command_line(t):
    doc = t.config(t.host.payload("serial_out"))
    doc["boot-source"]["boot_args"] = "quiet\nroot=/dev/vda"
    t.refused(t.start(doc, args=["--check"]), CONFIG, "command line")


@CASES.case("config_check_bad", kvm=False)
def check_bad(t):
    doc = t.config(t.host.payload("serial_out"), cpus=33)
    t.refused(t.start(doc, args=["--check"]), CONFIG, "vcpu_count")


# --- kernels (BL-002) ------------------------------------------------------

def bad_kernel(t, name, *said):
    before = os.listdir(t.dir)
    vm = t.start(t.config(name))
    t.refused(vm, CONFIG, "kernel " + name, *said)
    t.no_stray_files(before)


def elf(machine=62, bits=2, kind=2):
    """The head of an ELF file, with nothing behind it."""
    return (b"\x7fELF" + bytes([bits, 1, 1]) + bytes(9) +
            struct.pack("<HHI", kind, machine, 1) + bytes(100))


def at(offset, magic):
    return bytes(offset) + magic + bytes(4096)


ACCEPTED = "vmlinux"
KERNELS = (
    ("empty", b"", "empty"),
    ("text", b"not a kernel\n", "a text file"),
    ("gzip", gzip.compress(b"vmlinux" * 1000), "gzip"),
    ("xz", b"\xfd7zXZ\0" + bytes(600), "xz"),
    ("zstd", b"\x28\xb5\x2f\xfd" + bytes(600), "zstd"),
    ("arm64_image", at(0x38, b"ARM\x64"), "arm64"),
    ("elf_32", elf(machine=3, bits=1), "32-bit ELF"),
    ("elf_arm64", elf(machine=183), "arm64"),
    ("elf_object", elf(kind=1), "relocatable"),
    ("elf_shared", elf(kind=3), "shared object"),
    ("elf_cut", elf()[:40], "shorter than its header"),
    ("elf_without_segments", elf(), "program headers"),
    ("efi_program", b"MZ" + bytes(600), "EFI"),
    ("cpio", b"070701" + b"0" * 600, "cpio"),
    ("qcow2", b"QFI\xfb" + bytes(600), "qcow2"),
    ("disk", at(510, b"\x55\xaa"), "disk image"),
    ("zeroes", bytes(4096), "no known format"),
)


def bad_kernel_file(t, data, what):
    t.file("image", data)
    bad_kernel(t, "image", what)


for case, data, what in KERNELS:
    CASES.add("BL_002_kernel_" + case, bad_kernel_file, data, what)


@CASES.case("BL_002_kernel_missing")
def kernel_missing(t):
    bad_kernel(t, "nowhere/vmlinux", "no such file")


@CASES.case("BL_002_kernel_is_a_directory")
def kernel_directory(t):
    os.mkdir(t.path("image"))
    bad_kernel(t, "image", "directory", "regular file")


@CASES.case("BL_002_kernel_is_a_fifo")
def kernel_fifo(t):
    os.mkfifo(t.path("image"))
    bad_kernel(t, "image", "FIFO", "regular file")


@CASES.case("memory_too_small_for_the_kernel")
def small_memory(t):
    """An ELF that asks for 40 MiB at 1 MiB in a VM of 32."""
    with open(t.host.payload("park"), "rb") as f:
        image = bytearray(f.read())
    headers = struct.unpack_from("<Q", image, 32)[0]
    second = headers + 56
    struct.pack_into("<Q", image, second + 40, 40 * MIB)  # p_memsz
    path = t.file("image", bytes(image))
    vm = t.start(t.config(path, mem=32))
    t.refused(vm, CONFIG, "kernel " + path, "42 MiB", "32 MiB",
              "more memory")
    t.no_stray_files(["image"])


# --- initrd and disks ------------------------------------------------------

def bad_initrd(t, make, *said):
    make(t)
    before = os.listdir(t.dir)
    vm = t.start(t.config(t.host.payload("serial_out"), initrd="rd"))
    t.refused(vm, CONFIG, "initrd rd", *said)
    t.no_stray_files(before)


CASES.add("initrd_missing", bad_initrd, lambda t: None, "no such file")
CASES.add("initrd_empty", bad_initrd, lambda t: t.file("rd"), "empty")
CASES.add("initrd_is_a_directory", bad_initrd,
          lambda t: os.mkdir(t.path("rd")), "directory")
CASES.add("initrd_larger_than_memory", bad_initrd,
          lambda t: t.file("rd", size=256 * MIB), "262144 KiB", "more memory")


def bad_disk(t, make, read_only, *said):
    make(t)
    before = os.listdir(t.dir)
    vm = t.start(t.config(t.host.payload("serial_out"),
                          drives=[t.drive("a", "disk", read_only)]))
    t.refused(vm, CONFIG, "disk disk", *said)
    t.no_stray_files(before)


for mode in (False, True):
    end = "_read_only" if mode else ""
    for case, make, said in (
            ("missing", lambda t: None, ["No such file", "path"]),
            ("empty", lambda t: t.file("disk"), ["empty", "truncate"]),
            ("of_511_bytes", lambda t: t.file("disk", bytes(511)),
             ["511 bytes", "512"]),
            ("is_a_directory", lambda t: os.mkdir(t.path("disk")),
             ["directory"]),
            ("is_a_fifo", lambda t: os.mkfifo(t.path("disk")),
             ["regular file"]),
    ):
        CASES.add(f"disk_{case}{end}", bad_disk, make, mode, *said)


# --- permissions and KVM ---------------------------------------------------

NOBODY = 65534


def need_root():
    if os.geteuid() != 0:
        raise Skip("only root can become another user")


def without_override():
    """Root without the right to ignore a file's mode. spec: capabilities(7)"""
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
    libc = ctypes.CDLL(None)
    for cap in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAPBSET_DROP, cap, 0, 0, 0)


def not_permitted(t, **config):
    path = t.file("secret", bytes(MIB))
    os.chmod(path, 0)
    need_root()
    os.chown(path, NOBODY, NOBODY)
    kernel = config.pop("kernel", t.host.payload("serial_out"))
    vm = t.start(t.config(kernel, **config), preexec=without_override)
    t.refused(vm, CONFIG, "secret", "ermission denied", "readable")
    t.no_stray_files(["secret"])


CASES.add("kernel_not_permitted", lambda t: not_permitted(t, kernel="secret"))
CASES.add("initrd_not_permitted", lambda t: not_permitted(t, initrd="secret"))
CASES.add("disk_not_permitted", lambda t: not_permitted(
    t, drives=[t.drive("a", "secret", read_only=True)]))


def other_dev(t, script, *said):
    """With a /dev of its own, which `script` makes."""
    need_root()
    vm = t.start(t.config(t.host.payload("serial_out")), exit_file=False,
                 wrap=["unshare", "--mount", "sh", "-c", script, "sh"])
    t.refused(vm, 1, "/dev/kvm", *said)


CASES.add("kvm_not_permitted", other_dev,
          "numbers=$(stat -c '0x%t 0x%T' /dev/kvm) && "
          "mount -t tmpfs none /dev && "
          "mknod -m 0600 /dev/kvm c $numbers && "
          f'exec setpriv --reuid {NOBODY} --clear-groups "$@"',
          "ermission denied")
CASES.add("kvm_absent", other_dev, "mount -t tmpfs none /dev && exec \"$@\"",
          "not there")
CASES.add("kvm_is_another_device", other_dev,
          "mount --bind /dev/null /dev/kvm && exec \"$@\"", "another device",
          "kvm_amd")


@CASES.case("refusal_removes_its_exit_file")
def exit_file_removed(t):
    vm = t.start(t.config("nowhere"))
    t.refused(vm, CONFIG, "nowhere")  # checks the exit file as well
    t.no_stray_files([])


@CASES.case("log_path_takes_the_line")
def log_path(t):
    vm = t.start(t.config("nowhere"), args=["--log-path", "log", "--id", "x1"])
    vm.wait()
    t.check(vm.code == CONFIG, f"exit code {vm.code}")
    t.eq(vm.err, "", "standard error")
    lines = t.read("log").decode().splitlines()
    t.eq(len(lines), 1, "lines of the log")
    form = r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{9} \[x1:main\] kernel nowhere"
    t.check(re.match(form, lines[0]),
            f"form of the line: {lines[0]}")


# --- a limit of file sizes -------------------------------------------------

def at_most(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@CASES.case("file_size_limit_below_the_memory_is_told")
def file_size_limit_below_memory(t):
    vm = t.start(t.config(t.host.payload("park")), preexec=at_most(MIB))
    t.refused(vm, 1, "guest memory", "File too large")


@CASES.case("file_size_limit_fails_a_write_and_not_the_monitor")
def file_size_limit_of_a_disk(t):
    size = 64 * MIB
    disk = t.file("disk", size=size)
    vm = t.start(t.config(t.host.payload("blk_rw"), f"sectors={size // 512}",
                          mem=16, drives=[t.drive("d", disk)]),
                 preexec=at_most(24 * MIB))
    t.eq(vm.wait(), FAIL, "exit code")
    t.check(b"status of a write" in vm.out, f"the guest says {vm.out!r}")
