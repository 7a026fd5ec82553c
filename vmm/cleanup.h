/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_CLEANUP_H
#define VMM_CLEANUP_H

/*
 * Scope-bound ownership: a local declared CLEANUP_FD or CLEANUP_FREE is
 * released when it leaves scope; take_fd() and take_ptr() hand it on instead.
 * fds that own nothing hold -1.
 */

#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_close(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd); /* nothing useful can be done on failure */
}

static inline void cleanup_free(void *p)
{
    free(*(void **)p);
}

#define CLEANUP_FD   __attribute__((cleanup(cleanup_close)))
#define CLEANUP_FREE __attribute__((cleanup(cleanup_free)))

/* Returns *fd and leaves -1 behind: ownership moves to the caller. */
static inline int take_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

/* Closes *fd if it is open and leaves -1 behind. */
static inline void drop_fd(int *fd)
{
    cleanup_close(fd);
    *fd = -1;
}

/* Evaluates to the pointer and leaves NULL behind. */
#define take_ptr(p)                                                            \
    __extension__({                                                            \
        __typeof__(p) taken_ = (p);                                            \
        (p) = NULL;                                                            \
        taken_;                                                                \
    })

#endif
