/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/mainline/pid1/init.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    EXIT_PORT = 0xf4,
    PORT_WAIT_MS = 10000,
};

/* File scope, because FAIL() needs it at any depth. -1 until it is open. */
static int port_fd = -1;

long now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000L + ts.tv_nsec / 1000000L;
}

void machine_off(void)
{
    /* with a port, the relay's end is the machine's */
    if (port_fd < 0 && iopl(3) == 0)
        outl(0, EXIT_PORT);
    for (;;)
        pause();
}

void port_send(int kind, uint8_t *frame, size_t len)
{
    size_t done = 0;

    frame[0] = (uint8_t)kind;
    frame[1] = (uint8_t)len;
    frame[2] = (uint8_t)(len >> 8);
    len += FRAME_HEAD_BYTES;
    while (done < len) {
        ssize_t n = write(port_fd, frame + done, len - done);

        if (n < 0 && errno != EINTR)
            machine_off();
        if (n > 0)
            done += (size_t)n;
    }
}

void note(int kind, const char *fmt, ...)
{
    uint8_t frame[FRAME_HEAD_BYTES + 512] = {0};
    char *text = (char *)frame + FRAME_HEAD_BYTES;
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(frame) - FRAME_HEAD_BYTES, fmt, ap);
    va_end(ap);
    if (port_fd >= 0)
        port_send(kind, frame, strlen(text));
    else
        (void)dprintf(STDERR_FILENO, "mainline-init: %s\n", text);
}

/* Returns the whole file, NUL terminated; the caller owns it. */
static char *read_file(const char *path, size_t *out_len)
{
    struct stat st;
    size_t len = 0;
    char *text;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0)
        FAIL("%s: %s", path, strerror(errno));
    text = malloc((size_t)st.st_size + 1);
    if (!text)
        FAIL("%s: out of memory", path);
    while (len < (size_t)st.st_size) {
        ssize_t n = read(fd, text + len, (size_t)st.st_size - len);

        if (n <= 0)
            FAIL("%s: short read", path);
        len += (size_t)n;
    }
    close(fd);
    text[len] = '\0';
    *out_len = len;
    return text;
}

int write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int rc = 0;

    if (fd < 0)
        return -errno;
    if (write(fd, text, strlen(text)) < 0)
        rc = -errno;
    close(fd);
    return rc;
}

static void job_add(char **list, size_t *count, char *value)
{
    if (*count == JOB_MAX_RECORDS)
        FAIL("more than %d arguments", JOB_MAX_RECORDS);
    list[(*count)++] = value;
}

static void job_record(struct job *job, char *record)
{
    char *value = record + 1;

    switch (record[0]) {
    case 'A':
        job_add(job->argv, &job->argc, value);
        break;
    case 'C':
        job->cwd = value;
        break;
    case 'D':
        job->disk = true;
        break;
    case 'E':
        job_add(job->envp, &job->envc, value);
        break;
    case 'M':
        job->modules = value;
        break;
    case 'N':
        job->net = true;
        break;
    case 'P':
        job_add(job->params, &job->paramc, value);
        break;
    default:
        FAIL("unknown record '%c' in /job", record[0]);
    }
}

static void job_read(struct job *job)
{
    size_t len;
    char *p;

    job->text = read_file("/job", &len);
    for (p = job->text; p < job->text + len; p += strlen(p) + 1)
        job_record(job, p);
    if (!job->argc || !job->cwd)
        FAIL("/job has no command");
}

/* Appends the parameters that the job has for the module in this file. */
static void module_params(const struct job *job, const char *path, char *out,
                          size_t out_bytes)
{
    const char *base = strrchr(path, '/');
    char name[64];
    size_t i, n;

    base = base ? base + 1 : path;
    n = strcspn(base, ".");
    if (n >= sizeof(name))
        return;
    for (i = 0; i < n; i++)
        name[i] = base[i] == '-' ? '_' : base[i];
    name[n] = '\0';
    for (i = 0; i < job->paramc; i++) {
        const char *param = job->params[i];

        if (strncmp(param, name, n) || param[n] != '.')
            continue;
        if (strlen(out) + strlen(param) - n + 1 > out_bytes)
            FAIL("parameters of module %s are too long", name);
        strcat(out, param + n + 1);
        strcat(out, " ");
    }
}

static void load_group(const struct job *job, const char *group)
{
    char list_path[64];
    size_t len;
    char *list, *path, *save = NULL;

    (void)snprintf(list_path, sizeof(list_path), "/modules/%s", group);
    list = read_file(list_path, &len);
    for (path = strtok_r(list, "\n", &save); path;
         path = strtok_r(NULL, "\n", &save)) {
        char params[512] = "";
        int fd = open(path, O_RDONLY | O_CLOEXEC);

        if (fd < 0)
            FAIL("module %s: %s", path, strerror(errno));
        module_params(job, path, params, sizeof(params));
        /* groups share dependencies */
        if (syscall(SYS_finit_module, fd, params, 0) < 0 && errno != EEXIST)
            FAIL("module %s: %s", path, strerror(errno));
        close(fd);
    }
    free(list);
}

void mount_at(const char *source, const char *target, const char *type,
              unsigned long flags, const char *data)
{
    if (mkdir(target, 0755) < 0 && errno != EEXIST)
        FAIL("mkdir %s: %s", target, strerror(errno));
    if (mount(source, target, type, flags, data) < 0)
        FAIL("mount %s: %s", target, strerror(errno));
}

/* It appears some time after the driver: the handshake is asynchronous. */
static int open_port(void)
{
    static const char path[] = "/dev/vport0p1";
    long deadline = now_ms() + PORT_WAIT_MS;
    int fd;

    for (;;) {
        fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd >= 0)
            return fd;
        if (now_ms() > deadline)
            FAIL("%s: %s", path, strerror(errno));
        (void)poll(NULL, 0, 1);
    }
}

/* A parameter for a module that is not there would be lost in silence. */
static void check_params(const struct job *job)
{
    size_t i;

    for (i = 0; i < job->paramc; i++) {
        const char *param = job->params[i];
        int len = (int)strcspn(param, ".");
        char path[128];

        (void)snprintf(path, sizeof(path), "/sys/module/%.*s", len, param);
        if (access(path, F_OK) < 0)
            FAIL("--param %s: no module %.*s is loaded", param, len, param);
    }
}

int main(void)
{
    static struct job job;

    mount_at("proc", "/proc", "proc", 0, NULL);
    mount_at("dev", "/dev", "devtmpfs", 0, NULL);
    job_read(&job);
    load_group(&job, "base");
    port_fd = open_port();
    load_group(&job, "kvm");
    if (job.net)
        load_group(&job, "net");
    if (job.disk)
        load_group(&job, "disk");
    make_root(&job);
    check_params(&job);
    set_up_system(&job);
    note(FRAME_NOTE, "up %ld", now_ms());
    note(FRAME_LAST, "exit %d", command_run(&job));
    machine_off();
}
