/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_STOP_H
#define VMM_STOP_H

/*
 * Why a VM ends, and the hook by which the few parts that may end it say so.
 * The first reason given wins, apart from a panic, which also replaces the
 * reboot that a guest asks for right after it.
 */

#include <stdint.h>

enum stop_reason {
    STOP_NONE,
    STOP_POWEROFF,
    STOP_REBOOT,
    STOP_HALT,
    STOP_PANIC,
    STOP_TRIPLE_FAULT,
    STOP_KVM_ERROR,
    STOP_TEST,    /* a test program's result; detail = its byte */
    STOP_REQUEST, /* asked for from outside: signal, lifeline, API */
    STOP_INTERNAL,
};

/* Thread: any. Never blocks; may be called any number of times. */
struct stop_hook {
    void (*request_stop)(void *arg, enum stop_reason reason, uint32_t detail);
    void *arg;
};

/* snake_case name as in exit.json, e.g. "triple_fault". */
const char *stop_reason_name(enum stop_reason reason);

#endif
