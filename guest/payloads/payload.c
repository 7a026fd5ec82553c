/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/payloads/payload.h"

#include "guest/payloads/intr.h"

#include <asm/bootparam.h>

const struct boot_params *payload_boot_params;

/* Called by start.S, on the stack that it set. */
_Noreturn void payload_start(const struct boot_params *bp);

_Noreturn void payload_start(const struct boot_params *bp)
{
    payload_boot_params = bp;
    intr_init_exceptions();
    payload_main();
    payload_result(PAYLOAD_PASS);
}

/* --- the end ------------------------------------------------------------- */

_Noreturn void payload_park(void)
{
    for (;;)
        __asm__ volatile("cli; hlt" ::: "memory");
}

_Noreturn void payload_result(uint8_t code)
{
    outb(PORT_EXIT_TEST, code);
    payload_park();
}

_Noreturn void payload_fail(const char *why)
{
    print("FAIL: ");
    print(why);
    print("\n");
    payload_result(PAYLOAD_FAIL);
}

_Noreturn void payload_skip(const char *why)
{
    print("SKIP: ");
    print(why);
    print("\n");
    payload_result(PAYLOAD_SKIP);
}

void check(bool ok, const char *what)
{
    if (!ok)
        payload_fail(what);
}

void check_eq(uint64_t got, uint64_t want, const char *what)
{
    if (got == want)
        return;
    print("FAIL: ");
    print(what);
    print(": got ");
    print_hex(got);
    print(", want ");
    print_hex(want);
    print("\n");
    payload_result(PAYLOAD_FAIL);
}

/* --- text ---------------------------------------------------------------- */

void print(const char *text)
{
    while (*text)
        outb(PORT_UART, (uint8_t)*text++);
}

void print_hex(uint64_t v)
{
    int shift = 60;

    print("0x");
    while (shift > 0 && (v >> shift) == 0)
        shift -= 4;
    for (; shift >= 0; shift -= 4)
        outb(PORT_UART, (uint8_t) "0123456789abcdef"[v >> shift & 15]);
}

/* --- the command line ---------------------------------------------------- */

const char *payload_cmdline(void)
{
    return (const char *)(uintptr_t)payload_boot_params->hdr.cmd_line_ptr;
}

/* The text behind `prefix` if `word` begins with it, else NULL. */
static const char *word_begins(const char *word, const char *prefix)
{
    while (*prefix) {
        if (*word++ != *prefix++)
            return NULL;
    }
    return word;
}

const char *next_word(const char *line, const char *name)
{
    while (*line) {
        const char *value;

        while (*line == ' ')
            line++;
        value = word_begins(line, name);
        if (value)
            return value;
        while (*line && *line != ' ')
            line++;
    }
    return NULL;
}

const char *payload_word(const char *name)
{
    const char *found = NULL;
    const char *p = payload_cmdline();

    while ((p = next_word(p, name)))
        found = p;
    return found;
}

uint64_t parse_number(const char **text)
{
    const char *p = *text;
    uint64_t base = 10;
    uint64_t v = 0;

    if (p[0] == '0' && p[1] == 'x') {
        base = 16;
        p += 2;
    }
    for (;; p++) {
        uint64_t digit;

        if (*p >= '0' && *p <= '9')
            digit = (uint64_t)(*p - '0');
        else if (base == 16 && *p >= 'a' && *p <= 'f')
            digit = (uint64_t)(*p - 'a') + 10;
        else
            break;
        v = v * base + digit;
    }
    *text = p;
    return v;
}

uint64_t payload_number(const char *name, uint64_t otherwise)
{
    const char *value = payload_word(name);

    return value ? parse_number(&value) : otherwise;
}

bool payload_is(const char *name, const char *value)
{
    const char *p = payload_word(name);

    if (p)
        p = word_begins(p, value);
    return p && (*p == '\0' || *p == ' ');
}

bool payload_ring0_emulated(void)
{
    return payload_is("mote.ring0=", "emulated");
}
