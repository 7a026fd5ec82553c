/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What host and guest agree on: the agent protocol and the debug I/O ports.
 *
 * guest/agent/README.md tells the protocol as a story; this header has the
 * numbers. It is plain C11 without functions, and both sides include it.
 *
 * Rules of the wire
 *  - Every integer is little endian. Nothing is aligned: copy before use.
 *  - The host connects to MOTE_AGENT_PORT (vsock). When the guest is ready it
 *    also connects out, to MOTE_READY_PORT of CID MOTE_HOST_CID, and sends its
 *    HELLO and one READY frame (or one ERROR frame if it could not get ready).
 *    After READY that connection serves like one the host made: its first
 *    request need not wait for a connect.
 *  - Each side opens a connection with a HELLO of 8 bytes, without waiting for
 *    the other's. The version spoken is the smaller of the two highest; if it
 *    is below one side's lowest, the connection ends (the agent says why in
 *    an ERROR frame). A sender that has not read the peer's HELLO yet keeps to
 *    what its own lowest version has.
 *  - After the HELLO there are only frames. The forms of HELLO, frame header,
 *    attribute header and ERROR are the same in every version for ever.
 *  - A frame's payload is raw bytes (data frames) or attributes, one after
 *    another, no padding. A message of attributes may be split over several
 *    frames of its type: all but the last carry MOTE_FRAME_MORE. They are cut
 *    anywhere, and are joined before they are read.
 *  - An attribute that the receiver does not know is skipped, unless it has
 *    MOTE_ATTR_REQUIRED: then the message is refused (MOTE_ERR_UNSUPPORTED).
 *    The same holds for an unknown frame type and MOTE_FRAME_REQUIRED.
 *  - One connection carries one operation. It is over with EXIT, or with
 *    ERROR, after which the agent shuts down its sending side, throws away
 *    what still arrives, and waits for the host to close. After OK or END the
 *    host may close or send the next request.
 */
#ifndef GUEST_ABI_H
#define GUEST_ABI_H

#include <stdint.h>

/* ---- vsock addresses -------------------------------------------------- */

#define MOTE_HOST_CID   2u    /* the host, as seen from a guest */
#define MOTE_AGENT_PORT 1024u /* the agent listens here */
#define MOTE_READY_PORT 1025u /* the agent connects to the host here */

/* ---- I/O ports of the monitor ----------------------------------------- */

/* One byte, enum mote_stop: why the guest ends the machine. */
#define MOTE_EXIT_PORT 0x500
/* One byte: result of a test program that runs as a payload; 0 is success. */
#define MOTE_TEST_PORT 0x501
/* One byte, enum mote_mark: the monitor stamps the time it arrived. */
#define MOTE_MARK_PORT 0x504

/* Also the values of MOTE_ATTR_POWER (panic excepted). */
enum mote_stop {
    MOTE_STOP_POWEROFF = 1,
    MOTE_STOP_REBOOT = 2,
    MOTE_STOP_HALT = 3,
    MOTE_STOP_PANIC = 4,
};

/* Points of a boot; ids of MOTE_MARK_PORT and of MOTE_ATTR_BOOT_MARK. */
enum mote_mark {
    MOTE_MARK_KERNEL = 1, /* first instructions of the kernel */
    MOTE_MARK_INIT = 2,   /* the agent's main() */
    MOTE_MARK_ROOT = 3,   /* the root file system is in place */
    MOTE_MARK_READY = 4,  /* everything mounted, the port is listening */
    MOTE_MARK_USER = 5,   /* free for a guest program */
};

/* ---- HELLO ------------------------------------------------------------ */

#define MOTE_MAGIC           0x45544f4du /* the bytes "MOTE" */
#define MOTE_VERSION_LOWEST  1u
#define MOTE_VERSION_HIGHEST 1u

struct mote_hello {
    uint32_t magic;   /* MOTE_MAGIC */
    uint16_t lowest;  /* lowest version spoken, at least 1 */
    uint16_t highest; /* highest version spoken, not below lowest */
};

/* ---- frames ----------------------------------------------------------- */

#define MOTE_FRAME_MAX   (1u << 20) /* longest payload of a frame, bytes */
#define MOTE_MESSAGE_MAX (4u << 20) /* longest joined message, bytes */

struct mote_frame {
    uint32_t length; /* bytes of payload after this header */
    uint8_t type;    /* enum mote_frame_type */
    uint8_t flags;   /* MOTE_FRAME_*, other bits zero */
    uint16_t zero;
};

#define MOTE_FRAME_MORE     0x01u /* the message goes on in the next frame */
#define MOTE_FRAME_REQUIRED 0x02u /* refuse it if the type is unknown */

/*
 * 0x01-0x3f requests: they begin an operation. 0x40-0x7f: further frames from
 * the host. 0x80-0xff: from the agent. Types marked "7" are reserved: the
 * agent of version 1 answers them with MOTE_ERR_UNSUPPORTED.
 */
enum mote_frame_type {
    MOTE_T_START = 0x01,      /* run a command: STARTED, ..., EXIT */
    MOTE_T_NET_CONFIG = 0x02, /* set up a network interface: OK */
    MOTE_T_CLOCK_SET = 0x03,  /* set the wall clock: OK */
    MOTE_T_POWER = 0x04,      /* end the machine: OK, then it goes */
    MOTE_T_PING = 0x05,       /* OK, with the same MOTE_ATTR_TOKEN */
    MOTE_T_LIST = 0x06,       /* ITEM per running command, END */
    MOTE_T_KILL = 0x07,       /* signal a command by MOTE_ATTR_PID: OK */
    MOTE_T_ATTACH = 0x08,     /* 7: rejoin a command */
    MOTE_T_METRICS = 0x09,    /* 7: CPU, memory, disk, processes */
    MOTE_T_SYNC = 0x0a,       /* 7: flush file systems */
    MOTE_T_FREEZE = 0x0b,     /* 7: freeze file systems */
    MOTE_T_THAW = 0x0c,       /* 7 */
    MOTE_T_MOUNT = 0x0d,      /* 7 */
    MOTE_T_UNMOUNT = 0x0e,    /* 7 */
    MOTE_T_RESTORE = 0x0f,    /* become a clone of one's own: OK, with NOTEs */
    MOTE_T_FORWARD = 0x10,    /* 7: to a TCP or Unix address in the guest */
    MOTE_T_LISTEN = 0x11,     /* 7: the other way round */
    MOTE_T_WATCH = 0x12,      /* 7: file events */

    MOTE_T_FILE_READ = 0x20, /* 7, as all up to 0x3f */
    MOTE_T_FILE_WRITE = 0x21,
    MOTE_T_FILE_STAT = 0x22,
    MOTE_T_FILE_LIST = 0x23,
    MOTE_T_FILE_MKDIR = 0x24,
    MOTE_T_FILE_MOVE = 0x25,
    MOTE_T_FILE_REMOVE = 0x26,
    MOTE_T_FILE_CHMOD = 0x27,
    MOTE_T_FILE_CHOWN = 0x28,
    MOTE_T_FILE_SYMLINK = 0x29,
    MOTE_T_FILE_LINK = 0x2a,
    MOTE_T_FILE_TIMES = 0x2b,
    MOTE_T_TREE_IN = 0x2c,
    MOTE_T_TREE_OUT = 0x2d,

    MOTE_T_STDIN = 0x40,     /* raw bytes for the command's standard input */
    MOTE_T_STDIN_EOF = 0x41, /* no payload; nothing more will come */
    MOTE_T_SIGNAL = 0x42,    /* MOTE_ATTR_SIGNAL, MOTE_ATTR_SCOPE */
    MOTE_T_RESIZE = 0x43,    /* MOTE_ATTR_PTY: the new size */
    MOTE_T_DATA_IN = 0x44,   /* 7: raw bytes of a file or port */
    MOTE_T_DATA_END = 0x45,  /* 7: no payload; nothing more will come */
    MOTE_T_ENTRY_IN = 0x46,  /* 7: the next file of a tree */

    MOTE_T_READY = 0x80,    /* on MOTE_READY_PORT only */
    MOTE_T_STARTED = 0x81,  /* the program runs: MOTE_ATTR_PID */
    MOTE_T_STDOUT = 0x82,   /* raw bytes; everything if it has a terminal */
    MOTE_T_STDERR = 0x83,   /* raw bytes */
    MOTE_T_EXIT = 0x84,     /* MOTE_ATTR_EXIT, MOTE_ATTR_USAGE; the last */
    MOTE_T_ERROR = 0x85,    /* MOTE_ATTR_ERROR, _TEXT, _ERRNO; the last */
    MOTE_T_OK = 0x86,       /* the request is done */
    MOTE_T_ITEM = 0x87,     /* one element of a list */
    MOTE_T_END = 0x88,      /* the list is complete */
    MOTE_T_DATA_OUT = 0x89, /* 7 */
    MOTE_T_EVENT = 0x8a,    /* 7 */
};

/* ---- attributes ------------------------------------------------------- */

struct mote_attr {
    uint16_t type;   /* enum mote_attr_type */
    uint16_t flags;  /* MOTE_ATTR_REQUIRED or 0 */
    uint32_t length; /* bytes of the value after this header */
};

#define MOTE_ATTR_REQUIRED 0x0001u

/*
 * Text is UTF-8 or whatever bytes the guest uses, without a NUL anywhere.
 * "u8", "u32", "u64": an integer of exactly that size. "repeated": may occur
 * any number of times, in order; all others at most once.
 * 0x0001-0x00ff commands and common things, 0x0100 network, 0x0200 files
 * (reserved), 0x0300 metrics and events (reserved).
 */
enum mote_attr_type {
    /* START */
    MOTE_ATTR_ARG = 0x0001,     /* text, repeated; the first is argv[0] */
    MOTE_ATTR_PROGRAM = 0x0002, /* text; what to execute, default argv[0] */
    MOTE_ATTR_ENV = 0x0003,     /* text "NAME=value", repeated; no name twice */
    MOTE_ATTR_ENV_BARE = 0x0004, /* u8: 1 = add no default variables */
    MOTE_ATTR_CWD = 0x0005,      /* text, absolute; default "/" */
    MOTE_ATTR_USER = 0x0006,     /* text: name, uid, name:group, uid:gid */
    MOTE_ATTR_GROUP = 0x0007,    /* u32, repeated; the supplementary groups */
    MOTE_ATTR_RLIMIT = 0x0008,   /* struct mote_rlimit, repeated */
    MOTE_ATTR_STDIN = 0x0009,    /* u8: 1 = STDIN frames follow; default 0 */
    MOTE_ATTR_PTY = 0x000a,      /* struct mote_pty_size; also in RESIZE */
    MOTE_ATTR_TAG = 0x000b,      /* text, <= 255 bytes; shown by LIST */
    MOTE_ATTR_TIME_LIMIT_MS = 0x000c, /* u64; 0 = none, the default */
    MOTE_ATTR_GRACE_MS = 0x000d, /* u32: SIGTERM this long before SIGKILL */
    MOTE_ATTR_DETACHED = 0x000e, /* u8: 1 = survives this connection */
    MOTE_ATTR_UMASK = 0x000f,    /* u32; default 022 */

    /* STARTED, EXIT, SIGNAL, KILL, LIST */
    MOTE_ATTR_PID = 0x0020,      /* u32 */
    MOTE_ATTR_EXIT = 0x0021,     /* struct mote_exit */
    MOTE_ATTR_USAGE = 0x0022,    /* struct mote_usage */
    MOTE_ATTR_SIGNAL = 0x0023,   /* u32: Linux signal number */
    MOTE_ATTR_SCOPE = 0x0024,    /* u8: enum mote_scope; default process */
    MOTE_ATTR_START_NS = 0x0025, /* u64: CLOCK_MONOTONIC at START */

    /* ERROR */
    MOTE_ATTR_ERROR = 0x0030, /* u32: enum mote_error */
    MOTE_ATTR_TEXT = 0x0031,  /* text, one line for people */
    MOTE_ATTR_ERRNO = 0x0032, /* u32: Linux errno behind it, if any */

    /* READY, PING, POWER, CLOCK_SET, RESTORE */
    MOTE_ATTR_AGENT = 0x0040,     /* text: version of the agent program */
    MOTE_ATTR_KERNEL = 0x0041,    /* text: uname release */
    MOTE_ATTR_BOOT_MARK = 0x0042, /* struct mote_boot_mark, repeated */
    MOTE_ATTR_TOKEN = 0x0043,     /* bytes, <= 64; returned as sent */
    MOTE_ATTR_POWER = 0x0044,     /* u8: enum mote_stop */
    MOTE_ATTR_TIME_NS = 0x0045,   /* u64: nanoseconds since 1970 UTC */
    MOTE_ATTR_SEED = 0x0046, /* bytes, <= 64: random, for the kernel's pool */
    MOTE_ATTR_NOTE = 0x0047, /* text, repeated: a line on what did not work */

    /* NET_CONFIG */
    MOTE_ATTR_IF_NAME = 0x0100,  /* text: which interface */
    MOTE_ATTR_IF_MAC = 0x0101,   /* 6 bytes: which interface, by address */
    MOTE_ATTR_SET_MAC = 0x0102,  /* 6 bytes: its new address */
    MOTE_ATTR_MTU = 0x0103,      /* u32 */
    MOTE_ATTR_ADDRESS = 0x0104,  /* struct mote_ip, repeated */
    MOTE_ATTR_ROUTE = 0x0105,    /* struct mote_route, repeated */
    MOTE_ATTR_RESOLVER = 0x0106, /* struct mote_ip, repeated */
    MOTE_ATTR_SEARCH = 0x0107,   /* text, repeated: search domain */
    MOTE_ATTR_HOSTNAME = 0x0108, /* text, <= 64 bytes */
    MOTE_ATTR_FLUSH = 0x0109,    /* u8: 1 = first drop old addresses */

    /* RESTORE: repeated, each a NET_CONFIG in itself (attributes inside) */
    MOTE_ATTR_INTERFACE = 0x010a,
};

/* Whom a signal goes to. */
enum mote_scope {
    MOTE_SCOPE_PROCESS = 1, /* the command's own process */
    MOTE_SCOPE_GROUP = 2,   /* its process group */
    MOTE_SCOPE_TREE = 3,    /* all that it started */
};

struct mote_rlimit {
    uint32_t resource; /* RLIMIT_* as Linux numbers them */
    uint32_t zero;
    uint64_t soft; /* all bits set = unlimited */
    uint64_t hard;
};

struct mote_pty_size {
    uint16_t rows; /* characters */
    uint16_t columns;
    uint16_t width; /* pixels, may be 0 */
    uint16_t height;
};

enum mote_exit_kind {
    MOTE_EXIT_CODE = 1,   /* value is what it passed to exit, 0 to 255 */
    MOTE_EXIT_SIGNAL = 2, /* value is the signal that ended it */
};

#define MOTE_EXIT_TIMED_OUT 0x01u /* the time limit ended it */
#define MOTE_EXIT_CORE      0x02u /* it dumped core */

struct mote_exit {
    uint8_t kind;  /* enum mote_exit_kind */
    uint8_t flags; /* MOTE_EXIT_* bits; unknown ones are to be ignored */
    uint16_t zero;
    uint32_t value;
};

struct mote_usage { /* of the command and those children it waited for */
    uint64_t user_us;
    uint64_t system_us;
    uint64_t max_rss_bytes;
    uint64_t wall_us; /* from START to the end, guest clock */
};

struct mote_boot_mark {
    uint32_t id; /* enum mote_mark */
    uint32_t zero;
    uint64_t ns; /* CLOCK_MONOTONIC of the guest: since its kernel started */
};

struct mote_ip {
    uint8_t family; /* 4 or 6 */
    uint8_t prefix; /* bits; unused for a resolver */
    uint16_t zero;
    uint8_t address[16]; /* network order; IPv4 has the first 4 bytes */
};

struct mote_route {
    uint8_t family; /* 4 or 6 */
    uint8_t prefix; /* 0 = the default route */
    uint16_t zero;
    uint32_t metric;
    uint8_t destination[16];
    uint8_t gateway[16]; /* all zero: reachable on the link */
};

/*
 * Values of MOTE_ATTR_ERROR. 126 and 127 are those of a shell on purpose: a
 * front end exits with them.
 */
enum mote_error {
    MOTE_ERR_PROTOCOL = 1,     /* malformed frame or attribute */
    MOTE_ERR_BAD_REQUEST = 2,  /* well formed, but makes no sense */
    MOTE_ERR_UNSUPPORTED = 3,  /* unknown operation or required attribute */
    MOTE_ERR_VERSION = 4,      /* no version in common */
    MOTE_ERR_BAD_CWD = 5,      /* no such working directory */
    MOTE_ERR_UNKNOWN_USER = 6, /* no such user or group */
    MOTE_ERR_RESOURCE = 7,     /* out of memory, processes, descriptors */
    MOTE_ERR_INTERNAL = 8,     /* anything else; see ERRNO */
    MOTE_ERR_NOT_FOUND = 9,    /* no such command, interface, file */
    MOTE_ERR_DENIED = 10,
    MOTE_ERR_EXISTS = 11,
    MOTE_ERR_NOT_DIRECTORY = 12,
    MOTE_ERR_IS_DIRECTORY = 13,
    MOTE_ERR_NOT_EMPTY = 14,
    MOTE_ERR_NO_SPACE = 15,
    MOTE_ERR_READ_ONLY = 16,
    MOTE_ERR_BUSY = 17,
    MOTE_ERR_GONE = 18,             /* ended, or cut off, before it was done */
    MOTE_ERR_NOT_READY = 19,        /* the guest could not start up */
    MOTE_ERR_NOT_EXECUTABLE = 126,  /* found, but cannot be executed */
    MOTE_ERR_NO_SUCH_PROGRAM = 127, /* it, or its interpreter, is missing */
};

#define MOTE_TAG_MAX   255u
#define MOTE_TOKEN_MAX 64u
#define MOTE_SEED_MAX  64u

/* Bytes of standard input the agent holds for a command that reads slowly.
 * Once full it stops reading the connection, SIGNAL included: use KILL. */
#define MOTE_STDIN_QUEUE (256u << 10)

_Static_assert(sizeof(struct mote_hello) == 8, "wire size");
_Static_assert(sizeof(struct mote_frame) == 8, "wire size");
_Static_assert(sizeof(struct mote_attr) == 8, "wire size");
_Static_assert(sizeof(struct mote_rlimit) == 24, "wire size");
_Static_assert(sizeof(struct mote_pty_size) == 8, "wire size");
_Static_assert(sizeof(struct mote_exit) == 8, "wire size");
_Static_assert(sizeof(struct mote_usage) == 32, "wire size");
_Static_assert(sizeof(struct mote_boot_mark) == 16, "wire size");
_Static_assert(sizeof(struct mote_ip) == 20, "wire size");
_Static_assert(sizeof(struct mote_route) == 40, "wire size");

#endif
