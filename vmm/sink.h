/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_SINK_H
#define VMM_SINK_H

/*
 * A file that output is appended to and that never makes the writer wait: a
 * plain file (made with mode 0600 if it is not there), a FIFO whose reader may
 * come later or never, a terminal. Threads: any. Errors: -errno.
 */

#include "vmm/util.h"

int sink_open(const char *path, int *out_fd) MUST_CHECK;

#endif
