/* SPDX-License-Identifier: Apache-2.0 */
/* The memory file of a snapshot: written, checked, and refused if damaged. */

#include "vmm/snapshot_mem.h"

#include "vmm/cleanup.h"
#include "vmm/le.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Two chunks and a part of a third. */
#define PAGES (2 * SNAP_CHUNK / SNAP_PAGE + 5)
#define RAM   ((uint64_t)PAGES * SNAP_PAGE)

static const uint8_t id[STATE_ID_BYTES] = {1, 2, 3};

struct box {
    char *ram;
    int fd;
    struct snap_mem mem;
    struct state_out out;
    struct state_file file;
    struct errmsg err;
};

static void fill(struct box *b, uint64_t page, char with)
{
    memset(b->ram + page * SNAP_PAGE, with, SNAP_PAGE);
}

static void box_open(struct box *b, enum snap_kind kind)
{
    memset(b, 0, sizeof(*b));
    b->ram = calloc(PAGES, SNAP_PAGE);
    b->fd = memfd_create("snap", MFD_CLOEXEC);
    assert_non_null(b->ram);
    assert_true(b->fd >= 0);
    assert_int_equal(ftruncate(b->fd, (off_t)(RAM + SNAP_PAGE)), 0);
    assert_int_equal(snap_mem_init(&b->mem, kind, RAM, &b->err), 0);
    fill(b, 0, 'a');
    fill(b, 3, 'b');
    fill(b, SNAP_CHUNK / SNAP_PAGE - 1, 'c');
    b->ram[(PAGES - 1) * SNAP_PAGE + SNAP_PAGE - 1] = 1;
}

/* All of the memory, and the section that describes it. */
static void box_save(struct box *b)
{
    for (uint64_t at = 0; at < RAM; at += SNAP_CHUNK)
        assert_int_equal(snap_mem_write(&b->mem, b->fd, at, b->ram + at,
                                        min_u64(SNAP_CHUNK, RAM - at)),
                         0);
    assert_int_equal(snap_mem_write_trailer(&b->mem, b->fd, id), 0);
    state_out_init(&b->out);
    snap_mem_save(&b->mem, &b->out);
    assert_int_equal(state_finish(&b->out, id), 0);
    assert_int_equal(
        state_open(&b->file, b->out.data, b->out.len_bytes, &b->err), 0);
    snap_mem_fini(&b->mem);
    assert_int_equal(snap_mem_load(&b->mem, &b->file, &b->err), 0);
}

static void box_close(struct box *b)
{
    free(b->ram);
    drop_fd(&b->fd);
    snap_mem_fini(&b->mem);
    snap_mem_fini(&b->mem);
    state_out_fini(&b->out);
}

static int check_box(struct box *b)
{
    return snap_mem_check(&b->mem, &b->file, b->fd, "file", &b->err);
}

static int verify(struct box *b)
{
    return snap_mem_verify(&b->mem, b->fd, "file", &b->err);
}

static void flip(const struct box *b, uint64_t at)
{
    uint8_t byte;

    assert_int_equal(pread(b->fd, &byte, 1, (off_t)at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(b->fd, &byte, 1, (off_t)at), 1);
}

static void test_snap_page_is_zero_sees_every_byte(void **state)
{
    _Alignas(8) char page[SNAP_PAGE] = {0};

    (void)state;
    assert_true(snap_page_is_zero(page));
    for (size_t i = 0; i < sizeof(page); i++) {
        page[i] = (char)0x80;
        assert_false(snap_page_is_zero(page));
        page[i] = 0;
    }
}

static void test_snap_mem_full_is_what_was_there_with_holes(void **state)
{
    CLEANUP_FREE char *back = malloc(RAM);
    struct box b;
    struct stat st;

    (void)state;
    box_open(&b, SNAP_FULL);
    box_save(&b);
    assert_int_equal(b.mem.kind, SNAP_FULL);
    assert_true(b.mem.ram_bytes == RAM);
    assert_int_equal(b.mem.num_chunks, 3);
    assert_int_equal(b.mem.crc[1], 0);
    assert_null(b.mem.bits);
    assert_int_equal(check_box(&b), 0);
    assert_int_equal(verify(&b), 0);
    assert_int_equal(pread(b.fd, back, RAM, 0), RAM);
    assert_memory_equal(back, b.ram, RAM);
    assert_int_equal(fstat(b.fd, &st), 0);
    /* Four pages and the last one. */
    assert_int_equal(st.st_blocks * 512, 5 * SNAP_PAGE);
    box_close(&b);
}

/* Written page by page or at once: the same checksums. */
static void test_snap_mem_pieces_make_the_same_checksum(void **state)
{
    struct snap_mem one;
    struct box b;

    (void)state;
    box_open(&b, SNAP_FULL);
    assert_int_equal(snap_mem_init(&one, SNAP_FULL, RAM, &b.err), 0);
    for (uint64_t at = 0; at < RAM; at += SNAP_PAGE)
        assert_int_equal(snap_mem_write(&one, b.fd, at, b.ram + at, SNAP_PAGE),
                         0);
    box_save(&b);
    assert_memory_equal(one.crc, b.mem.crc, 3 * sizeof(*one.crc));
    snap_mem_fini(&one);
    box_close(&b);
}

static void test_snap_mem_diff_tells_zero_from_absent(void **state)
{
    struct box b;
    struct stat st;

    (void)state;
    box_open(&b, SNAP_DIFF);
    /* Page 3 is written, page 4 is one of zeroes, page 0 is not in it. */
    b.mem.bits[0] = 1u << 3 | 1u << 4;
    memset(b.mem.parent, 7, sizeof(b.mem.parent));
    box_save(&b);
    assert_int_equal(b.mem.kind, SNAP_DIFF);
    assert_true(b.mem.bits[0] == (1u << 3 | 1u << 4));
    assert_int_equal(b.mem.parent[15], 7);
    assert_int_equal(check_box(&b), 0);
    assert_int_equal(verify(&b), 0);
    assert_int_equal(fstat(b.fd, &st), 0);
    assert_int_equal(st.st_blocks * 512, 3 * SNAP_PAGE);
    flip(&b, 4 * SNAP_PAGE); /* in it: found */
    assert_int_equal(verify(&b), -EBADMSG);
    flip(&b, 4 * SNAP_PAGE);
    flip(&b, 5 * SNAP_PAGE); /* not in it: nobody reads it */
    assert_int_equal(verify(&b), 0);
    box_close(&b);
}

static void test_snap_mem_verify_finds_one_bit(void **state)
{
    static const uint64_t places[] = {
        0,       3 * SNAP_PAGE + 17, SNAP_CHUNK - 1, SNAP_CHUNK,
        RAM - 1, 7 * SNAP_PAGE /* was zero */};
    struct box b;

    (void)state;
    box_open(&b, SNAP_FULL);
    box_save(&b);
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        flip(&b, places[i]);
        assert_int_equal(verify(&b), -EBADMSG);
        assert_non_null(strstr(b.err.text, "damaged"));
        flip(&b, places[i]);
        assert_int_equal(verify(&b), 0);
    }
    /* Two pages that changed places. */
    fill(&b, 0, 'b');
    assert_int_equal(pwrite(b.fd, b.ram, SNAP_PAGE, 0), SNAP_PAGE);
    fill(&b, 0, 'a');
    assert_int_equal(pwrite(b.fd, b.ram, SNAP_PAGE, 3 * SNAP_PAGE), SNAP_PAGE);
    assert_int_equal(verify(&b), -EBADMSG);
    box_close(&b);
}

static void test_snap_mem_check_refuses_the_wrong_file(void **state)
{
    static const uint8_t other[STATE_ID_BYTES] = {9};
    struct box b;
    int dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    (void)state;
    box_open(&b, SNAP_FULL);
    box_save(&b);
    for (uint64_t i = 0; i < 48; i++) {
        flip(&b, RAM + i);
        assert_int_equal(check_box(&b), -EBADMSG);
        flip(&b, RAM + i);
    }
    assert_int_equal(snap_mem_write_trailer(&b.mem, b.fd, other), 0);
    assert_int_equal(check_box(&b), -EBADMSG);
    assert_non_null(strstr(b.err.text, "another snapshot"));
    assert_int_equal(snap_mem_write_trailer(&b.mem, b.fd, id), 0);
    assert_int_equal(check_box(&b), 0);
    assert_int_equal(ftruncate(b.fd, (off_t)(RAM + SNAP_PAGE - 1)), 0);
    assert_int_equal(check_box(&b), -EBADMSG);
    assert_int_equal(ftruncate(b.fd, 0), 0);
    assert_int_equal(check_box(&b), -EBADMSG);
    assert_int_equal(snap_mem_check(&b.mem, &b.file, dir, "dir", &b.err),
                     -EBADMSG);
    (void)close(dir);
    box_close(&b);
}

/* --- the section ---------------------------------------------------------- */

/* A section "memory" of these fields; what the loader says of it. */
static int load_of(uint64_t ram, uint8_t kind, size_t crcs, size_t words,
                   size_t more)
{
    struct snap_mem m = {.crc = NULL};
    struct state_file f;
    struct state_out o;
    struct errmsg err;
    int rc;

    state_out_init(&o);
    state_begin(&o, "memory", 1);
    state_put_u64(&o, ram);
    state_put_u8(&o, kind);
    state_put_bytes(&o, id, sizeof(id));
    for (size_t i = 0; i < crcs; i++)
        state_put_u32(&o, 0);
    for (size_t i = 0; i < words; i++)
        state_put_u64(&o, 0);
    for (size_t i = 0; i < more; i++)
        state_put_u8(&o, 0);
    state_end(&o);
    assert_int_equal(state_finish(&o, id), 0);
    assert_int_equal(state_open(&f, o.data, o.len_bytes, &err), 0);
    rc = snap_mem_load(&m, &f, &err);
    if (rc == 0)
        snap_mem_fini(&m);
    else
        assert_null(m.crc);
    state_out_fini(&o);
    return rc;
}

static void test_snap_mem_load_refuses_impossible_sections(void **state)
{
    (void)state;
    assert_int_equal(load_of(4 * MIB, 0, 2, 0, 0), 0);
    assert_int_equal(load_of(4 * MIB, 1, 2, 16, 0), 0);
    assert_int_equal(load_of(0, 0, 0, 0, 0), -EBADMSG);
    assert_int_equal(load_of(4 * MIB + 1, 0, 3, 0, 0), -EBADMSG);
    assert_int_equal(load_of(4 * MIB, 2, 2, 0, 0), -EBADMSG);
    assert_int_equal(load_of(4 * MIB, 255, 2, 0, 0), -EBADMSG);
    assert_int_equal(load_of(4 * MIB, 0, 1, 0, 0), -EBADMSG);
    assert_int_equal(load_of(4 * MIB, 0, 2, 0, 1), -EBADMSG);
    assert_int_equal(load_of(4 * MIB, 0, 3, 0, 0), -EBADMSG);
    assert_int_equal(load_of(4 * MIB, 1, 2, 15, 0), -EBADMSG);
    assert_int_equal(load_of(4 * MIB, 1, 2, 0, 0), -EBADMSG);
    assert_int_equal(load_of(UINT64_MAX - 4095, 0, 2, 0, 0), -EBADMSG);
    assert_int_equal(load_of(1ull << 63, 1, 2, 0, 0), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_snap_page_is_zero_sees_every_byte),
        cmocka_unit_test(test_snap_mem_full_is_what_was_there_with_holes),
        cmocka_unit_test(test_snap_mem_pieces_make_the_same_checksum),
        cmocka_unit_test(test_snap_mem_diff_tells_zero_from_absent),
        cmocka_unit_test(test_snap_mem_verify_finds_one_bit),
        cmocka_unit_test(test_snap_mem_check_refuses_the_wrong_file),
        cmocka_unit_test(test_snap_mem_load_refuses_impossible_sections),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
