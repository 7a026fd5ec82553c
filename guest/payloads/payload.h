/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_PAYLOADS_PAYLOAD_H
#define GUEST_PAYLOADS_PAYLOAD_H

/*
 * What every payload builds on: entry, ports, registers in memory, text on
 * the serial port, words of the command line, and the result.
 *
 * A payload is a freestanding ELF program that the monitor loads like a
 * kernel: 64-bit mode, 4 GiB mapped one to one, interrupts off, vCPU 0 alone.
 * It defines payload_main(); returning from there is success.
 * Errors: payload_fail() and the check_*() functions print why and end the VM.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the program says with its end; tests/kvm reads the same numbers. */
#define PAYLOAD_PASS 0u
#define PAYLOAD_FAIL 1u
#define PAYLOAD_SKIP 77u

#define PORT_EXIT_REASON 0x500u /* the VM ends: poweroff 1, reboot 2, ... */
#define PORT_EXIT_TEST   0x501u /* the VM ends with this result */
#define PORT_BOOT_MARK   0x504u
#define PORT_UART        0x3f8u
#define PORT_KBC_COMMAND 0x64u

struct boot_params;
extern const struct boot_params *payload_boot_params;

void payload_main(void);

/* --- the end ------------------------------------------------------------- */

_Noreturn void payload_result(uint8_t code);
_Noreturn void payload_fail(const char *why);
_Noreturn void payload_skip(const char *why);
/* Interrupts off and halted for ever: the host has to end the VM. */
_Noreturn void payload_park(void);

void check(bool ok, const char *what);
void check_eq(uint64_t got, uint64_t want, const char *what);

/* --- text on the serial port --------------------------------------------- */

void print(const char *text);
void print_hex(uint64_t v); /* with 0x, without leading zeroes */

/* --- the command line ---------------------------------------------------- */

/*
 * The text behind `name=` in the command line up to its end, or NULL. The
 * last of several wins, as in Linux. `name` includes the equals sign.
 */
const char *payload_word(const char *name);
/* The number behind `name=`, decimal or 0x; `otherwise` without the word. */
uint64_t payload_number(const char *name, uint64_t otherwise);
/* Is the word's value exactly `value`? */
bool payload_is(const char *name, const char *value);
/* Reads a number and moves *text behind it. */
uint64_t parse_number(const char **text);
/* The next word that begins with `name` from `line` on, or NULL. */
const char *next_word(const char *line, const char *name);
const char *payload_cmdline(void);
/* Does the monitor say that this KVM emulates ring 0? */
bool payload_ring0_emulated(void);

/* --- waiting ------------------------------------------------------------- */

static inline uint64_t rdtsc(void)
{
    uint32_t lo;
    uint32_t hi;

    __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
    return (uint64_t)hi << 32 | lo;
}

/* Some seconds on any processor: the end of patience, never a delay. */
static inline uint64_t patience(void)
{
    return rdtsc() + (20ull << 30);
}

static inline bool over(uint64_t deadline)
{
    __asm__ volatile("pause" ::: "memory");
    return rdtsc() > deadline;
}

/* --- ports --------------------------------------------------------------- */

static inline void outb(uint16_t port, uint8_t v)
{
    __asm__ volatile("outb %0, %1" : : "a"(v), "Nd"(port) : "memory");
}

static inline void outw(uint16_t port, uint16_t v)
{
    __asm__ volatile("outw %0, %1" : : "a"(v), "Nd"(port) : "memory");
}

static inline void outl(uint16_t port, uint32_t v)
{
    __asm__ volatile("outl %0, %1" : : "a"(v), "Nd"(port) : "memory");
}

static inline uint8_t inb(uint16_t port)
{
    uint8_t v;

    __asm__ volatile("inb %1, %0" : "=a"(v) : "Nd"(port) : "memory");
    return v;
}

static inline uint16_t inw(uint16_t port)
{
    uint16_t v;

    __asm__ volatile("inw %1, %0" : "=a"(v) : "Nd"(port) : "memory");
    return v;
}

static inline uint32_t inl(uint16_t port)
{
    uint32_t v;

    __asm__ volatile("inl %1, %0" : "=a"(v) : "Nd"(port) : "memory");
    return v;
}

/* --- registers in memory: exactly one access of exactly this width -------- */

#define MMIO_ACCESSORS(bits, suffix)                                           \
    static inline uint##bits##_t mmio_r##bits(uint64_t at)                     \
    {                                                                          \
        uint##bits##_t v;                                                      \
                                                                               \
        __asm__ volatile("mov" suffix " (%1), %0"                              \
                         : "=r"(v)                                             \
                         : "r"(at)                                             \
                         : "memory");                                          \
        return v;                                                              \
    }                                                                          \
    static inline void mmio_w##bits(uint64_t at, uint##bits##_t v)             \
    {                                                                          \
        __asm__ volatile("mov" suffix " %0, (%1)"                              \
                         :                                                     \
                         : "r"(v), "r"(at)                                     \
                         : "memory");                                          \
    }

MMIO_ACCESSORS(8, "b")
MMIO_ACCESSORS(16, "w")
MMIO_ACCESSORS(32, "l")
MMIO_ACCESSORS(64, "q")

#endif
