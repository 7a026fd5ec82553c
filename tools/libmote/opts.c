/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/opts.h"

#include <stdlib.h>
#include <string.h>

#define OPTS_HELP_COLUMN 29

/* Where option `d` has its value in the command's struct. */
static void *opts_slot(const struct opt_def *d, void *dst)
{
    return (char *)dst + d->offset;
}

static int opts_append(struct opt_list *l, const char *value,
                       struct mote_err *err)
{
    const char **p = reallocarray(l->items, l->count + 2, sizeof(*l->items));

    if (!p)
        return lm_err_nomem(err);
    l->items = p;
    l->items[l->count++] = value;
    l->items[l->count] = NULL;
    return 0;
}

static int opts_bad_value(const struct opt_def *d, const char *value, int rc,
                          struct mote_err *err)
{
    const char *what = "a number";

    if (d->type == OPT_SIZE)
        what = "a size such as 512M or 2G";
    if (d->type == OPT_DURATION)
        what = "a time such as 10s, 500ms or 2m";
    if (rc != -ERANGE)
        return lm_err(err, -EINVAL, "option --%s '%.80s': not %s", d->name,
                      value, what);
    if (d->type == OPT_NUMBER)
        return lm_err(err, -EINVAL,
                      "option --%s '%.80s': out of range; use %llu to %llu",
                      d->name, value, (unsigned long long)d->lo,
                      (unsigned long long)d->hi);
    if (d->type == OPT_SIZE)
        return lm_err(err, -EINVAL,
                      "option --%s '%.80s': out of range; use %lluM to %lluM",
                      d->name, value, (unsigned long long)(d->lo / MIB),
                      (unsigned long long)(d->hi / MIB));
    return lm_err(err, -EINVAL, "option --%s '%.80s': too long", d->name,
                  value);
}

static int opts_set(const struct opt_def *d, void *dst, const char *value,
                    struct mote_err *err)
{
    void *slot = opts_slot(d, dst);
    uint64_t n = 0;
    int rc = 0;

    switch (d->type) {
    case OPT_FLAG:
        *(bool *)slot = true;
        return 0;
    case OPT_TEXT:
        *(const char **)slot = value;
        return 0;
    case OPT_LIST:
        return opts_append(slot, value, err);
    case OPT_NUMBER:
        rc = util_parse_u64(value, d->lo, d->hi, &n);
        break;
    case OPT_SIZE:
        rc = util_parse_size(value, MIB, &n);
        if (!rc && (n < d->lo || n > d->hi))
            rc = -ERANGE;
        break;
    case OPT_DURATION:
        rc = util_parse_duration_ms(value, &n);
        break;
    }
    if (rc)
        return opts_bad_value(d, value, rc, err);
    *(uint64_t *)slot = n;
    return 0;
}

static const struct opt_def *opts_by_name(const struct opt_table *t,
                                          const char *name, size_t len)
{
    for (size_t i = 0; i < t->count; i++) {
        if (strlen(t->defs[i].name) == len &&
            !strncmp(t->defs[i].name, name, len))
            return &t->defs[i];
    }
    return NULL;
}

static const struct opt_def *opts_by_letter(const struct opt_table *t, char c)
{
    for (size_t i = 0; i < t->count; i++) {
        if (t->defs[i].letter == c && c)
            return &t->defs[i];
    }
    return NULL;
}

static int opts_unknown(const struct opt_table *t, const char *word,
                        struct mote_err *err)
{
    return lm_err(err, -EINVAL,
                  "option %.80s: unknown; `mote %.*s --help` lists them", word,
                  (int)strcspn(t->usage, " "), t->usage);
}

static int opts_no_value(const struct opt_def *d, struct mote_err *err)
{
    return lm_err(err, -EINVAL, "option --%s: its value is missing; give %s",
                  d->name, d->arg);
}

/* One "--name", "--name=value" or "--name value"; advances *i past it. */
static int opts_long(const struct opt_table *t, int argc, char *const *argv,
                     int *i, void *dst, struct mote_err *err)
{
    const char *name = argv[*i] + 2;
    size_t len = strcspn(name, "=");
    const struct opt_def *d = opts_by_name(t, name, len);
    const char *value = name[len] == '=' ? name + len + 1 : NULL;

    if (!d && len == strlen("help") && !strcmp(name, "help"))
        return 1;
    if (!d)
        return opts_unknown(t, argv[*i], err);
    if (d->type == OPT_FLAG && value)
        return lm_err(err, -EINVAL, "option --%s: takes no value", d->name);
    if (d->type != OPT_FLAG && !value) {
        if (*i + 1 >= argc)
            return opts_no_value(d, err);
        value = argv[++*i];
    }
    ++*i;
    return opts_set(d, dst, value, err);
}

/* One "-abc" or "-n value" or "-nvalue"; advances *i past it. */
static int opts_short(const struct opt_table *t, int argc, char *const *argv,
                      int *i, void *dst, struct mote_err *err)
{
    const char *word = argv[*i];

    for (const char *c = word + 1; *c; c++) {
        const struct opt_def *d = opts_by_letter(t, *c);
        const char *value = NULL;
        int rc;

        if (!d && *c == 'h')
            return 1;
        if (!d)
            return opts_unknown(t, word, err);
        if (d->type != OPT_FLAG) {
            value = c[1] ? c + 1 : NULL;
            if (!value && *i + 1 >= argc)
                return opts_no_value(d, err);
            if (!value)
                value = argv[++*i];
        }
        rc = opts_set(d, dst, value, err);
        if (rc)
            return rc;
        if (value)
            break;
    }
    ++*i;
    return 0;
}

int opts_parse(const struct opt_table *t, int argc, char *const *argv,
               void *dst, int *out_first, struct mote_err *err)
{
    int i = 1;
    int rc = 0;

    while (!rc && i < argc && argv[i][0] == '-' && argv[i][1] != '\0') {
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        if (argv[i][1] == '-')
            rc = opts_long(t, argc, argv, &i, dst, err);
        else
            rc = opts_short(t, argc, argv, &i, dst, err);
    }
    if (rc)
        return rc;
    *out_first = i;
    return 0;
}

void opts_free(const struct opt_table *t, void *dst)
{
    for (size_t i = 0; i < t->count; i++) {
        struct opt_list *l;

        if (t->defs[i].type != OPT_LIST)
            continue;
        l = opts_slot(&t->defs[i], dst);
        free(l->items);
        *l = (struct opt_list){0};
    }
}

static void opts_help_line(FILE *f, const struct opt_def *d)
{
    int n = d->letter ? fprintf(f, "  -%c, --%s", d->letter, d->name)
                      : fprintf(f, "      --%s", d->name);

    if (d->arg)
        n += fprintf(f, " %s", d->arg);
    if (n >= OPTS_HELP_COLUMN)
        n = fprintf(f, "\n") - 1;
    (void)fprintf(f, "%*s%s", OPTS_HELP_COLUMN - n, "", d->help);
    if (d->def)
        (void)fprintf(f, " (default: %s)", d->def);
    (void)fputc('\n', f);
}

void opts_help(FILE *f, const char *program, const struct opt_table *t)
{
    static const struct opt_def help = {
        .name = "help", .letter = 'h', .help = "show this text"};

    (void)fprintf(f, "usage: %s %s\n\n%s\n\noptions:\n", program, t->usage,
                  t->summary);
    for (size_t i = 0; i < t->count; i++)
        opts_help_line(f, &t->defs[i]);
    opts_help_line(f, &help);
    if (t->notes)
        (void)fprintf(f, "\n%s", t->notes);
}
