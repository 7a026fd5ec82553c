/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_MAINLINE_PID1_INIT_H
#define TESTS_MAINLINE_PID1_INIT_H

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
 *   port 1            frames (frame.h): output, "up MS" when the command
 *                     starts, at last "exit STATUS" or "fail REASON". Then
 *                     run.sh ends the machine
 *   I/O port 0xf4     a write ends the machine (QEMU's isa-debug-exit): for
 *                     failures before there is a port
 *
 * One thread. Errors: FAIL() reports the reason and ends the machine; PID 1
 * has nobody to hand them to.
 */
#include "tests/mainline/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
/* Sends a text; to the console while there is no port. */
void note(int kind, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/*
 * Sends len bytes that stand at frame + FRAME_HEAD_BYTES; waits for room.
 * Fills in the head.
 */
void port_send(int kind, uint8_t *frame, size_t len);
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
        note(FRAME_LAST, "fail " fmt, ##__VA_ARGS__);                          \
        machine_off();                                                         \
    } while (0)

/* root.c: leaves the process in the command's root file system. */
void make_root(const struct job *job);
/* root.c: network, names and limits, inside that root. */
void set_up_system(const struct job *job);

/*
 * command.c: runs the command, sends its output and returns when all of
 * it is sent. The result is an exit code as a shell
 * forms it.
 */
int command_run(struct job *job);

#endif
