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

static size_t log_head(const struct log *log, enum log_level level, char *buf,
                       size_t size)
{
    struct timespec ts;
    struct tm tm;
    int n;

    if (!log->stamps) {
        n = snprintf(buf, size, "%s: %s", log->prefix,
                     level == LOG_WARN ? "warning: " : "");
        return n < 0 ? 0 : (size_t)n;
    }
    (void)clock_gettime(CLOCK_REALTIME, &ts); /* cannot fail on Linux */
    (void)gmtime_r(&ts.tv_sec, &tm);
    n = snprintf(buf, size, "%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ %s%s%s: ",
                 tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
                 tm.tm_min, tm.tm_sec, ts.tv_nsec / 1000, log->prefix,
                 log->show_level ? " " : "",
                 log->show_level ? log_names[level] : "");
    return n < 0 ? 0 : (size_t)n;
}

/* Guest text may hold anything: keep a line one line and terminals safe. */
static void log_sanitize(char *s)
{
    for (; *s; s++) {
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
    }
}

static void log_vmsg(struct log *log, enum log_level level, uint32_t held_back,
                     const char *fmt, va_list ap) PRINTF_LIKE(4, 0);

static void log_vmsg(struct log *log, enum log_level level, uint32_t held_back,
                     const char *fmt, va_list ap)
{
    char line[LOG_LINE_MAX];
    size_t n;
    int m;

    n = log_head(log, level, line, sizeof(line) / 2);
    m = vsnprintf(line + n, sizeof(line) - n - 64, fmt, ap);
    if (m < 0)
        return;
    n = strlen(line);
    if (held_back > 0)
        (void)snprintf(line + n, 64, " (%u more held back)", held_back);
    log_sanitize(line);
    n = strlen(line);
    line[n++] = '\n';
    if (write(log->fd, line, n) != (ssize_t)n)
        log->lost++;
}

void log_msg(struct log *log, enum log_level level, const char *fmt, ...)
{
    va_list ap;

    if (!log || log->fd < 0 || level > log->level)
        return;
    va_start(ap, fmt);
    log_vmsg(log, level, 0, fmt, ap);
    va_end(ap);
}

void log_limited(struct log *log, struct log_limit *limit, enum log_level level,
                 const char *fmt, ...)
{
    uint64_t now;
    va_list ap;

    if (!log || log->fd < 0 || level > log->level)
        return;
    now = util_now_ns();
    if (now - limit->window_start_ns > LOG_WINDOW_NS) {
        limit->window_start_ns = now;
        limit->in_window = 0;
    }
    if (limit->in_window >= LOG_WINDOW_BURST) {
        limit->held_back++;
        log->suppressed++;
        return;
    }
    limit->in_window++;
    va_start(ap, fmt);
    log_vmsg(log, level, limit->held_back, fmt, ap);
    va_end(ap);
    limit->held_back = 0;
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
