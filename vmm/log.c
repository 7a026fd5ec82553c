/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/log.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define LOG_LINE_MAX     1024
#define LOG_WINDOW_NS    10000000000ull
#define LOG_WINDOW_BURST 10

static const char *const log_names[] = {"OFF",  "ERROR", "WARN",
                                        "INFO", "DEBUG", "TRACE"};

void log_init(struct log *log, int fd, enum log_level level, const char *prefix)
{
    memset(log, 0, sizeof(*log));
    log->fd = fd;
    log->level = level;
    log->prefix = prefix;
}

/* There is no other way to know a thread without a system call. */
static _Thread_local const char *log_thread = "main";

void log_name_thread(const char *name)
{
    log_thread = name;
}

static bool log_wanted(const struct log *log, enum log_level level,
                       const struct log_origin *at)
{
    return log && log->fd >= 0 && level <= log->level &&
           (!log->module ||
            !strncmp(at->file, log->module, strlen(log->module)));
}

static size_t log_time(char *buf, size_t size)
{
    struct timespec ts;
    struct tm tm;
    int n;

    (void)clock_gettime(CLOCK_REALTIME, &ts); /* cannot fail on Linux */
    (void)gmtime_r(&ts.tv_sec, &tm);
    n = snprintf(buf, size, "%04d-%02d-%02dT%02d:%02d:%02d.%09ld",
                 tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
                 tm.tm_min, tm.tm_sec, ts.tv_nsec);
    return n < 0 ? 0 : (size_t)n;
}

static size_t log_head(const struct log *log, enum log_level level,
                       const struct log_origin *at, char *buf, size_t size)
{
    char origin[80] = "";
    size_t len;
    int n;

    if (!log->full) {
        n = snprintf(buf, size, "%s: %s", log->prefix,
                     level == LOG_WARN ? "warning: " : "");
        return n < 0 ? 0 : (size_t)n;
    }
    if (log->show_origin)
        (void)snprintf(origin, sizeof(origin), ":%.60s:%d", at->file, at->line);
    len = log_time(buf, size);
    n = snprintf(buf + len, size - len, " [%s:%s%s%s%s] ", log->prefix,
                 log_thread, log->show_level ? ":" : "",
                 log->show_level ? log_names[level] : "", origin);
    return n < 0 ? len : len + (size_t)n;
}

/* Guest text may hold anything: keep a line one line and terminals safe. */
static void log_sanitize(char *s)
{
    for (; *s; s++) {
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
    }
}

struct log_line {
    enum log_level level;
    struct log_origin at;
    uint32_t held_back;
};

static void log_write(struct log *log, const char *line, size_t len)
{
    ssize_t n = write(log->fd, line, len);

    if (n == (ssize_t)len)
        return;
    log->lost++;
    if (n < 0 && errno != EAGAIN)
        log->failed++;
}

static void log_vmsg(struct log *log, const struct log_line *what,
                     const char *fmt, va_list ap) PRINTF_LIKE(3, 0);

static void log_vmsg(struct log *log, const struct log_line *what,
                     const char *fmt, va_list ap)
{
    char line[LOG_LINE_MAX];
    size_t n;
    int m;

    n = log_head(log, what->level, &what->at, line, sizeof(line) / 2);
    m = vsnprintf(line + n, sizeof(line) - n - 64, fmt, ap);
    if (m < 0)
        return;
    n = strlen(line);
    if (what->held_back > 0)
        (void)snprintf(line + n, 64, " (%u more held back)", what->held_back);
    log_sanitize(line);
    n = strlen(line);
    line[n++] = '\n';
    log_write(log, line, n);
}

void log_msg_at(struct log *log, enum log_level level, struct log_origin at,
                const char *fmt, ...)
{
    const struct log_line what = {level, at, 0};
    va_list ap;

    if (!log_wanted(log, level, &at))
        return;
    va_start(ap, fmt);
    log_vmsg(log, &what, fmt, ap);
    va_end(ap);
}

/* False: it is held back. */
static bool log_limit_admits(struct log *log, struct log_limit *limit)
{
    uint64_t now = util_now_ns();

    if (now - limit->window_start_ns > LOG_WINDOW_NS) {
        limit->window_start_ns = now;
        limit->in_window = 0;
    }
    if (limit->in_window >= LOG_WINDOW_BURST) {
        limit->held_back++;
        log->suppressed++;
        return false;
    }
    limit->in_window++;
    return true;
}

void log_limited_at(struct log *log, struct log_limit *limit,
                    enum log_level level, struct log_origin at, const char *fmt,
                    ...)
{
    struct log_line what = {level, at, 0};
    va_list ap;

    if (!log_wanted(log, level, &at) || !log_limit_admits(log, limit))
        return;
    what.held_back = limit->held_back;
    limit->held_back = 0;
    va_start(ap, fmt);
    log_vmsg(log, &what, fmt, ap);
    va_end(ap);
}

int log_level_parse(const char *name, enum log_level *out)
{
    if (!strcasecmp(name, "Warning"))
        name = "Warn";
    for (size_t i = 0; i < ARRAY_SIZE(log_names); i++) {
        if (!strcasecmp(name, log_names[i])) {
            *out = (enum log_level)i;
            return 0;
        }
    }
    return -EINVAL;
}
