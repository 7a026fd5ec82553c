/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/args.h"

#include <string.h>

/* The row of that name; its name is NULL if there is none. */
static struct args_row args_find(const struct args_table *t, const char *name,
                                 size_t len, size_t *out_index)
{
    struct args_row row = t->row(0);
    size_t i = 0;

    while (row.name &&
           (strlen(row.name) != len || strncmp(row.name, name, len) != 0))
        row = t->row(++i);
    *out_index = i;
    return row;
}

int args_next(const struct args_table *t, char *const *argv, int *at,
              struct args_found *out, struct errmsg *err)
{
    const char *word = argv[*at];
    const char *eq = strchr(word, '=');
    struct args_row row = {NULL, NULL, NULL};
    const char *value = NULL;
    size_t index = 0;
    int used = 1;

    if (!strncmp(word, "--", 2))
        row =
            args_find(t, word + 2,
                      eq ? (size_t)(eq - word - 2) : strlen(word + 2), &index);
    if (!row.name)
        return err_set(err, -EINVAL, "%s: unknown argument; %s", word, t->hint);
    if (!row.arg && eq)
        return err_set(err, -EINVAL, "--%s: takes no value", row.name);
    if (row.arg && eq) {
        value = eq + 1;
    } else if (row.arg && argv[*at + 1]) {
        value = argv[*at + 1];
        used = 2;
    }
    if (row.arg && (!value || !*value))
        return err_set(err, -EINVAL, "--%s: needs a value (%s)", row.name,
                       row.arg);
    *at += used;
    *out = (struct args_found){.index = index, .value = value};
    return 0;
}

void args_print_rows(const struct args_table *t, FILE *out)
{
    size_t i = 0;

    for (struct args_row r = t->row(i); r.name; r = t->row(++i)) {
        char left[64];

        (void)snprintf(left, sizeof(left), "--%s%s%s", r.name, r.arg ? " " : "",
                       r.arg ? r.arg : "");
        fprintf(out, "  %-*s %s\n", t->help_column, left, r.help);
    }
}
