/* copy_state.c -- what a stream is, but for its rows; who works on it; which streams there are. */
#include "base/value.h"
#include "cli/copy.h"
#include "core/policy.h"

#include <stdlib.h>
#include <string.h>

static const struct value nothing = {.kind = VALUE_NULL};

/* ---- replies ---- */

/* The value under a name in a map, or in a list of names and values. */
static const struct value *member(const struct value *map, const char *name)
{
    for (size_t i = 0; i + 1 < map->item_count; i += 2) {
        if (bytes_equal(map->items[i].bytes, bytes_of(name))) {
            return &map->items[i + 1];
        }
    }
    return &nothing;
}

static int64_t member_number(const struct value *map, const char *name)
{
    const struct value *value = member(map, name);
    return value->kind == VALUE_INTEGER ? value->integer : -1;
}

static struct impel_id member_id(const struct value *map, const char *name)
{
    struct impel_id id = {0, 0};

    (void)id_parse(member(map, name)->bytes, 0, &id);
    return id;
}

static int no_memory(struct impel_error *err)
{
    return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
}

/* ---- a stream ---- */

static int compare_names(const void *a, const void *b)
{
    return bytes_compare(*(const struct impel_bytes *)a, *(const struct impel_bytes *)b);
}

static int compare_groups(const void *a, const void *b)
{
    return bytes_compare(((const struct copy_group *)a)->name,
                         ((const struct copy_group *)b)->name);
}

static int read_consumers(struct store *store,
                          struct impel_bytes stream,
                          struct copy_state *state,
                          struct copy_group *group,
                          struct impel_error *err)
{
    const struct impel_bytes args[] = {bytes_of("XINFO"), bytes_of("CONSUMERS"), stream,
                                       group->name};
    struct request *request = NULL;
    uint64_t owned = 0;
    bool released = false;
    int rc = session_call(store, args, ARRAY_SIZE(args), &request, err);

    if (rc < 0) {
        return rc;
    }
    const struct value *reply = request->call.reply;
    group->consumers =
        arena_calloc(&state->arena, reply->item_count + 1, sizeof(*group->consumers));
    for (size_t i = 0; group->consumers != NULL && i < reply->item_count; i++) {
        struct impel_bytes name = member(&reply->items[i], "name")->bytes;
        owned += (uint64_t)member_number(&reply->items[i], "pending");
        released = released || bytes_equal(name, bytes_of(RELEASED_NAME));
        if (!arena_copy(&state->arena, name, &group->consumers[group->consumer_count++])) {
            group->consumers = NULL;
        }
    }
    request_free(request);
    if (group->consumers == NULL) {
        return no_memory(err);
    }
    group->nobodys = group->pending > owned ? group->pending - owned : 0;
    if (group->nobodys > 0 && !released) {
        group->consumers[group->consumer_count++] = bytes_of(RELEASED_NAME);
    }
    qsort(group->consumers, group->consumer_count, sizeof(*group->consumers), compare_names);
    return IMPEL_OK;
}

static int read_groups(struct store *store,
                       struct impel_bytes stream,
                       struct copy_state *state,
                       struct impel_error *err)
{
    const struct impel_bytes args[] = {bytes_of("XINFO"), bytes_of("GROUPS"), stream};
    struct request *request = NULL;
    int rc = session_call(store, args, ARRAY_SIZE(args), &request, err);

    if (rc < 0) {
        return rc;
    }
    const struct value *reply = request->call.reply;
    state->groups = arena_calloc(&state->arena, reply->item_count + 1, sizeof(*state->groups));
    rc = state->groups == NULL ? no_memory(err) : rc;
    ASSERT(rc < 0 || state->groups != NULL);
    for (size_t i = 0; rc >= 0 && i < reply->item_count; i++) {
        const struct value *map = &reply->items[i];
        struct copy_group *group = &state->groups[state->group_count++];
        group->last_id = member_id(map, "last-delivered-id");
        group->entries_read = member_number(map, "entries-read");
        group->pending = (uint64_t)member_number(map, "pending");
        state->pending += group->pending;
        rc = arena_copy(&state->arena, member(map, "name")->bytes, &group->name) ? rc
                                                                                 : no_memory(err);
        rc = rc < 0 ? rc : read_consumers(store, stream, state, group, err);
    }
    request_free(request);
    if (rc >= 0) {
        qsort(state->groups, state->group_count, sizeof(*state->groups), compare_groups);
    }
    return rc;
}

/* The number that a command of two words answers. */
static int ask_number(struct store *store,
                      const char *command,
                      struct impel_bytes key,
                      int64_t *number,
                      struct impel_error *err)
{
    const struct impel_bytes args[] = {bytes_of(command), key};
    struct request *request = NULL;
    int rc = session_call(store, args, ARRAY_SIZE(args), &request, err);

    if (rc >= 0) {
        *number = request->call.reply->kind == VALUE_INTEGER ? request->call.reply->integer : 0;
        request_free(request);
    }
    return rc;
}

static int read_stream(struct store *store,
                       struct impel_bytes stream,
                       struct copy_state *state,
                       struct impel_error *err)
{
    const struct impel_bytes args[] = {bytes_of("XINFO"), bytes_of("STREAM"), stream};
    struct request *request = NULL;
    struct impel_error why = {0};
    int64_t there = 0;
    int rc = ask_number(store, "EXISTS", stream, &there, err);

    if (rc < 0 || there == 0) {
        return rc;
    }
    rc = session_call(store, args, ARRAY_SIZE(args), &request, &why);
    if (rc < 0) {
        bool other = strncmp(why.text, "WRONGTYPE", 9) == 0;
        return error_set(err, other ? IMPEL_ERR_WRONG_TYPE : rc, "%s", why.text);
    }
    const struct value *map = request->call.reply;
    const struct value *first = member(map, "first-entry");
    state->exists = true;
    state->length = (uint64_t)member_number(map, "length");
    state->last_id = member_id(map, "last-generated-id");
    state->entries_added = member_number(map, "entries-added");
    state->counts = state->entries_added >= 0;
    state->max_deleted_id = member_id(map, "max-deleted-entry-id");
    state->idmp_duration_s = member_number(map, "idmp-duration");
    state->idmp_iids_max = member_number(map, "idmp-maxsize");
    state->idmp_iids = member_number(map, "iids-tracked");
    state->idmp_added = member_number(map, "iids-added");
    if (first->item_count > 0) {
        (void)id_parse(first->items[0].bytes, 0, &state->first_id);
    }
    request_free(request);
    rc = ask_number(store, "PTTL", stream, &state->ttl_ms, err);
    return rc < 0 ? rc : read_groups(store, stream, state, err);
}

int copy_state_read(struct store *store,
                    struct impel_bytes stream,
                    struct copy_state *state,
                    struct impel_error *err)
{
    *state = (struct copy_state){.ttl_ms = -1};
    int rc = read_stream(store, stream, state, err);
    if (rc < 0) {
        copy_state_release(state);
    }
    return rc;
}

void copy_state_release(struct copy_state *state)
{
    arena_release(&state->arena);
    *state = (struct copy_state){.ttl_ms = -1};
}

bool copy_state_idempotent(const struct copy_state *state)
{
    enum { DURATION_S = 100, IIDS_MAX = 100 }; /* everybody's defaults */

    return state->idmp_duration_s >= 0 && state->idmp_iids_max >= 0 &&
           (state->idmp_added > 0 || state->idmp_duration_s != DURATION_S ||
            state->idmp_iids_max != IIDS_MAX);
}

bool copy_state_equal(const struct copy_state *a, const struct copy_state *b)
{
    if (a->length != b->length || !id_equal(a->first_id, b->first_id) ||
        !id_equal(a->last_id, b->last_id) || !id_equal(a->max_deleted_id, b->max_deleted_id) ||
        a->entries_added != b->entries_added || a->group_count != b->group_count) {
        return false;
    }
    for (size_t i = 0; i < a->group_count; i++) {
        const struct copy_group *x = &a->groups[i];
        const struct copy_group *y = &b->groups[i];
        if (!bytes_equal(x->name, y->name) || !id_equal(x->last_id, y->last_id) ||
            x->pending != y->pending || x->consumer_count != y->consumer_count) {
            return false;
        }
    }
    return true;
}

/* ---- who works on it ---- */

static int group_alive(struct store *store,
                       struct impel_bytes stream,
                       struct impel_bytes group,
                       struct impel_error *err)
{
    struct request *look = session_request(REQUEST_LOOK, stream, group);
    char worker[64], group_text[64], stream_text[64];

    if (look != NULL) {
        look->dead_after_ms = 5000;
    }
    int rc = session_ask(store, look, err);
    ASSERT(rc < 0 || look != NULL);
    for (size_t i = 0; rc >= 0 && i < look->look.owner_count; i++) {
        const struct look_owner *owner = &look->look.owners[i];
        if (owner->state == OWNER_LIVE) {
            rc = error_set(err, IMPEL_ERR_BUSY,
                           "stream '%s': worker '%s' of group '%s' is alive: stop it first (or "
                           "--force), else the same work runs on both sides",
                           bytes_quote(stream, stream_text, sizeof(stream_text)),
                           bytes_quote(owner->name, worker, sizeof(worker)),
                           bytes_quote(group, group_text, sizeof(group_text)));
        }
    }
    request_free(look);
    return rc;
}

int copy_state_alive(struct store *store,
                     struct impel_bytes stream,
                     const struct copy_state *state,
                     struct impel_error *err)
{
    int rc = IMPEL_OK;

    for (size_t i = 0; rc >= 0 && i < state->group_count; i++) {
        rc = group_alive(store, stream, state->groups[i].name, err);
    }
    return rc;
}

/* ---- which streams there are ---- */

struct names {
    struct arena *arena;
    struct impel_bytes *items;
    size_t count, room;
};

static bool has_prefix(struct impel_bytes text, const char *prefix)
{
    size_t size = strlen(prefix);
    return text.size >= size && memcmp(text.data, prefix, size) == 0;
}

/* What copies are built in: it is no stream of anybody's. */
static bool is_building(struct impel_bytes name)
{
    return has_prefix(name, "impel:{") && memmem(name.data, name.size, "}:copy:", 7) != NULL;
}

static int names_add(struct names *names, struct impel_bytes name, struct impel_error *err)
{
    if (names->count == names->room) {
        size_t room = names->room == 0 ? 64 : names->room * 2;
        struct impel_bytes *items = arena_calloc(names->arena, room, sizeof(*items));
        if (items == NULL) {
            return no_memory(err);
        }
        if (names->count > 0) {
            memcpy(items, names->items, names->count * sizeof(*items));
        }
        names->items = items;
        names->room = room;
    }
    return arena_copy(names->arena, name, &names->items[names->count++]) ? IMPEL_OK
                                                                         : no_memory(err);
}

/* Is it a stream? Servers before 6.0 cannot leave the others out of a scan. */
static int names_add_stream(struct store *store,
                            struct names *names,
                            struct impel_bytes name,
                            struct impel_error *err)
{
    const struct impel_bytes args[] = {bytes_of("TYPE"), name};
    struct request *request = NULL;
    int rc = session_call(store, args, ARRAY_SIZE(args), &request, err);

    if (rc >= 0 && bytes_equal(request->call.reply->bytes, bytes_of("stream"))) {
        rc = names_add(names, name, err);
    }
    request_free(rc < 0 ? NULL : request);
    return rc;
}

static int
scan(struct store *store, const char *pattern, struct names *names, struct impel_error *err)
{
    char cursor[32] = "0";
    int rc;

    do {
        const struct impel_bytes args[] = {bytes_of("SCAN"),  bytes_of(cursor),  bytes_of("MATCH"),
                                           bytes_of(pattern), bytes_of("COUNT"), bytes_of("1000")};
        struct request *request = NULL;
        rc = session_call(store, args, ARRAY_SIZE(args), &request, err);
        if (rc < 0) {
            break;
        }
        const struct value *reply = request->call.reply;
        if (reply->item_count != 2 || reply->items[0].bytes.size >= sizeof(cursor)) {
            rc = error_set(err, IMPEL_ERR_PROTOCOL, "SCAN was answered with something else");
        }
        for (size_t i = 0; rc >= 0 && i < reply->items[1].item_count; i++) {
            struct impel_bytes name = reply->items[1].items[i].bytes;
            rc = is_building(name) ? rc : names_add_stream(store, names, name, err);
        }
        if (rc >= 0) {
            memset(cursor, 0, sizeof(cursor));
            memcpy(cursor, reply->items[0].bytes.data, reply->items[0].bytes.size);
        }
        request_free(request);
    } while (rc >= 0 && strcmp(cursor, "0") != 0);
    return rc;
}

/* One word of the user's: a name, or a pattern. What means nothing is taken for a name, and missed later. */
static int
add_wanted(struct store *store, const char *word, struct names *names, struct impel_error *err)
{
    int64_t there = 0;
    size_t before = names->count;
    int rc = ask_number(store, "EXISTS", bytes_of(word), &there, err);

    if (rc >= 0 && there == 0 && strpbrk(word, "*?[") != NULL) {
        rc = scan(store, word, names, err);
    }
    return rc < 0 || names->count > before ? rc : names_add(names, bytes_of(word), err);
}

int copy_names(struct store *store,
               const struct text_list *wanted,
               struct arena *arena,
               struct impel_bytes **out,
               size_t *count,
               struct impel_error *err)
{
    struct names names = {.arena = arena};
    size_t kept = 0;
    int rc = wanted->count == 0 ? scan(store, "*", &names, err) : IMPEL_OK;

    for (size_t i = 0; rc >= 0 && i < wanted->count; i++) {
        rc = add_wanted(store, wanted->texts[i], &names, err);
    }
    if (names.count > 0) {
        qsort(names.items, names.count, sizeof(*names.items), compare_names);
    }
    for (size_t i = 0; i < names.count; i++) {
        if (kept == 0 || !bytes_equal(names.items[kept - 1], names.items[i])) {
            names.items[kept++] = names.items[i];
        }
    }
    *out = names.items;
    *count = kept;
    return rc;
}

/* What decides on a name's slot: what stands in its first braces, or all of it. */
static struct impel_bytes tag_of(struct impel_bytes name)
{
    const char *text = name.data;
    const char *open = name.size == 0 ? NULL : memchr(text, '{', name.size);
    const char *close = open == NULL ? NULL : memchr(open, '}', (size_t)(text + name.size - open));

    if (close == NULL || close == open + 1) {
        return name;
    }
    return (struct impel_bytes){open + 1, (size_t)(close - open - 1)};
}

bool copy_building_name(struct arena *arena, struct impel_bytes stream, struct impel_bytes *name)
{
    struct impel_bytes tag = tag_of(stream);
    struct buf text;

    buf_init(&text, SIZE_MAX / 4);
    buf_append_text(&text, "impel:{");
    buf_append_bytes(&text, tag);
    buf_append_text(&text, "}:copy:");
    buf_append_bytes(&text, stream);
    bool good = !text.failed && arena_copy(arena, buf_bytes(&text), name);
    buf_release(&text);
    return good;
}
