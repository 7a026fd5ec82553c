/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/fake_kernel.h"

#include "vmm/le.h"

#include <asm/bootparam.h>
#include <assert.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <zlib.h>
#ifdef HAVE_ZSTD
#include <zstd.h>
#endif
#ifdef HAVE_LZ4
#include <lz4.h>
#endif
#ifdef HAVE_LZMA
#include <lzma.h>
#endif

#define FAKE_PAGE  4096u
#define FAKE_SECTS 4u /* setup sectors of the bzImage, apart from the first */
#define FAKE_GAP   0x200u /* from the protected-mode code to the payload */

/* Grows the buffer with zeroes up to `len`. */
static void fake_grow(struct fake_buf *b, size_t len)
{
    if (len <= b->len)
        return;
    b->bytes = realloc(b->bytes, len);
    assert(b->bytes);
    memset(b->bytes + b->len, 0, len - b->len);
    b->len = len;
}

static void fake_put(struct fake_buf *b, size_t off, const void *p, size_t len)
{
    fake_grow(b, off + len);
    assert(b->bytes);
    memcpy(b->bytes + off, p, len);
}

static size_t fake_note(struct fake_buf *b, const char *name, uint32_t type)
{
    Elf64_Nhdr nh = {.n_namesz = (Elf64_Word)strlen(name) + 1,
                     .n_descsz = 8,
                     .n_type = type};
    size_t at = b->len;

    fake_put(b, b->len, &nh, sizeof(nh));
    fake_put(b, b->len, name, nh.n_namesz);
    fake_grow(b, align_up(b->len, 4) + 8);
    return b->len - at;
}

static void fake_notes(const struct fake_elf *spec, struct fake_buf *b,
                       Elf64_Phdr *ph)
{
    fake_grow(b, align_up(b->len, 8));
    ph->p_type = PT_NOTE;
    ph->p_offset = b->len;
    if (spec->note_pvh)
        ph->p_filesz += fake_note(b, "Xen", 18);
    if (spec->note_linux)
        ph->p_filesz += fake_note(b, "Linux", 0x100);
}

/* Null section, .rodata, and the names of both. */
static void fake_sections(const struct fake_elf *spec, const Elf64_Phdr *text,
                          struct fake_buf *b, Elf64_Ehdr *eh)
{
    static const char names[] = "\0.rodata\0.shstrtab";
    size_t len = spec->rodata ? strlen(spec->rodata) : 0;
    Elf64_Shdr sh[3] = {0};

    fake_grow(b, align_up(b->len, 8));
    sh[1].sh_name = 1;
    sh[1].sh_type = SHT_PROGBITS;
    sh[1].sh_addr = text->p_vaddr + text->p_filesz - len;
    sh[1].sh_size = len;
    sh[2].sh_name = 9;
    sh[2].sh_type = SHT_STRTAB;
    sh[2].sh_offset = b->len;
    sh[2].sh_size = sizeof(names);
    fake_put(b, b->len, names, sizeof(names));
    fake_grow(b, align_up(b->len, 8));
    eh->e_shoff = b->len;
    eh->e_shentsize = sizeof(sh[0]);
    eh->e_shnum = 3;
    eh->e_shstrndx = 2;
    fake_put(b, b->len, sh, sizeof(sh));
}

void fake_elf_build(const struct fake_elf *spec, struct fake_buf *out)
{
    struct fake_buf b = {NULL, 0};
    size_t n = spec->num_segments;
    Elf64_Ehdr eh = {.e_type = ET_EXEC,
                     .e_machine = EM_X86_64,
                     .e_version = EV_CURRENT,
                     .e_entry = spec->entry,
                     .e_phoff = sizeof(eh),
                     .e_ehsize = sizeof(eh),
                     .e_phentsize = sizeof(Elf64_Phdr)};
    Elf64_Phdr ph[40] = {0};

    assert(n < ARRAY_SIZE(ph));
    memcpy(eh.e_ident, ELFMAG, SELFMAG);
    eh.e_ident[EI_CLASS] = ELFCLASS64;
    eh.e_ident[EI_DATA] = ELFDATA2LSB;
    eh.e_ident[EI_VERSION] = EV_CURRENT;
    fake_grow(&b, sizeof(eh) + sizeof(ph));
    for (size_t i = 0; i < n; i++) {
        const struct fake_segment *s = &spec->segments[i];

        ph[i] = (Elf64_Phdr){.p_type = PT_LOAD,
                             .p_flags = PF_R | PF_X,
                             .p_offset = s->offset ? s->offset
                                                   : align_up(b.len, FAKE_PAGE),
                             .p_vaddr = s->vaddr,
                             .p_paddr = s->paddr,
                             .p_filesz = s->file_bytes,
                             .p_memsz = s->mem_bytes};
        fake_grow(&b, ph[i].p_offset + s->file_bytes);
        memset(b.bytes + ph[i].p_offset, s->fill, s->file_bytes);
    }
    if (spec->rodata)
        memcpy(b.bytes + ph[0].p_offset + ph[0].p_filesz - strlen(spec->rodata),
               spec->rodata, strlen(spec->rodata));
    if (spec->note_pvh || spec->note_linux)
        fake_notes(spec, &b, &ph[n++]);
    if (spec->sections)
        fake_sections(spec, &ph[0], &b, &eh);
    eh.e_phnum = (Elf64_Half)n;
    fake_put(&b, 0, &eh, sizeof(eh));
    fake_put(&b, sizeof(eh), ph, sizeof(ph));
    *out = b;
}

void fake_vmlinux(bool with_dt, struct fake_buf *out)
{
    static const struct fake_segment segments[] = {
        {.paddr = 0x1000000,
         .vaddr = 0xffffffff81000000,
         .file_bytes = 0x21234,
         .mem_bytes = 0x21234,
         .fill = 0x90},
        {.paddr = 0x1200000,
         .vaddr = 0xffffffff81200000,
         .file_bytes = 0x1800,
         .mem_bytes = 0x9000,
         .fill = 0xda},
    };
    struct fake_elf spec = {.entry = 0x1000000,
                            .segments = segments,
                            .num_segments = ARRAY_SIZE(segments),
                            .rodata = with_dt ? "intel,ce4100-ioapic"
                                              : "no such support here",
                            .sections = true,
                            .note_pvh = true,
                            .note_linux = true};

    fake_elf_build(&spec, out);
}

static void fake_pack_gzip(const struct fake_buf *elf, struct fake_buf *out)
{
    z_stream z = {0};

    fake_grow(out, compressBound(elf->len) + 64);
    z.next_in = elf->bytes;
    z.avail_in = (uInt)elf->len;
    z.next_out = out->bytes;
    z.avail_out = (uInt)out->len;
    assert(deflateInit2(&z, 1, Z_DEFLATED, 16 + MAX_WBITS, 8,
                        Z_DEFAULT_STRATEGY) == Z_OK);
    assert(deflate(&z, Z_FINISH) == Z_STREAM_END);
    out->len = z.total_out;
    assert(deflateEnd(&z) == Z_OK);
}

#ifdef HAVE_ZSTD
static void fake_pack_zstd(const struct fake_buf *elf, struct fake_buf *out)
{
    size_t n;

    fake_grow(out, ZSTD_compressBound(elf->len));
    n = ZSTD_compress(out->bytes, out->len, elf->bytes, elf->len, 1);
    assert(!ZSTD_isError(n));
    out->len = n;
}
#endif

#ifdef HAVE_LZ4
static void fake_pack_lz4(const struct fake_buf *elf, struct fake_buf *out)
{
    const size_t block = (size_t)8 << 20;
    size_t pos = 4;

    fake_grow(out, 4);
    put_le32(out->bytes, 0x184c2102);
    for (size_t done = 0; done < elf->len;) {
        size_t n = elf->len - done < block ? elf->len - done : block;
        int packed;

        fake_grow(out, pos + 4 + (size_t)LZ4_compressBound((int)n));
        packed = LZ4_compress_default((char *)elf->bytes + done,
                                      (char *)out->bytes + pos + 4, (int)n,
                                      LZ4_compressBound((int)n));
        assert(packed > 0);
        put_le32(out->bytes + pos, (uint32_t)packed);
        pos += 4 + (size_t)packed;
        done += n;
        out->len = pos;
    }
}
#endif

#ifdef HAVE_LZMA
/* As kernels are packed: the filter for x86 code, CRC32 as the check. */
static void fake_pack_xz(const struct fake_buf *elf, struct fake_buf *out)
{
    lzma_options_lzma lzma;
    lzma_filter filters[] = {{LZMA_FILTER_X86, NULL},
                             {LZMA_FILTER_LZMA2, &lzma},
                             {LZMA_VLI_UNKNOWN, NULL}};
    size_t pos = 0;

    assert(!lzma_lzma_preset(&lzma, 0));
    fake_grow(out, lzma_stream_buffer_bound(elf->len));
    assert(lzma_stream_buffer_encode(filters, LZMA_CHECK_CRC32, NULL,
                                     elf->bytes, elf->len, out->bytes, &pos,
                                     out->len) == LZMA_OK);
    out->len = pos;
}
#endif

bool fake_payload(enum fake_pack how, const struct fake_buf *elf,
                  struct fake_buf *out)
{
    struct fake_buf b = {NULL, 0};
    uint8_t size[4];

    put_le32(size, (uint32_t)elf->len);
    if (how == FAKE_GZIP) {
        fake_pack_gzip(elf, &b); /* its own trailer is the size */
        *out = b;
        return true;
    }
#ifdef HAVE_ZSTD
    if (how == FAKE_ZSTD)
        fake_pack_zstd(elf, &b);
#endif
#ifdef HAVE_LZ4
    if (how == FAKE_LZ4)
        fake_pack_lz4(elf, &b);
#endif
#ifdef HAVE_LZMA
    if (how == FAKE_XZ)
        fake_pack_xz(elf, &b);
#endif
    if (b.len == 0) {
        fake_buf_free(&b);
        return false;
    }
    fake_put(&b, b.len, size, sizeof(size));
    *out = b;
    return true;
}

void fake_bzimage(const struct fake_buf *payload, struct fake_buf *out)
{
    struct setup_header h = {.setup_sects = FAKE_SECTS,
                             .boot_flag = 0xaa55,
                             .jump = 0x6aeb, /* jmp over the rest of it */
                             .header = 0x53726448,
                             .version = 0x020f,
                             .xloadflags = XLF_KERNEL_64,
                             .payload_offset = FAKE_GAP,
                             .payload_length = (__u32)payload->len,
                             .init_size = 0x1000000};
    struct fake_buf b = {NULL, 0};

    fake_put(&b, 0x1f1, &h, sizeof(h));
    fake_put(&b, (FAKE_SECTS + 1) * 512 + FAKE_GAP, payload->bytes,
             payload->len);
    fake_grow(&b, b.len + 100);
    *out = b;
}

void fake_buf_free(struct fake_buf *buf)
{
    free(buf->bytes);
    *buf = (struct fake_buf){NULL, 0};
}

int fake_file(const struct fake_buf *buf, char path[64])
{
    int fd = memfd_create("fake-kernel", MFD_CLOEXEC);

    assert(fd >= 0);
    assert(util_write_full(fd, buf->bytes, buf->len) == 0);
    (void)snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}
