/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_UFFD_H
#define VMM_UFFD_H

/*
 * Guest memory that another process fills, page by page, as the guest touches
 * it: by userfaultfd, in the way that Firecracker's handlers expect it. That
 * process is trusted with all of the guest.
 *
 * Threads: before the vCPUs run; uffd_end() on the loop's. Errors: -errno with
 * a line.
 * syscalls: UFFDIO_UNREGISTER while the machine runs
 */

#include "vmm/errmsg.h"
#include "vmm/guest_mem.h"

/*
 * Registers the memory, connects to the Unix socket `path` and hands over the
 * descriptor with a description of the regions. *out_fd keeps the memory
 * served; the caller closes it after the machine's end.
 */
int uffd_offer(const struct guest_mem *gm, const char *path, int *out_fd,
               struct errmsg *err) MUST_CHECK;
/* Nobody waits for a page of it any more; those that were not served read as
 * zero from now on. For the end of a machine. */
void uffd_end(const struct guest_mem *gm, int fd);

#endif
