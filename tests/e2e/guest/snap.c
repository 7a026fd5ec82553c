/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the snapshot cases ask of a guest.
 *
 *   snap id            one line: wall clock ns, monotonic ns, 16 random bytes
 *                      of the kernel, a UUID of it, boot id, host name
 *   snap rng PID OUT   a program with a random generator of its own, seeded
 *                      once. Writes its pid to PID; SIGUSR1 seeds it anew,
 *                      SIGUSR2 puts its next number into OUT
 */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static unsigned long long snap_ns(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (unsigned long long)now.tv_sec * 1000000000u +
           (unsigned long long)now.tv_nsec;
}

/* A file of one word. */
static void snap_word(const char *path)
{
    char word[128];
    FILE *f = fopen(path, "r");

    if (!f || fscanf(f, "%127s", word) != 1)
        (void)strcpy(word, "?");
    if (f)
        (void)fclose(f);
    (void)printf(" %s", word);
}

static int snap_id(void)
{
    unsigned long long wall = snap_ns(CLOCK_REALTIME);
    uint8_t random[16] = {0};

    (void)printf("%llu %llu ", wall, snap_ns(CLOCK_MONOTONIC));
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return 1;
    for (size_t i = 0; i < sizeof(random); i++)
        (void)printf("%02x", random[i]);
    snap_word("/proc/sys/kernel/random/uuid");
    snap_word("/proc/sys/kernel/random/boot_id");
    snap_word("/proc/sys/kernel/hostname");
    (void)printf("\n");
    return 0;
}

static int snap_put(const char *path, unsigned long long number)
{
    char draft[256];
    FILE *f;

    (void)snprintf(draft, sizeof(draft), "%s.new", path);
    f = fopen(draft, "w");
    if (!f || fprintf(f, "%llx\n", number) < 0 || fclose(f) != 0)
        return 1;
    return rename(draft, path) != 0;
}

static int snap_rng(const char *pid_file, const char *out)
{
    sigset_t set;
    uint64_t x = 0;
    int signo = SIGUSR1;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR1);
    (void)sigaddset(&set, SIGUSR2);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    for (;;) {
        if (signo == SIGUSR1 &&
            getrandom(&x, sizeof(x), 0) != (ssize_t)sizeof(x))
            return 1;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        if (signo == SIGUSR2 && snap_put(out, x))
            return 1;
        if (pid_file) {
            FILE *f = fopen(pid_file, "w");

            if (!f || fprintf(f, "%d\n", (int)getpid()) < 0 || fclose(f) != 0)
                return 1;
            pid_file = NULL;
        }
        if (sigwait(&set, &signo) != 0)
            return 1;
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "id"))
        return snap_id();
    if (argc == 4 && !strcmp(argv[1], "rng"))
        return snap_rng(argv[2], argv[3]);
    (void)fprintf(stderr, "usage: snap id | snap rng PID-FILE OUT-FILE\n");
    return 2;
}
