/* command_explain.c -- impel explain: where one entry stands, why, and what will happen next.
 *
 * What is known is gathered by explain_gather.c; here it is put into words, and into JSON. */
#include "base/json.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/explanation.h"
#include "cli/group_sweep.h"

#include <string.h>
#include <time.h>

/* ---- words ---- */

/* A time of the store's clock, as people write it here. */
static void add_time(struct buf *out, int64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm local;
    char text[64];

    if (localtime_r(&seconds, &local) == NULL ||
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local) == 0) {
        buf_appendf(out, "%lld", (long long)ms);
        return;
    }
    buf_append_text(out, text);
}

/* Is the holder alive, and which clock says so? */
static void say_owner(struct buf *out, const struct explanation *entry)
{
    char age[DURATION_TEXT_SIZE];

    duration_brief(entry->beat_age_ms, age);
    switch (entry->view.owner) {
    case OWNER_ME:
    case OWNER_LIVE:
        buf_appendf(out, "%s is alive by its beats, the last of them %s ago", entry->owner, age);
        break;
    case OWNER_DEAD:
        buf_appendf(out, "%s is dead by its beats: the last came %s ago, while others' were taken",
                    entry->owner, age);
        break;
    case OWNER_UNKNOWN:
        buf_appendf(out,
                    "%s may be dead: its last beat came %s ago, but no worker or sweep has beaten "
                    "lately, so its silence proves nothing",
                    entry->owner, age);
        break;
    case OWNER_FOREIGN:
        buf_appendf(out,
                    "%s is no worker of Impel's and does not beat: the entry's idle time decides",
                    entry->owner);
        break;
    case OWNER_RELEASED:
        buf_append_text(out,
                        "a worker that stopped handed it back, or a replay put it there: anybody "
                        "may take it, its idle time decides");
        break;
    case OWNER_NOBODY:
        buf_append_text(out, "its consumer gave it up: anybody may take it, its idle time decides");
        break;
    }
}

static const char *deed(enum verdict verdict)
{
    return verdict == VERDICT_REAP   ? "reported as lost work, since the stream no longer has it"
           : verdict == VERDICT_PARK ? "parked, since it had all its deliveries"
                                     : "taken over and run again";
}

/* Who will do it? A claim needs a worker; the rest any sweep does. */
static const char *doer(const struct explanation *entry, enum verdict verdict)
{
    if (entry->live_count > 0) {
        return "by a live worker";
    }
    return verdict == VERDICT_CLAIM
               ? "as soon as a worker is started (impel run): none is alive now"
               : "as soon as a worker or impel sweep is started";
}

static void say_left_alone(struct buf *out, const struct explanation *entry)
{
    if (entry->view.owner == OWNER_UNKNOWN) {
        buf_append_text(out, "start a worker (impel run), or find out with impel sweep --once");
    } else if (!entry->exists) {
        buf_append_text(out, "left to its holder, which has it in memory although the stream no "
                             "longer does: done is done, what fails is parked");
    } else {
        buf_append_text(out, "left to its holder, which renews it until its handler is done, and "
                             "retries or parks it after a failure; should the holder die, the "
                             "others take it over");
    }
}

static void say_next(struct buf *out, const struct explanation *entry)
{
    char wait[DURATION_TEXT_SIZE], idle[DURATION_TEXT_SIZE], need[DURATION_TEXT_SIZE];
    int64_t need_ms = add_saturating(entry->view.idle_ms, entry->wait_ms);

    switch (entry->verdict) {
    case VERDICT_MINE:
    case VERDICT_LEAVE:
        say_left_alone(out, entry);
        break;
    case VERDICT_WAIT:
        buf_appendf(out, "not due yet: idle for %s of %s; in %s, at ",
                    duration_brief(entry->view.idle_ms, idle), duration_brief(need_ms, need),
                    duration_brief(entry->wait_ms, wait));
        add_time(out, add_saturating(entry->now_ms, entry->wait_ms));
        buf_appendf(out, ", it will be %s, %s", deed(entry->verdict_1),
                    doer(entry, entry->verdict_1));
        break;
    default:
        buf_appendf(out, "due: it will be %s, %s", deed(entry->verdict),
                    doer(entry, entry->verdict));
    }
}

static void say_undelivered(struct buf *out, const struct explanation *entry)
{
    buf_appendf(out, "in the stream, and not delivered to this group yet: the group is at ");
    char id[ID_TEXT_SIZE];
    buf_appendf(out, "%s; ", id_format(entry->last_delivered, id));
    if (entry->live_count > 0) {
        buf_append_text(out, "a live worker will read it in its turn");
    } else {
        buf_append_text(out, "it will be read when a worker or another consumer comes for it: no "
                             "worker is alive now (impel run)");
    }
}

static void say_gone(struct buf *out, const struct explanation *entry)
{
    char id[ID_TEXT_SIZE];
    bool delivered = id_compare(entry->id, entry->last_delivered) <= 0;

    if (entry->length == 0 || id_compare(entry->id, entry->first_id) < 0) {
        buf_appendf(out, "trimmed, or never there: the stream %s%s now",
                    entry->length == 0 ? "is empty" : "begins at ",
                    entry->length == 0 ? "" : id_format(entry->first_id, id));
    } else {
        buf_append_text(out,
                        "deleted, or never there: the stream has entries before and behind it");
    }
    buf_append_text(out, delivered ? "; this group has nothing to do with it any more"
                                   : "; this group had not read it, and never will");
}

static void say_parked(struct buf *out, const struct explanation *entry)
{
    char id[ID_TEXT_SIZE];

    buf_append_text(out, "parked");
    if (entry->parked_ms >= 0) {
        buf_append_text(out, " at ");
        add_time(out, entry->parked_ms);
    }
    if (entry->view.deliveries >= 0) {
        buf_appendf(out, " after %lld %s", (long long)entry->view.deliveries,
                    entry->view.deliveries == 1 ? "delivery" : "deliveries");
    }
    buf_appendf(out, " (%s), as %s in the dead-letter stream", entry->reason,
                id_format(entry->parked_as, id));
    if (entry->error[0] != '\0') {
        buf_appendf(out, "; its handler said: %s", entry->error);
    }
}

/* What will happen, and why, in one sentence. */
static void explain(struct buf *out, const struct explanation *entry)
{
    switch (entry->state) {
    case ENTRY_UNDELIVERED:
        say_undelivered(out, entry);
        break;
    case ENTRY_PENDING:
        say_next(out, entry);
        break;
    case ENTRY_ACKED:
        buf_append_text(out, "done: it was delivered and acknowledged, or the group began behind "
                             "it; nothing more will happen");
        break;
    case ENTRY_PARKED:
        say_parked(out, entry);
        break;
    case ENTRY_GONE:
        say_gone(out, entry);
        break;
    case ENTRY_UNKNOWN:
        buf_append_text(out, "this stream never had an entry of this ID");
        break;
    }
}

/* ---- names, for programs ---- */

static const char *state_name(enum entry_state state)
{
    static const char *const names[] = {
        [ENTRY_UNDELIVERED] = "undelivered",
        [ENTRY_PENDING] = "pending",
        [ENTRY_ACKED] = "acked",
        [ENTRY_PARKED] = "parked",
        [ENTRY_GONE] = "gone",
        [ENTRY_UNKNOWN] = "unknown",
    };
    return names[state];
}

/* What follows: "read", "settle" (by its holder), "claim", "park", "reap"; NULL: nothing, or nobody
 * can say. */
static const char *next_name(const struct explanation *entry)
{
    enum verdict verdict = entry->verdict == VERDICT_WAIT ? entry->verdict_1 : entry->verdict;

    if (entry->state != ENTRY_PENDING) {
        return entry->state == ENTRY_UNDELIVERED ? "read" : NULL;
    }
    if (entry->view.owner == OWNER_UNKNOWN) {
        return NULL;
    }
    return verdict == VERDICT_CLAIM  ? "claim"
           : verdict == VERDICT_PARK ? "park"
           : verdict == VERDICT_REAP ? "reap"
                                     : "settle";
}

static const char *clock_name(enum owner_state owner)
{
    bool beats =
        owner == OWNER_ME || owner == OWNER_LIVE || owner == OWNER_DEAD || owner == OWNER_UNKNOWN;
    return beats ? "beats" : "idle";
}

/* ---- JSON ---- */

static void write_number(struct buf *out, const char *name, int64_t number, bool known)
{
    if (known) {
        buf_appendf(out, ",\"%s\":%lld", name, (long long)number);
    } else {
        buf_appendf(out, ",\"%s\":null", name);
    }
}

static void write_pending_json(struct buf *out, const struct explanation *entry)
{
    static const char *const alive[] = {
        [OWNER_ME] = "true",      [OWNER_LIVE] = "true",     [OWNER_DEAD] = "false",
        [OWNER_FOREIGN] = "null", [OWNER_RELEASED] = "null", [OWNER_NOBODY] = "null",
        [OWNER_UNKNOWN] = "null",
    };
    bool due_known = entry->verdict != VERDICT_LEAVE && entry->verdict != VERDICT_MINE;

    buf_append_text(out, ",\"consumer\":");
    json_text(out, entry->owner);
    buf_appendf(out, ",\"owner\":\"%s\",\"alive\":%s,\"clock\":\"%s\"",
                owner_state_name(entry->view.owner), alive[entry->view.owner],
                clock_name(entry->view.owner));
    write_number(out, "beat_age_ms", entry->beat_age_ms, entry->beat_age_ms >= 0);
    buf_appendf(out, ",\"deliveries\":%lld", (long long)entry->view.deliveries);
    write_number(out, "idle_ms", entry->view.idle_ms, !entry->undated);
    write_number(out, "since_ms", sub_saturating(entry->now_ms, entry->view.idle_ms),
                 !entry->undated);
    write_number(out, "rule", explanation_rule(entry), explanation_rule(entry) > 0);
    write_number(out, "wait_ms", entry->wait_ms, due_known);
    write_number(out, "due_ms", add_saturating(entry->now_ms, entry->wait_ms), due_known);
}

static void write_parked_json(struct buf *out, const struct explanation *entry)
{
    char id[ID_TEXT_SIZE];

    buf_append_text(out, ",\"consumer\":");
    json_text(out, entry->owner);
    write_number(out, "deliveries", entry->view.deliveries, entry->view.deliveries >= 0);
    buf_appendf(out, ",\"parked_as\":\"%s\"", id_format(entry->parked_as, id));
    write_number(out, "parked_ms", entry->parked_ms, entry->parked_ms >= 0);
    buf_append_text(out, ",\"parked_reason\":");
    json_text(out, entry->reason);
    buf_append_text(out, ",\"error\":");
    json_text(out, entry->error);
}

static void write_json(struct buf *out, const struct explanation *entry, struct impel_bytes text)
{
    char id[ID_TEXT_SIZE];
    const char *next = next_name(entry);

    buf_appendf(out, "{\"id\":\"%s\",\"stream\":", id_format(entry->id, id));
    json_value(out, entry->stream);
    buf_append_text(out, ",\"group\":");
    json_value(out, entry->group);
    buf_appendf(out, ",\"state\":\"%s\",\"exists\":%s", state_name(entry->state),
                entry->exists ? "true" : "false");
    if (entry->state == ENTRY_PENDING) {
        write_pending_json(out, entry);
    } else if (entry->state == ENTRY_PARKED) {
        write_parked_json(out, entry);
    }
    buf_appendf(out, next == NULL ? ",\"next\":null" : ",\"next\":\"%s\"", next);
    buf_append_text(out, ",\"reason\":");
    json_string(out, text);
    buf_append_text(out, "}\n");
}

/* ---- text ---- */

static void write_pending(struct buf *out, const struct explanation *entry)
{
    static const char *const rules[] = {
        [1] = "its own worker's entry",        [2] = "a live worker's entry",
        [4] = "an entry that was handed back", [5] = "a dead worker's entry",
        [6] = "a foreign consumer's entry",
    };
    char idle[DURATION_TEXT_SIZE];
    int rule = explanation_rule(entry);

    buf_appendf(out, "  held by %s",
                entry->owner[0] != '\0'             ? entry->owner
                : entry->view.owner == OWNER_NOBODY ? "nobody"
                                                    : "''");
    if (!entry->undated) {
        buf_append_text(out, " since ");
        add_time(out, sub_saturating(entry->now_ms, entry->view.idle_ms));
        buf_appendf(out, " (idle %s)", duration_brief(entry->view.idle_ms, idle));
    }
    buf_appendf(out, ", delivered %lld %s", (long long)entry->view.deliveries,
                entry->view.deliveries == 1 ? "time" : "times");
    if (entry->carried > 0) {
        buf_appendf(out, " (%lld before it was requeued)", (long long)entry->carried);
    }
    buf_appendf(out, ", at most %lld\n  ", (long long)entry->policy.max_deliveries);
    say_owner(out, entry);
    buf_append_text(out, "\n");
    if (rule > 0) {
        buf_appendf(out, "  rule %d, %s:\n", rule, rules[rule]);
    }
}

static void write_text(struct buf *out, const struct explanation *entry, struct impel_bytes text)
{
    char id[ID_TEXT_SIZE];

    buf_appendf(out, "%s%s%s  %s%s\n", console_style(1, STYLE_BOLD), id_format(entry->id, id),
                console_style(1, STYLE_END), state_name(entry->state),
                entry->exists || entry->state == ENTRY_UNKNOWN ? "" : ", not in the stream");
    if (entry->state == ENTRY_PENDING) {
        write_pending(out, entry);
    }
    buf_append_text(out, "  ");
    buf_append_bytes(out, text);
    buf_append_text(out, "\n");
}

static int print(const struct explanation *entry, bool json, struct impel_error *err)
{
    struct buf text, out;

    buf_init(&text, 4096);
    buf_init(&out, 1 << 16);
    explain(&text, entry);
    (json ? write_json : write_text)(&out, entry, buf_bytes(&text));
    buf_release(&text);
    return console_print(&out, err);
}

static int
explain_one(struct options *options, struct store *store, const char *word, struct impel_error *err)
{
    struct explanation entry = {
        .stream = bytes_of(options->streams.texts[0]),
        .group = bytes_of(options->group),
    };
    int rc = id_parse(bytes_of(word), 0, &entry.id);

    rc = rc < 0 ? rc : explanation_gather(&entry, options, store, err);
    return rc < 0 ? rc : print(&entry, options->json, err);
}

int command_explain(struct options *options, struct impel_error *err)
{
    const struct text_list *words = &options->words;
    struct impel_bytes stream;
    struct impel_id id;
    struct store *store = NULL;
    int rc = command_one_stream(options, &stream, err);

    if (rc < 0) {
        return rc;
    }
    if (options->group == NULL) {
        return command_needs("group", err);
    }
    if (words->count == 0) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "the ID of an entry is needed, like 1700000000000-0");
    }
    for (size_t i = 0; i < words->count; i++) {
        if (id_parse(bytes_of(words->texts[i]), 0, &id) < 0) {
            char quoted[64];
            return error_set(err, IMPEL_ERR_INVALID,
                             "'%s' is no ID of an entry: two numbers with a dash, like "
                             "1700000000000-0",
                             bytes_quote(bytes_of(words->texts[i]), quoted, sizeof(quoted)));
        }
    }
    rc = session_open_existing(options, &store, err);
    for (size_t i = 0; rc >= 0 && i < words->count; i++) {
        rc = explain_one(options, store, words->texts[i], err);
    }
    store_close(store);
    return rc < 0 ? rc : EXIT_DONE;
}
