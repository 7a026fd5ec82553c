/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_LIBMOTE_RUNDIR_H
#define TOOLS_LIBMOTE_RUNDIR_H

/*
 * The run-time directory of one user, and the slots of machines in it.
 *
 *   ROOT/lock           held for the moment in which slots come and go
 *   ROOT/names/NAME     symbolic link to ../vm/ID
 *   ROOT/vm/ID/lock     held (flock) by the machine's owner while it lives
 *   ROOT/vm/ID/...      its files; vm.json describes it, `ready` says so
 *
 * A slot whose lock nobody holds is the remains of a dead owner: whoever
 * comes across it may remove it. ROOT is $MOTE_RUNTIME_DIR if set, else
 * /run/mote for root, $XDG_RUNTIME_DIR/mote, or /tmp/mote-UID: always a
 * directory of mode 0700 that belongs to the caller, and never a link.
 *
 * Ownership: structs are the caller's and own their fds. Threads: one each;
 * processes exclude each other by the locks. Errors: -errno with `err`.
 */

#include "tools/libmote/err.h"

/* Longest ROOT for which "/vm/ID/run/vsock.sock_4294967295" is a socket path.
 */
#define LM_ROOT_MAX 65

struct lm_rundir {
    char path[LM_ROOT_MAX + 1];
    int fd;
    int vm_fd;    /* ROOT/vm */
    int names_fd; /* ROOT/names */
};

#define LM_RUNDIR_CLOSED                                                       \
    ((struct lm_rundir){.fd = -1, .vm_fd = -1, .names_fd = -1})

/* Opens the directory, making what is missing. */
int lm_rundir_open(struct lm_rundir *rd, struct mote_err *err) MUST_CHECK;
void lm_rundir_close(struct lm_rundir *rd); /* idempotent */

struct lm_slot {
    char id[MOTE_ID_LEN + 1];
    char name[MOTE_NAME_MAX + 1]; /* "" = none */
    char path[LM_ROOT_MAX + 4 + MOTE_ID_LEN + 1];
    char run_path[LM_ROOT_MAX + 4 + MOTE_ID_LEN + 1 + 4];
    int dir_fd;
    int run_fd;  /* what the monitor writes to: the slot itself, or its run/ */
    int lock_fd; /* holds ROOT/vm/ID/lock */
};

#define LM_SLOT_CLOSED                                                         \
    ((struct lm_slot){.dir_fd = -1, .run_fd = -1, .lock_fd = -1})

#define LM_RUN_DIR "run"

/*
 * Makes a slot and, if `name` is not NULL, registers that name for it.
 * -EEXIST if the name has a live owner, -EINVAL if it is no name.
 */
int lm_slot_new(struct lm_rundir *rd, const char *name, struct lm_slot *out,
                struct mote_err *err) MUST_CHECK;

/*
 * Makes a directory of its own for what the monitor writes to, with links to
 * its sockets `names` (NULL-terminated) in the slot.
 */
int lm_slot_split(struct lm_slot *slot, const char *const *names,
                  struct mote_err *err) MUST_CHECK;

/* Removes the slot's files, directory and name. Idempotent. */
void lm_slot_remove(struct lm_rundir *rd, struct lm_slot *slot);

/* Writes a file of the slot so that a reader finds all of it or none. */
int lm_slot_write(const struct lm_slot *slot, const char *file,
                  const char *text, struct mote_err *err) MUST_CHECK;

/* Whether somebody lives in slot `id`: 1 yes, 0 no (or no such slot). */
int lm_slot_alive(const struct lm_rundir *rd, const char *id);

/* Removes the slots of dead owners, and names that lead nowhere. */
void lm_rundir_reap(struct lm_rundir *rd);

/* The id behind a name or an id. -ENOENT. `out` has MOTE_ID_LEN + 1 bytes. */
int lm_rundir_lookup(const struct lm_rundir *rd, const char *name_or_id,
                     char *out) MUST_CHECK;

/* Whether this could be an id (it need not exist). */
bool lm_id_valid(const char *id);

/* The whole of a small text file under dir_fd, or NULL. For free(). */
char *lm_read_file(int dir_fd, const char *file, size_t max_bytes);

#endif
