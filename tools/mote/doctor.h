/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_DOCTOR_H
#define TOOLS_MOTE_DOCTOR_H

/*
 * `mote doctor`: what of this host mote can use, and what to do about the
 * rest. Each check fills one struct check and never fails itself. A new check
 * is a function in a file doctor_*.c and a line in
 * cmd_doctor.c. Threads: one.
 */

#include "tools/libmote/err.h"

#include <jansson.h>

enum check_status { CHECK_OK, CHECK_WARNING, CHECK_ERROR };

struct check {
    const char *name; /* snake_case, also for --json */
    enum check_status status;
    char detail[320];
    char remedy[256]; /* "" if nothing is to be done */
};

struct doctor {
    json_t *probe; /* the document of `mote-vmm --probe`, or NULL */
    char probe_error[320];
};

/* Sets all of a check at once. `remedy` may be "". */
void check_set(struct check *c, enum check_status status, const char *remedy,
               const char *fmt, ...) PRINTF_LIKE(4, 5);

/* What the monitor finds out by trying. */
void doctor_kvm(const struct doctor *d, struct check *c);
void doctor_kvm_features(const struct doctor *d, struct check *c);
void doctor_ring0(const struct doctor *d, struct check *c);
void doctor_io_uring(const struct doctor *d, struct check *c);
/* What the host offers. */
void doctor_vsock(const struct doctor *d, struct check *c);
void doctor_tun(const struct doctor *d, struct check *c);
void doctor_cgroup(const struct doctor *d, struct check *c);
void doctor_userns(const struct doctor *d, struct check *c);
void doctor_jail(const struct doctor *d, struct check *c);
void doctor_memory(const struct doctor *d, struct check *c);
void doctor_runtime_dir(const struct doctor *d, struct check *c);
/* What `make` has to have built. */
void doctor_monitor(const struct doctor *d, struct check *c);
void doctor_kernel_sandbox(const struct doctor *d, struct check *c);
void doctor_kernel_tiny(const struct doctor *d, struct check *c);
void doctor_agent(const struct doctor *d, struct check *c);
void doctor_rootfs(const struct doctor *d, struct check *c);

#endif
