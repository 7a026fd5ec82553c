/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_PAYLOADS_CPU_MARKS_H
#define GUEST_PAYLOADS_CPU_MARKS_H

/*
 * A value of its own in each register of a CPU that a program seldom looks at:
 * MSRs, debug and control registers, XMM and the local APIC. Whoever saves a
 * machine has to bring all of them back.
 */

#include "guest/payloads/payload.h"

#define MARKS_MAX_CPUS 8u

/* On the CPU with this number. What the host does not keep is left out. */
void cpu_marks_set(uint32_t cpu);
/* Fails with the register's name. Clocks must not have gone back. */
void cpu_marks_check(uint32_t cpu);

#endif
