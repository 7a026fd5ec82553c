/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_LOG_H
#define VMM_LOG_H

/*
 * Line logger of one process. Each line is one write(2), so that lines of
 * several threads do not mix and each is readable at once. On a non-blocking
 * fd a line that does not fit is dropped and counted, never waited for.
 *
 * Ownership: the struct is the caller's; the fd stays the caller's.
 * Threads: any. Errors: none are reported, lost lines are counted.
 */

#include "vmm/util.h"

#include <stdarg.h>

enum log_level { LOG_OFF, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };

struct log {
    int fd; /* -1: nowhere */
    enum log_level level;
    const char *prefix;          /* program name before each line; borrowed */
    bool stamps;                 /* RFC 3339 time stamp on each line */
    bool show_level;             /* and the level after it */
    _Atomic uint64_t lost;       /* lines that could not be written */
    _Atomic uint64_t suppressed; /* lines that a limiter kept back */
};

/* At most `burst` lines per `window_ns` pass; the rest is counted. */
struct log_limit {
    uint64_t window_start_ns;
    uint32_t in_window;
    uint32_t held_back; /* since the last line that passed */
};

void log_init(struct log *log, int fd, enum log_level level,
              const char *prefix);

void log_msg(struct log *log, enum log_level level, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/*
 * For whatever a guest can cause: 10 lines in 10 seconds per `limit`, then
 * silence; the next line that passes says how many were held back.
 */
void log_limited(struct log *log, struct log_limit *limit, enum log_level level,
                 const char *fmt, ...) PRINTF_LIKE(4, 5);

/* Off, Error, Warn, Warning, Info, Debug, Trace in any case; or -EINVAL. */
int log_level_parse(const char *name, enum log_level *out) MUST_CHECK;

#endif
