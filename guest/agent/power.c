/* SPDX-License-Identifier: Apache-2.0 */
/* The wall clock, and the end of the machine. */
#include <errno.h>
#include <fcntl.h>
#include <linux/reboot.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "guest/agent/ops.h"

/* Between the answer and the end at least, so that the answer leaves. */
#define POWER_DELAY_MS 10

#define NS_PER_SECOND 1000000000u

int ops_refuse_attr(struct refusal *r, const char *what, int err)
{
    if (err == -ENOENT)
        return refuse(r, MOTE_ERR_UNSUPPORTED, 0, what,
                      ": a required attribute is unknown here", NULL);
    if (err == -EMSGSIZE)
        return refuse(r, MOTE_ERR_BAD_REQUEST, 0, what,
                      ": a value is too long, or there are too many", NULL);
    return refuse(r, MOTE_ERR_PROTOCOL, 0, what, ": malformed attribute", NULL);
}

int power_set_clock(uint64_t ns)
{
    const struct timespec now = {
        .tv_sec = (time_t)(ns / NS_PER_SECOND),
        .tv_nsec = (long)(ns % NS_PER_SECOND),
    };

    return clock_settime(CLOCK_REALTIME, &now) < 0 ? -errno : 0;
}

int power_clock_set(struct agent *agent, const uint8_t *data, size_t length,
                    struct refusal *r)
{
    struct codec_iter it;
    struct codec_attr a;
    uint64_t ns = 0;
    bool given = false;
    int got, err = 0;

    codec_iter_init(&it, data, length);
    while ((got = codec_iter_next(&it, &a)) > 0 && err == 0) {
        if (a.type == MOTE_ATTR_TIME_NS) {
            err = codec_attr_u64(&a, &ns);
            given = true;
        } else if (a.required) {
            err = -ENOENT;
        }
    }
    if (got < 0 || err < 0)
        return ops_refuse_attr(r, "CLOCK_SET", err);
    if (!given)
        return refuse(r, MOTE_ERR_BAD_REQUEST, 0, "CLOCK_SET: no time", NULL,
                      NULL);
    if (!agent->is_init)
        return refuse(r, MOTE_ERR_DENIED, 0,
                      "CLOCK_SET: this agent is not PID 1 of a machine", NULL,
                      NULL);
    err = power_set_clock(ns);
    return err < 0 ? refuse(r, MOTE_ERR_INTERNAL, -err, "CLOCK_SET", NULL, NULL)
                   : 0;
}

static void power_now(struct loop_timer *timer)
{
    struct agent *agent =
        (struct agent *)((char *)timer - offsetof(struct agent, power_timer));
    unsigned int command = LINUX_REBOOT_CMD_POWER_OFF;

    if (!agent->is_init) {
        agent->loop.stop = true; /* a test: there is no machine to end */
        return;
    }
    if (agent->power_kind == MOTE_STOP_REBOOT)
        command = LINUX_REBOOT_CMD_RESTART;
    else if (agent->power_kind == MOTE_STOP_HALT)
        command = LINUX_REBOOT_CMD_HALT;
    kill(-1, SIGKILL); /* as PID 1: all but ourselves */
    sync();
    /* Leaves a journal clean; busy with open files is no reason to stay. */
    (void)mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL);
    (void)syscall(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, command,
                  NULL);
    text_log_line("reboot system call failed");
}

int power_request(struct agent *agent, const uint8_t *data, size_t length,
                  struct refusal *r)
{
    struct codec_iter it;
    struct codec_attr a;
    uint32_t grace_ms = 0;
    uint8_t kind = 0;
    int got, err = 0;

    codec_iter_init(&it, data, length);
    while ((got = codec_iter_next(&it, &a)) > 0 && err == 0) {
        if (a.type == MOTE_ATTR_POWER)
            err = codec_attr_u8(&a, &kind);
        else if (a.type == MOTE_ATTR_GRACE_MS)
            err = codec_attr_u32(&a, &grace_ms);
        else if (a.required)
            err = -ENOENT;
    }
    if (got < 0 || err < 0)
        return ops_refuse_attr(r, "POWER", err);
    if (kind < MOTE_STOP_POWEROFF || kind > MOTE_STOP_HALT)
        return refuse(r, MOTE_ERR_BAD_REQUEST, 0,
                      "POWER: neither poweroff, reboot nor halt", NULL, NULL);
    agent->power_kind = kind;
    agent->power_timer.fire = power_now;
    if (agent->is_init && grace_ms > 0)
        kill(-1, SIGTERM);
    loop_arm(&agent->loop, &agent->power_timer,
             grace_ms > POWER_DELAY_MS ? grace_ms : POWER_DELAY_MS);
    return 0;
}
