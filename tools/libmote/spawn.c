/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/spawn.h"

#include "vmm/cleanup.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>

/* What a monitor may have from our environment; '=' or '_' ends a prefix. */
static const char *const lm_env_kept[] = {
    "PATH=", "HOME=", "LANG=", "LC_",           "TZ=",          "TMPDIR=",
    "XDG_",  "MOTE_", "ASAN_", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_",
};

static bool lm_env_is_kept(const char *var)
{
    for (size_t i = 0; i < ARRAY_SIZE(lm_env_kept); i++) {
        if (!strncmp(var, lm_env_kept[i], strlen(lm_env_kept[i])))
            return true;
    }
    return false;
}

/* An array for free(); its strings are environ's. */
static char **lm_env_new(void)
{
    size_t n = 0;
    char **env;

    for (char **v = environ; v && *v; v++)
        n++;
    env = calloc(n + 1, sizeof(*env));
    if (!env)
        return NULL;
    n = 0;
    for (char **v = environ; v && *v; v++) {
        if (lm_env_is_kept(*v))
            env[n++] = *v;
    }
    return env;
}

static int lm_spawn_attr(posix_spawnattr_t *attr)
{
    sigset_t none;
    sigset_t all;
    int rc;

    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    rc = posix_spawnattr_setsigmask(attr, &none);
    if (!rc)
        rc = posix_spawnattr_setsigdefault(attr, &all);
    if (!rc)
        rc = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK |
                                                POSIX_SPAWN_SETSIGDEF |
                                                POSIX_SPAWN_SETSID);
    return -rc;
}

static int lm_spawn_copies(posix_spawn_file_actions_t *fa, const int *from,
                           size_t count)
{
    int rc = 0;

    for (size_t i = 0; i < count && !rc; i++)
        rc = posix_spawn_file_actions_adddup2(fa, from[i], (int)i);
    if (!rc)
        rc = posix_spawn_file_actions_addclosefrom_np(fa, (int)count);
    return -rc;
}

/* `from` are copies that lie above every number in the process. */
static int lm_spawn_from(const struct lm_spawn *s, char *const *argv,
                         char *const *env, const int *from, pid_t *out_pid)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    int rc = -posix_spawnattr_init(&attr);

    if (rc)
        return rc;
    rc = -posix_spawn_file_actions_init(&fa);
    if (rc) {
        (void)posix_spawnattr_destroy(&attr);
        return rc;
    }
    rc = lm_spawn_attr(&attr);
    if (!rc)
        rc = lm_spawn_copies(&fa, from, s->fd_count);
    if (!rc)
        rc = -posix_spawn(out_pid, s->program, &fa, &attr, argv, env);
    (void)posix_spawn_file_actions_destroy(&fa);
    (void)posix_spawnattr_destroy(&attr);
    return rc;
}

/* Sources of dup2() are moved above every target first. */
static int lm_spawn_sources(const struct lm_spawn *s, int *from)
{
    CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null < 0)
        return neg_errno();
    for (size_t i = 0; i < s->fd_count; i++) {
        from[i] = fcntl(s->fds[i] >= 0 ? s->fds[i] : null, F_DUPFD_CLOEXEC,
                        LM_SPAWN_MAX_FDS);
        if (from[i] < 0)
            return neg_errno();
    }
    return 0;
}

int lm_spawn(const struct lm_spawn *s, pid_t *out_pid)
{
    int from[LM_SPAWN_MAX_FDS];
    char **argv = lm_words_copy(s->words);
    char **env = lm_env_new();
    int rc = argv && env ? 0 : -ENOMEM;

    for (size_t i = 0; i < ARRAY_SIZE(from); i++)
        from[i] = -1;
    if (!rc)
        rc = lm_spawn_sources(s, from);
    if (!rc)
        rc = lm_spawn_from(s, argv, env, from, out_pid);
    for (size_t i = 0; i < ARRAY_SIZE(from); i++)
        drop_fd(&from[i]);
    free(argv);
    free(env);
    return rc;
}

char **lm_words_copy(const char *const *words)
{
    size_t bytes = sizeof(char *);
    size_t n = 0;
    char **copy;
    char *p;

    for (; words[n]; n++)
        bytes += sizeof(char *) + strlen(words[n]) + 1;
    copy = malloc(bytes);
    if (!copy)
        return NULL;
    p = (char *)(copy + n + 1);
    for (size_t i = 0; i < n; i++) {
        copy[i] = p;
        p = stpcpy(p, words[i]) + 1;
    }
    copy[n] = NULL;
    return copy;
}
