/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/cmd.h"
#include "tools/mote/ui.h"

#include <stdio.h>
#include <string.h>

const struct command *const cmd_all[] = {
    &cmd_run,  &cmd_exec,   &cmd_ls,    &cmd_stop,    &cmd_disk, &cmd_snapshot,
    &cmd_fork, &cmd_doctor, &cmd_bench, &cmd_version, &cmd_help, NULL};

static const struct command *main_find(const char *name)
{
    for (size_t i = 0; cmd_all[i]; i++) {
        if (!strcmp(cmd_all[i]->name, name))
            return cmd_all[i];
    }
    return NULL;
}

static void main_usage(FILE *f)
{
    (void)fprintf(f, "usage: mote COMMAND [options] ...\n\n"
                     "Runs commands in microVMs of their own.\n\n"
                     "commands:\n");
    for (size_t i = 0; cmd_all[i]; i++)
        (void)fprintf(f, "  %-9s %s\n", cmd_all[i]->name,
                      cmd_all[i]->table->summary);
    (void)fprintf(f, "\n`mote COMMAND --help` tells the options of each.\n");
}

int cmd_parse(const struct command *c, int argc, char *const *argv, void *dst,
              int *code)
{
    struct mote_err err = {0};
    int first = 0;
    int rc = opts_parse(c->table, argc, argv, dst, &first, &err);

    if (rc == 0)
        return first;
    if (rc > 0) {
        opts_help(stdout, "mote", c->table);
        *code = ui_finish(0);
    } else {
        ui_fail(&err, false);
    }
    opts_free(c->table, dst);
    return -1;
}

/* --- version and help --------------------------------------------------------
 */

static const struct opt_table version_table = {
    .usage = "version", .summary = "print the version of mote"};

static int version_run(const struct cli *cli, int argc, char **argv)
{
    int code = EXIT_USAGE;
    int first = cmd_parse(&cmd_version, argc, argv, NULL, &code);

    (void)cli;
    if (first < 0)
        return code;
    (void)printf("mote %s\n", mote_version());
    return ui_finish(0);
}

const struct command cmd_version = {"version", &version_table, version_run};

static const struct opt_table help_table = {
    .usage = "help [COMMAND]", .summary = "explain mote or one command"};

static int help_run(const struct cli *cli, int argc, char **argv)
{
    const struct command *c;
    int code = EXIT_USAGE;
    int first = cmd_parse(&cmd_help, argc, argv, NULL, &code);

    (void)cli;
    if (first < 0)
        return code;
    if (first >= argc) {
        main_usage(stdout);
        return ui_finish(0);
    }
    c = main_find(argv[first]);
    if (!c) {
        ui_error("command '%s': unknown; `mote help` lists them", argv[first]);
        return EXIT_USAGE;
    }
    opts_help(stdout, "mote", c->table);
    return ui_finish(0);
}

const struct command cmd_help = {"help", &help_table, help_run};

int main(int argc, char **argv)
{
    struct cli cli = {.input = term_open_std()};
    const struct command *c;
    const char *name = argc > 1 ? argv[1] : "";

    if (!strcmp(name, "--version") || !strcmp(name, "-V"))
        name = "version";
    if (!strcmp(name, "--help") || !strcmp(name, "-h"))
        name = "help";
    c = main_find(name);
    if (c)
        return c->run(&cli, argc - 1, argv + 1);
    if (*name)
        ui_error("command '%s': unknown; `mote help` lists them", name);
    else
        main_usage(stderr);
    return EXIT_USAGE;
}
