/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a machine gives up before its guest runs: the rules about files. They
 * are made with the machine, while files can still be opened, and put into
 * force by machine_start() together with the filters of system calls.
 */
#include "vmm/cleanup.h"
#include "vmm/landlock.h"
#include "vmm/machine_int.h"

/* Those whose files are removed while the machine runs, or at its end. */
static int confine_sockets(int fd, const struct machine *m,
                           const struct vm_config *c)
{
    int rc = c->vsock_path ? landlock_allow_socket(fd, c->vsock_path) : 0;

    if (rc == 0 && m->options.fork_socket)
        rc = landlock_allow_socket(fd, m->options.fork_socket);
    for (size_t i = 0; i < c->num_ports && rc == 0; i++)
        rc = landlock_allow_socket(fd, c->ports[i].path);
    return rc;
}

int machine_confine_prepare(struct machine *m, const struct vm_config *c,
                            struct errmsg *err)
{
    enum landlock_role role =
        m->options.control_socket ? LANDLOCK_API : LANDLOCK_CLOSED;
    CLEANUP_FD int fd = -1;
    int rc;

    if (!m->options.filter_calls)
        return 0;
    rc = landlock_new(role, &fd);
    /* EPERM: a container's own filter knows no such call. */
    if (rc == -ENOSYS || rc == -EOPNOTSUPP || rc == -EPERM) {
        log_msg(m->options.log, LOG_DEBUG,
                "landlock: %s on this host; going on without", err_reason(rc));
        return 0;
    }
    if (rc == 0 && role == LANDLOCK_CLOSED)
        rc = confine_sockets(fd, m, c);
    if (rc)
        return err_set(err, rc, "landlock: %s", err_reason(rc));
    m->rules_fd = take_fd(&fd);
    return 0;
}

int machine_confine(struct machine *m)
{
    int rc;

    if (m->rules_fd < 0)
        return 0;
    rc = landlock_enforce(m->rules_fd);
    drop_fd(&m->rules_fd);
    if (rc == 0)
        log_msg(m->options.log, LOG_DEBUG, "landlock: in force");
    return rc;
}
