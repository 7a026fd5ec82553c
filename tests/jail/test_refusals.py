# SPDX-License-Identifier: Apache-2.0
"""What mote-jail refuses, and that it leaves nothing then."""
import os
import subprocess

from harness import ARGUMENTS, GUARD, UID, root_test, test


@test
def help_and_version(box):
    for word, said in (("--help", "--chroot-base-dir"), ("--version", "mote-jail ")):
        p = subprocess.run([box.jailer, word], capture_output=True, text=True, timeout=GUARD,
                           check=False)
        assert p.returncode == 0 and said in p.stdout and not p.stderr, p
    p = subprocess.run(["jailer", "--version"], executable=box.jailer, capture_output=True,
                       text=True, timeout=GUARD, check=False)
    assert p.stdout.startswith("Jailer v"), p.stdout


@test
def arguments_are_refused_by_name(box):
    for flags, said in (
            (["--nonsense"], ["--nonsense"]),
            (["--id", "a/b"], ["--id"]),
            (["--id", "a" * 65], ["--id"]),
            (["--uid", "-1"], ["--uid"]),
            (["--gid", "4294967295"], ["--gid"]),
            (["--cgroup", "cpu.max"], ["--cgroup"]),
            (["--cgroup", "../x.y=1"], ["--cgroup"]),
            (["--cgroup", "cgroup.procs=1"], ["cgroup.procs"]),
            (["--cgroup-version", "3"], ["--cgroup-version"]),
            (["--parent-cgroup", "a/../b"], ["--parent-cgroup"]),
            (["--parent-cgroup", "/a"], ["--parent-cgroup"]),
            (["--resource-limit", "memlock=1"], ["memlock"]),
            (["--resource-limit", "fsize=x"], ["fsize=x"]),
            (["--daemonize=yes"], ["--daemonize"]),
            (["--netns", "x", "--new-net-ns"], ["--netns", "--new-net-ns"])):
        box.refused(*said, flags=flags, code=ARGUMENTS)


@root_test
def root_must_name_a_user(box):
    box.refused("--uid", argv=[box.jailer, "--id", "x", "--exec-file", box.probe])


@root_test
def files_are_refused_by_name(box):
    box.refused("--exec-file", "No such file", program="/nowhere/probe")
    box.refused("--exec-file", "regular", program="/dev/null")
    box.refused("--netns", "No such file", flags=["--netns", "/nowhere/ns"])
    box.refused("--netns", "network namespace", flags=["--netns", "/etc/passwd"])
    box.refused("--netns", "network namespace", flags=["--netns", "/proc/self/ns/mnt"])
    box.refused("--pass-fd", flags=["--pass-fd", "700"])


@root_test
def a_dynamic_program_is_refused_with_the_reason(box):
    box.refused("static", program="/bin/true")


@root_test
def a_program_that_is_none_is_refused(box):
    script = os.path.join(box.dir, "junk")
    with open(script, "w", encoding="ascii") as f:
        f.write("no program")
    box.refused("Exec format", program=script)


@root_test
def a_base_that_others_can_write_to_is_refused(box):
    os.mkdir(box.base)
    os.chmod(box.base, 0o777)
    box.refused("--chroot-base-dir", "others can write")
    os.chmod(box.base, 0o1777)  # sticky, as /tmp
    box.run("say=x")


@root_test
def a_base_of_somebody_else_is_refused(box):
    os.mkdir(box.base)
    os.chown(box.base, UID, UID)
    box.refused("--chroot-base-dir", str(UID))


@root_test
def links_of_somebody_else_are_not_followed(box):
    os.mkdir(box.dir + "/real")
    os.symlink("real", box.base)
    os.lchown(box.base, UID, UID)
    box.refused("link", str(UID))
    os.symlink(box.probe, box.dir + "/prog")
    os.lchown(box.dir + "/prog", UID, UID)
    box.refused("link", "--exec-file", program=box.dir + "/prog")
    assert os.listdir(box.dir + "/real") == []
    os.remove(box.base)


@root_test
def links_in_the_jails_place_are_not_followed(box):
    victim = os.path.join(box.dir, "victim")
    os.makedirs(victim)
    top = os.path.join(box.base, "jail_probe")
    for place in ("linked", "linked2/root"):
        path = os.path.join(top, place)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(victim, path)
        box.refused("linked", ident=place.split("/", maxsplit=1)[0])
        assert os.listdir(victim) == [] and os.stat(victim).st_uid == 0
        assert os.path.islink(path)
        os.remove(path)
    root = os.path.join(top, "l3", "root")
    os.makedirs(root)
    for place in ("dev", "run"):
        os.symlink(victim, os.path.join(root, place))
        box.refused(place, ident="l3")
        assert os.listdir(victim) == [] and os.stat(victim).st_uid == 0
        os.remove(os.path.join(root, place))
    # The program's and pid file's names: replaced, not written through.
    os.symlink(victim + "/x", root + "/jail_probe")
    os.symlink(victim + "/y", root + "/jail_probe.pid")
    box.run("say=x", ident="l3")
    assert os.listdir(victim) == []
    for name in ("linked", "linked2"):
        if os.path.isdir(os.path.join(top, name)):
            os.rmdir(os.path.join(top, name))
    if os.path.isdir(top):
        os.rmdir(top)


@root_test
def a_jail_directory_of_somebody_else_is_refused(box):
    root = os.path.join(box.base, "jail_probe", "theirs", "root")
    os.makedirs(root)
    os.chown(root, UID + 7, UID + 7)
    box.refused("belongs to user", ident="theirs")
    assert os.listdir(root) == [] and os.stat(root).st_uid == UID + 7
    os.removedirs(root)


@root_test
def failures_half_way_leave_nothing(box):
    # Each is found by another step: after directories, copy, cgroups, clone.
    for flags, said in (
            (["--cgroup", "pids.max=nonsense"], ["pids.max"]),
            (["--cgroup", "pids.nothing=1"], ["pids.nothing"]),
            (["--cgroup", "nothing.x=1"], ["nothing"]),
            (["--parent-cgroup", "no-such-cgroup"], ["no-such-cgroup"]),
            (["--resource-limit", "no-file=9000000000"], ["no-file"])):
        box.refused(*said, flags=flags)
        box.nothing_left()
