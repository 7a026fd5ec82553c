/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_LOG_H
#define VMM_LOG_H

/*
 * Line logger of one process. Each line is one write(2), so that lines of
 * several threads do not mix and each is readable at once. On a non-blocking
 * fd a line that does not fit is dropped and counted, never waited for.
 *
 * Short, as a person reads it:   PREFIX: [warning: ]MESSAGE
 * Full, as Firecracker's are:
 *   TIME [PREFIX:THREAD[:LEVEL][:FILE:LINE]] MESSAGE
 * with the time in UTC, YYYY-MM-DDTHH:MM:SS and nine digits behind the point.
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
    const char *prefix;          /* the program or the machine; borrowed */
    bool full;                   /* lines with time and thread */
    bool show_level;             /* of full lines, as is the next */
    bool show_origin;            /* source file and line */
    const char *module;          /* only lines whose file begins so; NULL: all.
                                    Borrowed */
    _Atomic uint64_t lost;       /* lines that could not be written */
    _Atomic uint64_t failed;     /* of those, for another reason than room */
    _Atomic uint64_t suppressed; /* lines that a limiter kept back */
};

/* Where a line comes from: `vmm/log.c`, 7. */
struct log_origin {
    const char *file;
    int line;
};
#define LOG_HERE ((struct log_origin){__FILE__, __LINE__})

/* At most `burst` lines per `window_ns` pass; the rest is counted. */
struct log_limit {
    uint64_t window_start_ns;
    uint32_t in_window;
    uint32_t held_back; /* since the last line that passed */
};

void log_init(struct log *log, int fd, enum log_level level,
              const char *prefix);

/* The calling thread's name in full lines; until then it is `main`. Borrowed
 * for as long as the thread runs. */
void log_name_thread(const char *name);

/* log_msg(log, level, format, ...) */
#define log_msg(log, level, ...) log_msg_at(log, level, LOG_HERE, __VA_ARGS__)
void log_msg_at(struct log *log, enum log_level level, struct log_origin at,
                const char *fmt, ...) PRINTF_LIKE(4, 5);

/*
 * For whatever a guest can cause: 10 lines in 10 seconds per `limit`, then
 * silence; the next line that passes says how many were held back.
 * log_limited(log, limit, level, format, ...)
 */
#define log_limited(log, limit, level, ...)                                    \
    log_limited_at(log, limit, level, LOG_HERE, __VA_ARGS__)
void log_limited_at(struct log *log, struct log_limit *limit,
                    enum log_level level, struct log_origin at, const char *fmt,
                    ...) PRINTF_LIKE(5, 6);

/* Off, Error, Warn, Warning, Info, Debug, Trace in any case; or -EINVAL. */
int log_level_parse(const char *name, enum log_level *out) MUST_CHECK;

#endif
