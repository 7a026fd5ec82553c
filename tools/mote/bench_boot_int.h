/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_BENCH_BOOT_INT_H
#define TOOLS_MOTE_BENCH_BOOT_INT_H

/* Between bench_boot_run.c (a boot's course), bench_boot_words.c (command
 * lines) and bench_boot_vsock.c (what the agent tells). */

#include "tools/libmote/chan.h"
#include "tools/mote/bench_boot_run.h"

#define BOOT_MAX_WORDS    48
#define BOOT_LIFELINE_FD  3
#define BOOT_KVMTOOL_WORD "usage: mote-agent" /* /init's, see there */

/* A command line; the words that had to be made lie in `text`. */
struct boot_words {
    const char *v[BOOT_MAX_WORDS + 1];
    size_t n;
    char text[8][MOTE_PATH_CAP + 128];
    size_t texts;
};

/* `dir` holds config.json, exit.json and v.sock. */
int boot_words(struct boot_words *w, const struct boot_monitor *m,
               const struct boot_guest *g, const char *dir, uint64_t start_us,
               struct mote_err *err) MUST_CHECK;
/* The kernel command line; without what a monitor adds by itself. */
const char *boot_guest_words(enum boot_kind kind);

/* A boot under way. */
struct boot_live {
    const struct boot_guest *g;
    struct boot_result *r;
    char dir[32];
    char vsock[48];
    uint64_t start_ns;
    uint64_t deadline_ns;
    pid_t pid;
    int pidfd;
    int out_fd; /* its standard output */
    int listen_fd;
    int lifeline_fd;
};

/* Waits on `fd` beside the monitor's end, signals and the deadline. */
int boot_wait(const struct boot_live *b, int fd, short events,
              struct mote_err *err) MUST_CHECK;
double boot_ms(const struct boot_live *b, uint64_t ns);

/* Opens the socket that the agent reports to. */
int boot_listen(struct boot_live *b, struct mote_err *err) MUST_CHECK;
/* Until the agent is ready and a command has said something. */
int boot_talk(struct boot_live *b, struct mote_err *err) MUST_CHECK;

#endif
