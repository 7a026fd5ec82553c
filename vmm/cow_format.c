/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cow_format.h"

#include "vmm/le.h"

#include <string.h>

/* Where the header's fields are; what lies between them is zero. */
enum {
    HDR_MAGIC = 0,
    HDR_VERSION = 8,
    HDR_CRC = 12, /* over the whole header, with 0 here */
    HDR_FLAGS = 16,
    HDR_CLUSTER_BYTES = 20,
    HDR_SIZE = 24,
    HDR_DATA_OFFSET = 32,
    HDR_DEPTH = 40,
    HDR_BASE_KIND = 44,
    HDR_ID = 48,
    HDR_BASE_ID = 64,
    HDR_BASE_BYTES = 80,
    HDR_PATH_LEN = 88,
    HDR_PATH = 512,
};

/* Behind the map bytes of a bitmap sector. */
enum { SEC_INDEX = 504, SEC_CRC = 508 };

static const char cow_magic[8] = {'m', 'o', 't', 'e', 'C', 'O', 'W', '\x1a'};

uint32_t cow_crc32c(uint32_t crc, const void *bytes, size_t len)
{
    /* The remainders of four bits; polynomial 0x82f63b78, reflected. */
    static const uint32_t table[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const uint8_t *p = bytes;

    crc = ~crc;
    while (len-- > 0) {
        crc ^= *p++;
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

bool cow_is_magic(const void *bytes, size_t len)
{
    return len >= sizeof(cow_magic) &&
           memcmp(bytes, cow_magic, sizeof(cow_magic)) == 0;
}

/* --- where things are ------------------------------------------------------
 */

uint64_t cow_num_clusters(uint64_t size_bytes)
{
    return (size_bytes + COW_CLUSTER_BYTES - 1) / COW_CLUSTER_BYTES;
}

uint64_t cow_num_sectors(uint64_t size_bytes)
{
    return (cow_num_clusters(size_bytes) + COW_SECTOR_BITS - 1) /
           COW_SECTOR_BITS;
}

uint64_t cow_data_offset(uint64_t size_bytes)
{
    return align_up(COW_HEADER_BYTES +
                        cow_num_sectors(size_bytes) * COW_SECTOR_BYTES,
                    COW_CLUSTER_BYTES);
}

uint64_t cow_file_bytes(uint64_t size_bytes)
{
    return cow_data_offset(size_bytes) +
           cow_num_clusters(size_bytes) * COW_CLUSTER_BYTES;
}

/* --- the header ------------------------------------------------------------
 */

static uint32_t cow_header_crc(const uint8_t *raw)
{
    static const uint8_t none[4];
    uint32_t crc = cow_crc32c(0, raw, HDR_CRC);

    crc = cow_crc32c(crc, none, sizeof(none));
    return cow_crc32c(crc, raw + HDR_FLAGS, COW_HEADER_BYTES - HDR_FLAGS);
}

void cow_header_encode(const struct cow_header *h, uint8_t *raw)
{
    size_t path_len = strnlen(h->base_path, COW_PATH_BYTES - 1);

    memset(raw, 0, COW_HEADER_BYTES);
    memcpy(raw + HDR_MAGIC, cow_magic, sizeof(cow_magic));
    put_le32(raw + HDR_VERSION, COW_VERSION);
    put_le32(raw + HDR_FLAGS, h->flags);
    put_le32(raw + HDR_CLUSTER_BYTES, COW_CLUSTER_BYTES);
    put_le64(raw + HDR_SIZE, h->size_bytes);
    put_le64(raw + HDR_DATA_OFFSET, cow_data_offset(h->size_bytes));
    put_le32(raw + HDR_DEPTH, h->depth);
    put_le32(raw + HDR_BASE_KIND, (uint32_t)h->base_kind);
    memcpy(raw + HDR_ID, h->id, COW_ID_BYTES);
    memcpy(raw + HDR_BASE_ID, h->base_id, COW_ID_BYTES);
    put_le64(raw + HDR_BASE_BYTES, h->base_bytes);
    put_le32(raw + HDR_PATH_LEN, (uint32_t)path_len);
    memcpy(raw + HDR_PATH, h->base_path, path_len);
    put_le32(raw + HDR_CRC, cow_header_crc(raw));
}

static int cow_check_known(const uint8_t *raw, const char *name,
                           struct errmsg *err)
{
    uint32_t version = get_le32(raw + HDR_VERSION);

    if (!cow_is_magic(raw, COW_HEADER_BYTES))
        return err_set(err, -EINVAL,
                       "disk %s: is no copy-on-write disk of mote; make one "
                       "with `mote disk create`, or attach it as a raw disk",
                       name);
    if (version > COW_VERSION)
        return err_set(err, -EINVAL,
                       "disk %s: was written by a newer mote (format version "
                       "%u, this one knows %u); use that one",
                       name, version, COW_VERSION);
    if (get_le32(raw + HDR_CRC) != cow_header_crc(raw) || version == 0)
        return err_set(err, -EINVAL,
                       "disk %s: its header is damaged (checksum); restore "
                       "the file from a copy",
                       name);
    return 0;
}

/* What a writer of ours never writes. */
static bool cow_header_sane(const struct cow_header *h, const uint8_t *raw)
{
    uint32_t kind = get_le32(raw + HDR_BASE_KIND);
    uint32_t path_len = get_le32(raw + HDR_PATH_LEN);

    return (h->flags & ~COW_FROZEN) == 0 &&
           get_le32(raw + HDR_CLUSTER_BYTES) == COW_CLUSTER_BYTES &&
           h->size_bytes > 0 && h->size_bytes % COW_SECTOR_BYTES == 0 &&
           h->size_bytes <= COW_MAX_BYTES &&
           get_le64(raw + HDR_DATA_OFFSET) == cow_data_offset(h->size_bytes) &&
           h->depth >= 1 && h->depth <= COW_MAX_DEPTH && kind <= COW_BASE_COW &&
           (h->depth == 1) == (kind != COW_BASE_COW) &&
           (kind == COW_BASE_NONE || h->base_bytes > 0) &&
           h->base_bytes <= h->size_bytes &&
           h->base_bytes % COW_SECTOR_BYTES == 0 && path_len < COW_PATH_BYTES &&
           memchr(raw + HDR_PATH, 0, path_len) == NULL;
}

int cow_header_decode(const uint8_t *raw, const char *name,
                      struct cow_header *out, struct errmsg *err)
{
    struct cow_header h = {0};
    int rc = cow_check_known(raw, name, err);

    if (rc)
        return rc;
    h.flags = get_le32(raw + HDR_FLAGS);
    h.size_bytes = get_le64(raw + HDR_SIZE);
    h.depth = get_le32(raw + HDR_DEPTH);
    memcpy(h.id, raw + HDR_ID, COW_ID_BYTES);
    memcpy(h.base_id, raw + HDR_BASE_ID, COW_ID_BYTES);
    h.base_bytes = get_le64(raw + HDR_BASE_BYTES);
    if (!cow_header_sane(&h, raw))
        return err_set(err, -EINVAL,
                       "disk %s: its header says what no version of mote "
                       "writes; restore the file from a copy",
                       name);
    h.base_kind = (enum cow_base_kind)get_le32(raw + HDR_BASE_KIND);
    memcpy(h.base_path, raw + HDR_PATH, get_le32(raw + HDR_PATH_LEN));
    *out = h;
    return 0;
}

/* --- the bitmap ------------------------------------------------------------
 */

/* The file's id goes in, so that a sector of another file is not taken. */
static uint32_t cow_sector_crc(const uint8_t *id, const uint8_t *raw)
{
    return cow_crc32c(cow_crc32c(0, id, COW_ID_BYTES), raw, SEC_CRC);
}

void cow_sector_encode(const uint8_t *id, const uint8_t *map, uint64_t index,
                       uint8_t *raw)
{
    memcpy(raw, map + index * COW_SECTOR_MAP_BYTES, COW_SECTOR_MAP_BYTES);
    put_le32(raw + SEC_INDEX, (uint32_t)index);
    put_le32(raw + SEC_CRC, cow_sector_crc(id, raw));
}

bool cow_sector_decode(const uint8_t *id, const uint8_t *raw, uint64_t index,
                       uint8_t *map)
{
    if (get_le32(raw + SEC_INDEX) != index ||
        get_le32(raw + SEC_CRC) != cow_sector_crc(id, raw))
        return false;
    memcpy(map + index * COW_SECTOR_MAP_BYTES, raw, COW_SECTOR_MAP_BYTES);
    return true;
}

bool cow_map_end_ok(const uint8_t *map, uint64_t size_bytes)
{
    uint64_t end = cow_num_sectors(size_bytes) * COW_SECTOR_BITS;

    for (uint64_t i = cow_num_clusters(size_bytes); i < end; i++) {
        if (cow_map_test(map, i))
            return false;
    }
    return true;
}

uint64_t cow_map_count(const uint8_t *map, uint64_t size_bytes)
{
    uint64_t bytes = cow_map_bytes(size_bytes);
    uint64_t n = 0;

    for (uint64_t i = 0; i < bytes; i++)
        n += (uint64_t)__builtin_popcount(map[i]);
    return n;
}
