/* SPDX-License-Identifier: Apache-2.0 */
/* What a snapshot is made of, and whether it is whole. */
#include "tools/libmote/disk_copy.h"
#include "tools/libmote/snapdir.h"
#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* --- the CPU ---------------------------------------------------------------
 */

/* One leaf of the section "cpuid": le32 function, index, flags, EAX to EDX. */
struct read_leaf {
    uint32_t function, index, flags, reg[4];
};

#define READ_LEAVES_MAX 256

/* Features that people ask for, in the order in which they are told. */
static const struct {
    uint32_t function;
    int reg; /* 0 EAX .. 3 EDX */
    uint32_t bit;
    const char *name;
} read_features[] = {
    {0x1, 3, 26, "sse2"},      {0x1, 2, 0, "sse3"},    {0x1, 2, 13, "cx16"},
    {0x1, 2, 20, "sse4.2"},    {0x1, 2, 23, "popcnt"}, {0x1, 2, 25, "aes"},
    {0x1, 2, 28, "avx"},       {0x7, 1, 5, "avx2"},    {0x7, 1, 16, "avx512f"},
    {0x1, 2, 12, "fma"},       {0x7, 1, 3, "bmi1"},    {0x7, 1, 8, "bmi2"},
    {0x7, 1, 29, "sha"},       {0x1, 2, 30, "rdrand"}, {0x7, 1, 18, "rdseed"},
    {0x80000001, 2, 2, "svm"}, {0x1, 2, 5, "vmx"},
};

static const struct read_leaf *read_find(const struct read_leaf *l, size_t n,
                                         uint32_t function)
{
    for (size_t i = 0; i < n; i++) {
        if (l[i].function == function && l[i].index == 0)
            return &l[i];
    }
    return NULL;
}

static size_t read_leaves(const struct state_file *f, struct read_leaf *out)
{
    struct state_in in;
    size_t n;

    if (state_section(f, "cpuid", 1, &in, NULL))
        return 0;
    n = (size_t)min_u64(state_get_u32(&in), READ_LEAVES_MAX);
    for (size_t i = 0; i < n; i++) {
        out[i].function = state_get_u32(&in);
        out[i].index = state_get_u32(&in);
        out[i].flags = state_get_u32(&in);
        for (int r = 0; r < 4; r++)
            out[i].reg[r] = state_get_u32(&in);
    }
    return in.bad ? 0 : n;
}

/* spec: AMD64 APM 3, CPUID Fn0000_0000 and Fn0000_0001 */
static void read_cpu(const struct state_file *f, char *out, size_t size)
{
    struct read_leaf leaves[READ_LEAVES_MAX];
    size_t n = read_leaves(f, leaves);
    const struct read_leaf *l0 = read_find(leaves, n, 0);
    const struct read_leaf *l1 = read_find(leaves, n, 1);
    uint32_t vendor[3];
    uint32_t a;
    size_t at;

    out[0] = '\0';
    if (!l0 || !l1)
        return;
    vendor[0] = l0->reg[1];
    vendor[1] = l0->reg[3];
    vendor[2] = l0->reg[2];
    a = l1->reg[0];
    (void)snprintf(out, size, "%.12s family %u model %u:", (char *)vendor,
                   (a >> 8 & 15) + ((a >> 8 & 15) == 15 ? a >> 20 & 255 : 0),
                   (a >> 4 & 15) | (a >> 12 & 0xf0));
    for (size_t i = 0; i < 12 && out[i]; i++) {
        if (out[i] < ' ' || out[i] > '~')
            out[i] = '?';
    }
    for (size_t i = 0; i < ARRAY_SIZE(read_features); i++) {
        const struct read_leaf *l =
            read_find(leaves, n, read_features[i].function);

        at = strlen(out);
        if (l && l->reg[read_features[i].reg] >> read_features[i].bit & 1)
            (void)snprintf(out + at, size - at, " %s", read_features[i].name);
    }
}

/* --- devices ---------------------------------------------------------------
 */

static void read_device(struct mote_snapshot_info *out, const char *kind,
                        const char *id)
{
    if (out->device_count < MOTE_SNAPSHOT_MAX_DEVICES)
        (void)snprintf(out->devices[out->device_count++],
                       sizeof(out->devices[0]), "%s%s%s", kind, id ? ":" : "",
                       id ? id : "");
}

static void read_device_list(struct mote_snapshot_info *out, json_t *config,
                             const char *section, const char *kind,
                             const char *key)
{
    size_t i;
    json_t *item;

    json_array_foreach(json_object_get(config, section), i, item)
    {
        read_device(out, kind, json_string_value(json_object_get(item, key)));
    }
}

static void read_devices(struct mote_snapshot_info *out, json_t *config)
{
    static const char *const single[] = {"vsock", "entropy", "balloon"};

    read_device_list(out, config, "drives", "block", "drive_id");
    read_device_list(out, config, "network-interfaces", "net", "iface_id");
    for (size_t i = 0; i < ARRAY_SIZE(single); i++) {
        if (json_is_object(json_object_get(config, single[i])))
            read_device(out, single[i], NULL);
    }
}

/* --- all of it -------------------------------------------------------------
 */

static uint64_t read_stored(int dir_fd, const char *file)
{
    struct stat st;

    if (fstatat(dir_fd, file, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    return (uint64_t)st.st_blocks * 512;
}

static void read_disks(struct mote_snapshot_info *out, const struct snapdir *d)
{
    out->disk_count = d->meta.disk_count;
    for (size_t i = 0; i < d->meta.disk_count; i++) {
        const struct snapdir_disk *from = &d->meta.disks[i];
        struct mote_snapshot_disk *to = &out->disks[i];

        (void)snprintf(to->id, sizeof(to->id), "%s", from->id);
        to->read_only = !from->file[0];
        to->size_bytes = from->size_bytes;
        if (to->read_only) {
            (void)snprintf(to->path, sizeof(to->path), "%s", from->path);
        } else {
            (void)snprintf(to->path, sizeof(to->path), "%s/%s", d->path,
                           from->file);
            to->stored_bytes = read_stored(d->dir_fd, from->file);
        }
    }
}

static void read_fill(struct mote_snapshot_info *out, const struct snapdir *d)
{
    json_t *machine = json_object_get(d->config, "machine-config");

    memcpy(out->id, d->meta.id, sizeof(out->id));
    if (d->mem.kind == SNAP_DIFF)
        snapdir_id_text(d->mem.parent, out->parent);
    (void)snprintf(out->name, sizeof(out->name), "%s", d->meta.name);
    out->created_ms = d->meta.created_ms;
    out->vcpus =
        (unsigned)json_integer_value(json_object_get(machine, "vcpu_count"));
    if (out->vcpus == 0)
        out->vcpus = 1; /* the default of a configuration file */
    out->track_writes =
        json_is_true(json_object_get(machine, "track_dirty_pages"));
    out->mem_bytes = d->mem.ram_bytes;
    out->mem_stored_bytes = read_stored(d->dir_fd, SNAPDIR_MEMORY);
    out->state_bytes = d->data_bytes;
    read_cpu(&d->state, out->cpu, sizeof(out->cpu));
    read_devices(out, d->config);
    read_disks(out, d);
}

int mote_snapshot_read(const char *dir, struct mote_snapshot_info **out,
                       struct mote_err *err)
{
    struct mote_snapshot_info *info;
    struct snapdir d;
    int rc = snapdir_open(&d, dir, err);

    if (rc)
        return rc;
    info = calloc(1, sizeof(*info));
    if (info)
        read_fill(info, &d);
    else
        rc = lm_err_nomem(err);
    snapdir_close(&d);
    *out = info;
    return rc;
}

/* --- verify ----------------------------------------------------------------
 */

struct verify {
    struct snapdir d;
    uint64_t done, total;
    bool (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

static int verify_step(struct verify *v, uint64_t bytes, struct mote_err *err)
{
    v->done += bytes;
    if (!v->progress || v->progress(v->arg, v->done, v->total))
        return 0;
    return lm_err(err, -ECANCELED, "%s: the check was cancelled", v->d.path);
}

static int verify_chunks(struct verify *v, char *buf, struct mote_err *err)
{
    CLEANUP_FREE char *path = snapdir_file(&v->d, SNAPDIR_MEMORY);
    struct errmsg e = {{0}};
    int rc = path ? 0 : lm_err_nomem(err);

    for (uint32_t i = 0; i < v->d.mem.num_chunks && rc == 0; i++) {
        rc = snap_mem_verify_chunk(&v->d.mem, v->d.mem_fd, i, buf, path, &e);
        if (rc)
            return lm_err(err, rc, "%s", e.text);
        rc = verify_step(v, SNAP_CHUNK, err);
    }
    return rc;
}

static int verify_memory(struct verify *v, struct mote_err *err)
{
    char *buf = malloc(SNAP_CHUNK);
    int rc;

    if (!buf)
        return lm_err_nomem(err);
    rc = verify_chunks(v, buf, err);
    free(buf);
    return rc;
}

static int verify_disk(struct verify *v, const struct snapdir_disk *d,
                       struct mote_err *err)
{
    CLEANUP_FD int fd =
        openat(v->d.dir_fd, d->file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    uint64_t size = 0;
    uint32_t crc = 0;
    int rc = fd < 0 ? neg_errno() : lm_disk_size(fd, &size);

    if (rc == 0)
        rc = lm_disk_sum(fd, size, &crc, -1);
    if (rc)
        return lm_err(err, rc, "%s/%s: %s", v->d.path, d->file, err_reason(rc));
    if (size != d->size_bytes || crc != d->crc)
        return lm_err(err, -EBADMSG,
                      "%s/%s: the copy of disk %s is damaged: its %s is wrong",
                      v->d.path, d->file, d->id,
                      size != d->size_bytes ? "size" : "checksum");
    return verify_step(v, size, err);
}

int mote_snapshot_verify(const char *dir,
                         bool (*progress)(void *arg, uint64_t done_bytes,
                                          uint64_t total_bytes),
                         void *arg, struct mote_err *err)
{
    struct verify v = {.progress = progress, .arg = arg};
    int rc = snapdir_open(&v.d, dir, err);

    if (rc)
        return rc;
    v.total = (uint64_t)v.d.mem.num_chunks * SNAP_CHUNK;
    for (size_t i = 0; i < v.d.meta.disk_count; i++)
        v.total += v.d.meta.disks[i].file[0] ? v.d.meta.disks[i].size_bytes : 0;
    rc = verify_memory(&v, err);
    for (size_t i = 0; i < v.d.meta.disk_count && rc == 0; i++) {
        if (v.d.meta.disks[i].file[0])
            rc = verify_disk(&v, &v.d.meta.disks[i], err);
    }
    snapdir_close(&v.d);
    return rc;
}
