/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mote/doctor.h"

#include "vmm/cleanup.h"
#include "vmm/errmsg.h"

#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define KVM_DEVICE "/dev/kvm"

/* The group that the device belongs to: that is the one to join. */
static const char *kvm_group(void)
{
    struct stat st;
    struct group *g = NULL;

    if (stat(KVM_DEVICE, &st) == 0 && st.st_mode & 060 && st.st_gid != 0)
        g = getgrgid(st.st_gid);
    return g ? g->gr_name : "kvm";
}

static void kvm_not_usable(struct check *c, int rc)
{
    char remedy[256];

    if (rc == -ENOENT || rc == -ENODEV || rc == -ENXIO) {
        check_set(c, CHECK_ERROR,
                  "load kvm_intel or kvm_amd (modprobe); in a VM turn on "
                  "nested virtualisation, in a container pass /dev/kvm in",
                  KVM_DEVICE ": not there");
        return;
    }
    if (rc == -EACCES || rc == -EPERM) {
        (void)snprintf(remedy, sizeof(remedy),
                       "sudo usermod -aG %s \"$USER\", then log in again",
                       kvm_group());
        check_set(c, CHECK_ERROR, remedy, KVM_DEVICE ": not permitted to you");
        return;
    }
    check_set(c, CHECK_ERROR, "see dmesg for what KVM says", KVM_DEVICE ": %s",
              err_reason(rc));
}

void doctor_kvm(const struct doctor *d, struct check *c)
{
    CLEANUP_FD int fd = open(KVM_DEVICE, O_RDWR | O_CLOEXEC);
    json_t *kvm = json_object_get(d->probe, "kvm");
    const char *module = json_string_value(json_object_get(kvm, "module"));
    const char *error = json_string_value(json_object_get(kvm, "error"));

    if (fd < 0)
        kvm_not_usable(c, neg_errno());
    else if (!d->probe)
        check_set(c, CHECK_ERROR, "build or install mote again",
                  KVM_DEVICE ": opens, but could not be tried: %s",
                  d->probe_error);
    else if (error)
        check_set(c, CHECK_ERROR, "see dmesg for what KVM says",
                  KVM_DEVICE ": %s", error);
    else
        check_set(c, CHECK_OK, "",
                  KVM_DEVICE ": API %lld, %s, up to %lld CPUs in a guest",
                  json_integer_value(json_object_get(kvm, "api_version")),
                  module ? module : "module unknown",
                  json_integer_value(json_object_get(kvm, "max_vcpus")));
}

void doctor_kvm_features(const struct doctor *d, struct check *c)
{
    json_t *caps =
        json_object_get(json_object_get(d->probe, "kvm"), "capabilities");
    char missing[256] = "";
    size_t have = 0;
    const char *name;
    json_t *value;

    json_object_foreach(caps, name, value)
    {
        size_t n = strlen(missing);

        if (json_is_true(value))
            have++;
        else
            (void)snprintf(missing + n, sizeof(missing) - n, "%s%s",
                           n ? ", " : "", name);
    }
    if (!json_is_object(caps))
        check_set(c, CHECK_WARNING, "", "unknown: KVM could not be tried");
    else if (missing[0])
        check_set(c, CHECK_WARNING,
                  "what needs them is refused with a word; a newer host "
                  "kernel may have them",
                  "%zu there, missing: %s", have, missing);
    else
        check_set(c, CHECK_OK, "", "all %zu that mote knows how to use", have);
}

void doctor_ring0(const struct doctor *d, struct check *c)
{
    json_t *ring0 = json_object_get(d->probe, "ring0");
    json_t *emulated = json_object_get(ring0, "emulated");
    double ns = json_number_value(json_object_get(ring0, "ns_per_instruction"));

    if (!json_is_boolean(emulated))
        check_set(c, CHECK_WARNING, "", "unknown: KVM could not be tried");
    else if (json_is_true(emulated))
        check_set(c, CHECK_WARNING,
                  "a host with hardware virtualisation boots in a fraction of "
                  "a second; here use --kernel tiny",
                  "guest kernel code is emulated, %.0f ns an instruction: "
                  "boots take seconds",
                  ns);
    else
        check_set(c, CHECK_OK, "",
                  "guest kernel code runs natively, %.2f ns an instruction",
                  ns);
}

void doctor_io_uring(const struct doctor *d, struct check *c)
{
    json_t *ring = json_object_get(d->probe, "io_uring");
    json_t *features = json_object_get(ring, "features");
    const char *why = json_string_value(json_object_get(ring, "errno"));
    char list[256] = "";
    size_t i;
    json_t *value;

    json_array_foreach(features, i, value)
    {
        size_t n = strlen(list);
        const char *name = json_string_value(value);

        (void)snprintf(list + n, sizeof(list) - n, "%s%s", n ? " " : "",
                       name ? name : "");
    }
    if (!json_is_object(ring))
        check_set(c, CHECK_WARNING, "", "unknown: could not be tried");
    else if (!json_is_true(json_object_get(ring, "available")))
        check_set(c, CHECK_WARNING,
                  "works with epoll, slower on disks; allow io_uring "
                  "(sysctl kernel.io_uring_disabled=0, seccomp profile)",
                  "not available (%s)", why ? why : "reason unknown");
    else
        check_set(c, CHECK_OK, "", "%s", list[0] ? list : "available");
}
