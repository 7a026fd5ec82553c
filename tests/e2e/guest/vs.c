/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's end of tests/e2e/cases_vsock.py: stream sockets of AF_VSOCK with
 * bytes that both ends can make and check. Prints one line, exits 0; a failed
 * call prints why and exits 1.
 *
 *   vs send PORT BYTES SEED    to the host: BYTES, end of file; then reads to
 *                              the end: "sent SUM got N SUM"
 *   vs recv PORT BYTES SEED    one connection of the host: reads to the end,
 *                              then answers: "sent SUM got N SUM"
 *   vs both PORT BYTES SEED    to the host, reading and writing at once
 *   vs cycle PORT LOCAL N      binds LOCAL, connects, closes, N times
 *   vs many PORT N BYTES       N connections at once, each sends and gets BYTES
 *   vs flood PORT N            N times: writes until the other end is gone
 *   vs echo PORT               serves until killed
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#define BLOCK     65536u
#define ADLER_MOD 65521u
#define MAX_CONNS 2048

struct sum {
    uint64_t bytes;
    uint32_t a, b;
};

static void die(const char *what)
{
    printf("vs: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void sum_add(struct sum *s, const unsigned char *p, size_t n)
{
    s->bytes += n;
    while (n > 0) {
        size_t part = n < 5552 ? n : 5552; /* before b can overflow */

        n -= part;
        while (part-- > 0) {
            s->a += *p++;
            s->b += s->a;
        }
        s->a %= ADLER_MOD;
        s->b %= ADLER_MOD;
    }
}

static unsigned long sum_value(const struct sum *s)
{
    return (unsigned long)s->b << 16 | s->a;
}

static struct sockaddr_vm address(unsigned cid, unsigned port)
{
    return (struct sockaddr_vm){
        .svm_family = AF_VSOCK, .svm_cid = cid, .svm_port = port};
}

static int dial(unsigned port, unsigned local)
{
    struct sockaddr_vm a = address(VMADDR_CID_HOST, port);
    struct sockaddr_vm me = address(VMADDR_CID_ANY, local);
    int fd = socket(AF_VSOCK, SOCK_STREAM, 0);

    if (fd < 0)
        die("socket");
    if (local && bind(fd, (struct sockaddr *)&me, sizeof(me)) < 0)
        die("bind");
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        die("connect");
    return fd;
}

static int listener(unsigned port)
{
    struct sockaddr_vm a = address(VMADDR_CID_ANY, port);
    int fd = socket(AF_VSOCK, SOCK_STREAM, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
        listen(fd, 128) < 0)
        die("listen");
    printf("listening\n");
    fflush(stdout);
    return fd;
}

static void put(int fd, const unsigned char *p, size_t n)
{
    while (n > 0) {
        ssize_t k = write(fd, p, n);

        if (k < 0)
            die("write");
        p += k;
        n -= (size_t)k;
    }
}

/* The bytes that SEED stands for: one block of noise, numbered. */
static void put_pattern(int fd, uint64_t bytes, uint64_t seed, struct sum *out)
{
    static unsigned char block[BLOCK];
    uint64_t x = seed * 2 + 1;

    for (size_t i = 0; i < BLOCK; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(block + i, &x, 8);
    }
    for (uint64_t i = 0; bytes > 0; i++) {
        size_t n = bytes < BLOCK ? (size_t)bytes : BLOCK;

        memcpy(block, &i, 8);
        put(fd, block, n);
        sum_add(out, block, n);
        bytes -= n;
    }
}

static void get_all(int fd, struct sum *out)
{
    static unsigned char buf[BLOCK];
    ssize_t n;

    while ((n = read(fd, buf, sizeof(buf))) > 0)
        sum_add(out, buf, (size_t)n);
    if (n < 0)
        die("read");
}

static void tell(const struct sum *sent, const struct sum *got)
{
    printf("sent %lu got %llu %lu\n", sum_value(sent),
           (unsigned long long)got->bytes, sum_value(got));
}

struct reader {
    int fd;
    struct sum got;
};

static void *read_on(void *arg)
{
    struct reader *r = arg;

    get_all(r->fd, &r->got);
    return NULL;
}

static void do_both(int fd, uint64_t bytes, uint64_t seed)
{
    struct reader r = {fd, {0, 1, 0}};
    struct sum sent = {0, 1, 0};
    pthread_t t;

    if (pthread_create(&t, NULL, read_on, &r))
        die("thread");
    put_pattern(fd, bytes, seed, &sent);
    shutdown(fd, SHUT_WR);
    pthread_join(t, NULL);
    tell(&sent, &r.got);
}

static void do_many(unsigned port, int n, size_t bytes)
{
    static int fds[MAX_CONNS];
    unsigned char *buf = malloc(bytes);
    int done = 0;

    for (int i = 0; i < n; i++) {
        fds[i] = dial(port, 0);
        memset(buf, i, bytes);
        put(fds[i], buf, bytes);
    }
    for (int i = 0; i < n; i++) {
        size_t have = 0;
        ssize_t k;

        while (have < bytes && (k = read(fds[i], buf, bytes - have)) > 0) {
            for (ssize_t j = 0; j < k; j++) {
                if (buf[j] != (unsigned char)i)
                    die("another connection's byte");
            }
            have += (size_t)k;
        }
        done += have == bytes;
        close(fds[i]);
    }
    printf("done %d\n", done);
}

static void do_flood(unsigned port, int n)
{
    static unsigned char buf[BLOCK];

    for (int i = 0; i < n; i++) {
        int fd = dial(port, 0);

        while (write(fd, buf, sizeof(buf)) > 0) {
        }
        if (errno != EPIPE && errno != ECONNRESET)
            die("write ended in another way");
        close(fd);
    }
    printf("done %d\n", n);
}

static void do_echo(unsigned port)
{
    static struct pollfd p[MAX_CONNS];
    static unsigned char buf[BLOCK];
    nfds_t n = 1;

    p[0] = (struct pollfd){.fd = listener(port), .events = POLLIN};
    for (;;) {
        if (poll(p, n, -1) < 0)
            die("poll");
        for (nfds_t i = n; i-- > 1;) {
            ssize_t k;

            if (!p[i].revents)
                continue;
            k = read(p[i].fd, buf, sizeof(buf));
            if (k > 0 && write(p[i].fd, buf, (size_t)k) == k)
                continue;
            close(p[i].fd);
            p[i] = p[--n];
        }
        if ((p[0].revents & POLLIN) && n < MAX_CONNS)
            p[n++] = (struct pollfd){.fd = accept(p[0].fd, NULL, NULL),
                                     .events = POLLIN};
    }
}

/* A closed socket keeps its port until the other end has confirmed it. */
static void do_cycle(unsigned port, unsigned local, int n)
{
    const struct linger wait_for_it = {1, 8};

    for (int i = 0; i < n; i++) {
        int fd = dial(port, local);

        setsockopt(fd, SOL_SOCKET, SO_LINGER, &wait_for_it,
                   sizeof(wait_for_it));
        close(fd);
    }
    printf("done %d\n", n);
}

static void do_recv(unsigned port, uint64_t bytes, uint64_t seed)
{
    struct sum sent = {0, 1, 0};
    struct sum got = {0, 1, 0};
    int fd = accept(listener(port), NULL, NULL);

    if (fd < 0)
        die("accept");
    get_all(fd, &got);
    put_pattern(fd, bytes, seed, &sent);
    close(fd);
    tell(&sent, &got);
}

static void do_send(unsigned port, uint64_t bytes, uint64_t seed)
{
    struct sum sent = {0, 1, 0};
    struct sum got = {0, 1, 0};
    int fd = dial(port, 0);

    put_pattern(fd, bytes, seed, &sent);
    shutdown(fd, SHUT_WR);
    get_all(fd, &got);
    tell(&sent, &got);
}

int main(int argc, char **argv)
{
    uint64_t v[3] = {0};

    for (int i = 2; i < argc && i < 5; i++)
        v[i - 2] = strtoull(argv[i], NULL, 10);
    signal(SIGPIPE, SIG_IGN);
    if (argc == 5 && !strcmp(argv[1], "send"))
        do_send((unsigned)v[0], v[1], v[2]);
    else if (argc == 5 && !strcmp(argv[1], "recv"))
        do_recv((unsigned)v[0], v[1], v[2]);
    else if (argc == 5 && !strcmp(argv[1], "both"))
        do_both(dial((unsigned)v[0], 0), v[1], v[2]);
    else if (argc == 5 && !strcmp(argv[1], "cycle"))
        do_cycle((unsigned)v[0], (unsigned)v[1], (int)v[2]);
    else if (argc == 5 && !strcmp(argv[1], "many") && v[1] <= MAX_CONNS)
        do_many((unsigned)v[0], (int)v[1], (size_t)v[2]);
    else if (argc == 4 && !strcmp(argv[1], "flood"))
        do_flood((unsigned)v[0], (int)v[1]);
    else if (argc == 3 && !strcmp(argv[1], "echo"))
        do_echo((unsigned)v[0]);
    else
        die("bad arguments; see the head of vs.c");
    return 0;
}
