/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_EVLOOP_INT_H
#define VMM_EVLOOP_INT_H

/*
 * Between evloop.c and its two back ends; nobody else includes this.
 *
 * A slot stands for one ev_fd or ev_counter. It outlives the caller's struct
 * while a kernel operation still refers to it (`in_flight`), so that removing
 * a watch never has to wait.
 */

#include "vmm/evloop.h"

enum ev_slot_kind { EV_SLOT_FREE, EV_SLOT_FD, EV_SLOT_COUNTER, EV_SLOT_ZOMBIE };

struct ev_slot {
    enum ev_slot_kind kind;
    uint32_t index;
    uint32_t generation; /* counts the uses of this slot */
    uint32_t next_free;  /* 0 ends the list */
    bool in_flight;      /* the kernel watches (io_uring: one operation) */
    bool cancelling;     /* io_uring: that operation's cancel is queued */
    bool stale;          /* io_uring: the operation has the old events */
    bool quiet;          /* io_uring: the operation stays, see there */
    bool pending;        /* io_uring: in the list of slots to look at */
    uint32_t next_pending;
    bool always_ready; /* epoll: a regular file, which epoll refuses */
    uint64_t count;    /* io_uring: where an eventfd's counter is read to */
    union {
        struct ev_fd *w;
        struct ev_counter *c;
    } owner;
};

struct evloop_ops {
    enum evloop_backend backend;
    /* Called once on the thread that runs the loop, before the first turn. */
    int (*start)(struct evloop *loop);
    void (*fini)(struct evloop *loop);
    int (*arm)(struct evloop *loop, struct ev_slot *s);
    int (*rearm)(struct evloop *loop, struct ev_slot *s); /* events changed */
    /* The slot's kind is ZOMBIE already; its fd is passed along. */
    void (*disarm)(struct evloop *loop, struct ev_slot *s, int fd);
    void (*submit)(struct evloop *loop, struct ev_io *io);
    /* Waits at most timeout_ns (UINT64_MAX: for ever) and runs callbacks. */
    int (*turn)(struct evloop *loop, uint64_t timeout_ns);
};

extern const struct evloop_ops evloop_uring_ops;
extern const struct evloop_ops evloop_epoll_ops;

int evloop_uring_init(struct evloop *loop, void **out_priv) MUST_CHECK;
int evloop_epoll_init(struct evloop *loop, void **out_priv) MUST_CHECK;

/* The next eventfd that waits to be raised; -1: none. */
int evloop_take_signal(struct evloop *loop);
void evloop_write_signal(int fd); /* raises it with a system call */

/* Carries out a request by a plain system call; bytes or -errno. */
int32_t evloop_do_io(const struct ev_io *io);

void *evloop_priv(struct evloop *loop);
struct ev_slot *evloop_slot(struct evloop *loop, uint32_t index);
uint32_t evloop_slot_limit(const struct evloop *loop); /* indices are below */
void evloop_slot_release(struct evloop *loop, struct ev_slot *s);

#endif
