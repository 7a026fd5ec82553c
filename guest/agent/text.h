/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line of text, built piece by piece; what does not fit is cut. In place
 * of printf, which would be a quarter of this program.
 */
#ifndef GUEST_AGENT_TEXT_H
#define GUEST_AGENT_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct text {
    size_t length;
    char line[512]; /* always ends with a NUL */
};

void text_init(struct text *t);
void text_add(struct text *t, const char *piece);
void text_add_bytes(struct text *t, const void *bytes, size_t length);
void text_add_number(struct text *t, uint64_t number);
/* The message of an errno value, "error 71" style if libc has none. */
void text_add_errno(struct text *t, int error);

/* Why a request is refused: what goes into the ERROR frame. */
struct refusal {
    uint32_t error;  /* enum mote_error */
    int errno_value; /* or 0 */
    struct text text;
};

/* Fills it with the text made of up to three pieces (NULL: none) and, if
 * errno_value is not 0, its message. Returns -1, for `return refuse(...)`. */
int refuse(struct refusal *r, uint32_t error, int errno_value, const char *a,
           const char *b, const char *c);

/* Decimal digits only, the whole string; -1 otherwise or above `max`. */
int64_t text_number(const char *digits, size_t length, uint64_t max);

/* The line to the kernel log (as PID 1) or to standard error. */
void text_log(struct text *t);
/* Same for a fixed line. */
void text_log_line(const char *line);

#endif
