# SPDX-License-Identifier: Apache-2.0
"""cgroups, version 1 and 2, whichever the host has mounted."""
import os

from harness import Skip, cgroup_dirs, root_test


def v1(controller):
    """The mount point of a v1 controller."""
    with open("/proc/self/mountinfo", encoding="ascii") as f:
        for line in f:
            left, right = line.split(" - ", 1)
            kind, _, options = right.split()[:3]
            if kind == "cgroup" and controller in options.split(","):
                return left.split()[4]
    raise Skip(f"no cgroup v1 hierarchy with {controller}")


def v2(controller):
    with open("/proc/self/mountinfo", encoding="ascii") as f:
        for line in f:
            left, right = line.split(" - ", 1)
            if right.split()[0] == "cgroup2":
                top = left.split()[4]
                with open(top + "/cgroup.controllers", encoding="ascii") as c:
                    if controller in c.read().split():
                        return top
    raise Skip(f"no cgroup v2 hierarchy with {controller}")


def read(*parts):
    with open(os.path.join(*parts), encoding="ascii") as f:
        return f.read().strip()


def end(jail):
    jail.process.terminate()
    assert jail.wait() == -15, jail.err


@root_test
def v1_limits_are_written_and_joined(box):
    memory, pids = v1("memory"), v1("pids")
    jail = box.start("wait", flags=["--cgroup", "memory.limit_in_bytes=67108864", "--cgroup",
                                    "pids.max=17"])
    jail.line("waiting")
    pid = str(box.pid(jail))
    for top, file, value in ((memory, "memory.limit_in_bytes", "67108864"),
                             (pids, "pids.max", "17")):
        group = os.path.join(top, "jail_probe", jail.ident)
        assert read(group, file) == value
        assert read(group, "tasks") == pid  # the monitor, and nothing else
    end(jail)
    assert not os.path.exists(os.path.join(pids, "jail_probe"))


@root_test
def v1_cpuset_inherits_what_is_not_given(box):
    top = v1("cpuset")
    jail = box.start("wait", flags=["--cgroup-version", "1", "--cgroup", "cpuset.cpus=0",
                                    "--parent-cgroup", f"mj{os.getpid()}/inner"])
    jail.line("waiting")
    group = os.path.join(top, f"mj{os.getpid()}/inner", jail.ident)
    assert read(group, "cpuset.cpus") == "0"
    assert read(group, "cpuset.mems") == read(top, "cpuset.mems")
    assert os.sched_getaffinity(box.pid(jail)) == {0}
    end(jail)
    assert not os.path.exists(os.path.join(top, f"mj{os.getpid()}"))


@root_test
def v1_an_empty_parent_of_somebody_else_stays(box):
    parent = os.path.join(v1("pids"), "jail_probe")  # the default's name
    os.mkdir(parent)
    box.run("say=x", flags=["--cgroup", "pids.max=5"])
    os.rmdir(parent)


@root_test
def v1_a_limit_bites(box):
    v1("pids")
    # pids.max=1: the monitor itself and no more.
    box.run("orphans=3", "exit=3", flags=["--cgroup", "pids.max=1"], code=3)


def join(box, top, version, file, value):
    parent = os.path.join(top, f"mjp{os.getpid()}")
    os.mkdir(parent)
    try:
        if file:
            with open(os.path.join(parent, file), "w", encoding="ascii") as f:
                f.write(value)
        jail = box.start("wait", flags=["--cgroup-version", version, "--parent-cgroup",
                                        os.path.basename(parent)])
        jail.line("waiting")
        assert read(parent, "cgroup.procs") == str(box.pid(jail))
        end(jail)
        assert os.path.isdir(parent)  # it was there before
        if file:
            killed = box.run("eat=512", flags=["--cgroup-version", version, "--parent-cgroup",
                                               os.path.basename(parent)], code=-9)
            assert "ate" not in killed.out
    finally:
        os.rmdir(parent)


@root_test
def BL_026_v1_a_parent_without_limits_is_joined(box):
    join(box, v1("pids"), "1", None, None)


@root_test
def BL_026_v2_a_parent_without_limits_is_joined_and_its_limit_bites(box):
    top = v2("memory")
    with open(top + "/cgroup.subtree_control", "w", encoding="ascii") as f:
        f.write("+memory")
    join(box, top, "2", "memory.max", "33554432")


@root_test
def v2_limits_are_written_and_joined(box):
    top = v2("pids")
    jail = box.start("wait", flags=["--cgroup-version", "2", "--cgroup", "pids.max=9",
                                    "--cgroup", "memory.max=67108864", "--parent-cgroup",
                                    f"mj{os.getpid()}/inner"])
    jail.line("waiting")
    group = os.path.join(top, f"mj{os.getpid()}/inner", jail.ident)
    assert read(group, "pids.max") == "9" and read(group, "memory.max") == "67108864"
    assert read(group, "cgroup.procs") == str(box.pid(jail))
    end(jail)
    assert not os.path.exists(os.path.join(top, f"mj{os.getpid()}"))


@root_test
def v2_is_taken_where_there_is_no_v1(box):
    v2("pids")
    if len(cgroup_dirs()) != 1:
        raise Skip("cgroup v1 is mounted")
    jail = box.start("wait", flags=["--cgroup", "pids.max=9"])
    jail.line("waiting")
    assert read(f"/proc/{box.pid(jail)}/cgroup") == f"0::/jail_probe/{jail.ident}"
    end(jail)


@root_test
def v2_a_parent_with_processes_is_refused_with_the_remedy(box):
    top = v2("memory")
    parent = os.path.join(top, f"mjq{os.getpid()}")
    os.mkdir(parent)
    sleeper = box.start("wait")
    sleeper.line("waiting")
    try:
        with open(parent + "/cgroup.procs", "w", encoding="ascii") as f:
            f.write(str(box.pid(sleeper)))
        box.refused("--parent-cgroup", flags=["--cgroup-version", "2", "--cgroup",
                                              "memory.max=1G", "--parent-cgroup",
                                              os.path.basename(parent)])
    finally:
        end(sleeper)
        os.rmdir(parent)
