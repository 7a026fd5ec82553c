/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/state_box.h"

#include <stdlib.h>
#include <string.h>

static void sbox_must(bool ok)
{
    if (!ok)
        abort();
}

struct state_out *sbox_begin(struct state_box *b, uint16_t version)
{
    memset(b, 0, sizeof(*b));
    b->version = version;
    state_out_init(&b->out_);
    state_begin(&b->out_, "x", version);
    return &b->out_;
}

void sbox_end(struct state_box *b)
{
    uint8_t id[STATE_ID_BYTES] = {0};
    struct state_file f;
    struct state_in in;

    state_end(&b->out_);
    sbox_must(state_finish(&b->out_, id) == 0);
    sbox_must(state_open(&f, b->out_.data, b->out_.len_bytes, NULL) == 0);
    sbox_must(state_section(&f, "x", b->version, &in, NULL) == 0);
    b->len = (size_t)(in.end - in.at);
    b->bytes = malloc(b->len);
    sbox_must(b->bytes || b->len == 0);
    if (b->len > 0)
        memcpy(b->bytes, in.at, b->len);
    state_out_fini(&b->out_);
}

struct state_in sbox_in_part(const struct state_box *b, size_t len)
{
    return (struct state_in){
        .at = b->bytes, .end = b->bytes + len, .version = b->version};
}

struct state_in sbox_in(const struct state_box *b)
{
    return sbox_in_part(b, b->len);
}

void sbox_free(struct state_box *b)
{
    free(b->bytes);
    b->bytes = NULL;
    b->len = 0;
}

/* --- a virtio device ----------------------------------------------------- */

void sbox_rest(struct fdrv *d)
{
    if (!d->dev->resting)
        sbox_must(fdrv_rest(d) == 0);
    for (uint16_t q = 0; q < d->dev->num_queues; q++) {
        const struct virtq *vq = &d->dev->vq[q];

        /* Nothing is held: these devices have nothing in flight. */
        sbox_must(vq->size == 0 || vq->broken || vq->stopped ||
                  vq->next_avail == vq->next_used);
    }
}

void sbox_save(struct fdrv *d, struct state_box *b)
{
    struct state_out *out = sbox_begin(b, d->dev->ops->state_version);

    d->dev->ops->save(d->dev, out);
    sbox_end(b);
}

int sbox_load_in(struct fdrv *d, struct virtio_dev *to, struct state_in *in)
{
    struct virtio_dev *from = d->dev;
    struct errmsg err = {""};
    int rc;

    to->features = from->features;
    to->transport = d;
    to->transport_ops = from->transport_ops;
    memcpy(to->vq, from->vq, sizeof(to->vq));
    to->resting = true;
    d->dev = to;
    sbox_must(to->ops->activate(to) == 0);
    rc = to->ops->load(to, in, &err);
    return rc ? rc : state_done(in);
}
