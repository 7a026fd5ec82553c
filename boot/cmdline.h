/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_CMDLINE_H
#define BOOT_CMDLINE_H

/*
 * The kernel command line: the monitor's words, then the user's exactly as
 * given. So whatever stands behind a `--` of the user's goes to init untouched
 * and a word of the user's overrides one of ours. Nothing is ever cut. Pure;
 * threads: any. Errors: -EINVAL, -E2BIG with a line for the user.
 */

#include "boot/boot_machine.h"
#include "vmm/errmsg.h"

/* Control characters and length alone, before a machine is known. */
int cmdline_check_user(const char *user, struct errmsg *err) MUST_CHECK;

/*
 * `own` are the monitor's words and `user` the user's; either may be NULL.
 * `words_for` adds a virtio_mmio.device= word per device, for kernels without
 * device tree; NULL adds none. `out` is written on success only.
 */
int cmdline_build(const char *own, const struct boot_machine *words_for,
                  const char *user, char out[LAYOUT_CMDLINE_MAX],
                  struct errmsg *err) MUST_CHECK;

#endif
