/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_BOOT_FILE_H
#define BOOT_BOOT_FILE_H

/*
 * Opens what a user names as a kernel or initrd, and refuses by name whatever
 * is not a regular file with something in it.
 *
 * Ownership: the fd belongs to the caller. Threads: any. Errors: -errno with
 * a line for the user. syscalls: openat, fstat, pread64.
 */

#include "vmm/errmsg.h"

/* `role` is the word that starts the error line: "kernel" or "initrd". */
int boot_file_open(const char *role, const char *path, int *out_fd,
                   uint64_t *out_size_bytes, struct errmsg *err) MUST_CHECK;

#endif
