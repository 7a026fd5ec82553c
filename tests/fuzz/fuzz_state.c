/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The file of a saved machine. The first byte of the input chooses whether the
 * checksums of what follows are made right first, which is how a fuzzer gets
 * past them, or are left as they are. Every section is then found by its name,
 * read to its end, and the memory's description loaded, and saved again to the
 * same bytes.
 */

#include "tests/harness/fuzz_input.h"
#include "vmm/le.h"
#include "vmm/snapshot_mem.h"
#include "vmm/state.h"

#include <string.h>
#include <zlib.h>

/* As vmm/state.h describes them. */
#define HEAD_BYTES 48u
#define SECT_BYTES 16u

static uint32_t fuzz_crc(const uint8_t *p, size_t len)
{
    return (uint32_t)crc32_z(0, p, len);
}

/* The length and all checksums, as far as the lengths in it make sense. */
static void fuzz_repair(uint8_t *data, size_t len)
{
    size_t at = HEAD_BYTES;
    uint32_t num;

    if (len < HEAD_BYTES)
        return;
    num = get_le32(data + 12);
    for (uint32_t i = 0; i < num && len - at >= SECT_BYTES; i++) {
        uint64_t name = get_le16(data + at + 6);
        uint64_t payload = get_le64(data + at + 8);
        uint64_t total = SECT_BYTES + name + payload;

        if (payload > len || total > len - at)
            break;
        put_le32(data + at, fuzz_crc(data + at + 4, (size_t)total - 4));
        at += (size_t)min_u64((total + 7) & ~7ull, len - at);
    }
    put_le64(data + 16, len);
    put_le32(data + 44, fuzz_crc(data, 44));
}

static void fuzz_read_all(const struct state_file *f)
{
    char name[STATE_NAME_MAX + 1];
    char text[64];
    uint16_t version;
    uint64_t len;

    for (uint32_t i = 0; state_list(f, i, name, &version, &len); i++) {
        struct errmsg err = {""};
        struct state_in in;

        fuzz_must(strlen(name) <= STATE_NAME_MAX && len <= f->len_bytes);
        if (state_section(f, name, UINT16_MAX, &in, &err)) {
            fuzz_must(err.text[0] != '\0');
            continue;
        }
        state_get_str(&in, text, sizeof(text));
        fuzz_must(strlen(text) < sizeof(text));
        (void)state_get_bool(&in);
        while (in.at != in.end && !in.bad)
            (void)state_get_u8(&in);
        (void)state_get_u64(&in);
        fuzz_must(in.bad && state_done(&in) == -EBADMSG);
    }
}

static void fuzz_memory(const struct state_file *f)
{
    struct snap_mem m = {.crc = NULL};
    struct errmsg err = {""};
    struct state_file again;
    struct state_in first;
    struct state_in second;
    struct state_out out;

    if (snap_mem_load(&m, f, &err)) {
        fuzz_must(err.text[0] != '\0' && !m.crc && !m.bits);
        return;
    }
    fuzz_must(m.num_chunks > 0 && m.ram_bytes % SNAP_PAGE == 0);
    state_out_init(&out);
    snap_mem_save(&m, &out);
    fuzz_must(state_finish(&out, f->id) == 0);
    fuzz_must(state_open(&again, out.data, out.len_bytes, &err) == 0);
    fuzz_must(state_section(f, "memory", UINT16_MAX, &first, &err) == 0);
    fuzz_must(state_section(&again, "memory", UINT16_MAX, &second, &err) == 0);
    fuzz_must(first.end - first.at == second.end - second.at &&
              !memcmp(first.at, second.at, (size_t)(first.end - first.at)));
    state_out_fini(&out);
    snap_mem_fini(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct errmsg err = {""};
    struct state_file f;
    uint8_t *copy;

    if (len < 1)
        return 0;
    /* Memory of just that length: a sanitizer sees who reads past it. */
    copy = malloc(len > 1 ? len - 1 : 1);
    fuzz_must(copy != NULL);
    memcpy(copy, data + 1, len - 1);
    if (data[0] & 1)
        fuzz_repair(copy, len - 1);
    if (state_open(&f, copy, len - 1, &err)) {
        fuzz_must(err.text[0] != '\0');
    } else {
        fuzz_read_all(&f);
        fuzz_memory(&f);
    }
    free(copy);
    return 0;
}
