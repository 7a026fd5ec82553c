/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/cmdline.h"

#include <stdio.h>
#include <string.h>

#define CMDLINE_MAX_CHARS (LAYOUT_CMDLINE_MAX - 1u) /* without the NUL */
#define CMDLINE_WORD_MAX  64u

struct cmdline {
    size_t len; /* what all words need; text holds them if it fits */
    char text[LAYOUT_CMDLINE_MAX];
};

/* Counts on when it is full, so that the error can say by how much. */
static void cmdline_add(struct cmdline *c, const char *words)
{
    size_t n = words ? strlen(words) : 0;
    size_t gap = c->len > 0 ? 1 : 0;

    if (n == 0)
        return;
    if (c->len + gap + n <= CMDLINE_MAX_CHARS) {
        if (gap)
            c->text[c->len] = ' ';
        memcpy(c->text + c->len + gap, words, n + 1);
    }
    c->len += gap + n;
}

static int cmdline_check_chars(const char *whose, const char *words,
                               struct errmsg *err)
{
    for (size_t i = 0; words[i]; i++) {
        unsigned char c = (unsigned char)words[i];

        if (c >= 0x20 && c != 0x7f)
            continue;
        return err_set(err, -EINVAL,
                       "%s: control character 0x%02x%s at offset %zu; remove "
                       "it, words are separated by blanks",
                       whose, c, c == '\n' ? " (line feed)" : "", i);
    }
    return 0;
}

static int cmdline_too_long(size_t len, size_t own, struct errmsg *err)
{
    return err_set(err, -E2BIG,
                   "kernel command line: %zu bytes, of which %zu are the "
                   "monitor's; the kernel takes at most %u: shorten it by %zu",
                   len, own, CMDLINE_MAX_CHARS, len - CMDLINE_MAX_CHARS);
}

int cmdline_check_user(const char *user, struct errmsg *err)
{
    int rc;

    if (!user)
        return 0;
    rc = cmdline_check_chars("kernel command line", user, err);
    if (rc)
        return rc;
    if (strlen(user) > CMDLINE_MAX_CHARS)
        return cmdline_too_long(strlen(user), 0, err);
    return 0;
}

/* Is there a word `--`? From it on, words are init's and not the kernel's. */
static bool cmdline_has_init_words(const char *words)
{
    const char *p = words;

    while ((p = strstr(p, "--"))) {
        if ((p == words || p[-1] == ' ') && (p[2] == '\0' || p[2] == ' '))
            return true;
        p++;
    }
    return false;
}

int cmdline_build(const char *own, const struct boot_machine *words_for,
                  const char *user, char out[LAYOUT_CMDLINE_MAX],
                  struct errmsg *err)
{
    struct cmdline c = {0};
    size_t own_len;
    int rc;

    if (own && cmdline_has_init_words(own))
        return err_set(err, -EINVAL,
                       "the monitor's kernel words: they contain --; leave "
                       "init's arguments to the user's command line");
    rc = own ? cmdline_check_chars("the monitor's kernel words", own, err) : 0;
    if (rc == 0 && user)
        rc = cmdline_check_chars("kernel command line", user, err);
    if (rc)
        return rc;
    cmdline_add(&c, own);
    for (size_t i = 0; words_for && i < words_for->ndevs; i++) {
        const struct boot_mmio_dev *d = &words_for->devs[i];
        char word[CMDLINE_WORD_MAX];

        (void)snprintf(word, sizeof(word), "virtio_mmio.device=%llu@0x%llx:%u",
                       (unsigned long long)d->size_bytes,
                       (unsigned long long)d->base, d->gsi);
        cmdline_add(&c, word);
    }
    own_len = c.len;
    cmdline_add(&c, user);
    if (c.len > CMDLINE_MAX_CHARS)
        return cmdline_too_long(c.len, own_len, err);
    memcpy(out, c.text, sizeof(c.text));
    return 0;
}
