/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VMM_CONFIG_H
#define VMM_CONFIG_H

/*
 * What a VM is to be, as plain data: read from a configuration file in
 * Firecracker's format, checked, then handed to machine_new(). Fields that
 * mote does not know or does not do are refused by name, never ignored.
 *
 * Ownership: the struct owns its strings; config_fini() frees them.
 * Threads: any. Errors: -EINVAL (content) or -errno (file), with a line.
 */

#include "devices/rate_limit.h"
#include "vmm/errmsg.h"
#include "vmm/log.h"

#define CONFIG_MAX_DRIVES    16u
#define CONFIG_MAX_NETS      8u
#define CONFIG_DEFAULT_VCPUS 1u
#define CONFIG_DEFAULT_MEM   (128ull << 20)
#define CONFIG_MIN_GUEST_CID 3u
#define CONFIG_MAX_PORTS     6u  /* of the virtio console, beside itself */
#define CONFIG_PORT_NAME_MAX 63u /* bytes */
#define CONFIG_MMDS_IP       0xa9fea9feu /* 169.254.169.254 */

enum config_cache { CACHE_UNSAFE, CACHE_WRITEBACK };
/* Requests go through the event loop with either; ENGINE_ASYNC insists on
 * io_uring, ENGINE_SYNC is content with what the host allows. */
enum config_engine { ENGINE_SYNC, ENGINE_ASYNC };

struct config_drive {
    char *id;
    char *path;
    char *partuuid; /* of a root drive: root=PARTUUID=...; NULL: /dev/vda */
    bool is_root;
    bool read_only;
    bool direct; /* without the host's page cache */
    bool cow;    /* a copy-on-write file of ours, not a raw image */
    enum config_cache cache;
    enum config_engine engine;
    struct rate_limit_config limit;
};

/* A further port of the virtio console: a name and a Unix socket. */
struct config_port {
    char *name;
    char *path;
};

struct config_balloon {
    bool present;
    bool has_amount;
    bool has_deflate;
    uint64_t target_bytes;
    uint32_t stats_interval_s; /* 0: no statistics */
    bool deflate_on_oom;
    bool hinting;
    bool reporting;
};

/* One of tap, socket and fd says what is behind it. */
struct config_net {
    char *id;
    char *tap;    /* name of an interface of the host */
    char *socket; /* path of a Unix stream socket to connect to */
    int fd;       /* inherited: such a socket, or a TAP; -1: none */
    bool has_mac; /* else one is made up at start */
    uint8_t mac[6];
    uint32_t mtu; /* 0: the interface's */
    uint16_t queue_pairs;
    bool create;      /* the TAP, if it is not there */
    uint64_t without; /* virtio features not to offer; for tests */
    struct rate_limit_config rx;
    struct rate_limit_config tx;
};

/* The metadata service of the guest, on some of the network interfaces. */
struct config_mmds {
    bool present;
    bool v2;
    bool imds_compat;
    uint32_t ip; /* host byte order */
    size_t num_ids;
    char *ids[CONFIG_MAX_NETS];
};

/* Where the monitor's own output goes. */
struct config_output {
    bool logger; /* the section is there */
    char *log_path;
    enum log_level log_level; /* Info unless said otherwise */
    bool log_show_level;
    bool log_show_origin;
    bool log_sets_show_level; /* the section says it, as the next */
    bool log_sets_show_origin;
    char *log_module;   /* NULL: lines of all */
    char *metrics_path; /* NULL: no metrics */
    bool metrics_emit_id;
    char *metrics_properties; /* a JSON object as text, or NULL */
    char *serial_path;        /* NULL: standard output */
};

struct vm_config {
    char *kernel_path;
    char *initrd_path; /* NULL: none */
    char *boot_args;   /* NULL: the default words */
    uint32_t num_vcpus;
    uint64_t mem_bytes;
    bool track_dirty; /* from the start on, for diff snapshots */
    size_t num_drives;
    struct config_drive drives[CONFIG_MAX_DRIVES];
    size_t num_nets;
    struct config_net nets[CONFIG_MAX_NETS];
    char *vsock_path; /* NULL: no vsock device */
    uint32_t guest_cid;
    bool entropy; /* virtio-rng */
    struct config_balloon balloon;
    struct config_mmds mmds;
    struct config_output output;
    /* The section "mote", beyond Firecracker's format. */
    bool virtio_console; /* the console's own output */
    size_t num_ports;
    struct config_port ports[CONFIG_MAX_PORTS];
    bool vmgenid;
    bool no_device_tree;    /* MP table and command line words instead */
    bool no_register_pages; /* each access of a virtio register is answered */
};

void config_init(struct vm_config *c); /* the defaults */
void config_fini(struct vm_config *c); /* idempotent */

int config_load_file(struct vm_config *c, const char *path,
                     struct errmsg *err) MUST_CHECK;
/* `text` need not end in a NUL. `name` stands for it in messages. */
int config_load_text(struct vm_config *c, const char *text, size_t len,
                     const char *name, struct errmsg *err) MUST_CHECK;

/* Combinations of sections, as far as they are there. */
int config_check(const struct vm_config *c, struct errmsg *err) MUST_CHECK;
/* The same, and whether it is enough for a machine. Without KVM. */
int config_validate(const struct vm_config *c, struct errmsg *err) MUST_CHECK;

/* Whether the interface is to have the metadata service. */
bool config_mmds_serves(const struct vm_config *c, const char *id);

#endif
