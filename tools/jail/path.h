/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JAIL_PATH_H
#define JAIL_PATH_H

/*
 * Opens paths component by component, so that nobody but root and the caller
 * decides where they lead. Errors: -errno with a line. Any thread.
 */

#include "vmm/errmsg.h"

#include <sys/stat.h>

#define PATH_OF_ALL 4096

/*
 * A directory in which jails are made; missing components are created (0755).
 * Each directory on the way belongs to root or the caller, and nobody else can
 * rename what is in it: not writable for others, or sticky. -EPERM if not.
 */
int path_open_base(const char *path, int *out_fd,
                   struct errmsg *err) MUST_CHECK;

/*
 * A file to read. The directories may belong to anybody; links on the way are
 * followed only if they are root's or the caller's. -ELOOP if not.
 */
int path_open_file(const char *what, const char *path, int *out_fd,
                   struct errmsg *err) MUST_CHECK;

/* Opens or creates directory `name`; never through a link. */
int path_enter(int at, const char *name, mode_t mode, bool *out_made,
               int *out_fd) MUST_CHECK;

/* The absolute name that the kernel has for an open directory. */
int path_of_fd(int fd, char *buf, size_t cap) MUST_CHECK;

bool path_same_file(const struct stat *a, const struct stat *b);

#endif
