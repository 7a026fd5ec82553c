/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/elf_notes.h"

#include <string.h>

/* Xen's note types; no uapi header carries them. */
#define XEN_NOTE_GUEST_OS     6u
#define XEN_NOTE_PHYS32_ENTRY 18u

#define ELF_NOTES_MAX (16 * KIB)
#define ELF_MAX_PHDRS 64u

struct elf_notes {
    bool pvh;
    bool linux_kernel;
};

/* Name and descriptor are padded to 4 bytes each. */
static void elf_notes_scan(const uint8_t *p, uint64_t len,
                           struct elf_notes *out)
{
    Elf64_Nhdr nh;

    while (len >= sizeof(nh)) {
        uint64_t name_len;
        uint64_t desc_len;

        memcpy(&nh, p, sizeof(nh));
        p += sizeof(nh);
        len -= sizeof(nh);
        name_len = align_up(nh.n_namesz, 4);
        desc_len = align_up(nh.n_descsz, 4);
        if (name_len > len || desc_len > len - name_len)
            return;
        if (nh.n_namesz == 6 && !memcmp(p, "Linux", 6))
            out->linux_kernel = true;
        if (nh.n_namesz == 4 && !memcmp(p, "Xen", 4)) {
            if (nh.n_type == XEN_NOTE_PHYS32_ENTRY)
                out->pvh = true;
            if (nh.n_type == XEN_NOTE_GUEST_OS && nh.n_descsz >= 5 &&
                !memcmp(p + name_len, "linux", 5))
                out->linux_kernel = true;
        }
        p += name_len + desc_len;
        len -= name_len + desc_len;
    }
}

bool elf_is_pvh_only(const struct elf_source *src, const Elf64_Ehdr *eh)
{
    struct elf_notes notes = {false, false};
    uint8_t buf[ELF_NOTES_MAX];
    Elf64_Phdr ph;

    for (uint64_t i = 0; i < eh->e_phnum && i < ELF_MAX_PHDRS; i++) {
        if (elf_read_entry(src, eh->e_phoff, i, &ph, sizeof(ph)))
            break;
        if (ph.p_type != PT_NOTE || ph.p_filesz > sizeof(buf))
            continue;
        if (elf_read(src, ph.p_offset, buf, ph.p_filesz))
            continue;
        elf_notes_scan(buf, ph.p_filesz, &notes);
    }
    return notes.pvh && !notes.linux_kernel;
}
