/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_COW_FORMAT_H
#define VMM_COW_FORMAT_H

/*
 * The copy-on-write disk file, version 1, as bytes: devices/disk_cow.md has
 * the format and the reasons. Pure: no files, no memory, any thread.
 *
 *   header         COW_HEADER_BYTES
 *   bitmap         sectors of 512 bytes, each with a checksum of its own
 *   data           from a fixed offset: cluster i at data_offset + i * 64 KiB
 */

#include "vmm/errmsg.h"

#define COW_VERSION       1u
#define COW_HEADER_BYTES  4096u
#define COW_CLUSTER_BITS  16u
#define COW_CLUSTER_BYTES 65536u
#define COW_MAX_DEPTH     16u
#define COW_ID_BYTES      16u
#define COW_PATH_BYTES    3072u /* with its end */
/* The largest file of ext4 has 16 TiB; this leaves room for the rest. */
#define COW_MAX_BYTES (8ull << 40)

#define COW_SECTOR_BYTES     512u
#define COW_SECTOR_MAP_BYTES 504u
#define COW_SECTOR_BITS      (COW_SECTOR_MAP_BYTES * 8u)

/* Flags of a header. */
#define COW_FROZEN 1u /* others are based on it: never written again */

enum cow_base_kind {
    COW_BASE_NONE, /* below it all is zero */
    COW_BASE_RAW,
    COW_BASE_COW,
};

struct cow_header {
    uint32_t flags;
    uint32_t depth; /* copy-on-write files from here down, itself included */
    uint64_t size_bytes; /* of the disk; a multiple of 512 */
    uint8_t id[COW_ID_BYTES];
    enum cow_base_kind base_kind;
    uint8_t base_id[COW_ID_BYTES];
    uint64_t base_bytes; /* size of the base as a disk */
    char base_path[COW_PATH_BYTES];
};

/* Whether these first bytes of a file are meant to be such a header. */
bool cow_is_magic(const void *bytes, size_t len);

/* `raw` has COW_HEADER_BYTES. Only the first 512 bytes hold what changes in
 * the life of a file: flags and checksum. */
void cow_header_encode(const struct cow_header *h, uint8_t *raw);
/* 0, or -EINVAL with `name`, the reason and the remedy in `err`. */
int cow_header_decode(const uint8_t *raw, const char *name,
                      struct cow_header *out, struct errmsg *err) MUST_CHECK;

/* --- where things are ------------------------------------------------------
 */

uint64_t cow_num_clusters(uint64_t size_bytes);
uint64_t cow_num_sectors(uint64_t size_bytes); /* of the bitmap */
uint64_t cow_data_offset(uint64_t size_bytes);
uint64_t cow_file_bytes(uint64_t size_bytes);

/* --- the bitmap ------------------------------------------------------------
 */

/* In memory: COW_SECTOR_MAP_BYTES for each sector, bit i of byte i / 8. */
static inline uint64_t cow_map_bytes(uint64_t size_bytes)
{
    return cow_num_sectors(size_bytes) * COW_SECTOR_MAP_BYTES;
}

static inline bool cow_map_test(const uint8_t *map, uint64_t cluster)
{
    return map[cluster / 8] >> (cluster % 8) & 1;
}

static inline void cow_map_set(uint8_t *map, uint64_t cluster)
{
    map[cluster / 8] = (uint8_t)(map[cluster / 8] | 1u << (cluster % 8));
}

/* The whole map's sector `index`, as stored, into `raw`. */
void cow_sector_encode(const uint8_t *id, const uint8_t *map, uint64_t index,
                       uint8_t *raw);
/* The other way round; false: it is not what was stored there. */
bool cow_sector_decode(const uint8_t *id, const uint8_t *raw, uint64_t index,
                       uint8_t *map) MUST_CHECK;
/* Whether no bit behind the last cluster is set. */
bool cow_map_end_ok(const uint8_t *map, uint64_t size_bytes);
uint64_t cow_map_count(const uint8_t *map, uint64_t size_bytes);

/* CRC-32C (Castagnoli); `crc` is 0 at first, then what was returned. */
uint32_t cow_crc32c(uint32_t crc, const void *bytes, size_t len);

#endif
