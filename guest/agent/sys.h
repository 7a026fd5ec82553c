/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bare system calls for the moments between clone and exec, when a child
 * still lives in the agent's memory: libc would write errno there, and the
 * agent runs on at the same time. One file per architecture.
 */
#ifndef GUEST_AGENT_SYS_H
#define GUEST_AGENT_SYS_H

#if defined(__x86_64__)
#include "guest/agent/sys_x86.h"
#else
#error "no sys_<architecture>.h for this machine yet"
#endif

#endif
