/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay NOTES: reads the machine's frames (frame.h) on standard input, writes
 * the command's output to its own standard output and error, and the texts to
 * the file NOTES, a line each. It trusts the machine no more than to be slow.
 *
 * Exit code: 0 after the last frame, 3 if the input ends before it, 4 for a
 * bad frame, 5 if an output cannot be written (or death by SIGPIPE).
 */
#include "tests/mainline/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RELAY_OK = 0, RELAY_EOF = 3, RELAY_BAD = 4, RELAY_OUTPUT = 5 };

static bool read_all(int fd, uint8_t *buf, size_t len)
{
    while (len > 0) {
        ssize_t n = read(fd, buf, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        buf += n;
        len -= (size_t)n;
    }
    return true;
}

static bool write_all(int fd, const uint8_t *buf, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, buf, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        buf += n;
        len -= (size_t)n;
    }
    return true;
}

/* Returns an exit code, or -1 to go on. buf has room for one byte more. */
static int relay_frame(uint8_t kind, uint8_t *buf, size_t len, int notes_fd)
{
    bool written;

    switch (kind) {
    case FRAME_OUT:
        written = write_all(STDOUT_FILENO, buf, len);
        break;
    case FRAME_ERR:
        written = write_all(STDERR_FILENO, buf, len);
        break;
    case FRAME_NOTE:
    case FRAME_LAST:
        buf[len] = '\n';
        written = write_all(notes_fd, buf, len + 1);
        break;
    default:
        return RELAY_BAD;
    }
    if (!written)
        return RELAY_OUTPUT;
    return kind == FRAME_LAST ? RELAY_OK : -1;
}

int main(int argc, char **argv)
{
    uint8_t head[FRAME_HEAD_BYTES];
    uint8_t buf[FRAME_MAX_BYTES + 1];
    int notes_fd;

    if (argc != 2) {
        (void)fprintf(stderr, "usage: relay NOTES\n");
        return RELAY_BAD;
    }
    notes_fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (notes_fd < 0) {
        (void)fprintf(stderr, "relay: %s: %s\n", argv[1], strerror(errno));
        return RELAY_OUTPUT;
    }
    while (read_all(STDIN_FILENO, head, sizeof(head))) {
        size_t len = head[1] | (size_t)head[2] << 8;
        int rc;

        if (len > FRAME_MAX_BYTES)
            return RELAY_BAD;
        if (!read_all(STDIN_FILENO, buf, len))
            return RELAY_EOF;
        rc = relay_frame(head[0], buf, len, notes_fd);
        if (rc >= 0)
            return rc;
    }
    return RELAY_EOF;
}
