/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/libmote/vm_end.h"

#include "tools/libmote/files.h"
#include "tools/libmote/launch.h"
#include "vmm/cleanup.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define LM_EXIT_FILE_MAX 4096
#define LM_LOG_TAIL      2048

/* Reasons that an exit file gives, as people say them. */
static const struct {
    const char *reason;
    const char *words;
    bool by_guest;
} lm_reasons[] = {
    {"poweroff", "machine: the guest switched itself off", true},
    {"reboot", "machine: the guest asked for a reboot", true},
    {"halt", "machine: the guest halted", true},
    {"panic", "machine: the guest kernel panicked", true},
    {"triple_fault", "machine: the guest crashed (triple fault)", true},
    {"request", "machine: was told to end", false},
};

void lm_last_log_line(int log_fd, char *out, size_t cap)
{
    char tail[LM_LOG_TAIL + 1];
    struct stat st;
    off_t from = 0;
    ssize_t n;
    char *line;
    char *name;

    out[0] = '\0';
    if (log_fd < 0 || fstat(log_fd, &st) < 0)
        return;
    if (st.st_size > LM_LOG_TAIL)
        from = st.st_size - LM_LOG_TAIL;
    n = pread(log_fd, tail, LM_LOG_TAIL, from);
    while (n > 0 && (tail[n - 1] == '\n' || tail[n - 1] == '\0'))
        n--;
    if (n <= 0)
        return;
    tail[n] = '\0';
    line = strrchr(tail, '\n');
    line = line ? line + 1 : tail;
    name = strstr(line, "mote-vmm: ");
    if (name)
        line = name + strlen("mote-vmm: ");
    lm_files_plain(line);
    (void)snprintf(out, cap, "%s", line);
    for (char *c = out; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    }
}

static void lm_read_exit_file(const struct lm_slot *slot, char *reason,
                              size_t reason_cap, char *detail,
                              size_t detail_cap)
{
    CLEANUP_FREE char *text =
        lm_read_file(slot->run_fd, LM_EXIT_FILE, LM_EXIT_FILE_MAX);
    const char *r = NULL;
    const char *d = NULL;
    json_t *json;

    reason[0] = detail[0] = '\0';
    json = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    /* The detail may be text or number; only text is for people. */
    (void)json_unpack(json, "{s:s}", "reason", &r);
    (void)json_unpack(json, "{s:s}", "detail", &d);
    (void)snprintf(reason, reason_cap, "%s", r ? r : "");
    (void)snprintf(detail, detail_cap, "%s", d ? d : "");
    json_decref(json);
}

/* The words for the reason in *end, or NULL; notes whose doing it was. */
static const char *lm_reason_words(struct mote_vm_end *end)
{
    for (size_t i = 0; i < ARRAY_SIZE(lm_reasons); i++) {
        if (strcmp(end->reason, lm_reasons[i].reason))
            continue;
        end->by_guest = lm_reasons[i].by_guest;
        return lm_reasons[i].words;
    }
    return NULL;
}

void lm_end_describe(const struct lm_slot *slot, const siginfo_t *status,
                     int log_fd, struct mote_vm_end *out)
{
    char detail[256];
    char line[400];
    const char *words;

    *out = (struct mote_vm_end){.exit_code = -1};
    if (status->si_code == CLD_EXITED)
        out->exit_code = status->si_status;
    else
        out->signal = status->si_status;
    lm_read_exit_file(slot, out->reason, sizeof(out->reason), detail,
                      sizeof(detail));
    lm_last_log_line(log_fd, line, sizeof(line));
    words = lm_reason_words(out);
    if (words)
        (void)snprintf(out->text, sizeof(out->text), "%s", words);
    else if (out->signal)
        (void)snprintf(out->text, sizeof(out->text),
                       "mote-vmm: killed by signal %d (%s)", out->signal,
                       sigdescr_np(out->signal) ? sigdescr_np(out->signal)
                                                : "unknown");
    else if (line[0])
        (void)snprintf(out->text, sizeof(out->text), "%s", line);
    else if (detail[0])
        (void)snprintf(out->text, sizeof(out->text), "mote-vmm: %s", detail);
    else
        (void)snprintf(out->text, sizeof(out->text),
                       "mote-vmm: ended with exit code %d", out->exit_code);
}

const char *lm_end_hint(const struct mote_vm_end *end, bool log_was_shown)
{
    if (end->by_guest)
        return " before it was ready; its console (`mote run --console`) "
               "shows why";
    if (end->signal || log_was_shown || strstr(end->text, "; "))
        return "";
    return "; `mote run -v` shows its log, `mote doctor` checks this host";
}
