/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/text.h"

#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

void text_init(struct text *t)
{
    t->length = 0;
    t->line[0] = 0;
}

void text_add_bytes(struct text *t, const void *bytes, size_t length)
{
    size_t room = sizeof(t->line) - 1 - t->length;

    if (length > room)
        length = room;
    memcpy(t->line + t->length, bytes, length);
    t->length += length;
    t->line[t->length] = 0;
}

void text_add(struct text *t, const char *piece)
{
    text_add_bytes(t, piece, strlen(piece));
}

void text_add_number(struct text *t, uint64_t number)
{
    char digits[20];
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    text_add_bytes(t, digits + at, sizeof(digits) - at);
}

void text_add_errno(struct text *t, int error)
{
    text_add(t, strerror(error));
}

int refuse(struct refusal *r, uint32_t error, int errno_value, const char *a,
           const char *b, const char *c)
{
    const char *pieces[] = {a, b, c};

    r->error = error;
    r->errno_value = errno_value;
    text_init(&r->text);
    for (size_t i = 0; i < 3 && pieces[i]; i++)
        text_add(&r->text, pieces[i]);
    if (errno_value) {
        text_add(&r->text, ": ");
        text_add_errno(&r->text, errno_value);
    }
    return -1;
}

int64_t text_number(const char *digits, size_t length, uint64_t max)
{
    uint64_t value = 0;

    if (length == 0 || length > 18)
        return -1;
    for (size_t i = 0; i < length; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return -1;
        value = value * 10 + (uint64_t)(digits[i] - '0');
    }
    return value > max ? -1 : (int64_t)value;
}

void text_log(struct text *t)
{
    /* Priority "error": shown on the console even with "quiet". */
    char prefix[] = "<3>mote-agent: ";
    char newline[] = "\n";
    struct iovec part[3] = {
        {.iov_base = prefix, .iov_len = sizeof(prefix) - 1},
        {.iov_base = t->line, .iov_len = t->length},
        {.iov_base = newline, .iov_len = 1},
    };
    int fd = STDERR_FILENO;

    if (getpid() == 1)
        fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || fd == STDERR_FILENO) {
        fd = STDERR_FILENO;
        part[0].iov_base = prefix + 3;
        part[0].iov_len -= 3;
    }
    /* Nobody to tell if the log itself fails. */
    (void)!writev(fd, part, 3);
    if (fd != STDERR_FILENO)
        close(fd);
}

void text_log_line(const char *line)
{
    struct text t;

    text_init(&t);
    text_add(&t, line);
    text_log(&t);
}
