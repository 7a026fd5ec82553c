/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/err.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Where helpers lie as seen from the folder of the executable. The data
 * folder of an installation has the guest files at its top.
 */
static const struct {
    const char *below;
    bool flat;
} lm_beside[] = {
    {"", false}, {"/../libexec/mote", false}, {"/../share/mote", true}};

static bool lm_path_try(const char *dir, const char *below, const char *name,
                        char *out)
{
    int n = snprintf(out, MOTE_PATH_CAP, "%s%s/%s", dir, below, name);

    return n > 0 && n < MOTE_PATH_CAP && access(out, F_OK) == 0;
}

static bool lm_path_beside(const char *dir, const char *name, char *out)
{
    static const char guest[] = "guest/";
    size_t skip = strncmp(name, guest, strlen(guest)) ? 0 : strlen(guest);

    for (size_t i = 0; i < ARRAY_SIZE(lm_beside); i++) {
        if (lm_path_try(dir, lm_beside[i].below,
                        name + (lm_beside[i].flat ? skip : 0), out))
            return true;
    }
    return false;
}

int mote_find_file(const char *name, char *out, struct mote_err *err)
{
    const char *chosen = getenv("MOTE_LIBDIR");
    char exe[MOTE_PATH_CAP] = "";
    const char *dir;

    if (chosen && *chosen) {
        if (lm_path_try(chosen, "", name, out))
            return 0;
        return lm_err(err, -ENOENT,
                      "%s: not in MOTE_LIBDIR (%s); unset that variable or "
                      "correct it",
                      name, chosen);
    }
    if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) < 0)
        return lm_err(err, neg_errno(),
                      "/proc/self/exe: unreadable; mount /proc, or set "
                      "MOTE_LIBDIR to the folder of mote-vmm");
    dir = dirname(exe);
    if (lm_path_beside(dir, name, out))
        return 0;
    return lm_err(err, -ENOENT,
                  "%s: not beside %s/ nor in its ../libexec/mote or "
                  "../share/mote; build or install it, or set MOTE_LIBDIR",
                  name, dir);
}
