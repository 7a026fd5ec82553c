/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Users and groups by /etc/passwd and /etc/group of the guest's root.
 *
 * Not libc's getpwnam: that asks a name service daemon over a socket when the
 * file has no answer, and a guest program that listens there without replying
 * would stop the agent. Files that are not regular count as empty.
 */
#ifndef GUEST_AGENT_USER_H
#define GUEST_AGENT_USER_H

#include <stddef.h>
#include <sys/types.h>

#include "guest/agent/text.h"

#define USER_GROUPS_MAX 64u

struct user {
    uid_t uid;
    gid_t gid;
    char name[64];
    char home[256];
    size_t group_count;
    gid_t groups[USER_GROUPS_MAX]; /* supplementary */
};

/* root, without reading any file. */
void user_root(struct user *out);

/*
 * `text` (length bytes): name, uid, name:group or uid:gid. A number without a
 * passwd entry is taken as it is, with group 0 and home "/". The supplementary
 * groups are those that list the name, unless a group is given.
 * 0, or -1 with the reason.
 */
int user_find(const char *text, size_t length, struct user *out,
              struct refusal *r);

#endif
