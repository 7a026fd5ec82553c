/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/mmds_frame.h"

#include <assert.h>
#include <linux/if_arp.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <string.h>

#define FRAME_IP_MIN    20u
#define FRAME_TCP_MIN   20u
#define FRAME_ARP_BYTES 28u
#define FRAME_MIN_BYTES 60u /* what goes over a wire, without its checksum */
#define FRAME_TAG_BYTES 4u
#define FRAME_IP_DF     0x4000u
#define FRAME_IP_MF     0x2000u
#define FRAME_IP_OFFSET 0x1fffu
#define FRAME_TTL       64u
#define FRAME_OPT_END   0u
#define FRAME_OPT_NOP   1u
#define FRAME_OPT_MSS   2u

/* Unicast, marked as given out locally. */
const uint8_t mmds_mac[MMDS_MAC_BYTES] = {0x06, 0x6d, 0x6f, 0x74, 0x65, 0x01};

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)get16(p) << 16 | get16(p + 2);
}

static void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
    put16(p, (uint16_t)(v >> 16));
    put16(p + 2, (uint16_t)v);
}

/* --- whose it is ---------------------------------------------------------- */

static bool frame_is_tag(uint16_t type)
{
    return type == ETH_P_8021Q || type == ETH_P_8021AD || type == ETH_P_QINQ1 ||
           type == ETH_P_QINQ2 || type == ETH_P_QINQ3;
}

bool mmds_frame_is_ours(const uint8_t *head, size_t len, uint32_t ip)
{
    size_t at = ETH_HLEN;
    uint16_t type;

    if (len < ETH_HLEN)
        return false;
    type = get16(head + at - 2);
    while (frame_is_tag(type)) {
        at += FRAME_TAG_BYTES;
        /* A short frame ends here; a long one may hide what it is. */
        if (at > len)
            return len >= MMDS_HEAD_BYTES;
        type = get16(head + at - 2);
    }
    /* The address is at 16 of an IPv4 header, the asked one at 24 of ARP's. */
    if (type == ETH_P_IP)
        at += 16;
    else if (type == ETH_P_ARP)
        at += 24;
    else
        return false;
    if (at + 4 > len)
        return len >= MMDS_HEAD_BYTES; /* too many tags before it */
    return get32(head + at) == ip;
}

/* --- checksums ------------------------------------------------------------ */

/* spec: rfc1071; `sum` is what other parts gave. */
static uint32_t frame_sum(uint32_t sum, const uint8_t *p, size_t len)
{
    for (size_t i = 0; i + 1 < len; i += 2)
        sum += get16(p + i);
    if (len % 2)
        sum += (uint32_t)p[len - 1] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

/* Of the segment with its pseudo header; right ones give 0. */
static uint16_t frame_tcp_sum(const uint8_t *ip, const uint8_t *tcp, size_t len)
{
    uint32_t sum = frame_sum(IPPROTO_TCP + (uint32_t)len, ip + 12, 8);

    return (uint16_t)~frame_sum(sum, tcp, len);
}

/* --- parsing -------------------------------------------------------------- */

static bool frame_mac_ok(const uint8_t *mac)
{
    static const uint8_t none[MMDS_MAC_BYTES];

    return !(mac[0] & 1) && memcmp(mac, none, sizeof(none)) != 0;
}

static enum mmds_kind frame_parse_arp(const uint8_t *p, size_t len, uint32_t ip,
                                      struct mmds_arp *out)
{
    if (len < FRAME_ARP_BYTES || get16(p) != ARPHRD_ETHER ||
        get16(p + 2) != ETH_P_IP || p[4] != MMDS_MAC_BYTES || p[5] != 4)
        return MMDS_BAD;
    if (get16(p + 6) != ARPOP_REQUEST || get32(p + 24) != ip ||
        get32(p + 14) == ip)
        return MMDS_NOTHING; /* an answer, or the guest takes our address */
    if (!frame_mac_ok(p + 8))
        return MMDS_BAD;
    memcpy(out->mac, p + 8, MMDS_MAC_BYTES);
    out->ip = get32(p + 14);
    return MMDS_IS_ARP;
}

/* The options of a SYN. False: one of them is broken. */
static bool frame_parse_options(const uint8_t *p, size_t len, uint16_t *out_mss)
{
    size_t i = 0;

    while (i < len && p[i] != FRAME_OPT_END) {
        if (p[i] == FRAME_OPT_NOP) {
            i++;
            continue;
        }
        if (len - i < 2 || p[i + 1] < 2 || p[i + 1] > len - i)
            return false;
        if (p[i] == FRAME_OPT_MSS && p[i + 1] == 4)
            *out_mss = get16(p + i + 2);
        i += p[i + 1];
    }
    return true;
}

/* `ip` is a checked header; the segment are the `len` bytes at `p`. */
static enum mmds_kind frame_parse_tcp(const uint8_t *ip, const uint8_t *p,
                                      size_t len, bool partial_csum,
                                      struct mmds_seg *out)
{
    size_t head;

    if (len < FRAME_TCP_MIN)
        return MMDS_BAD;
    head = (size_t)(p[12] >> 4) * 4;
    if (head < FRAME_TCP_MIN || head > len)
        return MMDS_BAD;
    if (!partial_csum && frame_tcp_sum(ip, p, len) != 0)
        return MMDS_BAD;
    out->peer_port = get16(p);
    out->port = get16(p + 2);
    out->seq = get32(p + 4);
    out->ack = get32(p + 8);
    out->flags = p[13] & (MMDS_FIN | MMDS_SYN | MMDS_RST | MMDS_ACK);
    out->window = get16(p + 14);
    out->mss = 0;
    if (out->peer_port == 0)
        return MMDS_BAD;
    if ((out->flags & MMDS_SYN) &&
        !frame_parse_options(p + FRAME_TCP_MIN, head - FRAME_TCP_MIN,
                             &out->mss))
        return MMDS_BAD;
    out->data = p + head;
    out->len = (uint32_t)(len - head);
    return MMDS_IS_TCP;
}

/* A unicast address that is not ours. */
static bool frame_source_ok(uint32_t source, uint32_t ip)
{
    return source != 0 && source != ip && source >> 28 < 14;
}

static enum mmds_kind frame_parse_ip(const uint8_t *p, size_t len, uint32_t ip,
                                     bool partial_csum, struct mmds_seg *out)
{
    size_t head;
    size_t total;

    if (len < FRAME_IP_MIN || p[0] >> 4 != 4)
        return MMDS_BAD;
    head = (size_t)(p[0] & 15) * 4;
    total = get16(p + 2);
    if (head < FRAME_IP_MIN || total < head || total > len ||
        frame_sum(0, p, head) != 0xffff)
        return MMDS_BAD;
    if (get32(p + 16) != ip || !frame_source_ok(get32(p + 12), ip))
        return MMDS_BAD;
    if (get16(p + 6) & (FRAME_IP_MF | FRAME_IP_OFFSET))
        return MMDS_NOTHING;
    if (p[9] != IPPROTO_TCP)
        return MMDS_NOTHING;
    out->peer_ip = get32(p + 12);
    return frame_parse_tcp(p, p + head, total - head, partial_csum, out);
}

enum mmds_kind mmds_frame_parse(const uint8_t *frame, size_t len, uint32_t ip,
                                bool partial_csum, struct mmds_arp *arp,
                                struct mmds_seg *seg)
{
    uint16_t type;

    if (len < ETH_HLEN || !frame_mac_ok(frame + ETH_ALEN))
        return MMDS_BAD;
    type = get16(frame + 2 * ETH_ALEN);
    if (type == ETH_P_ARP)
        return frame_parse_arp(frame + ETH_HLEN, len - ETH_HLEN, ip, arp);
    if (type != ETH_P_IP)
        return MMDS_NOTHING; /* behind a tag */
    memcpy(seg->mac, frame + ETH_ALEN, ETH_ALEN);
    return frame_parse_ip(frame + ETH_HLEN, len - ETH_HLEN, ip, partial_csum,
                          seg);
}

/* --- ours ----------------------------------------------------------------- */

static uint8_t *frame_put_ether(uint8_t *out, const uint8_t *to, uint16_t type)
{
    memcpy(out, to, ETH_ALEN);
    memcpy(out + ETH_ALEN, mmds_mac, ETH_ALEN);
    put16(out + 2 * ETH_ALEN, type);
    return out + ETH_HLEN;
}

size_t mmds_put_arp(uint8_t *out, const struct mmds_arp *to, uint32_t ip)
{
    uint8_t *p;

    memset(out, 0, FRAME_MIN_BYTES);
    p = frame_put_ether(out, to->mac, ETH_P_ARP);
    put16(p, ARPHRD_ETHER);
    put16(p + 2, ETH_P_IP);
    p[4] = MMDS_MAC_BYTES;
    p[5] = 4;
    put16(p + 6, ARPOP_REPLY);
    memcpy(p + 8, mmds_mac, MMDS_MAC_BYTES);
    put32(p + 14, ip);
    memcpy(p + 18, to->mac, MMDS_MAC_BYTES);
    put32(p + 24, to->ip);
    return FRAME_MIN_BYTES;
}

size_t mmds_put_seg(uint8_t *out, const struct mmds_seg *seg, uint32_t ip)
{
    size_t head = FRAME_TCP_MIN + (seg->mss ? 4 : 0);
    size_t total = FRAME_IP_MIN + head + seg->len;
    uint8_t *p;
    uint8_t *t;

    assert(ETH_HLEN + total <= MMDS_MAX_FRAME);
    memset(out, 0, FRAME_MIN_BYTES);
    p = frame_put_ether(out, seg->mac, ETH_P_IP);
    t = p + FRAME_IP_MIN;
    p[0] = 0x45;
    put16(p + 2, (uint16_t)total);
    put16(p + 6, FRAME_IP_DF);
    p[8] = FRAME_TTL;
    p[9] = IPPROTO_TCP;
    put32(p + 12, ip);
    put32(p + 16, seg->peer_ip);
    put16(p + 10, (uint16_t)~frame_sum(0, p, FRAME_IP_MIN));
    put16(t, seg->port);
    put16(t + 2, seg->peer_port);
    put32(t + 4, seg->seq);
    put32(t + 8, seg->ack);
    t[12] = (uint8_t)(head / 4 << 4);
    t[13] = seg->flags;
    put16(t + 14, seg->window);
    put16(t + 16, 0);
    put16(t + 18, 0);
    if (seg->mss) {
        t[20] = FRAME_OPT_MSS;
        t[21] = 4;
        put16(t + 22, seg->mss);
    }
    if (seg->len > 0)
        memcpy(t + head, seg->data, seg->len);
    put16(t + 16, frame_tcp_sum(p, t, head + seg->len));
    total += ETH_HLEN;
    return total < FRAME_MIN_BYTES ? FRAME_MIN_BYTES : total;
}
