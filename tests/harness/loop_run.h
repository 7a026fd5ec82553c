/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_HARNESS_LOOP_RUN_H
#define TESTS_HARNESS_LOOP_RUN_H

/* Running an event loop inside a test, for as long as the test needs it. */

#include "vmm/evloop.h"

/*
 * Runs the loop on this thread until `cond` holds (looked at every
 * millisecond). False: it did not within 20 s, which only guards against a
 * hang.
 */
bool loop_run_until(struct evloop *loop, bool (*cond)(void *arg), void *arg);

/* Runs the loop for `ms` milliseconds, to see that something does not happen.
 */
void loop_run_for(struct evloop *loop, uint64_t ms);

/*
 * Runs the loop for 300 ms. False: it used more than half of that time, as one
 * does that spins on an event nobody takes away.
 */
bool loop_run_is_idle(struct evloop *loop);

/* Runs the loop on a thread of its own; ends it. Abort on failure. */
struct loop_thread;
struct loop_thread *loop_thread_start(struct evloop *loop);
void loop_thread_stop(struct loop_thread *t);

#endif
