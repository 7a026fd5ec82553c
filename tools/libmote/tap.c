/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/tap.h"

#include <linux/capability.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

long lm_tap_owner(const char *name)
{
    char path[128];
    long owner = -1;
    FILE *f;

    (void)snprintf(path, sizeof(path), "/sys/class/net/%.32s/owner", name);
    f = fopen(path, "re");
    /* NOLINTNEXTLINE(cert-err34-c): the kernel wrote it */
    if (!f || fscanf(f, "%ld", &owner) != 1)
        owner = -1;
    if (f)
        (void)fclose(f);
    return owner;
}

static bool tap_is_admin(void)
{
    struct __user_cap_header_struct head = {.version =
                                                _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

    return syscall(SYS_capget, &head, data) == 0 &&
           (data[CAP_TO_INDEX(CAP_NET_ADMIN)].effective &
            CAP_TO_MASK(CAP_NET_ADMIN));
}

int lm_tap_check(const char *name, struct mote_err *err)
{
    long owner = lm_tap_owner(name);

    if (owner < 0 || (uid_t)owner == geteuid() || tap_is_admin())
        return 0;
    return lm_err(err, -EPERM,
                  "network interface %s: belongs to user %ld, not to %u; make "
                  "one for this user (ip tuntap add %s mode tap user %u) or "
                  "run with CAP_NET_ADMIN",
                  name, owner, (unsigned)geteuid(), name, (unsigned)geteuid());
}
