/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/mptable.h"

#include <endian.h>
#include <linux/types.h>
#include <string.h>

/* Entry types and flags. spec: MP 1.4, 4.3 */
#define MP_CPU      0u
#define MP_BUS      1u
#define MP_IOAPIC   2u
#define MP_IO_INT   3u
#define MP_LOCAL    4u
#define MP_CPU_ON   0x01u
#define MP_CPU_BOOT 0x02u
#define MP_APIC_ON  0x01u
#define MP_INT      0u
#define MP_NMI      1u
#define MP_EXTINT   3u
#define MP_ALL      0xffu
#define MP_ISA_BUS  0u

#define MP_SPEC_REV    4u
#define MP_LAPIC_VER   0x14u
#define MP_IOAPIC_VER  0x11u
#define MP_FEATURES    0x201u /* FPU and APIC on the chip */
#define MP_CPU_FAMILY6 0x600u

struct mp_pointer {
    char signature[4];
    __le32 table;
    __u8 length; /* in units of 16 bytes */
    __u8 spec;
    __u8 checksum;
    __u8 feature[5];
} __attribute__((packed));

struct mp_header {
    char signature[4];
    __le16 length;
    __u8 spec;
    __u8 checksum;
    char oem[8];
    char product[12];
    __le32 oem_table;
    __le16 oem_length;
    __le16 entries;
    __le32 lapic;
    __le16 ext_length;
    __u8 ext_checksum;
    __u8 reserved;
} __attribute__((packed));

struct mp_cpu {
    __u8 type;
    __u8 apic_id;
    __u8 apic_version;
    __u8 flags;
    __le32 signature;
    __le32 features;
    __le32 reserved[2];
} __attribute__((packed));

struct mp_bus {
    __u8 type;
    __u8 id;
    char name[6];
} __attribute__((packed));

struct mp_ioapic {
    __u8 type;
    __u8 apic_id;
    __u8 apic_version;
    __u8 flags;
    __le32 address;
} __attribute__((packed));

struct mp_interrupt {
    __u8 type;
    __u8 kind;
    __le16 flags;
    __u8 bus;
    __u8 bus_irq;
    __u8 apic_id;
    __u8 pin;
} __attribute__((packed));

_Static_assert(sizeof(struct mp_pointer) == 16, "MP 1.4, 4.1");
_Static_assert(sizeof(struct mp_header) == 44, "MP 1.4, 4.2");
_Static_assert(sizeof(struct mp_cpu) == 20, "MP 1.4, 4.3.1");
_Static_assert(sizeof(struct mp_bus) == 8, "MP 1.4, 4.3.2");
_Static_assert(sizeof(struct mp_ioapic) == 8, "MP 1.4, 4.3.3");
_Static_assert(sizeof(struct mp_interrupt) == 8, "MP 1.4, 4.3.4");

#define MP_MAX_BYTES                                                           \
    (sizeof(struct mp_header) + LAYOUT_MAX_VCPUS * sizeof(struct mp_cpu) +     \
     sizeof(struct mp_bus) + sizeof(struct mp_ioapic) +                        \
     (LAYOUT_IOAPIC_PINS + 2) * sizeof(struct mp_interrupt))

_Static_assert(LAYOUT_MP_TABLE + MP_MAX_BYTES <= LAYOUT_BOOT_PARAMS,
               "the table ends below boot_params");

struct mp_table {
    size_t len;
    uint16_t entries;
    uint8_t bytes[MP_MAX_BYTES];
};

static void mp_add(struct mp_table *t, const void *entry, size_t len)
{
    memcpy(t->bytes + t->len, entry, len);
    t->len += len;
    t->entries++;
}

/* What makes all bytes add up to 0. */
static uint8_t mp_checksum(const void *p, size_t len)
{
    const uint8_t *bytes = p;
    uint8_t sum = 0;

    for (size_t i = 0; i < len; i++)
        sum = (uint8_t)(sum + bytes[i]);
    return (uint8_t)-sum;
}

static void mp_add_cpus(struct mp_table *t, unsigned ncpus)
{
    for (unsigned i = 0; i < ncpus; i++) {
        struct mp_cpu cpu = {
            .type = MP_CPU,
            .apic_id = (uint8_t)i,
            .apic_version = MP_LAPIC_VER,
            .flags = (uint8_t)(MP_CPU_ON | (i == 0 ? MP_CPU_BOOT : 0)),
            .signature = htole32(MP_CPU_FAMILY6),
            .features = htole32(MP_FEATURES)};

        mp_add(t, &cpu, sizeof(cpu));
    }
}

static void mp_add_lines(struct mp_table *t, uint8_t ioapic_id)
{
    for (uint8_t pin = 0; pin < LAYOUT_IOAPIC_PINS; pin++) {
        /* Flags 0: as the bus says, which for ISA is edge, active high. */
        struct mp_interrupt line = {.type = MP_IO_INT,
                                    .kind = MP_INT,
                                    .bus = MP_ISA_BUS,
                                    .bus_irq = pin,
                                    .apic_id = ioapic_id,
                                    .pin = pin};

        mp_add(t, &line, sizeof(line));
    }
}

static void mp_add_local(struct mp_table *t)
{
    struct mp_interrupt extint = {.type = MP_LOCAL,
                                  .kind = MP_EXTINT,
                                  .bus = MP_ISA_BUS,
                                  .apic_id = 0,
                                  .pin = 0};
    struct mp_interrupt nmi = {.type = MP_LOCAL,
                               .kind = MP_NMI,
                               .bus = MP_ISA_BUS,
                               .apic_id = MP_ALL,
                               .pin = 1};

    mp_add(t, &extint, sizeof(extint));
    mp_add(t, &nmi, sizeof(nmi));
}

/* Everything below the header, then the header that counts it. */
static void mp_fill(struct mp_table *t, const struct boot_machine *m)
{
    uint8_t ioapic_id = (uint8_t)m->ncpus; /* the first that no CPU has */
    struct mp_bus isa = {MP_BUS, MP_ISA_BUS, {'I', 'S', 'A', ' ', ' ', ' '}};
    struct mp_ioapic ioapic = {.type = MP_IOAPIC,
                               .apic_id = ioapic_id,
                               .apic_version = MP_IOAPIC_VER,
                               .flags = MP_APIC_ON,
                               .address = htole32((uint32_t)LAYOUT_IOAPIC)};
    struct mp_header h = {.spec = MP_SPEC_REV,
                          .lapic = htole32((uint32_t)LAYOUT_LAPIC)};

    t->len = sizeof(h);
    mp_add_cpus(t, m->ncpus);
    mp_add(t, &isa, sizeof(isa));
    mp_add(t, &ioapic, sizeof(ioapic));
    mp_add_lines(t, ioapic_id);
    mp_add_local(t);

    memcpy(h.signature, "PCMP", sizeof(h.signature));
    memcpy(h.oem, "MOTE    ", sizeof(h.oem));
    memcpy(h.product, "VM          ", sizeof(h.product));
    h.length = htole16((uint16_t)t->len);
    h.entries = htole16(t->entries);
    memcpy(t->bytes, &h, sizeof(h));
    h.checksum = mp_checksum(t->bytes, t->len);
    memcpy(t->bytes, &h, sizeof(h));
}

int mptable_write(struct guest_mem *gm, const struct boot_machine *m)
{
    struct mp_pointer p = {
        .table = htole32(LAYOUT_MP_TABLE), .length = 1, .spec = MP_SPEC_REV};
    struct mp_table t = {0};
    int rc;

    if (m->ncpus == 0 || m->ncpus > LAYOUT_MAX_VCPUS)
        return -ENOSPC;
    memcpy(p.signature, "_MP_", sizeof(p.signature));
    p.checksum = mp_checksum(&p, sizeof(p));
    mp_fill(&t, m);
    rc = gm_write(gm, LAYOUT_MP_TABLE, t.bytes, t.len);
    if (rc)
        return rc;
    return gm_write(gm, LAYOUT_MP_FLOATING, &p, sizeof(p));
}
