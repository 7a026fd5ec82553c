/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes as what a guest's agent sends: cut into pieces whose sizes come
 * from the input too (first byte: how long a piece is), decoded, and each
 * message's attributes walked. Memory stays within what one frame and one
 * message need.
 */

#include "tools/libmote/frame.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_message(const struct lm_msg *m)
{
    struct lm_attr_iter it;
    struct lm_attr a;
    char text[64];
    uint32_t v = 0;
    unsigned sum = 0;

    for (size_t i = 0; i < m->len; i++)
        sum += m->data[i]; /* every byte must be ours to read */
    lm_attr_begin(&it, m);
    while (lm_attr_next(&it, &a) > 0) {
        assert(a.data >= m->data && a.data + a.len <= m->data + m->len);
        (void)!lm_attr_u32(&a, &v);
        lm_attr_text(&a, text, sizeof(text));
        assert(strlen(text) < sizeof(text));
    }
    (void)sum;
}

/* Takes all messages that are whole. False when the stream is broken. */
static bool fuzz_drain(struct lm_reader *r)
{
    struct lm_msg m;
    int rc;

    while ((rc = lm_reader_next(r, &m)) > 0) {
        assert(m.len <= MOTE_MESSAGE_MAX);
        fuzz_message(&m);
    }
    return rc == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lm_reader r = {0};
    size_t piece;

    if (size == 0)
        return 0;
    piece = (size_t)data[0] + 1;
    data++;
    size--;
    while (fuzz_drain(&r) && size > 0) {
        size_t room = 0;
        uint8_t *p = lm_reader_room(&r, &room);
        size_t n = (size_t)min_u64(min_u64(piece, size), room);

        assert(p && n > 0);
        memcpy(p, data, n);
        lm_reader_put(&r, n);
        data += n;
        size -= n;
        assert(r.in.cap <= 4u * MOTE_FRAME_MAX);
        assert(r.joined.cap <= 2u * MOTE_MESSAGE_MAX);
    }
    lm_reader_fini(&r);
    return 0;
}
