/* sweep_preview.c -- the verdict of the sweep's own rules on what a look without a beat shows.
 *
 * The entries are judged here, from rows that were read a moment ago, and not in the store: that is
 * good enough to show, and the reason why nothing is ever done on the strength of it. */
#include "cli/sweep_preview.h"

#include "base/json.h"
#include "cli/console.h"
#include "cli/group_facts.h"
#include "cli/group_sweep.h"

#include <poll.h>

enum {
    ROWS_MAX = 1000,
};

enum way {
    WAY_NONE,
    WAY_REQUEUE,
    WAY_HAND_OVER,
    WAY_PARK,
    WAY_COUNT,
};

static const struct {
    const char *name;   /* in JSON */
    const char *option; /* for people */
    const char *moves;
    unsigned action;
} ways[] = {
    [WAY_NONE] = {"none", "no option", "move", 0},
    [WAY_REQUEUE] = {"requeue", "--requeue", "requeue", CLAIM_REQUEUE},
    [WAY_HAND_OVER] = {"hand-over", "--hand-over", "hand over", CLAIM_HAND_OVER},
    [WAY_PARK] = {"park", "--park", "move", CLAIM_PARK},
};

enum act {
    ACT_NONE, /* not abandoned, or not for long enough yet */
    ACT_LEAVE,
    ACT_MOVE,
    ACT_PARK,
    ACT_REAP,
    ACT_COUNT,
};

/* One group while it is looked at. */
struct scene {
    const struct sweep_preview *preview;
    struct impel_bytes stream, group;
    bool other_groups; /* to which a requeued entry would be new work */
    struct sweep_heirs heirs;
    enum way way; /* of the list */
    struct buf out;
    uint64_t total[WAY_COUNT][ACT_COUNT];
    uint64_t abandoned, not_due, unknown;
    struct impel_error *err;
};

/* One owner in it. */
struct holding {
    const struct look_owner *owner;
    struct impel_bytes heir;
    uint64_t acts[WAY_COUNT][ACT_COUNT];
    uint64_t abandoned, not_due;
    int64_t oldest_idle_ms; /* -1 = nothing that has a date */
};

/* ---- asking ---- */

static int ask(const struct scene *scene, struct request *request)
{
    int64_t wait_ms;

    while ((wait_ms = sweep_pace_take(scene->preview->pace, clock_now_ms())) > 0) {
        poll(NULL, 0, (int)wait_ms);
    }
    return session_ask(scene->preview->store, request, scene->err);
}

static int print_out(struct scene *scene)
{
    int rc = buf_status(&scene->out);

    if (rc < 0) {
        return error_set(scene->err, rc, "%s", status_text(rc));
    }
    console_out(buf_bytes(&scene->out));
    buf_clear(&scene->out);
    return IMPEL_OK;
}

/* ---- judging ---- */

static enum act judge(const struct scene *scene,
                      const struct holding *holding,
                      enum way way,
                      struct pending_view *view)
{
    bool forbidden = (way == WAY_REQUEUE && scene->other_groups) ||
                     (way == WAY_HAND_OVER && holding->heir.data == NULL);
    struct policy policy = group_sweep_policy(&scene->preview->policy, ways[way].action);

    switch (policy_verdict(&policy, view, NULL)) {
    case VERDICT_PARK:
        return ACT_PARK;
    case VERDICT_REAP:
        return ACT_REAP;
    case VERDICT_CLAIM:
        return way == WAY_PARK ? ACT_PARK : way == WAY_NONE || forbidden ? ACT_LEAVE : ACT_MOVE;
    case VERDICT_MINE:
    case VERDICT_LEAVE:
    case VERDICT_WAIT:
        break;
    }
    return ACT_NONE;
}

static const char *act_name(enum way way, enum act act)
{
    static const char *const names[] = {
        [ACT_NONE] = "none",
        [ACT_LEAVE] = "leave",
        [ACT_PARK] = "park",
        [ACT_REAP] = "reap",
    };
    return act == ACT_MOVE ? ways[way].name : names[act];
}

/* Why an entry counts as abandoned. */
static const char *why_due(enum owner_state state)
{
    static const char *const reasons[] = {
        [OWNER_DEAD] = "its worker is dead",
        [OWNER_FOREIGN] = "idle for longer than --min-idle and its backoff",
        [OWNER_RELEASED] = "it was released and its backoff is over",
        [OWNER_NOBODY] = "it belongs to nobody and its backoff is over",
        [OWNER_UNKNOWN] = "",
    };
    return reasons[state];
}

static void append_reason(struct buf *text,
                          const struct scene *scene,
                          const struct holding *holding,
                          const struct pending_view *view,
                          enum act act)
{
    struct policy policy = group_sweep_policy(&scene->preview->policy, ways[scene->way].action);

    if (act == ACT_REAP) {
        buf_append_text(text, "it is gone from the stream: lost work");
    } else if (act == ACT_PARK && policy_exhausted(&policy, view->deliveries)) {
        buf_appendf(text, "delivered %lld times, the limit is %lld", (long long)view->deliveries,
                    (long long)policy.max_deliveries);
    } else {
        buf_append_text(text, why_due(holding->owner->state));
        if (act == ACT_LEAVE && scene->way == WAY_HAND_OVER) {
            buf_append_text(text, ", but no other consumer was seen within --min-idle");
        }
    }
}

/* ---- a dry run's list ---- */

static void list_json(struct scene *scene,
                      const struct holding *holding,
                      const struct pending_view *view,
                      enum act act)
{
    struct buf *out = &scene->out;
    char id[ID_TEXT_SIZE];

    buf_append_text(out, "{\"stream\":");
    json_value(out, scene->stream);
    buf_append_text(out, ",\"group\":");
    json_value(out, scene->group);
    buf_appendf(out, ",\"id\":\"%s\",\"consumer\":", id_format(view->id, id));
    json_value(out, holding->owner->name);
    buf_appendf(out, ",\"state\":\"%s\",\"deliveries\":%lld,\"idle_ms\":",
                owner_state_name(holding->owner->state), (long long)view->deliveries);
    if (view->idle_ms < 0 || view->idle_ms > IDLE_MAX_MS) {
        buf_append_text(out, "null");
    } else {
        buf_appendf(out, "%lld", (long long)view->idle_ms);
    }
    buf_appendf(out, ",\"action\":\"%s\"", act_name(scene->way, act));
    if (act == ACT_MOVE && scene->way == WAY_HAND_OVER) {
        buf_append_text(out, ",\"to\":");
        json_value(out, holding->heir);
    }
    buf_append_text(out, ",\"reason\":\"");
    append_reason(out, scene, holding, view, act);
    buf_append_text(out, "\"}\n");
}

static void list_text(struct scene *scene,
                      const struct holding *holding,
                      const struct pending_view *view,
                      enum act act)
{
    char id[ID_TEXT_SIZE], name[64];

    buf_appendf(&scene->out, "  %-9s %s of %s", act_name(scene->way, act), id_format(view->id, id),
                holding->owner->name.size == 0
                    ? "nobody"
                    : bytes_quote(holding->owner->name, name, sizeof(name)));
    if (act == ACT_MOVE && scene->way == WAY_HAND_OVER) {
        buf_appendf(&scene->out, " to %s", bytes_quote(holding->heir, name, sizeof(name)));
    }
    buf_append_text(&scene->out, ": ");
    append_reason(&scene->out, scene, holding, view, act);
    buf_append_text(&scene->out, "\n");
}

/* ---- walking ---- */

static void take_row(struct scene *scene, struct holding *holding, const struct pending_row *row)
{
    struct pending_view view = {
        .id = row->id,
        .owner = holding->owner->state,
        .idle_ms = row->idle_ms,
        .silence_ms = holding->owner->beat_age_ms < 0 ? 0 : holding->owner->beat_age_ms,
        .deliveries = facts_deliveries(row),
        .exists = row->exists,
    };
    enum act act = judge(scene, holding, scene->way, &view);
    bool due = judge(scene, holding, WAY_NONE, &view) != ACT_NONE;

    for (enum way way = 0; way < WAY_COUNT; way++) {
        holding->acts[way][judge(scene, holding, way, &view)]++;
    }
    holding->abandoned += due;
    holding->not_due += !due;
    if (row->idle_ms <= IDLE_MAX_MS && row->idle_ms > holding->oldest_idle_ms) {
        holding->oldest_idle_ms = row->idle_ms;
    }
    if (scene->preview->list && act != ACT_NONE) {
        (scene->preview->json ? list_json : list_text)(scene, holding, &view, act);
    }
}

/* All that one owner holds; for nobody's entries all of the group is looked through. */
static int walk(struct scene *scene, struct holding *holding)
{
    bool nobody = holding->owner->state == OWNER_NOBODY;
    struct impel_id from = ID_MIN;
    bool more = holding->owner->state != OWNER_UNKNOWN && (nobody || holding->owner->pending > 0);
    int rc = IMPEL_OK;

    while (more && rc >= 0) {
        struct request *page = session_request(REQUEST_PENDING, scene->stream, scene->group);
        if (page != NULL) {
            page->pending.start = from;
            page->pending.end = ID_MAX;
            page->pending.count = ROWS_MAX;
            page->pending.by_owner = !nobody;
            page->pending.owner = holding->owner->name;
        }
        rc = ask(scene, page);
        ASSERT(rc < 0 || page != NULL);
        for (size_t i = 0; rc >= 0 && i < page->pending.row_count; i++) {
            if (!nobody || pending_row_nobodys(&page->pending.rows[i])) {
                take_row(scene, holding, &page->pending.rows[i]);
            }
            from = page->pending.rows[i].id;
        }
        more = rc >= 0 && page->pending.row_count == ROWS_MAX && id_next(&from);
        request_free(page);
        rc = rc < 0 ? rc : print_out(scene);
    }
    return rc;
}

/* ---- the report of an owner ---- */

static void json_age(struct buf *out, const char *name, int64_t age_ms)
{
    if (age_ms < 0) {
        buf_appendf(out, ",\"%s\":null", name);
    } else {
        buf_appendf(out, ",\"%s\":%lld", name, (long long)age_ms);
    }
}

static void json_ways(struct buf *out, const struct scene *scene, const struct holding *holding)
{
    buf_appendf(out, ",\"abandoned\":%llu,\"not_due\":%llu,\"would\":{",
                (unsigned long long)holding->abandoned, (unsigned long long)holding->not_due);
    for (enum way way = 0; way < WAY_COUNT; way++) {
        const uint64_t *acts = holding->acts[way];
        buf_appendf(out, "%s\"%s\":", way == 0 ? "" : ",", ways[way].name);
        if (way == WAY_REQUEUE && scene->other_groups) {
            buf_append_text(out, "null"); /* refused as a whole */
            continue;
        }
        buf_appendf(out, "{\"move\":%llu,\"park\":%llu,\"reap\":%llu,\"leave\":%llu}",
                    (unsigned long long)acts[ACT_MOVE], (unsigned long long)acts[ACT_PARK],
                    (unsigned long long)acts[ACT_REAP], (unsigned long long)acts[ACT_LEAVE]);
    }
    buf_append_text(out, "}");
}

/* In the report one line an owner; in a dry run's list what is told of an owner as a whole. */
static void owner_json(struct scene *scene, const struct holding *holding, bool drop)
{
    const struct look_owner *owner = holding->owner;
    struct buf *out = &scene->out;

    buf_append_text(out, "{\"stream\":");
    json_value(out, scene->stream);
    buf_append_text(out, ",\"group\":");
    json_value(out, scene->group);
    buf_append_text(out, ",\"consumer\":");
    json_value(out, owner->name);
    buf_appendf(out, ",\"state\":\"%s\",\"held\":%llu", owner_state_name(owner->state),
                (unsigned long long)owner->pending);
    if (scene->preview->list) {
        buf_append_text(out,
                        drop ? ",\"action\":\"drop-consumer\",\"reason\":\"it holds nothing and "
                               "is gone\"}\n"
                             : ",\"action\":null,\"reason\":\"no beat was taken lately: nobody "
                               "can say whether it lives\"}\n");
        return;
    }
    json_age(out, "beat_age_ms", owner->in_table ? owner->beat_age_ms : -1);
    json_age(out, "seen_age_ms", owner->seen_age_ms);
    json_age(out, "oldest_idle_ms", holding->oldest_idle_ms);
    buf_appendf(out, ",\"drop\":%s", drop ? "true" : "false");
    if (owner->state == OWNER_UNKNOWN) {
        buf_append_text(out, ",\"abandoned\":null,\"not_due\":null,\"would\":null");
    } else {
        json_ways(out, scene, holding);
    }
    buf_append_text(out, "}\n");
}

static void owner_text(struct scene *scene, const struct holding *holding, bool drop)
{
    const struct look_owner *owner = holding->owner;
    int64_t ago_ms = owner->in_table ? owner->beat_age_ms : owner->seen_age_ms;
    char name[64], age[DURATION_TEXT_SIZE];
    struct buf *out = &scene->out;

    buf_appendf(out, "  %s: %s",
                owner->name.size == 0 ? "(nobody)" : bytes_quote(owner->name, name, sizeof(name)),
                owner_state_name(owner->state));
    if (ago_ms >= 0 && owner->state != OWNER_RELEASED) {
        buf_appendf(out, ", %s %s ago", owner->in_table ? "last beat" : "last seen",
                    duration_brief(ago_ms, age));
    }
    if (drop) {
        buf_append_text(out, "; holds nothing: would be deleted\n");
    } else if (owner->state == OWNER_UNKNOWN) {
        buf_appendf(out, "; holds %llu: unknown whether abandoned, no beat was taken lately\n",
                    (unsigned long long)owner->pending);
    } else if (!scene->preview->list) {
        buf_appendf(out, "; abandoned %llu, not due %llu", (unsigned long long)holding->abandoned,
                    (unsigned long long)holding->not_due);
        if (holding->oldest_idle_ms >= 0) {
            buf_appendf(out, ", oldest idle %s", duration_brief(holding->oldest_idle_ms, age));
        }
        buf_append_text(out, "\n");
    }
}

static int take_owner(struct scene *scene, const struct look_owner *owner)
{
    struct holding holding = {.owner = owner, .oldest_idle_ms = -1};
    bool drop = sweep_wants_drop(owner, scene->preview->consumer_ttl_ms);
    bool unknown = owner->state == OWNER_UNKNOWN && owner->pending > 0;
    bool live = owner->state == OWNER_LIVE || owner->state == OWNER_ME;

    if (live || (owner->state != OWNER_NOBODY && owner->pending == 0 && !drop)) {
        return IMPEL_OK;
    }
    holding.heir = sweep_heir_of(&scene->heirs, owner->name);
    int rc = walk(scene, &holding);
    for (enum way way = 0; way < WAY_COUNT; way++) {
        for (size_t act = 0; act < ACT_COUNT; act++) {
            scene->total[way][act] += holding.acts[way][act];
        }
    }
    scene->abandoned += holding.abandoned;
    scene->not_due += holding.not_due;
    scene->unknown += unknown ? owner->pending : 0;
    if (rc >= 0 && (!scene->preview->list || drop || unknown)) {
        (scene->preview->json ? owner_json : owner_text)(scene, &holding, drop);
        rc = print_out(scene);
    }
    return rc;
}

/* ---- a group ---- */

static void append_acts(struct buf *out, const struct scene *scene, enum way way)
{
    const uint64_t *acts = scene->total[way];

    if (way == WAY_REQUEUE && scene->other_groups) {
        buf_append_text(
            out, "is refused: the stream has another group, for which that would be new work\n");
        return;
    }
    buf_append_text(out, "would ");
    if (way == WAY_REQUEUE || way == WAY_HAND_OVER) {
        buf_appendf(out, "%s %llu, ", ways[way].moves, (unsigned long long)acts[ACT_MOVE]);
    }
    buf_appendf(out, "park %llu, reap %llu, leave %llu\n", (unsigned long long)acts[ACT_PARK],
                (unsigned long long)acts[ACT_REAP], (unsigned long long)acts[ACT_LEAVE]);
}

static void summary(struct scene *scene)
{
    const struct sweep_preview *preview = scene->preview;

    if (scene->abandoned == 0) {
        buf_append_text(&scene->out, "  nothing is abandoned");
    }
    if (scene->unknown > 0 || scene->not_due > 0) {
        buf_appendf(&scene->out, "%s%llu not due yet, %llu unknown",
                    scene->abandoned == 0 ? "; " : "  ", (unsigned long long)scene->not_due,
                    (unsigned long long)scene->unknown);
    }
    if (scene->abandoned == 0 || scene->unknown > 0 || scene->not_due > 0) {
        buf_append_text(&scene->out, "\n");
    }
    for (enum way way = 0; scene->abandoned > 0 && way < WAY_COUNT; way++) {
        if (!preview->list || way == scene->way) {
            buf_appendf(&scene->out, "  %-11s ", ways[way].option);
            append_acts(&scene->out, scene, way);
        }
    }
}

static int ask_groups(struct scene *scene)
{
    struct request *info = session_request(REQUEST_INFO, scene->stream, (struct impel_bytes){0});
    int rc = ask(scene, info);

    if (rc >= 0) {
        scene->other_groups =
            info->info.group_count > 1 && !(scene->preview->action & CLAIM_ALL_GROUPS);
    }
    request_free(info);
    return rc;
}

static int take_look(struct scene *scene, const struct request *look)
{
    static const struct look_owner nobody = {
        .state = OWNER_NOBODY, .beat_age_ms = -1, .seen_age_ms = -1};
    uint64_t owned = 0;
    int rc = IMPEL_OK;

    scene->heirs = sweep_find_heirs(look, scene->preview->policy.min_idle_ms);
    for (size_t i = 0; rc >= 0 && i < look->look.owner_count; i++) {
        owned += look->look.owners[i].pending;
        rc = take_owner(scene, &look->look.owners[i]);
    }
    return rc >= 0 && owned < look->look.pending ? take_owner(scene, &nobody) : rc;
}

int sweep_preview_print(const struct sweep_preview *preview,
                        struct impel_bytes stream,
                        struct impel_bytes group,
                        struct impel_error *err)
{
    struct scene scene = {.preview = preview, .stream = stream, .group = group, .err = err};
    struct request *look = session_request(REQUEST_LOOK, stream, group);
    char stream_text[64], group_text[64];
    int rc;

    while (scene.way + 1 < WAY_COUNT && (ways[scene.way].action & preview->action) == 0) {
        scene.way++;
    }
    scene.way = (ways[scene.way].action & preview->action) != 0 ? scene.way : WAY_NONE;
    buf_init(&scene.out, SIZE_MAX / 4);
    if (look != NULL) {
        look->dead_after_ms = preview->policy.dead_after_ms;
    }
    rc = ask_groups(&scene);
    rc = rc < 0 ? rc : ask(&scene, look);
    ASSERT(rc < 0 || look != NULL);
    if (rc >= 0 && !preview->json) {
        buf_appendf(&scene.out, "%s%s%s, group %s\n", console_style(1, STYLE_BOLD),
                    bytes_quote(stream, stream_text, sizeof(stream_text)),
                    console_style(1, STYLE_END),
                    bytes_quote(group, group_text, sizeof(group_text)));
    }
    rc = rc < 0 ? rc : take_look(&scene, look);
    if (rc >= 0 && !preview->json) {
        summary(&scene);
    }
    rc = rc < 0 ? rc : print_out(&scene);
    buf_release(&scene.out);
    request_free(look);
    return rc;
}
