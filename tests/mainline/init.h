/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_MAINLINE_INIT_H
#define TESTS_MAINLINE_INIT_H

/*
 * PID 1 of the mainline test machine.
 *
 * It loads the modules that the initial ramdisk brings, mounts the root file
 * system of the machine that started QEMU (9p, read only) under an overlay on
 * tmpfs, runs one command there and carries its output to the host.
 *
 * Interface to run.sh:
 *   /job              what to do: records of one letter, a string and a NUL
 *                     (see job_record())
 *   /modules/<group>  module files in the order in which to load them
 *   port 1, 2         the command's standard output and standard error
 *   port 3            lines: "up MS" when the command starts, then one of
 *                     "exit STATUS" and "fail REASON"
 *   I/O port 0xf4     a write ends the machine (QEMU's isa-debug-exit)
 *
 * One thread. Errors: FAIL() reports the reason and ends the machine; PID 1
 * has nobody to hand them to.
 */
#include <stdbool.h>
#include <stddef.h>

enum { JOB_MAX_RECORDS = 4096 };

struct job {
    char *text; /* owns what the other members point at */
    const char *cwd;
    const char *modules; /* module tree on the host, or NULL */
    bool net;
    bool disk;
    char *argv[JOB_MAX_RECORDS + 1];
    char *envp[JOB_MAX_RECORDS + 1];
    char *params[JOB_MAX_RECORDS + 1]; /* MODULE.NAME=VALUE */
    size_t argc, envc, paramc;
};

/* init.c */
void status(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/*
 * Returns when the host has taken all that was written to a port. Without it
 * the machine could end with a piece still in the queue: QEMU empties that
 * some time after the write.
 */
void port_drain(int port_fd);
void machine_off(void) __attribute__((noreturn));
/* A clock that starts with the machine. */
long now_ms(void);
/* Returns 0 or -errno: some files depend on the kernel's options. */
int write_file(const char *path, const char *text);
/* Makes the directory where it is missing. */
void mount_at(const char *source, const char *target, const char *type,
              unsigned long flags, const char *data);

#define FAIL(fmt, ...)                                                         \
    do {                                                                       \
        status("fail " fmt, ##__VA_ARGS__);                                    \
        machine_off();                                                         \
    } while (0)

/* root.c: leaves the process in the command's root file system. */
void make_root(const struct job *job);
/* root.c: network, names and limits, inside that root. */
void set_up_system(const struct job *job);

/*
 * command.c: runs the command, carries its output to the two ports and
 * returns once the host has all of it. The result is an exit code as a shell
 * forms it.
 */
int command_run(struct job *job, int out_port, int err_port);

#endif
