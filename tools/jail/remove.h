/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JAIL_REMOVE_H
#define JAIL_REMOVE_H

/*
 * Empties a directory that a hostile process has filled. By descriptors and
 * names of one component: no link is followed, no mount entered.
 */

#include "vmm/util.h"

enum remove_what {
    REMOVE_SOCKETS,      /* only Unix sockets at the top and in its run */
    REMOVE_ALL_BUT_DATA, /* not what would be lost: regular files that have
                            bytes and no second name */
    REMOVE_ALL,
};

/* Returns how many files stay. */
unsigned remove_inside(int dir_fd, enum remove_what what);

#endif
