/* SPDX-License-Identifier: Apache-2.0 */
/* `mote fork`: running copies of a running machine, which are ours. */
#include "tools/mote/cmd.h"

#include "tools/mote/machine.h"
#include "tools/mote/net_opts.h"
#include "tools/mote/snapshot.h"
#include "tools/mote/ui.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fork_opts {
    uint64_t count;
    const char *name;
    struct opt_list nets;
    bool track_writes;
    uint64_t timeout_ms;
    bool json;
};

static const struct opt_def fork_defs[] = {
    {"copies", 'n', OPT_NUMBER, offsetof(struct fork_opts, count), "N",
     "how many", "1", 1, MOTE_FORK_MAX},
    {"name", 0, OPT_TEXT, offsetof(struct fork_opts, name), "PREFIX",
     "name and host name: PREFIX of a single copy, else PREFIX-1, PREFIX-2, "
     "...",
     "none", 0, 0},
    {"net", 0, OPT_LIST, offsetof(struct fork_opts, nets), "MODE",
     "network: user (passt) or tap=NAME[,ip=A/BITS][,gw=A][,dns=A]; once for "
     "each copy, or user once for all",
     "user, if the machine has that", 0, 0},
    {"track-writes", 0, OPT_FLAG, offsetof(struct fork_opts, track_writes),
     NULL,
     "note which memory is written, so that `mote snapshot save --diff` can "
     "leave out the rest",
     NULL, 0, 0},
    {"timeout", 0, OPT_DURATION, offsetof(struct fork_opts, timeout_ms), "TIME",
     "give up what is not ready by then; 0 waits", "2m", 0, 0},
    {"json", 0, OPT_FLAG, offsetof(struct fork_opts, json), NULL,
     "print one JSON document when all are ready", NULL, 0, 0},
};

static const struct opt_table fork_table = {
    .usage = "fork [options] NAME",
    .summary = "make running copies of a running machine",
    .defs = fork_defs,
    .count = ARRAY_SIZE(fork_defs),
    .notes =
        "NAME goes on; it stands still for some milliseconds. Each copy gets\n"
        "this host's time, random state, boot id and addresses of its own, "
        "and\n"
        "runs the programs of its /etc/mote/restore.d before anything else.\n"
        "Their names or ids are printed when they are ready; they stay until\n"
        "`mote stop`, or all until a signal ends this command. A copy that\n"
        "failed leaves nothing behind; the exit code is 1 then.\n",
};

struct fork_cmd {
    struct fork_opts o;
    struct mote_vm_info source;
    size_t count;
    char (*names)[MOTE_NAME_MAX + 1];
    const char **name_list; /* NULL: they have none */
    struct net_opts *net_texts;
    struct mote_net_params *nets; /* NULL: as the source */
    struct mote_fork_child *children;
    struct mote_fork_times times;
    int signal_fd;
};

/* --- from options to parameters ---------------------------------------------
 */

static int fork_make_names(struct fork_cmd *c, struct mote_err *err)
{
    if (!c->o.name)
        return 0;
    c->names = calloc(c->count, sizeof(*c->names));
    c->name_list = calloc(c->count, sizeof(*c->name_list));
    if (!c->names || !c->name_list)
        return lm_err_nomem(err);
    for (size_t i = 0; i < c->count; i++) {
        char text[2 * MOTE_NAME_MAX];
        int rc;

        (void)snprintf(text, sizeof(text), c->count > 1 ? "%.80s-%zu" : "%.80s",
                       c->o.name, i + 1);
        rc = mote_name_check(text, err);
        if (rc)
            return rc;
        memcpy(c->names[i], text, strlen(text) + 1); /* the check bounds it */
        c->name_list[i] = c->names[i];
    }
    return 0;
}

static int fork_make_nets(struct fork_cmd *c, struct mote_err *err)
{
    size_t given = c->o.nets.count;
    bool all_user = given == 1 && !strcmp(c->o.nets.items[0], "user");
    int rc = 0;

    if (given == 0)
        return 0;
    if (given != c->count && !all_user)
        return lm_err(err, -EINVAL,
                      "option --net: given %zu times for %zu copies; give one "
                      "for each, or user for all",
                      given, c->count);
    c->nets = calloc(c->count, sizeof(*c->nets));
    c->net_texts = calloc(c->count, sizeof(*c->net_texts));
    if (!c->nets || !c->net_texts)
        return lm_err_nomem(err);
    for (size_t i = 0; i < c->count && rc == 0; i++)
        rc = net_opts_parse(c->o.nets.items[all_user ? 0 : i], &c->net_texts[i],
                            &c->nets[i], err);
    return rc;
}

static int fork_make(struct fork_cmd *c, const char *name, struct mote_err *err)
{
    int rc;

    c->count = (size_t)c->o.count;
    c->children = calloc(c->count, sizeof(*c->children));
    if (!c->children)
        return lm_err_nomem(err);
    rc = fork_make_names(c, err);
    if (rc == 0)
        rc = fork_make_nets(c, err);
    return rc ? rc : mote_find(name, &c->source, err);
}

static void fork_free(struct fork_cmd *c)
{
    free(c->names);
    free(c->name_list);
    free(c->net_texts);
    free(c->nets);
    free(c->children);
    opts_free(&fork_table, &c->o);
}

/* --- what came of it --------------------------------------------------------
 */

static const char *fork_called(const struct fork_cmd *c, size_t i)
{
    return c->name_list ? c->name_list[i] : mote_vm_id(c->children[i].vm);
}

static json_t *fork_child_json(const struct fork_cmd *c, size_t i)
{
    const struct mote_fork_child *one = &c->children[i];

    if (!one->vm)
        return json_pack("{s:s?, s:s}", "name",
                         c->name_list ? c->name_list[i] : NULL, "error",
                         one->err.text);
    return json_pack("{s:s?, s:s, s:f}", "name",
                     c->name_list ? c->name_list[i] : NULL, "id",
                     mote_vm_id(one->vm), "ready_ms", one->ready_ms);
}

static void fork_print_json(const struct fork_cmd *c)
{
    CLEANUP_FREE char *text = NULL;
    json_t *list = json_array();
    json_t *doc;

    for (size_t i = 0; i < c->count; i++)
        (void)json_array_append_new(list, fork_child_json(c, i));
    doc = json_pack("{s:f, s:f, s:f, s:f, s:f, s:I, s:o}", "waiting_ms",
                    c->times.waiting_ms, "stopped_ms", c->times.stopped_ms,
                    "request_ms", c->times.request_ms, "answers_ms",
                    c->times.answers_ms, "ready_ms", c->times.ready_ms,
                    "copied_bytes", (json_int_t)c->times.copied_bytes,
                    "children", list);
    text =
        doc ? json_dumps(doc, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(doc);
    (void)printf("%s\n", text ? text : "{}");
}

/* How many live; those that do not are told of. */
static size_t fork_tell(const struct fork_cmd *c)
{
    size_t live = 0;

    if (c->o.json)
        fork_print_json(c);
    for (size_t i = 0; i < c->count; i++) {
        if (c->children[i].vm && !c->o.json)
            (void)printf("%s\n", fork_called(c, i));
        if (!c->children[i].vm)
            ui_error("copy %zu: %s", i + 1, c->children[i].err.text);
        live += c->children[i].vm != NULL;
    }
    return live;
}

static void fork_note(void *arg, size_t child, const char *line)
{
    (void)arg;
    ui_error("copy %zu: %s", child + 1, line);
}

/* --- until they have ended --------------------------------------------------
 */

/* Frees those that have ended; true if one of them ended badly. */
static bool fork_sweep(struct fork_cmd *c, const struct pollfd *p)
{
    bool bad = false;

    for (size_t i = 0; i < c->count; i++) {
        struct mote_vm_end end;

        if (!c->children[i].vm || !p[i].revents ||
            mote_vm_wait_end(c->children[i].vm, 0, &end))
            continue;
        if (end.exit_code != 0) {
            ui_error("%s: %s", fork_called(c, i), end.text);
            bad = true;
        }
        mote_vm_free(c->children[i].vm);
        c->children[i].vm = NULL;
    }
    return bad;
}

static int fork_stay(struct fork_cmd *c, size_t live)
{
    struct pollfd *p = calloc(c->count + 1, sizeof(*p));
    bool bad = live < c->count;
    int signo = 0;

    while (p && live > 0 && signo == 0) {
        live = 0;
        for (size_t i = 0; i < c->count; i++) {
            struct mote_vm *vm = c->children[i].vm;

            p[i] = (struct pollfd){.fd = vm ? mote_vm_pidfd(vm) : -1,
                                   .events = POLLIN};
            live += vm != NULL;
        }
        p[c->count] = (struct pollfd){.fd = c->signal_fd, .events = POLLIN};
        if (live == 0 || poll(p, c->count + 1, -1) <= 0)
            continue;
        if (p[c->count].revents)
            signo = signals_next(c->signal_fd);
        bad |= fork_sweep(c, p);
    }
    free(p);
    return signo ? 128 + signo : bad;
}

static void fork_free_children(struct fork_cmd *c)
{
    for (size_t i = 0; c->children && i < c->count; i++)
        mote_vm_free(c->children[i].vm);
}

static int fork_run(struct fork_cmd *c, struct mote_err *err)
{
    const struct mote_fork_params p = {
        .count = c->count,
        .names = c->name_list,
        .nets = c->nets,
        .track_writes = c->o.track_writes,
        .timeout_ms =
            c->o.timeout_ms ? (int)min_u64(c->o.timeout_ms, INT_MAX) : -1,
        .cancel_fd = c->signal_fd,
        .log_fd = -1,
        .note = fork_note,
    };
    int rc = mote_vm_fork(&c->source, &p, c->children, &c->times, err);
    size_t live;
    int code;

    if (rc == -ECANCELED)
        return 128 + signals_next(c->signal_fd);
    if (rc) {
        ui_fail(err, c->o.json);
        return 1;
    }
    live = fork_tell(c);
    code = ui_finish(0);
    if (code == 0)
        code = fork_stay(c, live);
    return code;
}

static int fork_main(const struct cli *cli, int argc, char **argv)
{
    struct fork_cmd c = {.o = {.count = 1, .timeout_ms = 120000},
                         .signal_fd = -1};
    struct mote_err err = {0};
    struct snapshot_words words = {.count = 1};
    int code = EXIT_USAGE;
    int rc;

    (void)cli;
    if (!snapshot_parse(&cmd_fork, argc, argv, &c.o, &words, &code))
        return code;
    c.signal_fd = signals_open();
    machine_raise_nofile();
    rc = c.signal_fd < 0 ? lm_err(&err, c.signal_fd, "signalfd: %s",
                                  err_reason(c.signal_fd))
                         : fork_make(&c, words.at[0], &err);
    if (rc) {
        ui_fail(&err, c.o.json);
        code = 1;
    } else {
        code = fork_run(&c, &err);
    }
    fork_free_children(&c);
    fork_free(&c);
    drop_fd(&c.signal_fd);
    return code;
}

const struct command cmd_fork = {"fork", &fork_table, fork_main};
