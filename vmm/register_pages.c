/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/register_pages.h"

#include "vmm/cleanup.h"
#include "vmm/layout_x86.h"

#include <sys/eventfd.h>
#include <sys/mman.h>

#define REGISTER_PAGE_BYTES ((size_t)4096)

int register_pages_init(struct register_pages *p, struct kvm *kvm, size_t num,
                        uint32_t first_slot, struct errmsg *err)
{
    int rc = 0;

    p->mem = NULL;
    p->num = num;
    p->ack_fd = -1;
    if (num == 0)
        return 0;
    p->ack_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (p->ack_fd >= 0)
        p->mem = mmap(NULL, num * REGISTER_PAGE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p->ack_fd < 0 || p->mem == MAP_FAILED) {
        rc = neg_errno();
        p->mem = NULL;
        return err_set(err, rc, "registers: %s", err_reason(rc));
    }
    for (size_t i = 0; i < num && rc == 0; i++) {
        gpa_t gpa = LAYOUT_VIRTIO_BASE + i * LAYOUT_VIRTIO_STRIDE;

        rc = kvm_add_read_only_page(
            kvm, first_slot + (uint32_t)i, gpa & ~(gpa_t)4095,
            (char *)p->mem + i * REGISTER_PAGE_BYTES, err);
    }
    if (rc == -ENOTSUP) {
        register_pages_fini(p);
        return 0;
    }
    return rc;
}

void register_pages_fini(struct register_pages *p)
{
    if (p->mem) {
        (void)munmap(p->mem, p->num * REGISTER_PAGE_BYTES);
        drop_fd(&p->ack_fd);
    }
    p->mem = NULL;
}

void *register_pages_get(const struct register_pages *p, size_t i)
{
    if (!p->mem || i >= p->num)
        return NULL;
    return (char *)p->mem + (i + 1) * REGISTER_PAGE_BYTES - LAYOUT_VIRTIO_REGS;
}
