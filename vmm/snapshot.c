/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/snapshot.h"

#include "vmm/cleanup.h"
#include "vmm/dirty.h"
#include "vmm/snapshot_pair.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG_VERSION 1u

/* --- writing ----------------------------------------------------------------
 */

int snapshot_save_config(json_t *doc, struct state_out *out, struct errmsg *err)
{
    char *text = json_dumps(doc, JSON_COMPACT);

    if (!text)
        return err_set(err, -ENOMEM, "out of memory");
    state_begin(out, "config", CONFIG_VERSION);
    state_put_bytes(out, text, strlen(text));
    state_end(out);
    free(text);
    return 0;
}

/* One range of memory, cut at the borders of chunks. */
static int snapshot_write_range(struct snap_mem *mem,
                                const struct guest_mem *gm, int fd,
                                uint64_t from, uint64_t to)
{
    int rc = 0;

    while (from < to && rc == 0) {
        uint64_t end = min_u64(to, (from / SNAP_CHUNK + 1) * SNAP_CHUNK);

        rc = snap_mem_write(mem, fd, from, gm_linear(gm, from, end - from),
                            end - from);
        from = end;
    }
    return rc;
}

static int snapshot_write_full(struct snap_mem *mem, const struct guest_mem *gm,
                               int fd)
{
    uint64_t from = 0;
    uint64_t to = 0;
    int rc = 0;

    while (rc == 0 && gm_next_data(gm, to, &from, &to))
        rc = snapshot_write_range(mem, gm, fd, from, to);
    return rc;
}

/* Chunks without a bit are not even looked at. */
static int snapshot_write_diff(struct snap_mem *mem, const struct guest_mem *gm,
                               int fd)
{
    const uint64_t words = SNAP_CHUNK / SNAP_PAGE / 64;
    int rc = 0;

    for (uint64_t i = 0; i < mem->num_chunks && rc == 0; i++) {
        uint64_t from = i * SNAP_CHUNK;
        uint64_t any = 0;

        for (uint64_t w = 0; w < words; w++)
            any |= mem->bits[i * words + w];
        if (any)
            rc = snapshot_write_range(
                mem, gm, fd, from, min_u64(from + SNAP_CHUNK, mem->ram_bytes));
    }
    return rc;
}

static int snapshot_write_mem(struct snap_mem *mem, struct machine *m, int fd,
                              const uint8_t *id, const char *path,
                              struct errmsg *err)
{
    const struct guest_mem *gm = machine_mem(m);
    int rc;

    if (ftruncate(fd, (off_t)(mem->ram_bytes + SNAP_PAGE)) < 0)
        rc = neg_errno();
    else if (mem->kind == SNAP_DIFF)
        rc = snapshot_write_diff(mem, gm, fd);
    else
        rc = snapshot_write_full(mem, gm, fd);
    if (rc == 0)
        rc = snap_mem_write_trailer(mem, fd, id);
    return rc ? err_set(err, rc, "%s: %s", path, err_reason(rc)) : 0;
}

/* A diff needs something to build on, and a record of what was written since;
 * without either all of the memory is written. */
static int snapshot_begin_mem(struct snap_mem *mem, struct machine *m,
                              bool want_diff, const struct snapshot_base *base,
                              struct errmsg *err)
{
    struct dirty *d = machine_dirty(m);
    bool diff = want_diff && d->on && base->there;
    int rc = d->on ? dirty_collect(d, true, err) : 0;

    if (rc == 0)
        rc = snap_mem_init(mem, diff ? SNAP_DIFF : SNAP_FULL,
                           gm_ram_bytes(machine_mem(m)), err);
    if (rc || !diff)
        return rc;
    memcpy(mem->bits, d->bits, d->words * sizeof(*mem->bits));
    memcpy(mem->parent, base->id, sizeof(mem->parent));
    return 0;
}

static int snapshot_write(struct machine *m, const struct snapshot_args *args,
                          struct snap_mem *mem, struct state_out *out,
                          const uint8_t *id, struct errmsg *err)
{
    struct snap_pair pair;
    int rc = snap_pair_begin(&pair, args->state_path, args->mem_path, err);

    if (rc)
        return rc;
    rc = snapshot_write_mem(mem, m, pair.mem_fd, id, args->mem_path, err);
    if (rc == 0) {
        snap_mem_save(mem, out);
        rc = state_finish(out, id);
        if (rc)
            rc = err_set(err, rc, "out of memory");
    }
    if (rc == 0)
        return snap_pair_commit(&pair, out->data, out->len_bytes, err);
    snap_pair_abort(&pair);
    return rc;
}

int snapshot_create(struct machine *m, const struct snapshot_args *args,
                    struct snapshot_base *base, struct errmsg *err)
{
    uint8_t id[STATE_ID_BYTES];
    struct snap_mem mem = {.crc = NULL};
    struct state_out out;
    int rc;

    if (getrandom(id, sizeof(id), 0) != (ssize_t)sizeof(id))
        return err_set(err, -EIO, "the host gave no random bytes");
    state_out_init(&out);
    rc = snapshot_save_config(args->doc, &out, err);
    if (rc == 0)
        rc = machine_save(m, &out, err);
    if (rc == 0)
        rc = snapshot_begin_mem(&mem, m, args->diff, base, err);
    if (rc == 0)
        rc = snapshot_write(m, args, &mem, &out, id, err);
    if (rc == 0) {
        dirty_clear(machine_dirty(m));
        memcpy(base->id, id, sizeof(id));
        base->there = true;
    }
    snap_mem_fini(&mem);
    state_out_fini(&out);
    return rc;
}

/* --- reading ----------------------------------------------------------------
 */

static int snapshot_read_config(struct snapshot *s, struct errmsg *err)
{
    struct state_in in;
    json_error_t je;
    int rc = state_section(&s->file, "config", CONFIG_VERSION, &in, err);

    if (rc)
        return rc;
    s->doc = json_loadb((const char *)in.at, (size_t)(in.end - in.at),
                        JSON_REJECT_DUPLICATES, &je);
    if (!json_is_object(s->doc))
        return err_set(err, -EBADMSG,
                       "the configuration in the saved state is no JSON: %s",
                       je.text);
    return 0;
}

static int snapshot_open_mem(struct snapshot *s, const char *mem_path,
                             struct errmsg *err)
{
    int rc = snap_mem_load(&s->mem, &s->file, err);

    if (rc)
        return rc;
    if (s->mem.kind == SNAP_DIFF)
        return err_set(err, -EBADMSG,
                       "this snapshot is a diff: merge it with the one before "
                       "it first (mote snapshot merge)");
    return mem_path ? snap_pair_open_mem(mem_path, &s->mem, &s->file,
                                         &s->mem_fd, err)
                    : 0;
}

int snapshot_open(struct snapshot *s, const char *state_path,
                  const char *mem_path, struct errmsg *err)
{
    size_t len = 0;
    int rc;

    memset(s, 0, sizeof(*s));
    s->mem_fd = -1;
    rc = snap_read_state(state_path, &s->data, &len, err);
    if (rc == 0) {
        struct errmsg why = {""};

        rc = state_open(&s->file, s->data, len, &why);
        if (rc)
            rc = err_set(err, rc, "%s: %s", state_path, why.text);
    }
    if (rc == 0)
        rc = snapshot_open_mem(s, mem_path, err);
    if (rc == 0)
        rc = snapshot_read_config(s, err);
    if (rc)
        snapshot_close(s);
    return rc;
}

/* A file that could still be cut would end us by SIGBUS one day. */
static int snapshot_check_sealed(int fd, uint64_t *out_bytes,
                                 struct errmsg *err)
{
    const int want = F_SEAL_SHRINK | F_SEAL_WRITE;
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    if (seals < 0 || (seals & want) != want || fstat(fd, &st) < 0 ||
        st.st_size <= 0)
        return err_set(err, -EBADMSG,
                       "the machine that was handed over is not "
                       "in sealed memory");
    *out_bytes = (uint64_t)st.st_size;
    return 0;
}

static int snapshot_read_fork(struct snapshot *s, int state_fd, int mem_fd,
                              struct errmsg *err)
{
    uint64_t len = 0;
    int rc = snapshot_check_sealed(mem_fd, &s->mem.ram_bytes, err);

    if (rc == 0)
        rc = snapshot_check_sealed(state_fd, &len, err);
    if (rc)
        return rc;
    if (len > SNAP_STATE_MAX)
        return err_set(err, -EBADMSG,
                       "the state that was handed over is too "
                       "long");
    s->data = malloc(len + 1);
    if (!s->data)
        return err_set(err, -ENOMEM, "out of memory");
    rc = util_pread_full(state_fd, s->data, len, 0);
    if (rc)
        return err_set(err, rc, "reading the state: %s", err_reason(rc));
    return state_open(&s->file, s->data, len, err);
}

int snapshot_open_fork(struct snapshot *s, int state_fd, int mem_fd,
                       struct errmsg *err)
{
    int rc;

    memset(s, 0, sizeof(*s));
    s->mem_fd = -1;
    rc = snapshot_read_fork(s, state_fd, mem_fd, err);
    if (rc == 0)
        rc = snapshot_read_config(s, err);
    if (rc == 0) {
        s->mem_fd = fcntl(mem_fd, F_DUPFD_CLOEXEC, 0);
        if (s->mem_fd < 0)
            rc = err_set(err, neg_errno(),
                         "the memory that was handed over: "
                         "no descriptor is free");
    }
    if (rc)
        snapshot_close(s);
    return rc;
}

void snapshot_close(struct snapshot *s)
{
    drop_fd(&s->mem_fd);
    json_decref(s->doc);
    s->doc = NULL;
    snap_mem_fini(&s->mem);
    free(s->data);
    s->data = NULL;
}
