/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_HOST_REPORT_H
#define VMM_HOST_REPORT_H

/*
 * `mote-vmm --probe`: what this host's KVM and io_uring can do, as one JSON
 * document for `mote doctor`. What is missing is told in it, not an error.
 */

#include "vmm/util.h"

#include <stdio.h>

/* 0, or -errno when the document could not be printed. */
int host_report_print(FILE *out) MUST_CHECK;

#endif
