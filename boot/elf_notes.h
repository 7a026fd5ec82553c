/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOOT_ELF_NOTES_H
#define BOOT_ELF_NOTES_H

/*
 * What the notes of an ELF kernel say about how it may be entered. Pure apart
 * from pread64; threads: any. spec: ELF gABI notes, Xen public elfnote.h.
 */

#include "boot/elf_read.h"

/*
 * True for a kernel that has a PVH entry note and no sign of being Linux:
 * its ELF entry point then speaks some other protocol. Linux carries the PVH
 * note as well, and its own beside it.
 */
bool elf_is_pvh_only(const struct elf_source *src, const Elf64_Ehdr *eh);

#endif
