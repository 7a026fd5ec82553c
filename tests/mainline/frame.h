/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_MAINLINE_FRAME_H
#define TESTS_MAINLINE_FRAME_H

/*
 * What PID 1 of the machine sends to the relay outside, on one virtio port:
 * frames of one byte of kind, two bytes of length (little endian), payload.
 *
 * One port, and an end that is said in the stream: a port has no flush, so the
 * machine cannot know when the host has read all and it may power off.
 */
enum {
    FRAME_HEAD_BYTES = 3,
    FRAME_MAX_BYTES = 16384, /* payload */
    FRAME_OUT = 'O',         /* bytes of standard output */
    FRAME_ERR = 'E',         /* bytes of standard error */
    FRAME_NOTE = 'N',        /* text: "up MS", the command starts */
    FRAME_LAST = 'L',        /* text: "exit STATUS" or "fail REASON" */
};

#endif
