/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/boot_x86.h"

#include "tests/harness/fake_kernel.h"
#include "vmm/cleanup.h"

#include <asm/bootparam.h>
#include <libfdt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct boot_mmio_dev one_dev = {
    .base = LAYOUT_VIRTIO_BASE, .size_bytes = LAYOUT_VIRTIO_SIZE, .gsi = 5};

/* One kernel file and one initrd for all tests. */
struct fixture {
    struct fake_buf elf;
    int kernel_fd;
    int initrd_fd;
    char kernel[64];
    char initrd[64];
    struct guest_mem *gm;
    struct boot_config cfg;
    struct boot_result res;
    struct errmsg err;
};

static void fixture_make(struct fixture *f, bool with_dt)
{
    static uint8_t initrd_bytes[5000] = "initrd";
    struct fake_buf initrd = {initrd_bytes, sizeof(initrd_bytes)};

    memset(f, 0, sizeof(*f));
    fake_vmlinux(with_dt, &f->elf);
    f->kernel_fd = fake_file(&f->elf, f->kernel);
    f->initrd_fd = fake_file(&initrd, f->initrd);
    assert_int_equal(gm_new(64 * MIB, &f->gm), 0);
    f->cfg = (struct boot_config){
        .kernel_path = f->kernel,
        .initrd_path = f->initrd,
        .user_cmdline = "console=ttyS0 -- x",
        .extra_words = "own",
        .machine = {.ncpus = 2, .devs = &one_dev, .ndevs = 1},
        .seed = (const uint8_t *)"0123456789abcdef0123456789abcdef",
        .seed_len = 32,
        .desc = BOOT_DESC_AUTO,
        .ram_is_fresh = true};
}

static void fixture_free(struct fixture *f)
{
    gm_free(f->gm);
    drop_fd(&f->kernel_fd);
    drop_fd(&f->initrd_fd);
    fake_buf_free(&f->elf);
}

static void load(struct fixture *f)
{
    if (boot_load(f->gm, &f->cfg, &f->res, &f->err))
        fail_msg("boot_load: %s", f->err.text);
}

static void expect_refused(struct fixture *f, int rc, const char *reason)
{
    f->res.entry_rip = 42;
    assert_int_equal(boot_load(f->gm, &f->cfg, &f->res, &f->err), rc);
    assert_int_equal(f->res.entry_rip, 42); /* written on success only */
    if (!strstr(f->err.text, reason))
        fail_msg("\"%s\" lacks \"%s\"", f->err.text, reason);
}

static void *guest(struct fixture *f, gpa_t gpa, uint64_t len)
{
    void *host = NULL;

    assert_int_equal(gm_wptr(f->gm, gpa, len, &host), 0);
    return host;
}

/* The entry of one type in the setup_data chain, or NULL. */
static struct setup_data *find_setup(struct fixture *f, uint32_t type)
{
    const struct boot_params *bp = guest(f, f->res.boot_params, sizeof(*bp));
    uint64_t gpa = bp->hdr.setup_data;

    for (int i = 0; gpa && i < 10; i++) {
        struct setup_data *d = guest(f, gpa, sizeof(*d));

        if (d->type == type)
            return guest(f, gpa, sizeof(*d) + d->len);
        gpa = d->next;
    }
    return NULL;
}

static void test_boot_device_tree_kernel(void **state)
{
    struct setup_data *d;
    struct fixture f;

    (void)state;
    fixture_make(&f, true);
    load(&f);
    assert_int_equal(f.res.desc, BOOT_DESC_DT);
    assert_int_equal(f.res.num_notes, 0);
    assert_int_equal(f.res.entry_rip, 0x1000000);
    assert_int_equal(f.res.kernel_start, 0x1000000);
    assert_int_equal(f.res.kernel_end, 0x1209000);
    assert_int_equal(f.res.initrd_base, 64 * MIB - 8192);
    assert_int_equal(f.res.initrd_size, 5000);
    assert_string_equal(guest(&f, f.res.initrd_base, 16), "initrd");
    assert_string_equal(f.res.cmdline, "own console=ttyS0 -- x");
    assert_string_equal(guest(&f, LAYOUT_CMDLINE, 64), f.res.cmdline);
    d = find_setup(&f, SETUP_RNG_SEED);
    assert_non_null(d);
    assert_int_equal(d->len, 32);
    assert_memory_equal(d->data, f.cfg.seed, 32);
    d = find_setup(&f, SETUP_DTB);
    assert_non_null(d);
    assert_int_equal(fdt_check_full(d->data, d->len), 0);
    assert_memory_equal(guest(&f, 0, 4), "_MP_", 4);
    fixture_free(&f);
}

static void test_boot_kernel_without_device_tree(void **state)
{
    struct fixture f;

    (void)state;
    fixture_make(&f, false);
    load(&f);
    assert_int_equal(f.res.desc, BOOT_DESC_MPTABLE);
    assert_int_equal(f.res.num_notes, 1);
    assert_non_null(strstr(f.res.notes[0], "no device tree"));
    assert_null(find_setup(&f, SETUP_DTB));
    assert_string_equal(f.res.cmdline,
                        "own virtio_mmio.device=4352@0xd0000f00:5 "
                        "console=ttyS0 -- x");
    assert_memory_equal(guest(&f, 0, 4), "_MP_", 4);
    assert_memory_equal(guest(&f, LAYOUT_MP_TABLE, 4), "PCMP", 4);
    fixture_free(&f);
}

static void test_boot_description_can_be_forced(void **state)
{
    struct fixture f;

    (void)state;
    fixture_make(&f, true);
    f.cfg.desc = BOOT_DESC_MPTABLE;
    load(&f);
    assert_int_equal(f.res.desc, BOOT_DESC_MPTABLE);
    assert_null(find_setup(&f, SETUP_DTB));
    fixture_free(&f);
    fixture_make(&f, false);
    f.cfg.desc = BOOT_DESC_DT;
    load(&f);
    assert_non_null(find_setup(&f, SETUP_DTB));
    assert_null(strstr(f.res.cmdline, "virtio_mmio"));
    fixture_free(&f);
}

static void test_boot_without_the_optional_parts(void **state)
{
    const struct boot_params *bp;
    struct fixture f;

    (void)state;
    fixture_make(&f, true);
    f.cfg.initrd_path = NULL;
    f.cfg.user_cmdline = NULL;
    f.cfg.extra_words = NULL;
    f.cfg.seed = NULL;
    f.cfg.seed_len = 0;
    f.cfg.machine.ndevs = 0;
    load(&f);
    bp = guest(&f, f.res.boot_params, sizeof(*bp));
    assert_int_equal(bp->hdr.ramdisk_size, 0);
    assert_int_equal(f.res.initrd_base, 0);
    assert_string_equal(f.res.cmdline, "");
    assert_null(find_setup(&f, SETUP_RNG_SEED));
    fixture_free(&f);
}

static uint64_t walk(struct fixture *f, uint64_t va)
{
    const uint64_t *t = guest(f, f->res.page_tables, 4096);
    uint64_t e = t[va >> 39 & 511];

    assert_int_equal(e & 0x83, 3);
    t = guest(f, e & ~0xfffull, 4096);
    e = t[va >> 30 & 511];
    assert_int_equal(e & 0x83, 3);
    t = guest(f, e & ~0xfffull, 4096);
    e = t[va >> 21 & 511];
    assert_int_equal(e & 0x83, 0x83);
    return (e & ~0x1fffffull) | (va & 0x1fffff);
}

static void test_boot_entry_state(void **state)
{
    const uint64_t *gdt;
    struct fixture f;

    (void)state;
    fixture_make(&f, true);
    load(&f);
    assert_int_equal(f.res.gdt_limit, 31);
    gdt = guest(&f, f.res.gdt_base, 32);
    assert_int_equal(gdt[0], 0);
    assert_true(gdt[BOOT_SEL_CS / 8] & 1ull << 53);  /* L */
    assert_true(gdt[BOOT_SEL_CS / 8] & 1ull << 43);  /* code */
    assert_false(gdt[BOOT_SEL_CS / 8] & 1ull << 54); /* D off with L */
    assert_true(gdt[BOOT_SEL_DS / 8] & 1ull << 41);  /* writable */
    assert_false(gdt[BOOT_SEL_DS / 8] & 1ull << 43); /* data */
    for (uint64_t va = 0; va < 4 * GIB; va += 511 * 4096)
        assert_int_equal(walk(&f, va), va);
    assert_int_equal(walk(&f, 4 * GIB - 1), 4 * GIB - 1);
    assert_int_equal(f.res.boot_params, LAYOUT_BOOT_PARAMS);
    fixture_free(&f);
}

static void test_boot_bzimage(void **state)
{
    struct fake_buf payload;
    struct fake_buf bz;
    const struct boot_params *bp;
    struct fixture f;
    char path[64];
    int fd;

    (void)state;
    fixture_make(&f, true);
    assert_true(fake_payload(FAKE_GZIP, &f.elf, &payload));
    fake_bzimage(&payload, &bz);
    fd = fake_file(&bz, path);
    f.cfg.kernel_path = path;
    load(&f);
    assert_int_equal(f.res.entry_rip, 0x1000000);
    assert_int_equal(f.res.desc, BOOT_DESC_DT);
    assert_int_equal(f.res.num_notes, 1);
    assert_non_null(strstr(f.res.notes[0], "gzip"));
    bp = guest(&f, f.res.boot_params, sizeof(*bp));
    assert_int_equal(bp->hdr.init_size, 0x1000000);
    drop_fd(&fd);
    fake_buf_free(&bz);
    fake_buf_free(&payload);
    fixture_free(&f);
}

/* BL-002: a refused file leaves nothing behind that hurts the next one. */
static void test_boot_right_kernel_after_refused_ones(void **state)
{
    struct fake_buf text = {(uint8_t *)strdup("hello"), 5};
    struct fixture f;
    char path[64];
    int fd = fake_file(&text, path);

    (void)state;
    fixture_make(&f, true);
    f.cfg.kernel_path = path;
    expect_refused(&f, -ENOEXEC, "is a text file");
    f.cfg.kernel_path = "/";
    expect_refused(&f, -EISDIR, "is a directory");
    f.cfg.kernel_path = f.kernel;
    f.cfg.ram_is_fresh = false;
    load(&f);
    drop_fd(&fd);
    fake_buf_free(&text);
    fixture_free(&f);
}

static void test_boot_bad_configs_are_refused(void **state)
{
    struct boot_config good;
    struct fixture f;

    (void)state;
    fixture_make(&f, true);
    good = f.cfg;
    f.cfg.kernel_path = NULL;
    expect_refused(&f, -EINVAL, "none is configured");
    f.cfg = good;
    f.cfg.machine.ncpus = 0;
    expect_refused(&f, -EINVAL, "vCPUs: 0 is not possible; give 1 to 32");
    f.cfg.machine.ncpus = LAYOUT_MAX_VCPUS + 1;
    expect_refused(&f, -EINVAL, "vCPUs: 33");
    f.cfg = good;
    f.cfg.machine.ndevs = LAYOUT_MAX_DEVICES + 1;
    expect_refused(&f, -E2BIG, "devices: 19 are too many");
    f.cfg = good;
    f.cfg.seed_len = BOOT_MAX_SEED + 1;
    expect_refused(&f, -E2BIG, "random seed");
    f.cfg = good;
    f.cfg.user_cmdline = "a\nb";
    expect_refused(&f, -EINVAL, "control character");
    f.cfg = good;
    f.cfg.initrd_path = "/";
    expect_refused(&f, -EISDIR, "initrd /: is a directory");
    fixture_free(&f);
}

static void test_boot_too_little_memory_is_named(void **state)
{
    struct fake_buf big = {calloc(1, 60 * MIB), 60 * MIB};
    struct fixture f;
    char path[64];
    int fd;

    (void)state;
    assert_non_null(big.bytes);
    fd = fake_file(&big, path);
    fixture_make(&f, true);
    f.cfg.initrd_path = path;
    expect_refused(&f, -ENOMEM, "do not fit");
    gm_free(f.gm);
    f.gm = NULL;
    assert_int_equal(gm_new(18 * MIB, &f.gm), 0);
    expect_refused(&f, -ENOMEM, "needs 19 MiB");
    gm_free(f.gm);
    f.gm = NULL;
    assert_int_equal(gm_new(8 * MIB, &f.gm), 0);
    expect_refused(&f, -ENOMEM, "give the VM at least 16 MiB");
    drop_fd(&fd);
    fake_buf_free(&big);
    fixture_free(&f);
}

/* Words of the monitor count; only the whole line shows it. */
static void test_boot_cmdline_over_the_limit_with_ours(void **state)
{
    char user[LAYOUT_CMDLINE_MAX];
    struct fixture f;

    (void)state;
    memset(user, 'u', sizeof(user));
    user[LAYOUT_CMDLINE_MAX - 1] = '\0';
    fixture_make(&f, true);
    f.cfg.user_cmdline = user;
    assert_int_equal(boot_check_cmdline(user, NULL), 0);
    expect_refused(&f, -E2BIG, "of which 3 are the monitor's");
    fixture_free(&f);
}

static void test_boot_checks_without_a_machine(void **state)
{
    struct fixture f;

    (void)state;
    fixture_make(&f, true);
    assert_int_equal(boot_check_kernel(f.kernel, NULL), 0);
    assert_int_equal(boot_check_kernel("/", NULL), -EISDIR);
    assert_int_equal(boot_check_cmdline("ok", NULL), 0);
    assert_int_equal(boot_check_cmdline("\r", NULL), -EINVAL);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_boot_device_tree_kernel),
        cmocka_unit_test(test_boot_kernel_without_device_tree),
        cmocka_unit_test(test_boot_description_can_be_forced),
        cmocka_unit_test(test_boot_without_the_optional_parts),
        cmocka_unit_test(test_boot_entry_state),
        cmocka_unit_test(test_boot_bzimage),
        cmocka_unit_test(test_boot_right_kernel_after_refused_ones),
        cmocka_unit_test(test_boot_bad_configs_are_refused),
        cmocka_unit_test(test_boot_too_little_memory_is_named),
        cmocka_unit_test(test_boot_cmdline_over_the_limit_with_ours),
        cmocka_unit_test(test_boot_checks_without_a_machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
