# SPDX-License-Identifier: Apache-2.0
"""Cases that a guest program decides, with what the host sees of them."""

import hashlib
import os
import re
import struct
import time

from harness import Cases, Network

CASES = Cases()
SECTOR = 512
MIB = 1 << 20


# --- the ways a VM ends ----------------------------------------------------

def ending(t, payload, words, code, reason, *log):
    vm = t.start(t.config(t.host.payload(payload), words))
    t.eq(vm.wait(), code, "exit code")
    t.eq(vm.report["reason"], reason, "reason in the exit file")
    t.eq(vm.report["exit_code"], code, "exit code in the exit file")
    t.eq(vm.out, b"", "serial output")
    lines = vm.err.splitlines()
    t.eq(len(lines), 1 if log else 0, "lines of the log")
    for word in log:
        t.check(word in lines[0], f"no {word!r} in: {lines[0]}")


CASES.add("exit_poweroff", ending, "exit", "reason=1", 0, "poweroff")
CASES.add("exit_reboot", ending, "exit", "reason=2", 0, "reboot")
CASES.add("exit_halt", ending, "exit", "reason=3", 0, "halt")
CASES.add("exit_panic", ending, "exit", "reason=4", 20, "panic")
CASES.add("exit_panic_then_reset", ending, "exit", "reason=4 then=reset", 20,
          "panic")
CASES.add("exit_no_reason_then_reset", ending, "exit", "reason=0 then=reset",
          0, "reboot")
CASES.add("exit_i8042_reset", ending, "reset", "", 0, "reboot")
CASES.add("BL_012_triple_fault", ending, "triple_fault", "", 21,
          "triple_fault", "triple fault")
CASES.add("exit_kvm_error", ending, "kvm_error", "", 22, "kvm_error",
          "KVM internal error", "0xe0000000")


@CASES.case("exit_test_port_gives_its_byte")
def test_port(t):
    vm = t.start(t.config(t.host.payload("park"), "test_port=0x2a"))
    t.eq(vm.wait(), 42, "exit code")
    t.eq(vm.report["reason"], "test", "reason in the exit file")


@CASES.case("exit_test_port_needs_its_option")
def test_port_needs_option(t):
    vm = t.start(t.config(t.host.payload("park"), "test_port=42"),
                 test_exit=False)
    vm.wait_output(b"parked\n")
    t.terminate(vm)


@CASES.case("boot_marks")
def boot_marks(t):
    vm = t.run_payload("marks")
    marks = vm.report["marks"]
    t.eq([m["mark"] for m in marks], [1, 2, 3, 255], "marks")
    times = [m["us"] for m in marks]
    t.check(times == sorted(times), f"times do not rise: {times}")
    t.check(times[0] >= vm.report["first_run_us"] > 0,
            f"first mark at {times[0]} us, first run at "
            f"{vm.report['first_run_us']} us")


BOOT_TIME = (r"Guest-boot-time = +(\d+) us (\d+) ms, +(\d+) CPU us "
             r"(\d+) CPU ms\n")


def boot_timer(t, words, **options):
    """The four numbers of the one line that it takes."""
    t.run_payload("boot_timer", words, args=[
        "--boot-timer", "--log-path", "log", "--level", "Info"], **options)
    lines = re.findall(BOOT_TIME, t.read("log").decode())
    t.eq(len(lines), 1, "lines of the boot timer")
    us, ms, cpu_us, cpu_ms = map(int, lines[0])
    t.eq((us // 1000, cpu_us // 1000), (ms, cpu_ms), "milliseconds")
    t.check(us > 0 and cpu_us > 0, f"{us} us, {cpu_us} us of CPU")
    os.unlink(t.path("log"))


@CASES.case("boot_timer_says_when_the_guest_has_booted")
def boot_timer_line(t):
    boot_timer(t, "at=0xd0000000")
    boot_timer(t, "at=0xc0000000 width=4")
    # With the registers of a device on the same page as memory.
    boot_timer(t, "at=0xd0000000 width=8", rng=True)


@CASES.case("boot_timer_counts_what_a_jailer_says")
def boot_timer_jailer(t):
    began = time.monotonic_ns() // 1000 - 5_000_000
    t.run_payload("boot_timer", "", args=[
        "--boot-timer", "--log-path", "log", "--level", "Info",
        "--start-time-us", str(began), "--start-time-cpu-us", "0",
        "--parent-cpu-time-us", "7000000"])
    (line,) = re.findall(BOOT_TIME, t.read("log").decode())
    t.check(int(line[0]) > 5_000_000, f"{line[0]} us since the start")
    t.check(7_000_000 <= int(line[2]) < 60_000_000, f"{line[2]} us of CPU")


@CASES.case("boot_timer_needs_its_option")
def boot_timer_option(t):
    t.run_payload("boot_timer", "", args=["--log-path", "log", "--level",
                                          "Info"])
    t.check(b"Guest-boot-time" not in t.read("log"), "a line all the same")


@CASES.case("compute_does_not_end_early")
def compute(t):
    # About a second on either kind of host; a power of two.
    loops = 1 << (17 if t.host.emulated else 24)
    t.run_payload("compute", f"loops={loops}")


# --- the serial port -------------------------------------------------------

@CASES.case("serial_out_exact_bytes")
def serial_out(t):
    vm = t.run_payload("serial_out")
    t.eq(vm.out, bytes(range(256)), "serial output")


@CASES.case("serial_echo")
def serial_echo(t):
    data = bytes(range(256)) * 3  # more than the receive FIFO takes
    r, w = os.pipe()
    vm = t.start(t.config(t.host.payload("serial_echo"),
                          f"count={len(data)}"), stdin=r)
    os.close(r)
    try:
        vm.wait_output(b"ready\n")
        os.write(w, data)
        t.judge(vm)
    finally:
        os.close(w)
    t.eq(vm.out, b"ready\n" + data, "echo")


@CASES.case("serial_registers")
def serial_registers(t):
    vm = t.run_payload("uart_regs")
    t.eq(vm.out, b"ab", "serial output (loop-back stays inside)")


# --- boot ------------------------------------------------------------------

def memory_map(t, mib):
    t.run_payload("boot_params", f"mem={mib}", mem=mib)


for size in (64, 128, 3328, 3329, 4096):
    CASES.add(f"BL_008_memory_map_{size}", memory_map, size)


def file_hash(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


@CASES.case("elf_segments")
def elf_segments(t):
    path = t.host.payload("elf_segments")
    before = file_hash(path)
    t.run_payload("elf_segments")
    t.eq(file_hash(path), before, "hash of the kernel's file")


@CASES.case("initrd")
def initrd(t):
    words = 12345
    path = t.file("initrd", struct.pack(f"<{words}Q", *range(words)))
    before = file_hash(path)
    t.run_payload("initrd", f"bytes={8 * words} mem=128", initrd=path)
    t.eq(file_hash(path), before, "hash of the initrd's file")


def setup_data(t, tree):
    disk = t.file("disk", size=MIB)
    t.run_payload("setup_data", f"cpus=3 devices=2 tree={tree}", cpus=3,
                  drives=[t.drive("a", disk)], rng=True,
                  mote={"no_device_tree": tree == "no"})


CASES.add("setup_data_seed_and_device_tree", setup_data, "yes")
CASES.add("setup_data_without_device_tree", setup_data, "no")


@CASES.case("identity_differs")
def identity(t):
    said = [t.run_payload("identity").out.decode() for _ in range(2)]
    for name in ("seed", "vmgenid"):
        values = [re.search(name + " (.*)", s).group(1) for s in said]
        t.check(values[0] != values[1], f"two VMs have {name} {values[0]}")
        t.check("0x0" not in values[0].split(), f"{name} is {values[0]}")


# --- processors ------------------------------------------------------------

def with_cpus(t, payload, cpus, words=""):
    t.run_payload(payload, f"cpus={cpus} {words}", cpus=cpus)


for n in (1, 2, 3, 8):
    CASES.add(f"BL_006_cpuid_topology_{n}", with_cpus, "cpuid", n)
    CASES.add(f"BL_006_cpuid_leaf1_{n}", with_cpus, "cpuid", n, "part=leaf1")
for n in (1, 2, 32):
    CASES.add(f"mptable_{n}", with_cpus, "mptable", n)
for n in (1, 2, 4, 32):
    CASES.add(f"smp_{n}", with_cpus, "smp", n)


@CASES.case("traps_int3_and_fwait")
def traps(t):
    t.run_payload("traps")


@CASES.case("xsave_and_xrstor_keep_every_part_and_fault_as_told")
def xsave(t):
    t.run_payload("xsave")


# Every device besides a disk, as options of a VM.
OTHERS = {
    "rng": True,
    "vsock": "v.sock",
    "mote": {"virtio_console": True,
             "console_ports": [{"name": "port", "path": "p.sock"}]},
    "balloon": {"amount_mib": 0, "deflate_on_oom": True,
                "stats_polling_interval_s": 1, "free_page_hinting": True,
                "free_page_reporting": True},
}
# VIRTIO_ID_* of <linux/virtio_ids.h>.
IDS = {"net": 1, "blk": 2, "console": 3, "rng": 4, "balloon": 5, "vsock": 19}


# --- the bus ---------------------------------------------------------------

@CASES.case("unmapped_reads_ones")
def unmapped(t):
    t.run_payload("unmapped", "mem=128")


@CASES.case("BL_043_virtio_registers")
def virtio_registers(t):
    disk = t.file("disk", size=MIB)
    with Network() as net:
        vm = t.run_payload("virtio_regs", f"sectors={MIB // SECTOR}",
                           drives=[t.drive("a", disk)], **OTHERS, **net)
    lines = vm.err.splitlines()
    t.check(len(lines) <= 60, f"{len(lines)} lines in the log: not limited")
    t.eq(t.read("disk"), bytes(MIB), "the disk")


# --- disks -----------------------------------------------------------------

def pattern(sector):
    """blk_fill() in guest/payloads/virtio.c."""
    return struct.pack("<64Q", *((sector << 32) + i for i in range(64)))


def block(t, data, sector):
    return data[sector * SECTOR:(sector + 1) * SECTOR]


@CASES.case("blk_write_flush_read")
def blk_rw(t):
    sectors = 64
    disk = t.file("disk", b"\xa5" * (sectors * SECTOR))
    t.run_payload("blk_rw", f"sectors={sectors}", drives=[t.drive("a", disk)])
    data = t.read("disk")
    written = [*range(4), *range(7, 11), *range(60, 64)]
    for s in range(sectors):
        want = pattern(s) if s in written else b"\xa5" * SECTOR
        t.eq(block(t, data, s), want, f"sector {s}")
    t.eq(len(data), sectors * SECTOR, "size of the disk")


def blk_rw_on(t, path, sectors=MIB // SECTOR, **more):
    """The same through another way to the storage."""
    t.run_payload("blk_rw", f"sectors={sectors}",
                  drives=[t.drive("a", path, **more)])


@CASES.case("BL_036_requests_larger_than_the_bucket")
def blk_limited(t):
    disk = t.file("disk", size=MIB)
    start = time.monotonic()
    # 5 requests of 2048 bytes, then one that waits for a full bucket.
    blk_rw_on(t, disk, rate_limiter={"bandwidth": {"size": 512,
                                                   "refill_time": 25}})
    took = time.monotonic() - start
    t.check(took > 0.9 * 25e-3 * 5 * 2048 / 512, f"no limit: {took} s")


@CASES.case("BL_035_a_slow_disk_keeps_nobody_waiting")
def blk_slow(t):
    content = b"".join(pattern(s) for s in range(4))
    hour = {"bandwidth": {"size": SECTOR, "refill_time": 3600000}}
    t.run_payload("blk_slow", drives=[
        t.drive("slow", t.file("slow", content), rate_limiter=hour),
        t.drive("fast", t.file("fast", content))])


@CASES.case("blk_direct")
def blk_direct(t):
    disk = t.file("disk", size=MIB)
    try:
        os.close(os.open(disk, os.O_RDWR | os.O_DIRECT))
    except OSError:  # a file system without it: refused with the setting named
        vm = t.start(t.config(t.host.payload("blk_rw"),
                              drives=[t.drive("a", disk, mote_direct=True)]))
        t.refused(vm, 152, disk, "mote_direct")
        return
    blk_rw_on(t, disk, mote_direct=True)


@CASES.case("blk_ranges_and_what_becomes_of_the_file")
def blk_ranges(t):
    sectors = 4 * MIB // SECTOR
    disk = t.file("disk", b"\xa5" * (sectors * SECTOR))
    os.sync()
    before = os.stat(disk).st_blocks
    t.run_payload("blk_ranges", f"sectors={sectors}",
                  drives=[t.drive("a", disk)])
    data = t.read("disk")
    zero = {*range(1, 4), 9, *range(512, 2048)}
    for s in range(sectors):
        want = bytes(SECTOR) if s in zero else b"\xa5" * SECTOR
        t.eq(block(t, data, s), want, f"sector {s}")
    t.eq(len(data), sectors * SECTOR, "size of the disk")
    t.check(os.stat(disk).st_blocks <= before - 1024,
            f"of {before} blocks {os.stat(disk).st_blocks} are left")


def blk_queues(t, cpus, queues):
    disk = t.file("disk", b"".join(pattern(s) for s in range(4)))
    t.run_payload("blk_queues", f"queues={queues}", cpus=cpus,
                  drives=[t.drive("a", disk)])


for cpus, queues in ((1, 1), (2, 2), (4, 4), (6, 4)):
    CASES.add(f"blk_queues_of_{cpus}_vcpus", blk_queues, cpus, queues)


@CASES.case("blk_root_by_partuuid")
def blk_partuuid(t):
    disk = t.file("disk", size=MIB)
    for more, words in (({"partuuid": "0eaa91a0-01"}, "root=PARTUUID=0eaa91a0-01 rw"),
                        ({}, "root=/dev/vda rw")):
        vm = t.start(t.config(t.host.payload("serial_out"),
                              drives=[t.drive("a", disk, root=True, **more)]),
                     args=["--level", "Debug"])
        t.judge(vm)
        t.check(words in vm.err, f"no {words!r} in: {vm.err}")


@CASES.case("blk_get_id")
def blk_id(t):
    disk = t.file("disk", size=MIB)
    t.run_payload("blk_id", drives=[t.drive("disk_a", disk)])


@CASES.case("blk_read_only_refuses_writes")
def blk_readonly(t):
    disk = t.file("disk", b"\x3c" * MIB)
    os.chmod(disk, 0o444)
    t.run_payload("blk_readonly", drives=[t.drive("a", disk, read_only=True)])
    t.eq(t.read("disk"), b"\x3c" * MIB, "the disk")


@CASES.case("blk_bounds")
def blk_bounds(t):
    sectors = MIB // SECTOR
    disk = t.file("disk", size=MIB)
    vm = t.run_payload("blk_bounds", f"sectors={sectors}",
                       drives=[t.drive("a", disk)])
    t.eq(vm.err, "", "log")
    data = t.read("disk")
    t.eq(data[:-SECTOR], bytes(MIB - SECTOR), "all but the last sector")
    t.eq(block(t, data, sectors - 1), pattern(sectors - 1), "last sector")
    t.eq(len(data), MIB, "size of the disk")


@CASES.case("BL_030_tail_of_a_disk")
def blk_tail(t):
    tail = bytes(i & 0xff for i in range(300))
    sectors = MIB // SECTOR
    disk = t.file("disk", bytes(MIB) + tail)
    vm = t.run_payload("blk_bounds", f"sectors={sectors}",
                       drives=[t.drive("a", disk)])
    lines = vm.err.splitlines()
    t.eq(len(lines), 1, "lines of the log")
    t.check("300" in lines[0] and disk in lines[0],
            f"the warning names neither file nor bytes: {lines[0]}")
    data = t.read("disk")
    t.eq(data[MIB:], tail, "the tail")
    t.eq(block(t, data, sectors - 1), pattern(sectors - 1), "last sector")


# --- other devices ---------------------------------------------------------

@CASES.case("rng_gives_bytes")
def rng(t):
    t.run_payload("rng", rng=True)


def balloon(t, way):
    r, w = os.pipe()
    try:
        vm = t.start(t.config(t.host.payload("balloon"), f"do={way}",
                              balloon={"amount_mib": 0,
                                       "deflate_on_oom": False,
                                       "free_page_reporting": True}), stdin=r)
        vm.wait_output(b"full\n")
        full = (vm.guest_bytes(), vm.resident_bytes())
        os.write(w, b"1")
        vm.wait_output(b"empty\n")
        empty = (vm.guest_bytes(), vm.resident_bytes())
        os.write(w, b"2")
        t.judge(vm)
    finally:
        os.close(r)
        os.close(w)
    for what, before, after in zip(("guest memory", "RSS"), full, empty):
        t.check(before - after > 7 * MIB,
                f"{what}: {before >> 10} KiB, then {after >> 10}")


CASES.add("balloon_inflated_pages_go_back", balloon, "inflate")
CASES.add("balloon_reported_pages_go_back", balloon, "report")

HOSTILE = ("idx_jump", "idx_back", "bad_head", "loop", "bad_next",
           "outside_ram", "across_ram_end", "wrapping", "bad_order",
           "indirect", "ring_outside_ram")


def hostile(t, way):
    disk = t.file("disk", size=MIB)
    vm = t.run_payload("virtq_hostile", f"do={way} mem=128",
                       drives=[t.drive("a", disk)], rng=True)
    lines = vm.err.splitlines()
    t.check(1 <= len(lines) <= 12, f"{len(lines)} lines in the log")
    t.check("virtio device rng" in lines[0], f"which device? {lines[0]}")


for name in HOSTILE:
    CASES.add(f"BL_042_ring_{name}", hostile, name)


def hostile_device(t, name, way):
    disk = t.file("disk", size=MIB)
    with Network() as net:
        vm = t.run_payload("virtq_hostile",
                           f"do={way} mem=128 dev={IDS[name]}",
                           drives=[t.drive("a", disk)], **OTHERS, **net)
    lines = vm.err.splitlines()
    t.check(1 <= len(lines) <= 12, f"{len(lines)} lines in the log")
    t.check(f"virtio device {name}" in vm.err, f"which device? {lines[0]}")


for name in ("blk", "console", "balloon", "vsock", "net"):
    for way in ("idx_jump", "idx_back", "bad_head", "loop", "outside_ram"):
        CASES.add(f"BL_042_{name}_{way}", hostile_device, name, way)


def reset_in_flight(t, name):
    disk = t.file("disk", bytes(MIB))
    loops = 10 if name == "console" else 100  # half a MiB printed in each
    with Network() as net:
        vm = t.run_payload("reset_flight", f"dev={IDS[name]} loops={loops}",
                           drives=[t.drive("a", disk)], **OTHERS, **net)
    # A console that prints megabytes, and packets from nowhere, may be told.
    lines = vm.err.splitlines()
    t.check(len(lines) <= (10 if name in ("console", "vsock") else 0),
            f"{len(lines)} lines in the log")
    t.check("reset" not in vm.err, f"log: {vm.err}")


for name in IDS:
    CASES.add(f"reset_in_flight_{name}", reset_in_flight, name)


def interrupts(t, drives, mote=None, vsock=None, rng=False):
    """Every device: its request, its line, its interrupt."""
    doc = []
    for i in range(drives):
        path = t.file(f"disk{i}", size=MIB)
        doc.append(t.drive(f"d{i}", path))
    count = drives + bool(vsock) + rng + bool((mote or {}).get(
        "virtio_console"))
    exact = (mote or {}).get("no_register_pages", False)
    vm = t.run_payload("irq", f"devices={count} may_stay={int(not exact)}",
                       drives=doc, mote=mote,
                       vsock=vsock, rng=rng)
    want = b"+" if (mote or {}).get("virtio_console") else b""
    t.eq(vm.out, want, "output of the consoles")


CASES.add("BL_009_interrupts_1", interrupts, 1)
CASES.add("BL_009_interrupts_8", interrupts, 5, {"virtio_console": True},
          "v.sock", True)
CASES.add("interrupt_status_is_exact_without_register_pages", interrupts, 2,
          {"no_register_pages": True}, "v.sock", True)
CASES.add("BL_009_interrupts_17_and_vmgenid", interrupts, 15, None, "v.sock",
          True)
CASES.add("BL_009_interrupts_18", interrupts, 16, {"vmgenid": False},
          "v.sock", True)


def one_too_many(t, drives, mote, vsock):
    before = []
    doc = []
    for i in range(drives):
        doc.append(t.drive(f"d{i}", t.file(f"disk{i}", size=MIB)))
        before.append(f"disk{i}")
    vm = t.start(t.config(t.host.payload("irq"), drives=doc, mote=mote,
                          vsock=vsock, rng=True))
    t.refused(vm, (1, 152), "18")
    t.no_stray_files(before)


CASES.add("BL_009_one_device_too_many", one_too_many, 16,
          {"vmgenid": False, "virtio_console": True}, "v.sock")
CASES.add("BL_009_vmgenid_takes_a_line", one_too_many, 16, None, "v.sock")
