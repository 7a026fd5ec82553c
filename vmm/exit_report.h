/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_EXIT_REPORT_H
#define VMM_EXIT_REPORT_H

/*
 * How the end of a VM is told: the exit code, and the file of --exit-file,
 * `{"reason","detail","exit_code","configured_us","first_run_us",
 * "marks":[{mark,us}]}`. With --count-exits also `"exits":{"dropped","rows":
 * [{kind,addr,device,base,count}]}`, with --profile-hz `"profile":{"dropped",
 * "rows":[{ip,count}]}`; addresses are hexadecimal text, `dropped` is what was
 * counted without a row.
 * Errors: -errno with a line.
 */

#include "vmm/machine.h"

#define EXIT_CODE_OTHER        1
#define EXIT_CODE_PANIC        20
#define EXIT_CODE_TRIPLE_FAULT 21
#define EXIT_CODE_KVM_ERROR    22
#define EXIT_CODE_CONFIG       152
#define EXIT_CODE_ARGUMENTS    153

int exit_code_of(const struct machine_result *r);

/* Makes the file, which must not be there yet; the fd is the caller's. */
int exit_report_open(const char *path, int *out_fd,
                     struct errmsg *err) MUST_CHECK;
int exit_report_write(int fd, const struct machine_result *r,
                      const char *detail, int exit_code) MUST_CHECK;

#endif
