/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_OPTS_H
#define TOOLS_LIBMOTE_OPTS_H

/*
 * Command line options from one table, which drives parsing and help (and
 * later completion and manual pages). Shared by the programs in tools/; not
 * part of the library's public interface.
 *
 * Ownership: values point into argv; opts_free() releases the lists.
 * Threads: any. Errors: -EINVAL with `err`; nothing is printed.
 */

#include "tools/libmote/err.h"

#include <stdio.h>

enum opt_type {
    OPT_FLAG,     /* bool */
    OPT_TEXT,     /* const char * */
    OPT_NUMBER,   /* uint64_t within lo..hi */
    OPT_SIZE,     /* uint64_t bytes within lo..hi; a plain number means MiB */
    OPT_DURATION, /* uint64_t milliseconds; a plain number means seconds */
    OPT_LIST,     /* struct opt_list: may be repeated */
};

struct opt_list {
    const char **items; /* NULL-terminated unless NULL itself */
    size_t count;
};

struct opt_def {
    const char *name; /* without the dashes */
    char letter;      /* 0 = none */
    enum opt_type type;
    size_t offset;    /* of the value in the command's struct */
    const char *arg;  /* what the help calls the value; NULL for flags */
    const char *help; /* one line */
    const char *def;  /* the default for the help; NULL = off or none */
    uint64_t lo, hi;
};

struct opt_table {
    const char *usage;   /* "run [options] [--] [COMMAND [ARG...]]" */
    const char *summary; /* one line */
    const struct opt_def *defs;
    size_t count;
    const char *notes; /* further lines of help, or NULL */
};

/*
 * Parses argv[1..] up to "--" or the first word that is no option, into the
 * struct at `dst` (which holds the defaults already). *out_first is the index
 * of the first operand. 0; 1 if --help or -h was met; -EINVAL.
 */
int opts_parse(const struct opt_table *t, int argc, char *const *argv,
               void *dst, int *out_first, struct mote_err *err) MUST_CHECK;

/* Releases what opts_parse() allocated in `dst`. Idempotent. */
void opts_free(const struct opt_table *t, void *dst);

/* Prints usage, summary, one line per option with its default, notes. */
void opts_help(FILE *f, const char *program, const struct opt_table *t);

#endif
