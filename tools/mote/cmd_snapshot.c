/* SPDX-License-Identifier: Apache-2.0 */
/* `mote snapshot`: the list of its commands, and the short ones. */
#include "tools/mote/snapshot.h"

#include "tools/mote/ui.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <stdio.h>
#include <string.h>

#define VERIFY_QUIET_NS 2000000000u

/* --- options between operands ----------------------------------------------
 */

bool snapshot_parse(const struct command *c, int argc, char **argv, void *dst,
                    struct snapshot_words *w, int *code)
{
    int usage = *code;

    w->first = 0;
    for (int i = 0; i <= w->count; i++) {
        int first = cmd_parse(c, argc - w->first, argv + w->first, dst, code);

        if (first < 0)
            return false;
        w->first += first;
        if (i < w->count && w->first < argc) {
            w->at[i] = argv[w->first];
        } else if (i < w->count || (w->first < argc && !w->rest)) {
            ui_error("%s: takes %d operand%s; `mote %s --help` explains it",
                     c->name, w->count, w->count == 1 ? "" : "s", c->name);
            opts_free(c->table, dst);
            *code = usage;
            return false;
        }
    }
    return true;
}

/* --- save ------------------------------------------------------------------
 */

struct save_opts {
    const char *diff;
};

static const struct opt_def save_defs[] = {
    {"diff", 0, OPT_TEXT, offsetof(struct save_opts, diff), "BASE",
     "only the memory written since BASE, the snapshot that was saved of it "
     "last or that it was loaded from",
     NULL, 0, 0},
};

static const struct opt_table save_table = {
    .usage = "snapshot save [options] NAME DIR",
    .summary = "save a running machine as the directory DIR",
    .defs = save_defs,
    .count = ARRAY_SIZE(save_defs),
    .notes = "The machine stands still while that is written, and runs on.\n"
             "Disks that it can write are copied (shared where the file\n"
             "system can), others are remembered by path, size and time.\n",
};

static int save_main(const struct cli *cli, int argc, char **argv)
{
    CLEANUP_FD int signal_fd = -1;
    struct save_opts o = {0};
    struct mote_vm_info info;
    struct mote_err err = {0};
    struct snapshot_words w = {.count = 2};
    struct mote_save_params params = {0};
    int code = EXIT_USAGE;
    int rc;

    (void)cli;
    if (!snapshot_parse(&cmd_snapshot_save, argc, argv, &o, &w, &code))
        return code;
    signal_fd = signals_open();
    params.dir = w.at[1];
    params.base_dir = o.diff;
    params.cancel_fd = signal_fd;
    rc = mote_find(w.at[0], &info, &err);
    if (rc == 0)
        rc = mote_snapshot_save(&info, &params, &err);
    if (rc == -ECANCELED)
        return 128 + signals_next(signal_fd);
    if (rc)
        ui_fail(&err, false);
    return rc ? 1 : 0;
}

const struct command cmd_snapshot_save = {"snapshot save", &save_table,
                                          save_main};

/* --- merge -----------------------------------------------------------------
 */

static const struct opt_table merge_table = {
    .usage = "snapshot merge BASE DIFF OUT",
    .summary = "make a full snapshot OUT of BASE and a diff that builds on it",
    .notes =
        "All that is read is checked. OUT has the id of the diff, so that\n"
        "the next diff builds on it. BASE and DIFF stay as they are.\n",
};

static int merge_main(const struct cli *cli, int argc, char **argv)
{
    struct mote_err err = {0};
    struct snapshot_words w = {.count = 3};
    int code = EXIT_USAGE;

    (void)cli;
    if (!snapshot_parse(&cmd_snapshot_merge, argc, argv, NULL, &w, &code))
        return code;
    if (mote_snapshot_merge(w.at[0], w.at[1], w.at[2], &err) == 0)
        return 0;
    ui_fail(&err, false);
    return 1;
}

const struct command cmd_snapshot_merge = {"snapshot merge", &merge_table,
                                           merge_main};

/* --- verify ----------------------------------------------------------------
 */

static const struct opt_table verify_table = {
    .usage = "snapshot verify DIR",
    .summary = "read all of a snapshot against its checksums",
};

struct verify_view {
    uint64_t from_ns;
    int shown; /* percent; -1: nothing yet */
    bool tty;
};

static bool verify_progress(void *arg, uint64_t done, uint64_t total)
{
    struct verify_view *v = arg;
    int percent = total ? (int)(done * 100 / total) : 100;

    if (v->tty && percent != v->shown &&
        util_now_ns() - v->from_ns > VERIFY_QUIET_NS) {
        (void)fprintf(stderr, "\rmote: %3d %%", percent);
        v->shown = percent;
    }
    return true;
}

static int verify_main(const struct cli *cli, int argc, char **argv)
{
    struct verify_view view = {.from_ns = util_now_ns(),
                               .shown = -1,
                               .tty = term_is_tty(STDERR_FILENO)};
    struct mote_err err = {0};
    struct snapshot_words w = {.count = 1};
    int code = EXIT_USAGE;
    int rc;

    (void)cli;
    if (!snapshot_parse(&cmd_snapshot_verify, argc, argv, NULL, &w, &code))
        return code;
    rc = mote_snapshot_verify(w.at[0], verify_progress, &view, &err);
    if (view.shown >= 0)
        (void)fprintf(stderr, "\r            \r");
    if (rc)
        ui_fail(&err, false);
    return rc ? 1 : 0;
}

const struct command cmd_snapshot_verify = {"snapshot verify", &verify_table,
                                            verify_main};

/* --- the list --------------------------------------------------------------
 */

static const struct command *const snapshot_all[] = {
    &cmd_snapshot_save,  &cmd_snapshot_load,   &cmd_snapshot_info,
    &cmd_snapshot_merge, &cmd_snapshot_verify, NULL};

static const struct opt_table snapshot_table = {
    .usage = "snapshot save|load|info|merge|verify ...",
    .summary = "save a running machine, load it any number of times",
    .notes = "  save NAME DIR           save a running machine\n"
             "  load DIR [-- COMMAND]   start a machine out of a snapshot\n"
             "  info DIR                what is in a snapshot\n"
             "  merge BASE DIFF OUT     a full one out of a diff and its base\n"
             "  verify DIR              check all of it\n"
             "`mote snapshot save --help` and so on tell the options.\n",
};

static int snapshot_main(const struct cli *cli, int argc, char **argv)
{
    int code = EXIT_USAGE;
    int first = -1;

    for (size_t i = 0; argc > 1 && snapshot_all[i]; i++) {
        const char *word = strrchr(snapshot_all[i]->name, ' ') + 1;

        if (!strcmp(word, argv[1]))
            return snapshot_all[i]->run(cli, argc - 1, argv + 1);
    }
    first = cmd_parse(&cmd_snapshot, argc, argv, NULL, &code);
    if (first < 0)
        return code;
    ui_error("snapshot %s: is none of save, load, info, merge, verify; `mote "
             "snapshot --help` explains them",
             first < argc ? argv[first] : "(nothing)");
    return EXIT_USAGE;
}

const struct command cmd_snapshot = {"snapshot", &snapshot_table,
                                     snapshot_main};
