/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a boot reads: the words of the kernel command line and the first bytes
 * of a disk. Pure.
 */
#ifndef GUEST_AGENT_WORDS_H
#define GUEST_AGENT_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Words of the kernel command line that are ours. Text is NUL terminated and
 * lives in `line`; NULL where a word is absent. */
struct words {
    const char *root;      /* root=/dev/vdX */
    const char *root_type; /* rootfstype=, else found out */
    const char *overlay;   /* mote.overlay=tmpfs or /dev/vdX */
    const char *hostname;  /* mote.hostname= */
    bool writable;         /* rw */
    bool marks;            /* mote.marks */
    char line[4096];
};

/* Cuts `line`, which the caller has filled, into words. The last of a kind
 * wins, as in the kernel; words behind "--" are for init. */
void words_parse(struct words *words);

/* Bytes of a disk that words_disk_type looks at. */
#define WORDS_DISK_BYTES 2048u

/* The file system whose mark these first bytes carry, or NULL. */
const char *words_disk_type(const uint8_t *bytes, size_t length);

#endif
