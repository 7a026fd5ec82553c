/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LIBMOTE_MOTE_H
#define LIBMOTE_MOTE_H

/*
 * libmote: start a microVM on this host, run commands in it, end it.
 *
 * The usual course: mote_vm_start(), mote_vm_wait_ready(), then any number of
 * mote_exec_start() on mote_vm_vsock_path(), at last mote_vm_free().
 *
 * Ownership: what a function returns through `out` is the caller's until the
 * _free() of its kind. Strings and arrays that are passed in are copied, or
 * used only during the call.
 * Threads: no shared state; an object belongs to one thread at a time,
 * different objects to any threads.
 * Errors: 0, or a negative errno with `err` filled: one line that names the
 * thing, the reason and, after "; ", what to do. `err` may be NULL.
 * Signals: no disposition is changed and none is raised (no SIGPIPE); the
 * caller must not let SIGCHLD be ignored or reap the monitor's process.
 * Descriptors: all are close-on-exec.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mote_err {
    int rc;         /* what the function returned, a negative errno */
    char text[640]; /* without prefix and newline */
};

/* The version of the library, such as "0.1.0". */
const char *mote_version(void);

/* --- files that belong to mote ------------------------------------------- */

#define MOTE_PATH_CAP 4096

/*
 * Finds a helper or a guest file by its name, for instance "mote-vmm" or
 * "guest/agent.cpio": in $MOTE_LIBDIR alone if that is set; else beside the
 * executable, in ../libexec/mote and in ../share/mote (the latter without the
 * leading "guest/"). `out` has MOTE_PATH_CAP bytes. -ENOENT if it is nowhere.
 */
int mote_find_file(const char *name, char *out, struct mote_err *err);

/* --- a machine ------------------------------------------------------------ */

struct mote_disk {
    const char *path;
    bool read_only;
    bool direct;       /* without the host's page cache */
    bool unsafe_cache; /* never synced: lost with the host's power */
    bool cow;          /* a copy-on-write file; `mote disk create` makes them */
};

/* How a machine is connected to the network. */
enum mote_net_kind {
    MOTE_NET_NONE,
    MOTE_NET_USER, /* through passt: out only, no privilege needed */
    MOTE_NET_TAP,  /* by a TAP interface that is there already */
};

struct mote_net_params {
    enum mote_net_kind kind;
    /* The rest is for MOTE_NET_TAP. */
    const char *tap;      /* name of the interface */
    const char *address;  /* of the guest, "10.0.0.2/24"; NULL = not set up */
    const char *gateway;  /* its default route, or NULL */
    const char *resolver; /* its name server, or NULL */
    unsigned queue_pairs; /* 0 = 1; more need a TAP made with multi_queue */
    /* virtio features that are not offered, NULL-terminated; for tests */
    const char *const *without;
};

/* Whether the monitor runs in a jail (mote-jail --in-place). */
enum mote_jail {
    MOTE_JAIL_AUTO, /* where this host allows it; see mote_vm_jail_note() */
    MOTE_JAIL_ON,   /* or not at all */
    MOTE_JAIL_OFF,
};

struct mote_vm_params {
    const char *name;              /* for mote_find(); NULL = none */
    const char *kernel;            /* path */
    const char *initrd;            /* path, or NULL */
    const char *boot_args;         /* kernel command line */
    const struct mote_disk *disks; /* /dev/vda and on; the first is the root */
    size_t disk_count;
    struct mote_net_params net; /* zero = none */
    unsigned vcpus;             /* 1 to 32 */
    uint64_t mem_bytes;         /* a multiple of 1 MiB */
    bool track_writes;          /* so that a snapshot can be a diff */
    int console_fd;        /* gets the guest's serial console; -1 = nobody */
    int log_fd;            /* gets the monitor's log; -1 = a file of the VM */
    const char *log_level; /* "Error" to "Trace"; NULL = the monitor's own */
    enum mote_jail jail;
};

struct mote_vm;

/*
 * Starts a monitor and returns at once, while the guest boots. The monitor
 * dies with the caller's process, and with mote_vm_free().
 * In a jail its files are opened here: -ENOENT, -EACCES and so on.
 * -EINVAL: bad parameters; -EEXIST: the name is taken; -ENOENT: no mote-vmm;
 * -ENAMETOOLONG: the run-time directory is too deep for socket paths.
 */
int mote_vm_start(const struct mote_vm_params *params, struct mote_vm **out,
                  struct mote_err *err);

/*
 * Blocks until the guest's agent has reported that it is ready.
 * `timeout_ms` < 0 waits for ever. If `cancel_fd` (-1 = none) becomes
 * readable first, the wait ends with -ECANCELED and nothing is read from it.
 * -ETIMEDOUT; -ECHILD if the monitor ended, with the reason in `err`;
 * -EPROTO if the guest could not get ready or does not keep to the protocol.
 */
int mote_vm_wait_ready(struct mote_vm *vm, int timeout_ms, int cancel_fd,
                       struct mote_err *err);

/* Valid until mote_vm_free(). */
const char *mote_vm_id(const struct mote_vm *vm);
const char *mote_vm_vsock_path(const struct mote_vm *vm);

/*
 * Why the monitor has no jail although MOTE_JAIL_AUTO would have liked one;
 * NULL if it has, or was not to have one.
 */
const char *mote_vm_jail_note(const struct mote_vm *vm);

/* Readable once the monitor has ended; the library's to close. */
int mote_vm_pidfd(const struct mote_vm *vm);

/* How a monitor ended. */
struct mote_vm_end {
    int exit_code;   /* of its process; -1 if a signal killed it */
    int signal;      /* that killed it, or 0 */
    bool by_guest;   /* the guest ended it: poweroff, panic, crash, ... */
    char reason[24]; /* "poweroff", "panic", ...; "" if it did not say */
    char text[512];  /* the same for people, one line */
};

/*
 * Waits up to `timeout_ms` for the monitor's end. -ETIMEDOUT if it runs on.
 */
int mote_vm_wait_end(struct mote_vm *vm, int timeout_ms,
                     struct mote_vm_end *out);

/*
 * Asks the guest to write its disks back and to switch itself off, and waits
 * up to `timeout_ms` for that. -ETIMEDOUT, -ECANCELED (see
 * mote_vm_wait_ready()) or another error if it did not; mote_vm_free() then
 * ends it.
 */
int mote_vm_poweroff(struct mote_vm *vm, int timeout_ms, int cancel_fd,
                     struct mote_err *err);

/* When what happened; milliseconds, -1 = unknown. */
struct mote_vm_times {
    double start_to_ready_ms; /* mote_vm_start() to the agent's report */
    double kernel_ms;         /* guest kernel's clock at the agent's start */
    double agent_ms;          /* from there until the agent was ready */
};
void mote_vm_times(const struct mote_vm *vm, struct mote_vm_times *out);

/*
 * Ends the machine at once, as if its power was cut, waits for its process
 * and removes its directory and name. NULL is fine.
 */
void mote_vm_free(struct mote_vm *vm);

/* --- machines that others started ----------------------------------------- */

#define MOTE_ID_LEN   12
#define MOTE_NAME_MAX 57 /* [a-z0-9][a-z0-9-]{0,56} */

struct mote_vm_info {
    char id[MOTE_ID_LEN + 1];
    char name[MOTE_NAME_MAX + 1]; /* "" if it has none */
    char vsock_path[108];
    pid_t owner_pid;   /* the process that called mote_vm_start() */
    pid_t monitor_pid; /* 0 while it is being started */
    unsigned vcpus;
    uint64_t mem_bytes;
    int64_t started_ms; /* since 1970 UTC */
    bool ready;         /* its agent has reported */
    bool shared_owner;  /* which has other machines too, and goes on */
};

/*
 * The machines of this user on this host, by age; the remains of dead ones
 * are removed on the way. *out is an array for free().
 */
int mote_list(struct mote_vm_info **out, size_t *out_count,
              struct mote_err *err);

/* One of them by name or id. -ENOENT. */
int mote_find(const char *name_or_id, struct mote_vm_info *out,
              struct mote_err *err);

/*
 * Blocks until a machine of mote_find() is ready. Timeout and cancel as in
 * mote_vm_wait_ready(); -ECHILD if it ended.
 */
int mote_wait_ready(const struct mote_vm_info *info, int timeout_ms,
                    int cancel_fd, struct mote_err *err);

/*
 * Ends a machine of mote_find(): asks its owner, and after `timeout_ms` kills
 * the owner (with 0 at once). Returns when it is gone. -ESRCH if it was not
 * there any more.
 */
int mote_stop(const struct mote_vm_info *info, int timeout_ms,
              struct mote_err *err);

/* 0, or -EINVAL with the rule in `err`. */
int mote_name_check(const char *name, struct mote_err *err);

/* --- snapshots ------------------------------------------------------------
 * A snapshot is a directory (tools/libmote/README.md): memory and state of a
 * machine, copies of the disks that it could write, and where the others are.
 * A full one can be loaded any number of times at once; a diff holds what was
 * written since the snapshot before, and is merged into that one first.
 */

struct mote_save_params {
    const char *dir;      /* is made; must not be there */
    const char *base_dir; /* a diff to this, its last snapshot; NULL: full */
    int cancel_fd;        /* readable: give up with -ECANCELED; -1 = never */
};

/*
 * Saves a machine of mote_find(), which stands still for as long as its memory
 * and its disks are written, and runs on whatever comes of it (one that was
 * paused stays so). When it returns 0, the directory is on disk; else nothing
 * is left of it. -EEXIST, -EBUSY, -EREMOTEIO if the monitor refused.
 */
int mote_snapshot_save(const struct mote_vm_info *vm,
                       const struct mote_save_params *params,
                       struct mote_err *err);

#define MOTE_SNAPSHOT_MAX_DISKS   64
#define MOTE_SNAPSHOT_MAX_DEVICES 96

struct mote_snapshot_disk {
    char id[64];              /* of the drive */
    char path[MOTE_PATH_CAP]; /* read-only: where it has to be; else the copy */
    bool read_only;
    uint64_t size_bytes;
    uint64_t stored_bytes; /* of a copy: what it takes on disk */
};

struct mote_snapshot_info {
    char id[33];
    char parent[33];              /* of a diff: what it builds on; else "" */
    char name[MOTE_NAME_MAX + 1]; /* of the machine; "" if it had none */
    int64_t created_ms;           /* since 1970 UTC */
    unsigned vcpus;
    uint64_t mem_bytes;
    uint64_t mem_stored_bytes; /* what the memory takes on disk */
    uint64_t state_bytes;
    bool track_writes;
    char cpu[512]; /* "Vendor family F model M: feature feature ..." */
    char devices[MOTE_SNAPSHOT_MAX_DEVICES][24];
    size_t device_count;
    struct mote_snapshot_disk disks[MOTE_SNAPSHOT_MAX_DISKS];
    size_t disk_count;
};

/* What is known of a snapshot without reading its memory. *out is for free().
 * -EBADMSG: its files do not fit together or are damaged. */
int mote_snapshot_read(const char *dir, struct mote_snapshot_info **out,
                       struct mote_err *err);

/*
 * Reads all of it against its checksums. `progress` (may be NULL) is told how
 * far it is; if it returns false, that ends in -ECANCELED. -EBADMSG: damaged.
 */
int mote_snapshot_verify(const char *dir,
                         bool (*progress)(void *arg, uint64_t done_bytes,
                                          uint64_t total_bytes),
                         void *arg, struct mote_err *err);

/*
 * A full snapshot out of a full one and the diff that builds on it, both read
 * against their checksums. It has the id of the diff. -EINVAL: they do not
 * belong together. A crash leaves `out_dir` whole or not there.
 */
int mote_snapshot_merge(const char *base_dir, const char *diff_dir,
                        const char *out_dir, struct mote_err *err);

/* Another file in the place of a drive's. */
struct mote_load_disk {
    const char *id;   /* of the drive, such as "vdb" */
    const char *path; /* written to, if the drive can be */
};

struct mote_load_params {
    const char *dir;
    const char *name; /* for mote_find(), and the guest's host name; or NULL */
    /* NULL: as in the snapshot (a new passt for one that had passt) */
    const struct mote_net_params *net;
    const struct mote_load_disk *disks;
    size_t disk_count;
    bool track_writes;
    bool verify;     /* read all of the memory first */
    bool ignore_cpu; /* load even if this host's CPU lacks features */
    enum mote_jail jail;
    int console_fd; /* as in struct mote_vm_params */
    int log_fd;
    const char *log_level;
    /* Told of each thing that is not as it should be, a line each; or NULL */
    void (*note)(void *arg, const char *line);
    void *note_arg;
};

/*
 * A machine out of a full snapshot. Disks that it can write are copies of its
 * own, which go with it, unless `disks` says otherwise. Before it returns, the
 * guest has become one of its own: wall clock, random state, boot id, host
 * name, addresses, and the programs of /etc/mote/restore.d have run. Then it
 * is as after mote_vm_wait_ready(). Errors as of that and mote_vm_start();
 * -EBADMSG for a damaged snapshot; -ESTALE for a disk that was changed.
 */
int mote_vm_load(const struct mote_load_params *params, int timeout_ms,
                 int cancel_fd, struct mote_vm **out, struct mote_err *err);

/* --- live fork --------------------------------------------------------------
 * Copies of a machine that runs on: its memory and state at one instant.
 */

#define MOTE_FORK_MAX 1024

struct mote_fork_params {
    size_t count;             /* 1 to MOTE_FORK_MAX */
    const char *const *names; /* one each (or NULL: none); NULL: none at all.
                                 Also a guest's host name */
    /* One each. NULL: a passt each if the source has that; a TAP cannot be
     * shared. */
    const struct mote_net_params *nets;
    bool track_writes;
    int timeout_ms;        /* for each of the two waits; < 0: for ever */
    int cancel_fd;         /* readable: give up with -ECANCELED; -1 = never */
    int log_fd;            /* as in struct mote_vm_params */
    const char *log_level; /* likewise */
    /* Told of each thing that is not as it should be, a line each; or NULL.
     * From threads of the library, one at a time. */
    void (*note)(void *arg, size_t child, const char *line);
    void *note_arg;
};

struct mote_fork_child {
    struct mote_vm *vm; /* ready, and the caller's to free; NULL: see err */
    struct mote_err err;
    double ready_ms; /* from the request to the end of its RESTORE */
};

struct mote_fork_times {
    double waiting_ms; /* until all monitors waited: before the request */
    double stopped_ms; /* the source stood still */
    double request_ms; /* the request, until the last child had been served */
    double answers_ms; /* from the request to the last agent's first word */
    double ready_ms;   /* ... to the last child's end of RESTORE */
    uint64_t copied_bytes;
};

/*
 * Forks a machine of mote_find(), which runs on. `children` has params->count
 * elements; each ends as a machine that is as after mote_vm_load(), or with the
 * reason why it is not there, and then nothing of it is left. All belong to the
 * caller's process: mote_stop() ends one without the others.
 * 0 even if children failed; -errno if there could be none, as of
 * mote_vm_start() and mote_snapshot_save(). -EOPNOTSUPP: it has a disk that it
 * can write.
 */
int mote_vm_fork(const struct mote_vm_info *source,
                 const struct mote_fork_params *params,
                 struct mote_fork_child *children,
                 struct mote_fork_times *times, struct mote_err *err);

/* --- commands in a guest ---------------------------------------------------
 */

struct mote_tty_size {
    uint16_t rows;
    uint16_t columns;
};

struct mote_exec_params {
    const char *const *argv; /* at least one, NULL-terminated */
    const char *const *env;  /* "NAME=value", NULL-terminated; NULL = none */
    const char *workdir;     /* NULL = "/" */
    const char *user;        /* name, uid, name:group or uid:gid; NULL = root */
    bool stdin_open;         /* mote_exec_write() will follow; else EOF */
    bool tty;                /* give it a terminal of `size` */
    struct mote_tty_size size;
    uint64_t time_limit_ms; /* the guest kills all of it then; 0 = none */
    uint32_t grace_ms;      /* SIGTERM first, SIGKILL this much later */
};

struct mote_exec;

/*
 * Begins a command in the guest behind the vsock socket of a machine. Returns
 * when the connection to the monitor stands; everything else is told by
 * mote_exec_next(). -E2BIG if arguments and environment exceed 4 MiB.
 */
int mote_exec_start(const char *vsock_path,
                    const struct mote_exec_params *params,
                    struct mote_exec **out, struct mote_err *err);

/*
 * For poll(): wait for mote_exec_events() on mote_exec_fd(), then call
 * mote_exec_next() until it returns 0. Not doing so is what holds a command
 * back that writes more than the caller can take: then poll without POLLIN,
 * and call mote_exec_send() so that its standard input flows on.
 */
int mote_exec_fd(const struct mote_exec *x);
short mote_exec_events(const struct mote_exec *x);

enum mote_exec_kind {
    MOTE_EXEC_STARTED = 1, /* pid */
    MOTE_EXEC_STDOUT,      /* data, len; all output if it has a terminal */
    MOTE_EXEC_STDERR,      /* data, len */
    MOTE_EXEC_EXITED,      /* how it ended; the last event */
    MOTE_EXEC_REFUSED,     /* error, text: it was not run, or is lost; last */
};

struct mote_exec_event {
    enum mote_exec_kind kind;
    const void *data; /* valid until the next call for the same command */
    size_t len;
    uint32_t pid;     /* in the guest */
    int exit_code;    /* 0 to 255, or -1 */
    int signal;       /* that ended it, or 0 */
    bool timed_out;   /* the time limit ended it */
    uint64_t wall_us; /* START to end by the guest's clock */
    uint32_t error;   /* MOTE_ERR_* of guest/abi.h; 126 and 127 as in a shell */
    char text[256];   /* the guest's words, free of control characters */
};

/*
 * Sends and receives what can be done without blocking. 1 and *out filled,
 * 0 if there is nothing, -ECONNRESET if the guest went away, -EPROTO if it
 * broke the protocol.
 */
int mote_exec_next(struct mote_exec *x, struct mote_exec_event *out,
                   struct mote_err *err);
int mote_exec_send(struct mote_exec *x, struct mote_err *err);

/*
 * Queues bytes for the command's standard input; the caller keeps
 * mote_exec_backlog() small by waiting. A `len` of 0 means end of file.
 */
int mote_exec_write(struct mote_exec *x, const void *data, size_t len);
size_t mote_exec_backlog(const struct mote_exec *x); /* bytes not yet sent */

/* Tells the command's terminal its new size. */
int mote_exec_resize(struct mote_exec *x, struct mote_tty_size size);

/* Ends the connection; a command that still runs is then killed in the
 * guest with all that it started. NULL is fine. */
void mote_exec_free(struct mote_exec *x);

/* --- single requests to a guest --------------------------------------------
 */

enum mote_whom {
    MOTE_WHOM_PROCESS = 1,
    MOTE_WHOM_GROUP = 2, /* its process group */
    MOTE_WHOM_TREE = 3,  /* all that it started */
};

struct mote_request;

/* Sends Linux signal `signo` to the command with this pid in the guest. */
int mote_request_kill(const char *vsock_path, uint32_t pid, int signo,
                      enum mote_whom whom, struct mote_request **out,
                      struct mote_err *err);
/* Asks the guest to end its file systems and switch itself off. */
int mote_request_poweroff(const char *vsock_path, struct mote_request **out,
                          struct mote_err *err);

int mote_request_fd(const struct mote_request *r);
short mote_request_events(const struct mote_request *r);
/* 1 done, 0 not yet, or what went wrong; does not block. */
int mote_request_step(struct mote_request *r, struct mote_err *err);
/*
 * Blocks until it is done. 0, -ETIMEDOUT, -ECANCELED (see
 * mote_vm_wait_ready()) or what went wrong.
 */
int mote_request_wait(struct mote_request *r, int timeout_ms, int cancel_fd,
                      struct mote_err *err);
void mote_request_free(struct mote_request *r); /* NULL is fine */

#ifdef __cplusplus
}
#endif

#endif
