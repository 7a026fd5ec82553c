/* SPDX-License-Identifier: Apache-2.0 */
/* The field "console_ports" of the section "mote": [{name, path}, ...]. */
#include "vmm/config_int.h"

#include "vmm/unix_listen.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void config_ports_fini(struct vm_config *c)
{
    for (size_t i = 0; i < c->num_ports; i++) {
        free(c->ports[i].name);
        free(c->ports[i].path);
    }
}

/* It becomes a file name in the guest. */
static bool config_port_name_ok(const char *name)
{
    if (strlen(name) > CONFIG_PORT_NAME_MAX || *name == '.')
        return false;
    for (; *name; name++) {
        if (!isalnum((unsigned char)*name) && !strchr("._-", *name))
            return false;
    }
    return true;
}

static int config_check_port(struct config_ctx *x, const char *f,
                             const struct config_port *p)
{
    if (!p->name || !p->path)
        return config_bad(x, f, "a list of objects with name and path");
    if (!config_port_name_ok(p->name))
        return err_set(x->err, -EINVAL,
                       "%s: %s.%s: the name %.64s: at most %u letters, digits, "
                       "dots, dashes and underscores, no dot first",
                       x->file, x->section, f, p->name, CONFIG_PORT_NAME_MAX);
    if (strlen(p->path) > UNIX_LISTEN_PATH_MAX)
        return err_set(x->err, -EINVAL,
                       "%s: %s.%s: path has %zu bytes, a Unix socket takes "
                       "%zu; use a shorter path",
                       x->file, x->section, f, strlen(p->path),
                       UNIX_LISTEN_PATH_MAX);
    for (const struct config_port *o = x->c->ports; o != p; o++) {
        if (!strcmp(o->name, p->name) || !strcmp(o->path, p->path))
            return err_set(x->err, -EINVAL,
                           "%s: %s.%s: two have the name or the path of %s; "
                           "change one",
                           x->file, x->section, f, p->name);
    }
    return 0;
}

static int config_port(struct config_ctx *x, const char *f, json_t *item)
{
    struct config_port *p = &x->c->ports[x->c->num_ports];
    const char *key;
    json_t *v;
    int rc = 0;

    if (!json_is_object(item))
        return config_bad(x, f, "a list of objects with name and path");
    x->c->num_ports++; /* from now on config_fini() frees it */
    json_object_foreach(item, key, v)
    {
        if (!strcmp(key, "name"))
            rc = config_string(x, "console_ports.name", v, &p->name);
        else if (!strcmp(key, "path"))
            rc = config_string(x, "console_ports.path", v, &p->path);
        else
            rc = config_unknown(x, key);
        if (rc)
            return rc;
    }
    return config_check_port(x, f, p);
}

int config_ports(struct config_ctx *x, const char *f, json_t *list)
{
    size_t i;
    json_t *item;
    int rc;

    if (!json_is_array(list))
        return config_bad(x, f, "a list of objects with name and path");
    json_array_foreach(list, i, item)
    {
        if (x->c->num_ports == CONFIG_MAX_PORTS)
            return err_set(x->err, -EINVAL,
                           "%s: %s.%s: %u at most; remove some", x->file,
                           x->section, f, CONFIG_MAX_PORTS);
        rc = config_port(x, f, item);
        if (rc)
            return rc;
    }
    return 0;
}
