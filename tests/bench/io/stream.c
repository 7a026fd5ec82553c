/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves bytes through stream sockets as fast as it can, for tests/bench/io.sh:
 * the same static program is the guest's end, the host's ends and the relay
 * that vsock is compared with.
 *
 *   stream send ADDR BYTES      connects and writes BYTES
 *   stream recv ADDR            listens, reads one connection to its end,
 *                               prints bytes and nanoseconds
 *   stream relay ADDR ADDR2     listens at ADDR, passes on to ADDR2
 *   ADDR: vsock:CID:PORT, the path of a Unix socket, or (send only)
 *   PATH:PORT, a monitor's vsock socket and the guest's port
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#define BUF_BYTES 65536

union address {
    struct sockaddr any;
    struct sockaddr_un un;
    struct sockaddr_vm vm;
};

static void die(const char *what)
{
    fprintf(stderr, "stream: %s: %s\n", what, strerror(errno));
    exit(1);
}

static socklen_t parse(const char *text, union address *a)
{
    unsigned cid, port;

    memset(a, 0, sizeof(*a));
    if (sscanf(text, "vsock:%u:%u", &cid, &port) == 2) {
        a->vm.svm_family = AF_VSOCK;
        a->vm.svm_cid = cid;
        a->vm.svm_port = port;
        return sizeof(a->vm);
    }
    a->un.sun_family = AF_UNIX;
    if (strlen(text) >= sizeof(a->un.sun_path)) {
        errno = ENAMETOOLONG;
        die(text);
    }
    memcpy(a->un.sun_path, text, strlen(text) + 1);
    return sizeof(a->un);
}

static int dial(const char *text)
{
    union address a;
    socklen_t len = parse(text, &a);
    int fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, &a.any, len) < 0)
        die(text);
    return fd;
}

/* By a monitor's socket to the guest's `port`. */
static int dial_guest(const char *path, const char *port)
{
    char line[64];
    int fd = dial(path);
    int n = snprintf(line, sizeof(line), "CONNECT %s\n", port);

    if (write(fd, line, (size_t)n) != n)
        die(path);
    do { /* "OK <port>" */
        if (read(fd, line, 1) != 1)
            die("no answer to CONNECT");
    } while (line[0] != '\n');
    return fd;
}

static int dial_any(const char *text)
{
    const char *colon = strrchr(text, ':');
    char path[sizeof(((union address *)0)->un.sun_path)];

    if (!colon || !strncmp(text, "vsock:", 6))
        return dial(text);
    snprintf(path, sizeof(path), "%.*s", (int)(colon - text), text);
    return dial_guest(path, colon + 1);
}

static int answer(const char *text)
{
    union address a;
    socklen_t len = parse(text, &a);
    int fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, &a.any, len) < 0 || listen(fd, 1) < 0)
        die(text);
    printf("listening\n");
    fflush(stdout);
    fd = accept(fd, NULL, NULL);
    if (fd < 0)
        die("accept");
    return fd;
}

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void put(int fd, const char *buf, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, buf, len);

        if (n < 0)
            die("write");
        buf += n;
        len -= (size_t)n;
    }
}

static void do_send(const char *to, uint64_t bytes)
{
    static char buf[BUF_BYTES];
    int fd = dial_any(to);

    for (; bytes > 0; bytes -= bytes < BUF_BYTES ? bytes : BUF_BYTES)
        put(fd, buf, bytes < BUF_BYTES ? (size_t)bytes : BUF_BYTES);
    shutdown(fd, SHUT_WR);
    (void)!read(fd, buf, 1); /* until the other end has closed */
}

/* Reads to the end; passes on to `out` unless that is negative. */
static void do_drain(int in, int out)
{
    static char buf[BUF_BYTES];
    uint64_t start = 0, bytes = 0;
    ssize_t n;

    while ((n = read(in, buf, sizeof(buf))) > 0) {
        if (bytes == 0)
            start = now_ns(); /* what came before it is set-up */
        bytes += (uint64_t)n;
        if (out >= 0)
            put(out, buf, (size_t)n);
    }
    if (n < 0)
        die("read");
    if (out < 0)
        printf("%llu %llu\n", (unsigned long long)bytes,
               (unsigned long long)(now_ns() - start));
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "send")) {
        do_send(argv[2], strtoull(argv[3], NULL, 10));
    } else if (argc == 3 && !strcmp(argv[1], "recv")) {
        do_drain(answer(argv[2]), -1);
    } else if (argc == 4 && !strcmp(argv[1], "relay")) {
        int in = answer(argv[2]);

        do_drain(in, dial(argv[3]));
    } else {
        fprintf(stderr, "usage: stream send ADDR BYTES | recv ADDR | "
                        "relay ADDR ADDR2\n");
        return 2;
    }
    return 0;
}
