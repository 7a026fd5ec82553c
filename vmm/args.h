/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_ARGS_H
#define VMM_ARGS_H

/*
 * Command lines of `--name VALUE`, `--name=VALUE` and `--switch`, out of one
 * table that drives parsing and --help. The table is the caller's, so that the
 * functions in its rows take the caller's own type: what is here tells which
 * row comes next and what its value is. Pure; strings point into argv.
 */

#include "vmm/errmsg.h"

#include <stdio.h>

/* What a row says for people. */
struct args_row {
    const char *name; /* without the dashes; NULL: there is no such row */
    const char *arg;  /* its value's name; NULL: a switch, without value */
    const char *help;
};

struct args_table {
    struct args_row (*row)(size_t index);
    const char *hint; /* after "WORD: unknown argument; " */
    int help_column;  /* where help texts begin, counted from the names */
};

struct args_found {
    size_t index;      /* of the row */
    const char *value; /* NULL: a switch */
};

/*
 * Takes the option at argv[*at] and moves *at past it and its value. -EINVAL
 * with the word's name: unknown, a value missing (or empty), one too many.
 */
int args_next(const struct args_table *t, char *const *argv, int *at,
              struct args_found *out, struct errmsg *err) MUST_CHECK;

/* A line for each row. */
void args_print_rows(const struct args_table *t, FILE *out);

#endif
