/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/agent/words.h"

#include <linux/magic.h>
#include <string.h>

#include "guest/agent/codec.h"

static const char *words_value(const char *word, const char *name)
{
    size_t length = strlen(name);

    return strncmp(word, name, length) == 0 ? word + length : NULL;
}

static void words_word(struct words *words, const char *word)
{
    const char *value;

    if ((value = words_value(word, "root=")))
        words->root = value;
    else if ((value = words_value(word, "rootfstype=")))
        words->root_type = value;
    else if ((value = words_value(word, "mote.overlay=")))
        words->overlay = value;
    else if ((value = words_value(word, "mote.hostname=")))
        words->hostname = value;
    else if (strcmp(word, "rw") == 0)
        words->writable = true;
    else if (strcmp(word, "ro") == 0)
        words->writable = false;
    else if (strcmp(word, "mote.marks") == 0)
        words->marks = true;
}

void words_parse(struct words *words)
{
    char *rest = NULL;

    for (char *word = strtok_r(words->line, " \n", &rest); word;
         word = strtok_r(NULL, " \n", &rest)) {
        if (strcmp(word, "--") == 0)
            break; /* what follows is for init's argument list */
        words_word(words, word);
    }
}

const char *words_disk_type(const uint8_t *bytes, size_t length)
{
    if (length < WORDS_DISK_BYTES)
        return NULL;
    /* Superblocks: EROFS and ext4 at 1024, ext4's magic 56 bytes into it. */
    if (codec_get32(bytes + 1024) == EROFS_SUPER_MAGIC_V1)
        return "erofs";
    if (codec_get16(bytes + 1024 + 56) == EXT4_SUPER_MAGIC)
        return "ext4";
    if (codec_get32(bytes) == SQUASHFS_MAGIC)
        return "squashfs";
    if (memcmp(bytes, "XFSB", 4) == 0)
        return "xfs";
    return NULL;
}
