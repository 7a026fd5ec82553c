/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/payloads/ticker.h"

#include "guest/payloads/intr.h"

/* spec: AMD64 APM 2 16.4.1 (APIC timer) */
#define LAPIC_LVT_TIMER   0xfee00320ull
#define LAPIC_INIT_COUNT  0xfee00380ull
#define LAPIC_DIVIDE      0xfee003e0ull
#define LVT_PERIODIC      (1u << 17)
#define LVT_DEADLINE      (2u << 17)
#define DIVIDE_BY_1       0xbu
#define VECTOR_TIMER      62u
#define LAPIC_PER_US      1000u /* KVM's bus has 1 GHz */
#define TSC_PER_US        2000u /* about; nobody measures by it */
#define MSR_TSC_DEADLINE  0x6e0u
#define CPUID_1_ECX_TIMER (1u << 24)

/* spec: Intel 8254 data sheet; KVM raises its output as line 0 */
#define PIT_CHANNEL_0   0x40u
#define PIT_COMMAND     0x43u
#define PIT_RATE        0x34u /* channel 0, both bytes, mode 2 */
#define PIT_PIN         0u
#define PIT_HZ          1193182u
#define PIT_MAX_PERIODS 65535u

enum ticker_kind { TICKER_LAPIC, TICKER_DEADLINE, TICKER_PIT };

static enum ticker_kind ticker_kind;
static uint64_t ticker_us;

static void ticker_read_words(void)
{
    /* Where an instruction takes a microsecond, more of them a tick. */
    ticker_us =
        payload_number("period=", payload_ring0_emulated() ? 10000 : 2000);
    if (payload_is("timer=", "pit"))
        ticker_kind = TICKER_PIT;
    else if (payload_is("timer=", "deadline"))
        ticker_kind = TICKER_DEADLINE;
}

static void ticker_check_deadline(void)
{
    uint32_t eax = 1;
    uint32_t ebx;
    uint32_t ecx = 0;
    uint32_t edx;

    __asm__ volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
    if (!(ecx & CPUID_1_ECX_TIMER))
        payload_skip("this KVM has no TSC deadline timer");
}

static void ticker_arm_deadline(void)
{
    uint64_t at = rdtsc() + ticker_us * TSC_PER_US;

    __asm__ volatile("wrmsr"
                     :
                     : "c"(MSR_TSC_DEADLINE), "a"((uint32_t)at),
                       "d"((uint32_t)(at >> 32))
                     : "memory");
}

/* By the handler, not by whoever waits: an interrupt that comes between STI and
 * HLT, as it does on QEMU's SVM, would be the last one. */
static void ticker_on_interrupt(uint64_t vector)
{
    if (vector == VECTOR_TIMER)
        ticker_arm_deadline();
}

static void ticker_start_pit(void)
{
    uint64_t periods = ticker_us * PIT_HZ / 1000000;

    if (periods > PIT_MAX_PERIODS)
        periods = PIT_MAX_PERIODS;
    ioapic_route(PIT_PIN);
    outb(PIT_COMMAND, PIT_RATE);
    outb(PIT_CHANNEL_0, (uint8_t)periods);
    outb(PIT_CHANNEL_0, (uint8_t)(periods >> 8));
}

void ticker_start(void)
{
    bool first = lapic_id() == 0;

    if (first)
        ticker_read_words();
    intr_init_apics();
    if (ticker_kind == TICKER_PIT && first) {
        ticker_start_pit();
        return;
    }
    if (ticker_kind == TICKER_DEADLINE) {
        ticker_check_deadline();
        intr_hook = ticker_on_interrupt;
        mmio_w32(LAPIC_LVT_TIMER, LVT_DEADLINE | VECTOR_TIMER);
        ticker_arm_deadline();
        return;
    }
    mmio_w32(LAPIC_DIVIDE, DIVIDE_BY_1);
    mmio_w32(LAPIC_LVT_TIMER, LVT_PERIODIC | VECTOR_TIMER);
    mmio_w32(LAPIC_INIT_COUNT, (uint32_t)(ticker_us * LAPIC_PER_US));
}

void ticker_wait(void)
{
    uint64_t sum;

    /* A machine is mostly saved in here. */
    __asm__ volatile("movl $0x1001, %%ebx\n\t"
                     "movl $0x2003, %%ecx\n\t"
                     "movl $0x4007, %%edx\n\t"
                     "movl $0x800f, %%esi\n\t"
                     "movl $0x1001f, %%edi\n\t"
                     "movl $0x2003f, %%r8d\n\t"
                     "movl $0x4007f, %%r9d\n\t"
                     "movl $0x800ff, %%r10d\n\t"
                     "movl $0x1001ff, %%r11d\n\t"
                     "movl $0x2003ff, %%r12d\n\t"
                     "movl $0x4007ff, %%r13d\n\t"
                     "movl $0x800fff, %%r14d\n\t"
                     "movl $0x1001fff, %%r15d\n\t"
                     "movl $0, %%eax\n\t"
                     "sti\n\t"
                     "hlt\n\t"
                     "cli\n\t"
                     "addq %%rbx, %%rax\n\t"
                     "addq %%rcx, %%rax\n\t"
                     "addq %%rdx, %%rax\n\t"
                     "addq %%rsi, %%rax\n\t"
                     "addq %%rdi, %%rax\n\t"
                     "addq %%r8, %%rax\n\t"
                     "addq %%r9, %%rax\n\t"
                     "addq %%r10, %%rax\n\t"
                     "addq %%r11, %%rax\n\t"
                     "addq %%r12, %%rax\n\t"
                     "addq %%r13, %%rax\n\t"
                     "addq %%r14, %%rax\n\t"
                     "addq %%r15, %%rax\n\t"
                     : "=a"(sum)
                     :
                     : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10",
                       "r11", "r12", "r13", "r14", "r15", "memory", "cc");
    /* 0x1001 << k and 2^(k + 1) - 1 a register, thirteen of them. */
    check_eq(sum,
             0x1001ull + 0x2003 + 0x4007 + 0x800f + 0x1001f + 0x2003f +
                 0x4007f + 0x800ff + 0x1001ff + 0x2003ff + 0x4007ff + 0x800fff +
                 0x1001fff,
             "sum of the registers behind a halt");
}

void print_decimal(uint64_t v)
{
    char text[21];
    char *p = text + sizeof(text) - 1;

    *p = '\0';
    do {
        *--p = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    print(p);
}

void ticker_say(uint64_t n)
{
    print("tick ");
    print_decimal(n);
    print("\n");
}
