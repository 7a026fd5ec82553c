/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_FILE_KIND_H
#define BOOT_FILE_KIND_H

/*
 * Names what a file is by its first bytes, for error lines: a user who hands
 * over the wrong file is told which file that is. Pure; threads: any.
 */

#include <stddef.h>
#include <stdint.h>

/* Enough of a file's start to recognise every format that is listed. */
#define FILE_KIND_HEAD 2048u

/* What boot_load() accepts, as the end of an error line. */
#define FILE_KIND_ACCEPTED                                                     \
    "accepted are an x86-64 ELF vmlinux and an x86 bzImage"

/*
 * A phrase such as "a gzip-compressed file", with its remedy where there is
 * one: a static string, or NULL if the bytes match nothing known.
 */
const char *file_kind_name(const uint8_t *head, size_t len,
                           const char **out_remedy);

#endif
