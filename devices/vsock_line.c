/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/vsock_unix.h"

#include <string.h>
#include <strings.h>

int vsu_parse_line(const char *line, size_t len, uint32_t *out_port)
{
    static const char word[] = "CONNECT ";
    const size_t word_len = sizeof(word) - 1;
    uint64_t port = 0;

    if (len <= word_len || len >= VSU_LINE_MAX)
        return -EINVAL;
    if (strncasecmp(line, word, word_len) != 0)
        return -EINVAL;
    for (size_t i = word_len; i < len; i++) {
        if (line[i] < '0' || line[i] > '9')
            return -EINVAL;
        port = port * 10 + (uint64_t)(line[i] - '0');
        if (port >= UINT32_MAX) /* that one is VMADDR_PORT_ANY */
            return -EINVAL;
    }
    *out_port = (uint32_t)port;
    return 0;
}
