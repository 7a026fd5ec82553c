/* SPDX-License-Identifier: Apache-2.0 */
/* The entropy device fills what it is given: not all zeroes, not twice the
 * same, and nothing behind the end of the buffer. */
#include "guest/payloads/virtio.h"

#define WORDS 8u

void payload_main(void)
{
    static volatile uint64_t buffer[2][WORDS + 1];
    uint32_t same = 0;
    uint32_t zero = 0;
    struct vdev *d;

    (void)vd_find_all();
    d = vd_find(VIRTIO_ID_RNG, 0);
    check(d != NULL, "this test needs the entropy device");
    vd_start(d, 0, 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct vd_seg seg = {buffer[i], WORDS * 8, true};
        uint32_t len;

        vd_post(d, &seg, 1);
        vd_kick(d);
        len = vd_wait(d);
        check_eq(len, WORDS * 8, "bytes that the device gave");
        check_eq(buffer[i][WORDS], 0, "the word behind the buffer");
    }
    for (uint32_t i = 0; i < WORDS; i++) {
        same += buffer[0][i] == buffer[1][i];
        zero += buffer[0][i] == 0;
    }
    check_eq(same, 0, "words that came twice");
    check_eq(zero, 0, "words that are zero");
}
