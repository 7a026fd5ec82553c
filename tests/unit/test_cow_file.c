/* SPDX-License-Identifier: Apache-2.0 */
/* Copy-on-write files by path: made, opened, refused, merged. */
#include "vmm/cow_merge.h"

#include "tests/harness/cow_rig.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLUSTER    65536u
#define BASE_BYTES (3 * CLUSTER + 512)
#define MANY_BYTES (5000ull * CLUSTER) /* two sectors of bitmap */

struct fixture {
    char dir[64];
    char path[3][128]; /* base, a, b */
    struct errmsg err;
    uint8_t base[BASE_BYTES];
};

#define BASE 0
#define A    1
#define B    2

static int setup(void **state)
{
    static const char *const names[3] = {"base", "a", "b"};
    struct fixture *f = calloc(1, sizeof(*f));
    int fd;

    assert_non_null(f);
    (void)snprintf(f->dir, sizeof(f->dir), "/var/tmp/mote-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    for (int i = 0; i < 3; i++) {
        char name[sizeof(f->dir) + 8];

        (void)snprintf(name, sizeof(name), "%s/%s", f->dir, names[i]);
        memcpy(f->path[i], name, sizeof(name));
    }
    for (uint32_t i = 0; i < BASE_BYTES; i++)
        f->base[i] = (uint8_t)(1 + i % 253);
    fd = open(f->path[BASE], O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, f->base, BASE_BYTES), BASE_BYTES);
    (void)close(fd);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    DIR *d = opendir(f->dir);
    struct dirent *e;

    assert_non_null(d);
    while ((e = readdir(d)) != NULL) {
        if (e->d_name[0] != '.')
            assert_int_equal(unlinkat(dirfd(d), e->d_name, 0), 0);
    }
    (void)closedir(d);
    assert_int_equal(rmdir(f->dir), 0);
    free(f);
    return 0;
}

static void make(struct fixture *f, int which, int base,
                 enum cow_base_kind kind, uint64_t size)
{
    if (cow_create(f->path[which], base < 0 ? NULL : f->path[base], kind, size,
                   &f->err))
        fail_msg("%s", f->err.text);
}

static void refused(struct fixture *f, int rc, int want_rc, const char *word)
{
    assert_int_equal(rc, want_rc);
    if (!strstr(f->err.text, word))
        fail_msg("no '%s' in: %s", word, f->err.text);
}

static int open_chain(struct fixture *f, int which, bool read_only)
{
    struct cow_chain *c = NULL;
    int rc = cow_chain_open(f->path[which], read_only, &c, &f->err);

    cow_chain_free(c);
    return rc;
}

/* Changes bytes of a file; a header's checksum is made right if asked for. */
static void patch(struct fixture *f, int which, uint64_t off, const void *p,
                  size_t len, bool seal)
{
    int fd = open(f->path[which], O_RDWR | O_CLOEXEC);
    uint8_t raw[COW_HEADER_BYTES];

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, p, len, (off_t)off), len);
    if (seal) {
        assert_int_equal(pread(fd, raw, sizeof(raw), 0), sizeof(raw));
        put_le32(raw + 12, 0);
        put_le32(raw + 12, cow_crc32c(0, raw, sizeof(raw)));
        assert_int_equal(pwrite(fd, raw, sizeof(raw), 0), sizeof(raw));
    }
    (void)close(fd);
}

static void patch32(struct fixture *f, int which, uint64_t off, uint32_t v)
{
    uint8_t le[4];

    put_le32(le, v);
    patch(f, which, off, le, sizeof(le), true);
}

/* --- the format ------------------------------------------------------------
 */

static void test_cow_format_checksum_is_crc32c(void **state)
{
    (void)state;
    assert_int_equal(cow_crc32c(0, "123456789", 9), 0xe3069283);
}

static void test_cow_format_header_goes_there_and_back(void **state)
{
    struct cow_header h = {.flags = COW_FROZEN,
                           .depth = 2,
                           .size_bytes = 3 * CLUSTER + 512,
                           .base_kind = COW_BASE_COW,
                           .base_bytes = 1024,
                           .base_path = "/a/b"};
    struct cow_header got = {0};
    uint8_t raw[COW_HEADER_BYTES];

    (void)state;
    memset(h.id, 7, COW_ID_BYTES);
    memset(h.base_id, 9, COW_ID_BYTES);
    cow_header_encode(&h, raw);
    assert_int_equal(cow_header_decode(raw, "x", &got, NULL), 0);
    assert_memory_equal(&got, &h, sizeof(h));
}

/* A version-1 file as it was when the version was fixed: it is read for ever.
 */
static void test_cow_format_version_1_layout_is_fixed(void **state)
{
    struct cow_header h = {.depth = 1, .size_bytes = 512};
    struct cow_header got = {0};
    uint8_t want[COW_HEADER_BYTES] = {'m', 'o', 't', 'e', 'C', 'O', 'W', 0x1a};
    uint8_t raw[COW_HEADER_BYTES];
    uint8_t map[COW_SECTOR_MAP_BYTES] = {1};
    uint8_t sector[COW_SECTOR_BYTES];

    (void)state;
    cow_header_encode(&h, raw);
    put_le32(want + 8, 1);
    put_le32(want + 20, 65536);
    put_le64(want + 24, 512);
    put_le64(want + 32, 65536);
    put_le32(want + 40, 1);
    put_le32(want + 12, 0x7cc2cdcd);
    assert_memory_equal(raw, want, sizeof(raw));
    assert_int_equal(cow_header_decode(raw, "x", &got, NULL), 0);
    cow_sector_encode(h.id, map, 0, sector);
    assert_int_equal(sector[0], 1);
    assert_int_equal(cow_num_sectors(4032ull * CLUSTER), 1);
    assert_int_equal(cow_num_sectors(4032ull * CLUSTER + 512), 2);
    assert_int_equal(cow_data_offset(COW_MAX_BYTES) % CLUSTER, 0);
}

/* --- refusals --------------------------------------------------------------
 */

static void test_cow_newer_version_is_refused_and_left_alone(void **state)
{
    struct fixture *f = *state;
    struct stat before;
    struct stat after;

    make(f, A, BASE, COW_BASE_RAW, 0);
    patch32(f, A, 8, COW_VERSION + 1);
    assert_int_equal(stat(f->path[A], &before), 0);
    refused(f, open_chain(f, A, false), -EINVAL, "newer mote");
    assert_int_equal(stat(f->path[A], &after), 0);
    assert_memory_equal(&before.st_mtim, &after.st_mtim,
                        sizeof(before.st_mtim));
}

static void test_cow_flipped_bytes_are_refused(void **state)
{
    static const uint64_t at[] = {8,  12, 16, 24,  40,  44,  48,
                                  64, 80, 88, 300, 512, 4095};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
        (void)unlink(f->path[A]);
        make(f, A, BASE, COW_BASE_RAW, 0);
        patch(f, A, at[i], "\x81", 1, false);
        refused(f, open_chain(f, A, false), -EINVAL, f->path[A]);
    }
}

static void test_cow_flipped_bitmap_is_refused(void **state)
{
    static const uint64_t at[] = {4096, 4096 + 503, 4096 + 504, 4096 + 511,
                                  4608 + 7};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
        (void)unlink(f->path[A]);
        make(f, A, BASE, COW_BASE_RAW, MANY_BYTES);
        patch(f, A, at[i], "\x20", 1, false);
        refused(f, open_chain(f, A, false), -EINVAL, "bitmap is damaged");
    }
}

/* A sector of another file, or of another place. */
static void test_cow_foreign_bitmap_is_refused(void **state)
{
    struct fixture *f = *state;
    uint8_t raw[2 * COW_SECTOR_BYTES];
    int fd;

    make(f, A, BASE, COW_BASE_RAW, MANY_BYTES);
    make(f, B, BASE, COW_BASE_RAW, MANY_BYTES);
    fd = open(f->path[A], O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, raw, sizeof(raw), 4096), sizeof(raw));
    (void)close(fd);
    patch(f, B, 4096, raw, COW_SECTOR_BYTES, false);
    refused(f, open_chain(f, B, false), -EINVAL, "bitmap is damaged");
    patch(f, A, 4608, raw, COW_SECTOR_BYTES, false);
    refused(f, open_chain(f, A, false), -EINVAL, "bitmap is damaged");
}

static void test_cow_bits_behind_the_end_are_refused(void **state)
{
    struct fixture *f = *state;
    struct cow_file *h = calloc(1, sizeof(*h));
    uint8_t map[COW_SECTOR_MAP_BYTES] = {0x10}; /* cluster 4 of 4 */
    uint8_t raw[COW_SECTOR_BYTES];
    int fd;

    assert_non_null(h);
    make(f, A, BASE, COW_BASE_RAW, 0);
    fd = open(f->path[A], O_RDONLY | O_CLOEXEC);
    assert_int_equal(cow_file_read(fd, "a", h, &f->err), 0);
    (void)close(fd);
    cow_sector_encode(h->header.id, map, 0, raw);
    patch(f, A, 4096, raw, sizeof(raw), false);
    refused(f, open_chain(f, A, false), -EINVAL, "bitmap is damaged");
    free(h->map);
    free(h);
}

static void test_cow_nonsense_with_a_right_checksum_is_refused(void **state)
{
    static const struct {
        uint64_t off;
        uint32_t value;
    } bad[] = {
        {16, 2},                         /* an unknown flag */
        {20, 4096},                      /* cluster size */
        {24, 0},                         /* size */
        {24, 513},                       /* not whole sectors */
        {28, 0x10000},                   /* too large */
        {32, 0},                         /* data offset */
        {40, 0},                         /* depth */
        {40, 17},      {40, 2}, {44, 2}, /* a cow base, depth 1 */
        {44, 3},       {80, 0}, {80, 0x7fffffff}, {88, 5000},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        (void)unlink(f->path[A]);
        make(f, A, BASE, COW_BASE_RAW, 0);
        patch32(f, A, bad[i].off, bad[i].value);
        refused(f, open_chain(f, A, false), -EINVAL, "no version of mote");
    }
}

static void test_cow_cut_files_are_refused(void **state)
{
    static const off_t at[] = {0, 100, 4095, 4096, 5000, 65536, 65537};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
        (void)unlink(f->path[A]);
        make(f, A, BASE, COW_BASE_RAW, 0);
        assert_int_equal(truncate(f->path[A], at[i]), 0);
        refused(f, open_chain(f, A, false), -EINVAL,
                at[i] < 4096 ? "too short" : "was cut");
    }
}

static void test_cow_other_files_are_refused(void **state)
{
    struct fixture *f = *state;
    struct cow_chain *c = NULL;

    refused(f, open_chain(f, BASE, false), -EINVAL, "as a raw disk");
    refused(f, open_chain(f, A, false), -ENOENT, "check the path");
    refused(f, cow_chain_open("/dev/null", true, &c, &f->err), -EINVAL,
            "no regular file");
    refused(f, cow_chain_open(f->dir, true, &c, &f->err), -EINVAL,
            "no regular file");
}

static void test_cow_changed_base_is_refused(void **state)
{
    struct fixture *f = *state;

    make(f, A, BASE, COW_BASE_RAW, 0);
    assert_int_equal(open_chain(f, A, false), 0);
    patch(f, BASE, 1024 + 0x38, "!", 1, false); /* as a mount changes ext4 */
    refused(f, open_chain(f, A, false), -EINVAL, "is not the base");
    assert_int_equal(truncate(f->path[BASE], BASE_BYTES + 512), 0);
    refused(f, open_chain(f, A, false), -EINVAL, "is not the base");
    assert_int_equal(unlink(f->path[BASE]), 0);
    refused(f, open_chain(f, A, false), -ENOENT, f->path[BASE]);
}

/* A copy of the base elsewhere is as good: nothing of the inode counts. */
static void test_cow_copied_base_is_taken(void **state)
{
    struct fixture *f = *state;

    make(f, A, BASE, COW_BASE_RAW, 0);
    assert_int_equal(rename(f->path[BASE], f->path[B]), 0);
    make(f, BASE, -1, COW_BASE_NONE, CLUSTER);
    assert_int_equal(truncate(f->path[BASE], 0), 0);
    patch(f, BASE, 0, f->base, BASE_BYTES, false);
    assert_int_equal(open_chain(f, A, false), 0);
}

static void test_cow_replaced_cow_base_is_refused(void **state)
{
    struct fixture *f = *state;

    make(f, A, BASE, COW_BASE_RAW, 0);
    make(f, B, A, COW_BASE_COW, 0);
    assert_int_equal(open_chain(f, B, false), 0);
    assert_int_equal(unlink(f->path[A]), 0);
    make(f, A, BASE, COW_BASE_RAW, 0);
    refused(f, open_chain(f, B, false), -EINVAL, "is not the base");
}

static void test_cow_base_of_others_is_not_written(void **state)
{
    struct fixture *f = *state;

    make(f, A, BASE, COW_BASE_RAW, 0);
    make(f, B, A, COW_BASE_COW, 0);
    refused(f, open_chain(f, A, false), -EROFS, "base of others");
    assert_int_equal(open_chain(f, A, true), 0);
}

static void test_cow_files_in_use_are_refused(void **state)
{
    struct fixture *f = *state;
    struct cow_chain *c = NULL;

    make(f, A, BASE, COW_BASE_RAW, 0);
    assert_int_equal(cow_chain_open(f->path[A], false, &c, &f->err), 0);
    refused(f, open_chain(f, A, false), -EBUSY, "in use");
    refused(f, open_chain(f, A, true), -EBUSY, "in use");
    refused(f, cow_create(f->path[B], f->path[A], COW_BASE_COW, 0, &f->err),
            -EBUSY, "in use");
    assert_int_equal(access(f->path[B], F_OK), -1);
    cow_chain_free(c);
    c = NULL;
    /* two on one base are fine */
    make(f, B, BASE, COW_BASE_RAW, 0);
    assert_int_equal(cow_chain_open(f->path[A], false, &c, &f->err), 0);
    assert_int_equal(open_chain(f, B, false), 0);
    cow_chain_free(c);
}

static void test_cow_create_refuses(void **state)
{
    struct fixture *f = *state;
    char lost[200];

    refused(f, cow_create(f->path[A], NULL, COW_BASE_NONE, 0, &f->err), -EINVAL,
            "needs a size");
    refused(f, cow_create(f->path[A], NULL, COW_BASE_NONE, 1000, &f->err),
            -EINVAL, "multiple of 512");
    refused(f,
            cow_create(f->path[A], NULL, COW_BASE_NONE, COW_MAX_BYTES + 512,
                       &f->err),
            -EINVAL, "at most 8 TiB");
    refused(f,
            cow_create(f->path[A], f->path[BASE], COW_BASE_RAW, 512, &f->err),
            -EINVAL, "less than its base");
    refused(f, cow_create(f->path[A], f->path[B], COW_BASE_RAW, 0, &f->err),
            -ENOENT, "cannot open this base");
    refused(f, cow_create(f->path[A], f->path[BASE], COW_BASE_COW, 0, &f->err),
            -EINVAL, "no copy-on-write disk");
    assert_int_equal(access(f->path[A], F_OK), -1);
    (void)snprintf(lost, sizeof(lost), "%s/x/y", f->dir);
    refused(f, cow_create(lost, f->path[BASE], COW_BASE_RAW, 0, &f->err),
            -ENOENT, "another path");
    make(f, A, BASE, COW_BASE_RAW, 0);
    refused(f, cow_create(f->path[A], f->path[BASE], COW_BASE_RAW, 0, &f->err),
            -EEXIST, "another path");
    refused(f, cow_create(f->path[B], f->path[A], COW_BASE_RAW, 0, &f->err),
            -EINVAL, ":cow");
}

static void test_cow_wrong_descriptors_are_refused(void **state)
{
    int raw = rig_file(NULL, CLUSTER);
    int low = rig_delta(raw, COW_BASE_RAW, 0);
    int top = rig_delta(low, COW_BASE_COW, 0);
    const int sets[][4] = {{top, -1},
                           {top, raw},
                           {top, low},
                           {low, top, raw},
                           {top, low, raw, raw}};
    const size_t counts[] = {1, 2, 2, 3, 4};
    struct fixture *f = *state;
    struct cow_chain *c = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        int fds[4];

        for (size_t k = 0; k < counts[i]; k++)
            fds[k] = rig_reopen(sets[i][k]);
        assert_int_equal(
            cow_chain_open_fds(fds, counts[i], true, "fds", &c, &f->err),
            -EINVAL);
        for (size_t k = 0; k < counts[i]; k++)
            assert_int_equal(close(fds[k]), 0); /* still the caller's */
    }
    assert_int_equal(cow_chain_open_fds(NULL, 0, true, "fds", &c, &f->err),
                     -EINVAL);
    (void)close(raw);
    (void)close(low);
    (void)close(top);
}

/* --- merging ---------------------------------------------------------------
 */

static void write_on(struct fixture *f, int which, uint64_t off, int byte,
                     size_t len, enum disk_op op)
{
    struct evloop *loop = NULL;
    struct disk *disk = NULL;
    uint8_t *buf = malloc(len);

    assert_non_null(buf);
    memset(buf, byte, len);
    assert_int_equal(evloop_new(EVLOOP_AUTO, &loop), 0);
    assert_int_equal(disk_cow_open(f->path[which], 0, &disk, &f->err), 0);
    assert_int_equal(rig_do(disk, loop, op, off, buf, len), 0);
    disk->ops->free(disk);
    evloop_free(loop);
    free(buf);
}

/* Base, a on it, b (larger) on that; what the guest sees of b in `want`. */
static void make_two(struct fixture *f, uint8_t *want, size_t size)
{
    memset(want, 0, size);
    memcpy(want, f->base, BASE_BYTES);
    make(f, A, BASE, COW_BASE_RAW, 0);
    write_on(f, A, CLUSTER + 512, 'a', 512, DISK_WRITE);
    memset(want + CLUSTER + 512, 'a', 512);
    write_on(f, A, BASE_BYTES - 512, 'e', 512, DISK_WRITE);
    memset(want + BASE_BYTES - 512, 'e', 512);
    make(f, B, A, COW_BASE_COW, size);
    write_on(f, B, 0, 0, CLUSTER, DISK_WRITE_ZEROES);
    memset(want, 0, CLUSTER);
    write_on(f, B, size - 512, 'z', 512, DISK_WRITE);
    memset(want + size - 512, 'z', 512);
}

static void test_cow_merge_writes_what_the_guest_sees(void **state)
{
    enum { SIZE = 40 * CLUSTER };
    struct fixture *f = *state;
    uint8_t *want = malloc(SIZE);
    uint8_t *got = malloc(SIZE);
    struct cow_chain *c = NULL;
    char out[200];
    struct stat st;
    int fd;

    assert_true(want && got);
    make_two(f, want, SIZE);
    (void)snprintf(out, sizeof(out), "%s/out", f->dir);
    assert_int_equal(cow_chain_open(f->path[B], true, &c, &f->err), 0);
    assert_int_equal(cow_merge(c, out, COW_BASE_RAW, &f->err), 0);
    fd = open(out, O_RDONLY | O_CLOEXEC);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, SIZE);
    assert_true(st.st_blocks * 512 <= 5 * CLUSTER); /* holes are holes */
    assert_int_equal(read(fd, got, SIZE), SIZE);
    assert_memory_equal(got, want, SIZE);
    (void)close(fd);
    refused(f, cow_merge(c, out, COW_BASE_RAW, &f->err), -EEXIST,
            "File exists");
    cow_chain_free(c);
    free(want);
    free(got);
}

static void test_cow_merge_makes_one_file_on_the_same_base(void **state)
{
    enum { SIZE = 40 * CLUSTER };
    struct fixture *f = *state;
    uint8_t *want = malloc(SIZE);
    uint8_t *got = malloc(SIZE);
    struct disk_cow_info info;
    struct evloop *loop = NULL;
    struct cow_chain *c = NULL;
    struct disk *disk = NULL;
    char out[200];

    assert_true(want && got);
    make_two(f, want, SIZE);
    (void)snprintf(out, sizeof(out), "%s/out", f->dir);
    assert_int_equal(cow_chain_open(f->path[B], true, &c, &f->err), 0);
    assert_int_equal(cow_merge(c, out, COW_BASE_COW, &f->err), 0);
    cow_chain_free(c);
    assert_int_equal(evloop_new(EVLOOP_AUTO, &loop), 0);
    assert_int_equal(disk_cow_open(out, 0, &disk, &f->err), 0);
    disk_cow_info(disk, &info);
    assert_int_equal(info.depth, 1);
    assert_int_equal(info.num_allocated, 4);
    assert_int_equal(rig_do(disk, loop, DISK_READ, 0, got, SIZE), 0);
    assert_memory_equal(got, want, SIZE);
    disk->ops->free(disk);
    evloop_free(loop);
    free(want);
    free(got);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cow_format_checksum_is_crc32c),
        cmocka_unit_test(test_cow_format_header_goes_there_and_back),
        cmocka_unit_test(test_cow_format_version_1_layout_is_fixed),
        T(test_cow_newer_version_is_refused_and_left_alone),
        T(test_cow_flipped_bytes_are_refused),
        T(test_cow_flipped_bitmap_is_refused),
        T(test_cow_foreign_bitmap_is_refused),
        T(test_cow_bits_behind_the_end_are_refused),
        T(test_cow_nonsense_with_a_right_checksum_is_refused),
        T(test_cow_cut_files_are_refused),
        T(test_cow_other_files_are_refused),
        T(test_cow_changed_base_is_refused),
        T(test_cow_copied_base_is_taken),
        T(test_cow_replaced_cow_base_is_refused),
        T(test_cow_base_of_others_is_not_written),
        T(test_cow_files_in_use_are_refused),
        T(test_cow_create_refuses),
        T(test_cow_wrong_descriptors_are_refused),
        T(test_cow_merge_writes_what_the_guest_sees),
        T(test_cow_merge_makes_one_file_on_the_same_base),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
