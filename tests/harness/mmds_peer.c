/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/mmds_peer.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t guest_mac[6] = {0x02, 1, 2, 3, 4, 5};

static void mp_must(bool ok)
{
    if (!ok)
        abort();
}

static void put16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
    put16(p, v >> 16);
    put16(p + 2, v & 0xffff);
}

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)get16(p) << 16 | get16(p + 2);
}

/* The one's complement sum of 16-bit words, folded. */
static uint16_t sum16(const uint8_t *p, size_t len, uint64_t start)
{
    uint64_t sum = start;

    for (size_t i = 0; i < len; i++)
        sum += i % 2 ? p[i] : (uint64_t)p[i] << 8;
    while (sum >> 16)
        sum = (sum >> 16) + (sum & 0xffff);
    return (uint16_t)sum;
}

static uint16_t tcp_sum(const uint8_t *ip, const uint8_t *tcp, size_t len)
{
    return sum16(tcp, len,
                 6u + len + get16(ip + 12) + get16(ip + 14) + get16(ip + 16) +
                     get16(ip + 18));
}

static uint8_t *put_ether(uint8_t *p, uint16_t tags, uint16_t type)
{
    memset(p, 0xff, 6);
    memcpy(p + 6, guest_mac, 6);
    p += 12;
    for (uint16_t i = 0; i < tags; i++, p += 4) {
        put16(p, 0x8100);
        put16(p + 2, 5);
    }
    put16(p, type);
    return p + 2;
}

size_t mp_put(uint8_t *frame, const struct mp_out *o)
{
    uint8_t *ip = put_ether(frame, o->vlan_tags, 0x0800);
    uint8_t *tcp = ip + 20;
    size_t head = o->mss ? 28 : 20;

    mp_must(o->len + 200 < MP_FRAME);
    memset(ip, 0, 20 + head);
    ip[0] = 0x45;
    put16(ip + 2, (uint32_t)(20 + head + o->len));
    put16(ip + 6, o->fragment);
    ip[8] = 64;
    ip[9] = o->protocol ? o->protocol : 6;
    put32(ip + 12, o->src ? o->src : MP_GUEST);
    put32(ip + 16, o->dst ? o->dst : MP_IP);
    put16(ip + 10, (uint16_t)~sum16(ip, 20, o->bad_ip_sum));
    put16(tcp, o->port);
    put16(tcp + 2, o->dst_port ? o->dst_port : 80);
    put32(tcp + 4, o->seq);
    put32(tcp + 8, o->ack);
    tcp[12] = (uint8_t)(head / 4 << 4);
    tcp[13] = o->flags;
    put16(tcp + 14, o->window);
    if (o->mss) {
        tcp[20] = 1; /* no operation */
        tcp[21] = 2;
        tcp[22] = 4;
        put16(tcp + 23, o->mss);
    }
    if (o->len > 0)
        memcpy(tcp + head, o->data, o->len);
    put16(tcp + 16, (uint16_t)~tcp_sum(ip, tcp, head + o->len));
    if (o->bad_tcp_sum)
        tcp[16] ^= 1;
    return (size_t)(tcp - frame) + head + o->len;
}

size_t mp_put_arp(uint8_t *frame, uint32_t ip)
{
    uint8_t *p = put_ether(frame, 0, 0x0806);

    memset(p, 0, 28);
    put16(p, 1);
    put16(p + 2, 0x0800);
    p[4] = 6;
    p[5] = 4;
    put16(p + 6, 1);
    memcpy(p + 8, guest_mac, 6);
    put32(p + 14, MP_GUEST);
    put32(p + 24, ip);
    return 42;
}

static bool take_arp(const uint8_t *p, size_t len, struct mp_in *out)
{
    mp_must(len >= 28 && get16(p) == 1 && get16(p + 2) == 0x0800);
    mp_must(p[4] == 6 && p[5] == 4 && get16(p + 6) == 2);
    mp_must(get32(p + 14) == MP_IP && !(p[8] & 1));
    out->to_guest &= get32(p + 24) == MP_GUEST && !memcmp(p + 18, guest_mac, 6);
    return false;
}

bool mp_take(const uint8_t *frame, size_t len, struct mp_in *out)
{
    const uint8_t *ip = frame + 14;
    const uint8_t *tcp = ip + 20;
    size_t head;
    size_t n;

    mp_must(len >= 60 && len <= 1514);
    out->to_guest = !memcmp(frame, guest_mac, 6);
    if (get16(frame + 12) == 0x0806)
        return take_arp(ip, len - 14, out);
    mp_must(get16(frame + 12) == 0x0800 && ip[0] == 0x45 && ip[9] == 6);
    n = get16(ip + 2);
    mp_must(n >= 40 && n <= len - 14 && get32(ip + 12) == MP_IP);
    mp_must(sum16(ip, 20, 0) == 0xffff && tcp_sum(ip, tcp, n - 20) == 0xffff);
    out->to_guest &= get32(ip + 16) == MP_GUEST;
    head = (size_t)(tcp[12] >> 4) * 4;
    mp_must(head >= 20 && head <= n - 20);
    out->src_port = get16(tcp);
    out->port = get16(tcp + 2);
    out->seq = get32(tcp + 4);
    out->ack = get32(tcp + 8);
    out->flags = tcp[13];
    out->window = get16(tcp + 14);
    out->mss = 0;
    if (head > 20) {
        mp_must(head == 24 && tcp[20] == 2 && tcp[21] == 4);
        out->mss = get16(tcp + 22);
    }
    out->data = tcp + head;
    out->len = n - 20 - head;
    return true;
}
