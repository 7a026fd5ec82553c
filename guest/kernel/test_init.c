/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only program of the machines that test_boot.sh starts: their /init.
 *
 * Looks for test=WHAT on the kernel's command line. "forge" tries what a
 * hostile program can do with patches/0001; "show" prints what the kernel
 * offers; any other word ends the machine in the way of that name. Results
 * are lines on the console.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FLAGS_IF   0x200ul
#define FLAGS_IOPL 0x3000ul

static char cmdline[4096];
static sigjmp_buf after_fault;

static void on_fault(int sig)
{
    (void)sig;
    siglongjmp(after_fault, 1);
}

/* Prints a file of at most 64 KiB, each line after `prefix`. */
static void show_file(const char *prefix, const char *path)
{
    char line[512];
    FILE *f = fopen(path, "r");

    if (!f) {
        printf("%s: absent\n", prefix);
        return;
    }
    while (fgets(line, sizeof(line), f))
        printf("%s: %s", prefix, line);
    (void)fclose(f);
}

static void show_dev(const char *path)
{
    struct stat st;

    printf("device %s: %s\n", path, stat(path, &st) ? "absent" : "present");
}

static void show(void)
{
    show_file("version", "/proc/version");
    show_file("fs", "/proc/filesystems");
    show_file("partition", "/proc/partitions");
    show_file("protocol", "/proc/net/protocols");
    show_file("spectre_v2",
              "/sys/devices/system/cpu/vulnerabilities/spectre_v2");
    show_dev("/dev/vsock");
    show_dev("/dev/ptmx");
    show_dev("/dev/hvc0");
    show_dev("/dev/hwrng");
    show_dev("/dev/net/tun");
    printf("cpus: %ld\n", sysconf(_SC_NPROCESSORS_ONLN));
}

/*
 * Jumps to the kernel's entry point with the registers that SYSCALL leaves,
 * and with `flags` as the saved flags. Returns the "system call's" result and
 * the flags found afterwards; a fault comes back through after_fault.
 */
static long forge(uint64_t entry, long nr, uint64_t back, uint64_t flags,
                  uint64_t *out_flags)
{
    long ret;
    uint64_t seen;
    register uint64_t r11 __asm__("r11") = flags;
    register uint64_t r8 __asm__("r8") = back;

    __asm__ volatile("lea 1f(%%rip), %%rcx\n\t"
                     "test %%r8, %%r8\n\t"
                     "cmovne %%r8, %%rcx\n\t"
                     "jmp *%[entry]\n"
                     "1:\n\t"
                     "lea -128(%%rsp), %%rsp\n\t" /* the red zone */
                     "pushf\n\t"
                     "pop %[seen]\n\t"
                     "lea 128(%%rsp), %%rsp\n\t"
                     : "=a"(ret), [seen] "=r"(seen), "+r"(r11), "+r"(r8)
                     : "a"(nr), [entry] "r"(entry)
                     : "rcx", "memory", "cc");
    *out_flags = seen;
    return ret;
}

static void try_forge(const char *name, uint64_t entry, uint64_t back,
                      uint64_t flags)
{
    uint64_t seen = 0;
    long ret;

    if (sigsetjmp(after_fault, 1)) {
        printf("forge %s: fault\n", name);
        return;
    }
    ret = forge(entry, SYS_getppid, back, flags, &seen);
    printf("forge %s: result %ld iopl %u if %u\n", name, ret,
           (unsigned)((seen & FLAGS_IOPL) >> 12), (seen & FLAGS_IF) != 0);
}

static void forge_all(void)
{
    const char *word = strstr(cmdline, "entry=");
    uint64_t entry = word ? strtoull(word + 6, NULL, 16) : 0;

    (void)signal(SIGSEGV, on_fault);
    try_forge("plain", entry, 0, FLAGS_IF);
    try_forge("iopl", entry, 0, FLAGS_IF | FLAGS_IOPL);
    try_forge("interrupts-off", entry, 0, 0);
    try_forge("to-kernel", entry, entry, FLAGS_IF);
    try_forge("to-nowhere", entry, 1ull << 62, FLAGS_IF);
}

static int test_is(const char *word)
{
    const char *p = strstr(cmdline, "test=");

    return p && strncmp(p + 5, word, strlen(word)) == 0;
}

int main(void)
{
    ssize_t n;
    int fd;

    (void)mkdir("/proc", 0755);
    (void)mkdir("/sys", 0755);
    (void)mount("proc", "/proc", "proc", 0, NULL);
    (void)mount("sysfs", "/sys", "sysfs", 0, NULL);
    (void)mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    fd = open("/proc/cmdline", O_RDONLY);
    n = fd < 0 ? -1 : read(fd, cmdline, sizeof(cmdline) - 1);
    printf("user space\n");
    if (n <= 0)
        return 1;
    if (test_is("show"))
        show();
    if (test_is("forge"))
        forge_all();
    (void)fflush(stdout);
    if (test_is("halt"))
        (void)reboot((int)RB_HALT_SYSTEM);
    if (test_is("restart"))
        (void)reboot(RB_AUTOBOOT);
    if (test_is("panic"))
        return 3; /* the end of PID 1 */
    (void)reboot(RB_POWER_OFF);
    for (;;)
        (void)pause();
}
