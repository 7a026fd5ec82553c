/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_MOTE_TERM_H
#define TOOLS_MOTE_TERM_H

/*
 * The user's terminal, our standard descriptors and the signals we take.
 * Threads: one. Errors: -errno.
 */

#include "tools/libmote/mote.h"

#include <termios.h>

/* What standard input is to the command. */
enum input_kind {
    INPUT_NONE,   /* closed or /dev/null: the command sees end of file */
    INPUT_STREAM, /* pipe, file, socket */
    INPUT_TERM,
};

/*
 * Opens /dev/null in the place of closed standard descriptors, so that no
 * descriptor of ours is taken for one. Says what standard input is.
 */
enum input_kind term_open_std(void);

/*
 * Blocks the signals that a session handles and gives a signalfd for those
 * that end it, or -errno: SIGINT, SIGQUIT, SIGHUP, SIGTERM, unless ignored on
 * entry (as under nohup). SIGPIPE is ignored from here on.
 */
int signals_open(void);

/*
 * While a command with a terminal runs, the same descriptor also tells
 * SIGWINCH and SIGTSTP.
 */
void signals_of_tty(int signal_fd, bool on);

/* Takes one signal off the descriptor; 0 if there is none. */
int signals_next(int signal_fd);

struct term {
    struct termios saved;
    bool raw;
};

/* Raw mode on standard input; nothing happens if it is no terminal. */
void term_raw(struct term *t);
void term_restore(struct term *t); /* idempotent */

/* The size of our terminal; 24 by 80 if there is none. */
struct mote_tty_size term_size(void);

/* Whether reading the terminal would stop us, because others own it now. */
bool term_in_background(void);

/* Whether `fd` is a terminal. */
bool term_is_tty(int fd);

#endif
