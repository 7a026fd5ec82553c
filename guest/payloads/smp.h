/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_PAYLOADS_SMP_H
#define GUEST_PAYLOADS_SMP_H

/*
 * Starts the other CPUs by INIT and SIPI, as an operating system does. Each
 * runs one function on a stack of its own and then halts for ever.
 */

#include "guest/payloads/payload.h"

#define SMP_MAX_CPUS 32u

/* Runs on the started CPU; `apic_id` is what its local APIC says. */
typedef void (*smp_fn)(uint32_t apic_id);

/*
 * Sends INIT and SIPI to the APIC ids 1 to `ncpus` - 1, waits until that many
 * have run `fn`, and returns how many came.
 */
uint32_t smp_start(uint32_t ncpus, smp_fn fn);
/* The same for a function that does not return; waits for nothing. */
void smp_launch(uint32_t ncpus, smp_fn fn);

#endif
