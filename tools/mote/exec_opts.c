/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/exec_opts.h"

#include "vmm/cleanup.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Overwrites the value in the word of argv that `entry` points into. */
static void exec_wipe(int argc, char **argv, const char *entry)
{
    for (int i = 0; i < argc; i++) {
        char *value;

        if (entry < argv[i] || entry >= argv[i] + strlen(argv[i]))
            continue;
        value = strchr(argv[i] + (entry - argv[i]), '=');
        if (value)
            memset(value + 1, '*', strlen(value + 1));
        return;
    }
}

/* "NAME=VALUE" as it is, "NAME" with our own value, NULL if we have none. */
static int exec_env_entry(const char *item, char **out)
{
    const char *value = NULL;

    *out = NULL;
    if (strchr(item, '=')) {
        *out = strdup(item);
        return *out ? 0 : -ENOMEM;
    }
    value = getenv(item);
    if (!value)
        return 0;
    return asprintf(out, "%s=%s", item, value) < 0 ? -ENOMEM : 0;
}

/* The environment; with a terminal it begins with our TERM. */
static int exec_env_make(struct exec_opts *o, bool tty)
{
    size_t n = 0;
    int rc = 0;

    o->env_made = calloc(o->env.count + 2, sizeof(*o->env_made));
    if (!o->env_made)
        return -ENOMEM;
    if (tty)
        rc = exec_env_entry("TERM", &o->env_made[n]);
    if (!rc && o->env_made[n])
        n++;
    for (size_t i = 0; i < o->env.count && !rc; i++) {
        rc = exec_env_entry(o->env.items[i], &o->env_made[n]);
        if (!rc && o->env_made[n])
            n++;
    }
    return rc;
}

int exec_opts_make(struct exec_opts *o, const struct cli *cli, int argc,
                   char **argv, int first, struct mote_exec_params *out)
{
    static const char *const shell[] = {"/bin/sh", NULL};
    bool has_words = first < argc;
    bool tty = o->tty || (!has_words && cli->input == INPUT_TERM &&
                          term_is_tty(STDOUT_FILENO));
    int rc = exec_env_make(o, tty);

    for (size_t i = 0; i < o->env.count; i++)
        exec_wipe(first, argv, o->env.items[i]);
    if (rc)
        return rc;
    *out = (struct mote_exec_params){
        .argv = has_words ? (const char *const *)(argv + first) : shell,
        .env = (const char *const *)o->env_made,
        .workdir = o->workdir,
        .user = o->user,
        .stdin_open = cli->input != INPUT_NONE,
        .tty = tty,
        .size = term_size(),
        .time_limit_ms = o->timeout_ms,
    };
    return 0;
}

void exec_opts_free(struct exec_opts *o)
{
    for (char **p = o->env_made; p && *p; p++)
        free(*p);
    free(o->env_made);
    o->env_made = NULL;
}

int exec_opts_boot_ms(const struct exec_opts *o)
{
    return o->boot_timeout_ms == 0 || o->boot_timeout_ms > INT_MAX
               ? -1
               : (int)o->boot_timeout_ms;
}
