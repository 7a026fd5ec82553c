/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/exit_port.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct exit_port {
    struct exit_port_args args; /* immutable */
    /* guarded by lock */
    pthread_mutex_t lock;
    size_t num_marks;
    struct exit_port_mark marks[EXIT_PORT_MAX_MARKS];
};

static void exit_port_stop(const struct exit_port *p, enum stop_reason reason,
                           uint32_t detail)
{
    p->args.stop.request_stop(p->args.stop.arg, reason, detail);
}

static void exit_port_end(const struct exit_port *p, uint8_t g_reason)
{
    switch (g_reason) {
    case EXIT_PORT_POWEROFF:
        exit_port_stop(p, STOP_POWEROFF, 0);
        break;
    case EXIT_PORT_REBOOT:
        exit_port_stop(p, STOP_REBOOT, 0);
        break;
    case EXIT_PORT_HALT:
        exit_port_stop(p, STOP_HALT, 0);
        break;
    case EXIT_PORT_PANIC:
        exit_port_stop(p, STOP_PANIC, 0);
        break;
    default:
        break; /* no reason to end */
    }
}

/* When the list is full, later marks are dropped: the first ones count. */
static void exit_port_note(struct exit_port *p, uint8_t mark)
{
    uint64_t now = util_now_ns();
    bool noted = false;

    (void)pthread_mutex_lock(&p->lock);
    if (p->num_marks < EXIT_PORT_MAX_MARKS) {
        p->marks[p->num_marks].at_ns = now - p->args.start_ns;
        p->marks[p->num_marks].mark = mark;
        p->num_marks++;
        noted = true;
    }
    (void)pthread_mutex_unlock(&p->lock);
    if (noted && p->args.mark)
        p->args.mark(p->args.mark_arg, mark);
}

static void exit_port_read(void *dev, uint64_t off, void *data, uint32_t len)
{
    (void)dev; /* `data` comes zeroed, and so it stays */
    (void)off;
    (void)data;
    (void)len;
}

static void exit_port_write(void *dev, uint64_t off, const void *data,
                            uint32_t len)
{
    struct exit_port *p = dev;
    uint8_t v;

    if (len != 1)
        return;
    memcpy(&v, data, 1);
    if (off == EXIT_PORT_REASON)
        exit_port_end(p, v);
    else if (off == EXIT_PORT_TEST && p->args.test_enabled)
        exit_port_stop(p, STOP_TEST, v);
    else if (off == EXIT_PORT_MARK)
        exit_port_note(p, v);
}

const struct bus_ops exit_port_bus_ops = {
    .name = "exit port",
    .read = exit_port_read,
    .write = exit_port_write,
};

int exit_port_new(const struct exit_port_args *args,
                  struct exit_port **out_port)
{
    struct exit_port *p = calloc(1, sizeof(*p));

    if (!p)
        return -ENOMEM;
    p->args = *args;
    (void)pthread_mutex_init(&p->lock, NULL); /* never fails on Linux */
    *out_port = p;
    return 0;
}

void exit_port_free(struct exit_port *port)
{
    if (!port)
        return;
    (void)pthread_mutex_destroy(&port->lock);
    free(port);
}

size_t exit_port_marks(struct exit_port *port, struct exit_port_mark *out,
                       size_t max)
{
    size_t n;

    (void)pthread_mutex_lock(&port->lock);
    n = port->num_marks < max ? port->num_marks : max;
    memcpy(out, port->marks, n * sizeof(*out));
    (void)pthread_mutex_unlock(&port->lock);
    return n;
}
