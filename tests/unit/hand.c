/* hand.c -- a worker driven by hand. */
#include "hand.h"

#include <stdlib.h>

struct hand hand;
bool hand_inside;

struct worker_options hand_options(void)
{
    static struct impel_bytes stream, dead_letter;
    struct worker_options options = {0};

    stream = bytes_of("s");
    dead_letter = bytes_of("s:dead");
    options.streams = &stream;
    options.stream_count = 1;
    options.dead_letters = &dead_letter;
    options.group = bytes_of("g");
    options.consumer = bytes_of("c");
    policy_defaults(&options.policy);
    options.concurrency = 1;
    options.grace_ms = 25000;
    options.sweep_interval_ms = 1000;
    options.seed = 7;
    return options;
}

void hand_end(void)
{
    worker_free(hand.worker);
    for (size_t i = 0; i < hand.out_count; i++) {
        request_free(hand.out[i]);
    }
    for (size_t i = 0; i < hand.taken_count; i++) {
        request_free(hand.taken[i]);
    }
    hand = (struct hand){0};
}

static void note_event(const struct worker_event *event)
{
    hand.events[event->kind] += event->count > 0 ? event->count : 1;
    hand.last[event->kind] = *event;
    if (event->reason.size > 0) {
        snprintf(hand.reason, sizeof(hand.reason), "%.*s", (int)event->reason.size,
                 (const char *)event->reason.data);
    }
    if (event->text != NULL) {
        snprintf(hand.text, sizeof(hand.text), "%s", event->text);
    }
}

static void forget_out(const struct request *request)
{
    for (size_t i = 0; i < hand.out_count; i++) {
        if (hand.out[i] == request) {
            memmove(&hand.out[i], &hand.out[i + 1],
                    (hand.out_count - i - 1) * sizeof(struct request *));
            hand.out_count--;
            return;
        }
    }
}

static bool next_action(struct action *action)
{
    hand_inside = true;
    bool next = worker_next(hand.worker, action);
    hand_inside = false;
    return next;
}

static void start(struct delivery *delivery)
{
    if (!hand.quick) {
        hand.started[hand.started_count++] = delivery;
        return;
    }
    hand_inside = true;
    worker_outcome(hand.worker, delivery, OUTCOME_DONE, -1, bytes_of(""), hand.now_ms);
    hand_inside = false;
}

void hand_pump(void)
{
    struct action action;

    while (next_action(&action)) {
        switch (action.kind) {
        case ACTION_SUBMIT:
            hand.submitted++;
            hand.out[hand.out_count++] = action.request;
            break;
        case ACTION_UNBLOCK:
            hand.unblocked = action.request;
            break;
        case ACTION_START:
            start(action.delivery);
            break;
        case ACTION_CANCEL:
            hand.cancel_reason[hand.cancelled_count] = action.cancel;
            hand.cancelled[hand.cancelled_count++] = action.delivery;
            break;
        case ACTION_EVENT:
            note_event(&action.event);
            break;
        case ACTION_STOPPED:
            hand.stopped = true;
            hand.exit_code = action.exit_code;
            break;
        }
    }
}

void hand_start(const struct worker_options *options)
{
    if (hand.worker != NULL) {
        hand_end(); /* a failed test left it */
    }
    hand.now_ms = 1000000;
    hand_inside = true;
    hand.worker = worker_new(options, hand.now_ms);
    hand_inside = false;
    hand_tick();
}

void hand_tick(void)
{
    if (hand.worker == NULL) {
        return; /* memory was out */
    }
    hand_inside = true;
    worker_tick(hand.worker, hand.now_ms);
    hand_inside = false;
    hand_pump();
}

void hand_advance(int64_t ms)
{
    int64_t until_ms = hand.now_ms + ms;

    for (int turns = 0; turns < 100000; turns++) {
        hand_inside = true;
        int64_t wait_ms = worker_tick(hand.worker, hand.now_ms);
        hand_inside = false;
        hand_pump();
        if (hand.now_ms >= until_ms) {
            return;
        }
        wait_ms = wait_ms < 1 ? 1 : wait_ms;
        hand.now_ms = hand.now_ms + wait_ms < until_ms ? hand.now_ms + wait_ms : until_ms;
    }
}

size_t hand_count(enum request_kind kind)
{
    size_t count = 0;
    for (size_t i = 0; i < hand.out_count; i++) {
        count += hand.out[i]->kind == kind;
    }
    return count;
}

struct request *hand_take_of(enum request_kind kind, const char *stream)
{
    for (size_t i = 0; i < hand.out_count; i++) {
        struct request *request = hand.out[i];
        if (request->kind == kind &&
            (stream == NULL || bytes_equal(request->stream, bytes_of(stream)))) {
            forget_out(request);
            hand.taken[hand.taken_count++] = request;
            return request;
        }
    }
    printf("# no %s is out\n", request_name(kind));
    longjmp(tap_abandon, 1);
}

struct request *hand_take(enum request_kind kind)
{
    return hand_take_of(kind, NULL);
}

void hand_reply(struct request *request)
{
    for (size_t i = 0; i < hand.taken_count; i++) {
        if (hand.taken[i] == request) {
            hand.taken[i] = hand.taken[--hand.taken_count];
        }
    }
    hand_inside = true;
    worker_done(hand.worker, request, hand.now_ms);
    hand_inside = false;
    hand_pump();
}

void hand_fail(struct request *request, int status)
{
    request->status = status;
    hand_reply(request);
}

static void items_done(struct request_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        items[i].result = ITEM_DONE;
    }
}

static void fill_ok(struct request *request)
{
    switch (request->kind) {
    case REQUEST_ACK:
        items_done(request->ack.items, request->ack.item_count);
        request->ack.acked = request->ack.item_count;
        break;
    case REQUEST_RETRY:
    case REQUEST_ADOPT:
        items_done(request->items.items, request->items.item_count);
        for (size_t i = 0; i < request->items.item_count; i++) {
            request->items.items[i].entry = hand_entry(request->items.items[i].id.ms);
        }
        break;
    case REQUEST_RENEW:
    case REQUEST_RELEASE:
    case REQUEST_PARK:
        items_done(request->items.items, request->items.item_count);
        break;
    case REQUEST_LEAVE:
        request->leave.left = true;
        break;
    default:
        break;
    }
}

void hand_ok(enum request_kind kind)
{
    struct request *request = hand_take(kind);
    fill_ok(request);
    hand_reply(request);
}

void hand_ok_all(enum request_kind kind)
{
    for (size_t left = hand_count(kind); left > 0; left--) {
        hand_ok(kind);
    }
}

struct entry *hand_entry(uint64_t ms)
{
    struct impel_field field = {bytes_of("n"), bytes_of("v")};
    return entry_new((struct impel_id){ms, 0}, &field, 1);
}

void hand_deliver(struct request *read, size_t index, uint64_t ms, size_t count)
{
    read->read.entries = arena_calloc(&read->arena, count, sizeof(struct delivered));
    read->read.entry_count = count;
    for (size_t i = 0; i < count; i++) {
        read->read.entries[i].entry = hand_entry(ms + i);
        read->read.entries[i].stream_index = index;
        read->read.entries[i].deliveries = 1;
    }
    hand_reply(read);
}

void hand_ready(void)
{
    hand_ok_all(REQUEST_GROUP_CREATE);
    hand_tick();
    hand_ok_all(REQUEST_BEAT);
    hand_tick();
    hand_ok_all(REQUEST_PENDING);
    hand_ok_all(REQUEST_LOOK); /* somebody else has the stamp */
    hand_tick();
}

struct delivery *hand_running(uint64_t ms)
{
    for (size_t i = hand.started_count; i-- > 0;) {
        if (hand.started[i] != NULL && hand.started[i]->entry->id.ms == ms) {
            return hand.started[i];
        }
    }
    return NULL;
}

void hand_outcome_of(struct delivery *delivery,
                     enum worker_outcome outcome,
                     int64_t delay_ms,
                     const char *error)
{
    for (size_t i = 0; i < hand.started_count; i++) {
        if (hand.started[i] == delivery) {
            hand.started[i] = NULL;
        }
    }
    hand_inside = true;
    worker_outcome(hand.worker, delivery, outcome, delay_ms, bytes_of(error), hand.now_ms);
    hand_inside = false;
    hand_pump();
}

void hand_outcome(uint64_t ms, enum worker_outcome outcome)
{
    struct delivery *delivery = hand_running(ms);
    if (delivery == NULL) {
        printf("# %" PRIu64 "-0 is not running\n", ms);
        longjmp(tap_abandon, 1);
    }
    hand_outcome_of(delivery, outcome, -1, outcome == OUTCOME_DONE ? "" : "it failed");
}

bool hand_holds(uint64_t ms)
{
    return worker_holds(hand.worker, 0, (struct impel_id){ms, 0});
}

void hand_look(struct request *look, const struct hand_owner *owners)
{
    size_t count = 0;

    while (owners[count].name != NULL) {
        count++;
    }
    look->look.stamped = true;
    look->look.owners = arena_calloc(&look->arena, count + 1, sizeof(*look->look.owners));
    look->look.owner_count = count;
    for (size_t i = 0; i < count; i++) {
        struct look_owner *owner = &look->look.owners[i];
        owner->name = bytes_of(owners[i].name);
        owner->pending = owners[i].pending;
        owner->state = owners[i].state;
        owner->in_table = owner->state != OWNER_FOREIGN && owner->state != OWNER_RELEASED;
        look->look.pending += owner->pending;
    }
    hand_reply(look);
}

void hand_claim(struct request *claim, uint64_t ms, int64_t deliveries, uint64_t next_ms)
{
    claim->claim_from.state = OWNER_DEAD;
    claim->claim_from.wait_ms = -1;
    claim->claim_from.next = (struct impel_id){next_ms, 0};
    claim->claim_from.rows = 1;
    if (ms > 0) {
        claim->claim_from.entries = arena_calloc(&claim->arena, 1, sizeof(struct delivered));
        claim->claim_from.entry_count = 1;
        claim->claim_from.entries[0].entry = hand_entry(ms);
        claim->claim_from.entries[0].deliveries = deliveries;
        claim->claim_from.entries[0].idle_ms = 6000;
        claim->claim_from.entries[0].from = OWNER_DEAD;
    }
    hand_reply(claim);
}
