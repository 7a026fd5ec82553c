/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/doctor.h"

#include "tools/libmote/jail.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* Only trying tells: a monitor that prints its version, in a jail. */
static int jail_try(const struct lm_slot *slot, struct lm_jail *jail,
                    struct mote_err *err)
{
    static const char *const words[] = {"--version", NULL};
    char program[MOTE_PATH_CAP];
    struct lm_launch l = {.program = program,
                          .slot = slot,
                          .words = words,
                          .console_fd = -1,
                          .log_fd = -1};
    int status = 0;
    pid_t pid = 0;
    int rc = mote_find_file("mote-vmm", program, err);

    if (rc == 0)
        rc = lm_jail_choose(NULL, jail, err);
    if (rc == 0)
        rc = lm_jail_give(jail, AT_FDCWD, slot->run_path, err);
    if (rc == 0)
        rc = lm_launch_jailed(&l, jail, &pid, err);
    if (rc)
        return rc;
    if (waitpid(pid, &status, 0) != pid || status != 0)
        return lm_err(err, -ECHILD, "mote-vmm --version fails in it");
    return 0;
}

void doctor_jail(const struct doctor *d, struct check *c)
{
    struct lm_slot slot = LM_SLOT_CLOSED;
    struct lm_jail jail = {0};
    struct mote_err err = {0};
    int rc;

    (void)d;
    (void)snprintf(slot.id, sizeof(slot.id), "doctor");
    (void)snprintf(slot.run_path, sizeof(slot.run_path),
                   "/tmp/mote-doctor-XXXXXX");
    if (!mkdtemp(slot.run_path)) {
        check_set(c, CHECK_WARNING, "", "/tmp: %s", err_reason(neg_errno()));
        return;
    }
    rc = jail_try(&slot, &jail, &err);
    (void)rmdir(slot.run_path);
    if (rc)
        check_set(c, CHECK_WARNING,
                  "machines run without one; allow user namespaces and mounts, "
                  "or run as root",
                  "%.300s", err.text);
    else if (jail.uid)
        check_set(c, CHECK_OK, "", "each monitor gets a user of its own");
    else
        check_set(c, CHECK_OK, "", "in a user namespace");
}
