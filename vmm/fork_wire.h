/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_FORK_WIRE_H
#define VMM_FORK_WIRE_H

/*
 * What a machine that forks and a waiting monitor say to each other, on a
 * stream socket of the latter:
 *
 *   request  "MOTEFORK", le32 version, le32 length of the JSON text, with the
 *            first byte the descriptors of state and memory; then the text: the
 *            body of PUT /snapshot/load without the files
 *   answer   le32 0 or a positive errno, le32 length of the text, the text: the
 *            reason
 *
 * Both sides are of one version of mote. Little-endian.
 */

#define FORK_MAGIC        "MOTEFORK"
#define FORK_MAGIC_BYTES  8u
#define FORK_VERSION      1u
#define FORK_HEAD_BYTES   16u
#define FORK_ANSWER_BYTES 8u
#define FORK_MAX_TEXT     65536u
#define FORK_NUM_FDS      2u

#endif
