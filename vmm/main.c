/* SPDX-License-Identifier: Apache-2.0 */
/* mote-vmm: one process is one virtual machine. */
#include "vmm/control.h"
#include "vmm/exit_report.h"
#include "vmm/host_report.h"
#include "vmm/snapshot_pair.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAIN_MMAP_BYTES 32768

static void main_print_version(const struct vmm_options *o)
{
    if (o->as_firecracker)
        printf("Firecracker v%s (mote %s)\n", OPTIONS_FIRECRACKER,
               MOTE_VERSION);
    else
        printf("mote-vmm %s\n", MOTE_VERSION);
}

/* As Firecracker prints it; ours counts formats, so the rest is 0. */
static void main_print_snapshot_version(unsigned version)
{
    printf("v%u.0.0\n", version);
}

/* All that can be read is of one version so far. */
static int main_describe(const char *path, struct errmsg *err)
{
    struct errmsg why = {""};
    struct state_file f;
    void *data = NULL;
    size_t len = 0;
    int rc = snap_read_state(path, &data, &len, err);

    if (rc)
        return rc;
    rc = state_open(&f, data, len, &why);
    free(data);
    if (rc)
        return err_set(err, rc, "%s: %s", path, why.text);
    main_print_snapshot_version(STATE_VERSION);
    return 0;
}

/*
 * Whoever starts us with a closed standard descriptor must not find guest
 * output in a file that got its number.
 */
static void main_fill_std_fds(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        (void)close(fd);
}

/* Each vsock connection is a descriptor; the hard limit is the user's word. */
static void main_raise_nofile(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur == r.rlim_max)
        return;
    r.rlim_cur = r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r); /* fewer connections, no failure */
}

/*
 * Tables and buffers that a device may never fill are mappings of their own:
 * fresh pages of zeroes, which cost nothing until they are used, where the heap
 * would be cleared by hand. It also keeps glibc from raising the limit once
 * such a block is freed.
 */
static void main_set_malloc(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, MAIN_MMAP_BYTES);
}

int main(int argc, char **argv)
{
    uint64_t start_ns = util_now_ns();
    struct vmm_options o;
    struct errmsg err = {""};
    struct log log;

    main_set_malloc();
    main_fill_std_fds();
    main_raise_nofile();
    log_init(&log, STDERR_FILENO, LOG_WARN, "mote-vmm");
    if (options_parse(argc, argv, &o, &err)) {
        log_msg(&log, LOG_ERROR, "%s", err.text);
        return EXIT_CODE_ARGUMENTS;
    }
    if (o.help) {
        options_print_help(stdout);
        return 0;
    }
    if (o.version) {
        main_print_version(&o);
        return 0;
    }
    if (o.snapshot_version) {
        main_print_snapshot_version(STATE_VERSION);
        return 0;
    }
    if (o.describe) {
        if (main_describe(o.describe, &err) == 0)
            return 0;
        log_msg(&log, LOG_ERROR, "%s", err.text);
        return EXIT_CODE_OTHER;
    }
    if (o.probe)
        return host_report_print(stdout) ? EXIT_CODE_OTHER : 0;
    return control_run(&o, &log, start_ns);
}
