/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/disk_copy.h"
#include "tools/libmote/snapdir_meta.h"

#include "vmm/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define ID_A "000102030405060708090a0b0c0d0e0f"
#define ID_B "101112131415161718191a1b1c1d1e1f"

/* --- snapshot.json -----------------------------------------------------------
 */

static void fill(struct snapdir_meta *m)
{
    memset(m, 0, sizeof(*m));
    (void)strcpy(m->id, ID_A);
    (void)strcpy(m->parent, ID_B);
    (void)strcpy(m->name, "box");
    m->created_ms = 1796133969771;
    m->disk_count = 2;
    m->disks[0] = (struct snapdir_disk){.id = strdup("vda"),
                                        .path = strdup("/a b/root.img"),
                                        .size_bytes = 1ull << 40,
                                        .mtime_ns = 1796133969771000001};
    m->disks[1] = (struct snapdir_disk){.id = strdup("data\"1"),
                                        .path = strdup("/d.img"),
                                        .file = "disk-1",
                                        .size_bytes = 7,
                                        .crc = UINT32_MAX};
}

static void test_meta_round_trip(void **state)
{
    CLEANUP_FREE char *text = NULL;
    struct snapdir_meta m;
    struct snapdir_meta back;

    (void)state;
    fill(&m);
    text = snapdir_meta_text(&m);
    assert_non_null(text);
    assert_int_equal(snapdir_meta_read(text, "/s", &back, NULL), 0);
    assert_string_equal(back.id, ID_A);
    assert_string_equal(back.parent, ID_B);
    assert_string_equal(back.name, "box");
    assert_int_equal(back.created_ms, m.created_ms);
    assert_int_equal(back.disk_count, 2);
    assert_string_equal(back.disks[0].path, "/a b/root.img");
    assert_int_equal(back.disks[0].mtime_ns, m.disks[0].mtime_ns);
    assert_int_equal(back.disks[0].size_bytes, 1ull << 40);
    assert_string_equal(back.disks[0].file, "");
    assert_string_equal(back.disks[1].id, "data\"1");
    assert_string_equal(back.disks[1].file, "disk-1");
    assert_int_equal(back.disks[1].crc, UINT32_MAX);
    snapdir_meta_fini(&back);
    snapdir_meta_fini(&m);
}

static void test_meta_of_a_full_one_without_a_name(void **state)
{
    CLEANUP_FREE char *text = NULL;
    struct snapdir_meta m = {.id = ID_A};
    struct snapdir_meta back;

    (void)state;
    text = snapdir_meta_text(&m);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"kind\": \"full\""));
    assert_int_equal(snapdir_meta_read(text, "/s", &back, NULL), 0);
    assert_string_equal(back.parent, "");
    assert_string_equal(back.name, "");
    assert_int_equal(back.disk_count, 0);
}

static void test_meta_path_that_is_not_utf8_is_refused(void **state)
{
    struct snapdir_meta m;

    (void)state;
    fill(&m);
    m.disks[0].path[1] = (char)0xff;
    assert_null(snapdir_meta_text(&m));
    snapdir_meta_fini(&m);
}

#define HEAD "\"id\":\"" ID_A "\",\"created_ms\":1,"
#define DISK                                                                   \
    "\"id\":\"vda\",\"read_only\":false,\"path\":\"/x\",\"size_bytes\":1,"

static void test_meta_bad_text_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"version\":0," HEAD "\"disks\":[]}",
        "{\"version\":1," HEAD "\"disks\":{}}",
        "{\"version\":1," HEAD "\"disks\":[],\"disks\":[]}",
        "{\"version\":1,\"id\":\"00\",\"created_ms\":1,\"disks\":[]}",
        "{\"version\":1,\"created_ms\":1,\"disks\":[]}",
        "{\"version\":1," HEAD "\"parent\":\"12\",\"disks\":[]}",
        "{\"version\":1," HEAD "\"disks\":[1]}",
        "{\"version\":1," HEAD "\"disks\":[{" DISK "\"file\":\"../x\"}]}",
        "{\"version\":1," HEAD "\"disks\":[{" DISK "\"file\":\"disk-\"}]}",
        "{\"version\":1," HEAD "\"disks\":[{" DISK "\"file\":\"disk-1/a\"}]}",
        "{\"version\":1," HEAD "\"disks\":[{" DISK "\"file\":\"state\"}]}",
        "{\"version\":1," HEAD "\"disks\":[{" DISK
        "\"file\":\"disk-1\",\"crc32\":4294967296}]}",
        "{\"version\":1," HEAD "\"disks\":[{" DISK "\"mtime_ns\":1}]}",
    };
    struct mote_err err;
    struct snapdir_meta m;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(snapdir_meta_read(bad[i], "/s", &m, &err), -EBADMSG);
        assert_non_null(strstr(err.text, "/s/snapshot.json: is damaged;"));
    }
    assert_int_equal(snapdir_meta_read("{\"version\":2}", "/s", &m, &err),
                     -ENOTSUP);
    assert_non_null(strstr(err.text, "version 2, this mote reads 1"));
}

/* --- disks -------------------------------------------------------------------
 */

static int memory_file(uint64_t size)
{
    int fd = memfd_create("disk", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    return fd;
}

static void put(int fd, uint64_t at, const char *bytes, size_t len)
{
    assert_int_equal(pwrite(fd, bytes, len, (off_t)at), len);
}

static void test_disk_copy_keeps_holes_and_an_odd_end(void **state)
{
    const uint64_t size = 9 * MIB + 5;
    CLEANUP_FD int from = memory_file(size);
    CLEANUP_FD int to = memory_file(0);
    static char zeroes[8192];
    char seen[8];
    struct stat st;
    uint32_t a = 0;
    uint32_t b = 0;

    (void)state;
    put(from, 100, "begin", 5);
    put(from, 4 * MIB + 4093, "across", 6); /* two pages */
    put(from, 6 * MIB, zeroes, sizeof(zeroes));
    put(from, size - 3, "end", 3);
    assert_int_equal(lm_disk_copy(from, to, size, -1), 0);
    assert_int_equal(fstat(to, &st), 0);
    assert_int_equal(st.st_size, size);
    assert_true(st.st_blocks * 512 <= 5 * 4096);
    assert_int_equal(pread(to, seen, 6, 4 * MIB + 4093), 6);
    assert_memory_equal(seen, "across", 6);
    assert_int_equal(pread(to, seen, 8, (off_t)size - 3), 3);
    assert_memory_equal(seen, "end", 3);
    assert_int_equal(lm_disk_sum(from, size, &a, -1), 0);
    assert_int_equal(lm_disk_sum(to, size, &b, -1), 0);
    assert_int_equal(a, b); /* zeroes and holes are the same */
    put(to, 8 * MIB, "x", 1);
    assert_int_equal(lm_disk_sum(to, size, &b, -1), 0);
    assert_int_not_equal(a, b);
}

static void test_disk_sum_knows_where_a_page_is(void **state)
{
    CLEANUP_FD int one = memory_file(MIB);
    CLEANUP_FD int two = memory_file(MIB);
    uint32_t a = 1;
    uint32_t b = 1;

    (void)state;
    assert_int_equal(lm_disk_sum(one, MIB, &a, -1), 0);
    assert_int_equal(a, 0);
    put(one, 4096, "same", 4);
    put(two, 8192, "same", 4);
    assert_int_equal(lm_disk_sum(one, MIB, &a, -1), 0);
    assert_int_equal(lm_disk_sum(two, MIB, &b, -1), 0);
    assert_int_not_equal(a, b);
}

static void test_disk_copy_is_cancelled(void **state)
{
    CLEANUP_FD int from = memory_file(MIB);
    CLEANUP_FD int to = memory_file(0);
    CLEANUP_FD int far_end = -1;
    CLEANUP_FD int end = -1;
    uint32_t crc = 0;
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    end = ends[0];
    far_end = ends[1];
    put(from, 0, "x", 1);
    assert_int_equal(lm_disk_copy(from, to, MIB, end), 0);
    assert_int_equal(write(far_end, "s", 1), 1);
    assert_int_equal(lm_disk_copy(from, to, MIB, end), -ECANCELED);
    assert_int_equal(lm_disk_sum(from, MIB, &crc, end), -ECANCELED);
}

static void test_disk_size_of_what_is_no_disk_is_refused(void **state)
{
    CLEANUP_FD int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    uint64_t size = 7;

    (void)state;
    assert_int_equal(lm_disk_size(null, &size), -EINVAL);
    assert_int_equal(size, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meta_round_trip),
        cmocka_unit_test(test_meta_of_a_full_one_without_a_name),
        cmocka_unit_test(test_meta_path_that_is_not_utf8_is_refused),
        cmocka_unit_test(test_meta_bad_text_is_refused),
        cmocka_unit_test(test_disk_copy_keeps_holes_and_an_odd_end),
        cmocka_unit_test(test_disk_sum_knows_where_a_page_is),
        cmocka_unit_test(test_disk_copy_is_cancelled),
        cmocka_unit_test(test_disk_size_of_what_is_no_disk_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
