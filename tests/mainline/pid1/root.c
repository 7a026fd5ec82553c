/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/mainline/pid1/init.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <net/route.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void make_devices(void)
{
    static const char *const open_to_all[] = {
        "/new/dev/kvm", "/new/dev/net/tun", "/new/dev/fuse", "/new/dev/vda"};
    size_t i;

    mount_at("dev", "/new/dev", "devtmpfs", MS_NOSUID, "mode=755");
    mount_at("devpts", "/new/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
             "mode=620,gid=5,ptmxmode=666");
    mount_at("shm", "/new/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
    mount_at("mqueue", "/new/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV, NULL);
    (void)symlink("/proc/self/fd", "/new/dev/fd");
    (void)symlink("/proc/self/fd/0", "/new/dev/stdin");
    (void)symlink("/proc/self/fd/1", "/new/dev/stdout");
    (void)symlink("/proc/self/fd/2", "/new/dev/stderr");
    (void)unlink("/new/dev/ptmx");
    (void)symlink("pts/ptmx", "/new/dev/ptmx");
    /* no udev here; absent nodes are not an error */
    for (i = 0; i < sizeof(open_to_all) / sizeof(open_to_all[0]); i++)
        (void)chmod(open_to_all[i], 0666);
}

static void make_cgroups(void)
{
    static const char *const controllers[] = {"+cpu",    "+cpuset", "+io",
                                              "+memory", "+pids",   "+hugetlb"};
    size_t i;

    mount_at("cgroup2", "/new/sys/fs/cgroup", "cgroup2",
             MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    for (i = 0; i < sizeof(controllers) / sizeof(controllers[0]); i++)
        (void)write_file("/new/sys/fs/cgroup/cgroup.subtree_control",
                         controllers[i]);
}

/*
 * Gives modprobe this kernel's modules; the host has others or none. The
 * kernel finds modprobe itself: its helpers share the root of PID 1.
 */
static void bind_modules(const struct job *job)
{
    char source[4096];

    if (!job->modules)
        return;
    (void)snprintf(source, sizeof(source), "/lower%s", job->modules);
    mount_at(source, "/new/lib/modules", NULL, MS_BIND, NULL);
}

/*
 * Leaves the process in the new root. The mount is moved onto "/": a plain
 * chroot would make the kernel refuse user namespaces to the command.
 */
void make_root(const struct job *job)
{
    /* cache=loose: nobody here writes to the tree, so never ask again */
    mount_at("root", "/lower", "9p", MS_RDONLY | MS_NOATIME,
             "trans=virtio,version=9p2000.L,msize=512000,cache=loose,"
             "access=any");
    mount_at("overlay", "/rw", "tmpfs", 0, "mode=755,size=75%");
    if (mkdir("/rw/upper", 0755) < 0 || mkdir("/rw/work", 0755) < 0)
        FAIL("mkdir on tmpfs: %s", strerror(errno));
    mount_at("root", "/new", "overlay", MS_NOATIME,
             "lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work,"
             "index=off,metacopy=off,xino=off,volatile");
    mount_at("proc", "/new/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC,
             NULL);
    mount_at("sys", "/new/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
             NULL);
    mount_at("debugfs", "/new/sys/kernel/debug", "debugfs", 0, NULL);
    mount_at("run", "/new/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755");
    make_devices();
    make_cgroups();
    bind_modules(job);
    if (chdir("/new") < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 ||
        chroot(".") < 0 || chdir("/") < 0)
        FAIL("switching to the new root: %s", strerror(errno));
}

static void if_up(int sock, const char *name)
{
    struct ifreq ifr = {0};

    strcpy(ifr.ifr_name, name);
    if (ioctl(sock, SIOCGIFFLAGS, &ifr) < 0)
        FAIL("interface %s: %s", name, strerror(errno));
    ifr.ifr_flags |= IFF_UP | IFF_RUNNING;
    if (ioctl(sock, SIOCSIFFLAGS, &ifr) < 0)
        FAIL("interface %s: %s", name, strerror(errno));
}

static void set_in_addr(struct sockaddr *addr, const char *text)
{
    struct sockaddr_in in = {.sin_family = AF_INET};

    (void)inet_pton(AF_INET, text, &in.sin_addr);
    memcpy(addr, &in, sizeof(in));
}

/* The addresses are those of QEMU's user-mode network. */
static void net_up(int sock)
{
    struct ifreq ifr = {.ifr_name = "eth0"};
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};

    set_in_addr(&ifr.ifr_addr, "10.0.2.15");
    if (ioctl(sock, SIOCSIFADDR, &ifr) < 0)
        FAIL("address of eth0: %s", strerror(errno));
    set_in_addr(&ifr.ifr_netmask, "255.255.255.0");
    if (ioctl(sock, SIOCSIFNETMASK, &ifr) < 0)
        FAIL("netmask of eth0: %s", strerror(errno));
    if_up(sock, "eth0");
    set_in_addr(&route.rt_dst, "0.0.0.0");
    set_in_addr(&route.rt_genmask, "0.0.0.0");
    set_in_addr(&route.rt_gateway, "10.0.2.2");
    if (ioctl(sock, SIOCADDRT, &route) < 0)
        FAIL("default route: %s", strerror(errno));
    /* often a link into the host's /run */
    (void)unlink("/etc/resolv.conf");
    (void)write_file("/etc/resolv.conf", "nameserver 10.0.2.3\n");
}

void set_up_system(const struct job *job)
{
    struct rlimit files = {.rlim_cur = 1024, .rlim_max = 524288};
    int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (sock < 0)
        FAIL("socket: %s", strerror(errno));
    if_up(sock, "lo");
    if (job->net)
        net_up(sock);
    close(sock);
    (void)sethostname("mainline", strlen("mainline"));
    (void)setrlimit(RLIMIT_NOFILE, &files);
    if (access("/dev/kvm", F_OK) < 0)
        FAIL("kvm-amd is loaded but made no /dev/kvm");
}
