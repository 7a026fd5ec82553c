/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/pagemap.h"

#include <fcntl.h>
#include <unistd.h>

#define PAGEMAP_PAGE    4096u
#define PAGEMAP_ENTRIES 512u
/* Bit 63: in memory, bit 62: swapped out. */
#define PAGEMAP_THERE_SHIFT 62

static bool pagemap_there(uint64_t entry)
{
    return entry >> PAGEMAP_THERE_SHIFT != 0;
}

int pagemap_open(void)
{
    return open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
}

/* syscalls: pread64 */
bool pagemap_next(int fd, const void *p, uint64_t len_bytes, uint64_t *out_from,
                  uint64_t *out_to)
{
    uint64_t first = (uintptr_t)p / PAGEMAP_PAGE;
    uint64_t pages = len_bytes / PAGEMAP_PAGE;
    uint64_t e[PAGEMAP_ENTRIES];
    uint64_t at = 0;

    while (fd >= 0 && at < pages) {
        size_t num = (size_t)min_u64(pages - at, PAGEMAP_ENTRIES);
        size_t i = 0;
        size_t end;

        if (pread(fd, e, num * sizeof(*e),
                  (off_t)((first + at) * sizeof(*e))) !=
            (ssize_t)(num * sizeof(*e)))
            break;
        while (i < num && !pagemap_there(e[i]))
            i++;
        for (end = i; end < num && pagemap_there(e[end]); end++)
            ;
        if (i < num) {
            *out_from = (at + i) * PAGEMAP_PAGE;
            *out_to = (at + end) * PAGEMAP_PAGE;
            return true;
        }
        at += num;
    }
    *out_from = at * PAGEMAP_PAGE;
    *out_to = len_bytes;
    return at < pages;
}
