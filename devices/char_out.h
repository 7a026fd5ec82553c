/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_CHAR_OUT_H
#define DEVICES_CHAR_OUT_H

/*
 * Output of a character device to a file descriptor. Bytes are collected for
 * about a millisecond and written by the loop's thread; whoever writes never
 * waits, and no reader can stop a VM: what does not fit into the bounded
 * buffer is dropped and counted.
 *
 * Ownership: the fd stays the caller's and keeps its flags (a terminal is
 * often shared with a shell). SIGPIPE has to be ignored in the process.
 * Threads: see each function.
 */

#include "vmm/evloop.h"
#include "vmm/log.h"

#define CHAR_OUT_BUFFER_BYTES 65536u

struct char_out;

/* `name` for log lines, borrowed. 0 or -errno. Before the loop runs. */
int char_out_new(struct evloop *loop, struct log *log, const char *name, int fd,
                 struct char_out **out_co) MUST_CHECK;

/* Thread: any. */
void char_out_write(struct char_out *co, const void *data, size_t len);
/* Bytes dropped so far. Thread: any. */
uint64_t char_out_dropped(struct char_out *co);

/*
 * Writes what is still there, waiting at most `timeout_ms` for the reader.
 * thread: io, or any once the loop has ended.
 */
void char_out_flush(struct char_out *co, int timeout_ms);

/* thread: io, or any once the loop has ended. NULL is fine. */
void char_out_free(struct char_out *co);

#endif
