/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/net_opts.h"

#include "vmm/util.h"

#include <stdio.h>
#include <string.h>

#define NET_OPTS_MAX_QUEUES 4

static int net_opts_bad(const char *value, struct mote_err *err)
{
    return lm_err(err, -EINVAL,
                  "option --net '%.80s': use none, user, or "
                  "tap=NAME[,ip=ADDRESS/BITS][,gw=ADDRESS][,dns=ADDRESS]"
                  "[,queues=N]",
                  value);
}

/* "a+b+c", cut in place. */
static int net_opts_without(char *list, struct net_opts *o,
                            struct mote_net_params *out)
{
    size_t n = 0;
    char *save = NULL;

    for (char *w = strtok_r(list, "+", &save); w;
         w = strtok_r(NULL, "+", &save)) {
        if (n == NET_OPTS_WITHOUT)
            return -EINVAL;
        o->without[n++] = w;
    }
    o->without[n] = NULL;
    out->without = o->without;
    return n > 0 ? 0 : -EINVAL;
}

static int net_opts_word(char *word, struct net_opts *o,
                         struct mote_net_params *out)
{
    char *value = strchr(word, '=');
    uint64_t queues = 0;
    int rc;

    if (!value || !value[1])
        return -EINVAL;
    *value++ = '\0';
    if (!strcmp(word, "tap") && !out->tap)
        out->tap = value;
    else if (!strcmp(word, "ip"))
        out->address = value;
    else if (!strcmp(word, "gw"))
        out->gateway = value;
    else if (!strcmp(word, "dns"))
        out->resolver = value;
    else if (!strcmp(word, "without"))
        return net_opts_without(value, o, out);
    else if (!strcmp(word, "queues")) {
        rc = util_parse_u64(value, 1, NET_OPTS_MAX_QUEUES, &queues);
        out->queue_pairs = (unsigned)queues;
        return rc;
    } else {
        return -EINVAL;
    }
    return 0;
}

int net_opts_parse(const char *value, struct net_opts *o,
                   struct mote_net_params *out, struct mote_err *err)
{
    char *save = NULL;

    memset(out, 0, sizeof(*out));
    if (!value || !strcmp(value, "none"))
        return 0;
    if (!strcmp(value, "user")) {
        out->kind = MOTE_NET_USER;
        return 0;
    }
    if (strncmp(value, "tap=", 4) != 0 || strlen(value) >= sizeof(o->text))
        return net_opts_bad(value, err);
    (void)snprintf(o->text, sizeof(o->text), "%s", value);
    out->kind = MOTE_NET_TAP;
    for (char *w = strtok_r(o->text, ",", &save); w;
         w = strtok_r(NULL, ",", &save)) {
        if (net_opts_word(w, o, out))
            return net_opts_bad(value, err);
    }
    if ((out->gateway || out->resolver) && !out->address)
        return lm_err(err, -EINVAL,
                      "option --net '%.80s': gw and dns need ip as well",
                      value);
    return 0;
}
