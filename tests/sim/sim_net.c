/* sim_net.c -- requests on their way to the store and back.
 *
 * A node has two connections, one for reads; each keeps its order in both directions. A connection
 * that breaks completes all that is out as DISCONNECTED. A read that was not answered then has no
 * effect later; any other request may still be carried out, now or after its sender was told that
 * the connection broke. */
#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>

enum {
    FLIGHTS_MAX = 4096, /* of a node at once */
};

static void fire_arrive(struct sim *sim, void *of, uint64_t tag);
static void fire_reply(struct sim *sim, void *of, uint64_t tag);
static void fire_block_over(struct sim *sim, void *of, uint64_t tag);

static int64_t latency_ms(struct sim *sim)
{
    return sim->options.latency_ms == 0 ? 0 : sim_between(sim, 0, sim->options.latency_ms);
}

static int64_t no_earlier(int64_t *last_ms, int64_t at_ms)
{
    *last_ms = at_ms > *last_ms ? at_ms : *last_ms;
    return *last_ms;
}

/* ---- out ---- */

static void unlink_flight(struct node *node, struct flight *flight)
{
    struct flight **at = node == NULL ? NULL : &node->flights;

    while (at != NULL && *at != NULL && *at != flight) {
        at = &(*at)->next;
    }
    if (at != NULL && *at != NULL) {
        *at = flight->next;
    }
}

static void fire_broken(struct sim *sim, void *of, uint64_t tag)
{
    struct flight *flight = of;

    if (flight->tag != tag || flight->state == FLIGHT_OVER) {
        return;
    }
    struct node *node = flight->node;
    if (node_paused(sim, node)) {
        sim_at(sim, node->paused_until_ms, fire_broken, flight, tag);
        return;
    }
    flight->state = FLIGHT_OVER;
    unlink_flight(node, flight);
    struct request *request = flight->request;
    flight->request = NULL;
    request->status = error_set(&request->error, IMPEL_ERR_DISCONNECTED, "the connection broke");
    node_answered(sim, node, request);
}

struct flight *net_submit(struct sim *sim, struct node *node, struct request *request)
{
    struct flight *flight = sim_alloc(sim, sizeof(*flight));

    sim->requests++;
    sim->asked[request->kind]++;
    check_request(sim, node, request);
    flight->request = request;
    flight->node = node;
    flight->restarts = sim->restarts;
    flight->connection = request->kind == REQUEST_READ ? 0 : 1;
    flight->next = node->flights;
    node->flights = flight;
    if (sim->now_ms < node->cut_until_ms) {
        flight->broken = true;
        sim_at(sim, sim->now_ms + sim_between(sim, 0, 50), fire_broken, flight, ++flight->tag);
        return flight;
    }
    int64_t at_ms = sim->now_ms + latency_ms(sim);
    at_ms = at_ms < node->silent_until_ms ? node->silent_until_ms : at_ms;
    at_ms = no_earlier(&node->arrive_ms[flight->connection], at_ms);
    flight->at_ms = at_ms;
    sim_at(sim, at_ms, fire_arrive, flight, ++flight->tag);
    return flight;
}

/* ---- at the store ---- */

static void reply(struct sim *sim, struct flight *flight)
{
    struct node *node = flight->node;

    flight->state = FLIGHT_BACK;
    if (node == NULL) {
        flight->state = FLIGHT_OVER;
        request_free(flight->request);
        flight->request = NULL;
        return;
    }
    int64_t at_ms = sim->now_ms + latency_ms(sim);
    at_ms = at_ms < node->silent_until_ms ? node->silent_until_ms : at_ms;
    at_ms = no_earlier(&node->reply_ms[flight->connection], at_ms);
    sim_at(sim, at_ms, fire_reply, flight, ++flight->tag);
}

static void block(struct sim *sim, struct flight *flight)
{
    struct flight **at = &sim->blocked;

    flight->state = FLIGHT_BLOCKED;
    if (flight->block_until_ms == 0) {
        flight->block_until_ms = sim->now_ms + flight->request->read.block_ms;
        sim_at(sim, flight->block_until_ms, fire_block_over, flight, ++flight->tag);
    }
    while (*at != NULL) {
        at = &(*at)->after;
    }
    flight->after = NULL;
    *at = flight;
}

static void serve(struct sim *sim, struct flight *flight)
{
    bool over = flight->block_until_ms != 0 && flight->block_until_ms <= sim->now_ms;

    /* A dead process's read is served at once or not at all: its connection is closed. */
    if (flight->request->kind == REQUEST_READ &&
        (flight->cancelled || over || flight->node == NULL)) {
        flight->request->read.block_ms = 0;
    }
    if (!model_apply(&sim->model, flight->request)) {
        block(sim, flight);
        return;
    }
    reply(sim, flight);
    if (sim->model.signalled) {
        net_wake(sim);
    }
}

/* Each blocked read looks once more, in the order in which they came. */
void net_wake(struct sim *sim)
{
    struct flight *waiting = sim->blocked;

    sim->model.signalled = false;
    sim->blocked = NULL;
    while (waiting != NULL) {
        struct flight *flight = waiting;
        waiting = flight->after;
        flight->after = NULL;
        if (flight->state == FLIGHT_BLOCKED) {
            serve(sim, flight);
        }
    }
}

static void fire_arrive(struct sim *sim, void *of, uint64_t tag)
{
    struct flight *flight = of;

    if (flight->tag != tag || flight->state != FLIGHT_OUT) {
        return;
    }
    if (flight->node == NULL && flight->restarts != sim->restarts) {
        flight->state = FLIGHT_OVER; /* the store it was sent to is no more */
        request_free(flight->request);
        flight->request = NULL;
        return;
    }
    if (sim->stalled) {
        flight->state = FLIGHT_QUEUED;
        flight->after = NULL;
        *sim->queued_last = flight;
        sim->queued_last = &flight->after;
        return;
    }
    serve(sim, flight);
}

static void fire_block_over(struct sim *sim, void *of, uint64_t tag)
{
    struct flight *flight = of;

    if (flight->tag != tag || flight->state != FLIGHT_BLOCKED) {
        return;
    }
    if (sim->stalled) {
        sim_at(sim, sim->now_ms + 10, fire_block_over, flight, tag);
        return;
    }
    net_wake(sim);
}

/* Beats are taken again. A pause that is no longer than the gap does not count as one. */
void net_available(struct sim *sim, int64_t since_ms)
{
    bool hidden = sim->stepped_ms >= since_ms; /* a step back can make a pause look short */

    if (!hidden && sim->now_ms - since_ms > liveness_gap_ms(sim->options.policy.dead_after_ms)) {
        check_note_dead(sim, since_ms);
        sim->available_ms = sim->now_ms;
    }
}

static void fire_resume(struct sim *sim, void *of, uint64_t tag)
{
    struct flight *flight = sim->queued;

    (void)of;
    (void)tag;
    sim->stalled = false;
    net_available(sim, sim->stalled_ms);
    sim->disturbed_ms = sim->now_ms;
    sim->queued = NULL;
    sim->queued_last = &sim->queued;
    sim_trace(sim, "store: goes on");
    while (flight != NULL) {
        struct flight *next = flight->after;
        flight->after = NULL;
        if (flight->state == FLIGHT_QUEUED) {
            serve(sim, flight);
        }
        flight = next;
    }
    net_wake(sim);
}

void net_stall(struct sim *sim, int64_t until_ms)
{
    if (sim->stalled) {
        return;
    }
    sim->stalled = true;
    sim->stalled_ms = sim->now_ms;
    sim->disturbed_ms = sim->now_ms;
    sim_at(sim, until_ms, fire_resume, NULL, 0);
}

void net_drop_queued(struct sim *sim)
{
    struct flight *flight = sim->queued;

    sim->queued = NULL;
    sim->queued_last = &sim->queued;
    while (flight != NULL) {
        struct flight *next = flight->after;
        flight->after = NULL;
        if (flight->state == FLIGHT_QUEUED) {
            flight->state = FLIGHT_OVER;
            request_free(flight->request);
            flight->request = NULL;
        }
        flight = next;
    }
}

void net_apply(struct sim *sim, struct request *request, bool is_foreign)
{
    sim->foreign_acts = is_foreign;
    if (!model_apply(&sim->model, request)) {
        request->status = IMPEL_OK;
    }
    sim->foreign_acts = false;
    if (sim->model.signalled) {
        net_wake(sim);
    }
}

/* ---- back ---- */

static void fire_reply(struct sim *sim, void *of, uint64_t tag)
{
    struct flight *flight = of;
    struct node *node = flight->node;

    if (flight->tag != tag || flight->state != FLIGHT_BACK) {
        return;
    }
    if (node_paused(sim, node)) {
        sim_at(sim, node->paused_until_ms, fire_reply, flight, tag);
        return;
    }
    flight->state = FLIGHT_OVER;
    unlink_flight(node, flight);
    struct request *request = flight->request;
    flight->request = NULL;
    node_answered(sim, node, request);
}

void net_cancel(struct sim *sim, struct node *node, const struct request *request)
{
    for (struct flight *flight = node->flights; flight != NULL; flight = flight->next) {
        if (flight->request == request) {
            flight->cancelled = true;
            if (flight->state == FLIGHT_BLOCKED && !sim->stalled) {
                net_wake(sim);
            }
            return;
        }
    }
}

/* ---- broken connections ---- */

/* Takes the answer out of a request: whoever sent it never hears it. */
static void scrub(struct request *request)
{
    switch (request->kind) {
    case REQUEST_READ:
        for (size_t i = 0; i < request->read.entry_count; i++) {
            entry_free(request->read.entries[i].entry);
        }
        request->read.entry_count = 0;
        break;
    case REQUEST_CLAIM_FROM:
        for (size_t i = 0; i < request->claim_from.entry_count; i++) {
            entry_free(request->claim_from.entries[i].entry);
        }
        request->claim_from.entry_count = request->claim_from.parked_count = 0;
        request->claim_from.reaped_count = 0;
        break;
    case REQUEST_RETRY:
    case REQUEST_ADOPT:
    case REQUEST_RENEW:
    case REQUEST_RELEASE:
    case REQUEST_PARK:
        for (size_t i = 0; i < request->items.item_count; i++) {
            entry_free(request->items.items[i].entry);
            request->items.items[i].entry = NULL;
            request->items.items[i].result = ITEM_NONE;
        }
        break;
    default:
        break;
    }
}

static void clone_items(struct arena *arena, struct request_item **items, size_t count)
{
    struct request_item *copy = arena_calloc(arena, count, sizeof(*copy));

    ASSERT(copy != NULL);
    for (size_t i = 0; i < count; i++) {
        copy[i] = (*items)[i];
        copy[i].copy = NULL;
        copy[i].entry = NULL;
        copy[i].result = ITEM_NONE;
        ASSERT(arena_copy(arena, (*items)[i].reason, &copy[i].reason) &&
               arena_copy(arena, (*items)[i].error, &copy[i].error));
        if ((*items)[i].copy != NULL) {
            /* The model copies what it keeps; the fields must live as long as the clone. */
            const struct entry *entry = (*items)[i].copy;
            struct entry *twin =
                arena_alloc(arena, sizeof(*twin) + entry->field_count * sizeof(entry->fields[0]));
            ASSERT(twin != NULL);
            *twin = (struct entry){entry->id, entry->field_count, entry->size_bytes};
            for (size_t k = 0; k < entry->field_count; k++) {
                ASSERT(arena_copy(arena, entry->fields[k].name, &twin->fields[k].name) &&
                       arena_copy(arena, entry->fields[k].value, &twin->fields[k].value));
            }
            copy[i].copy = twin;
        }
    }
    *items = copy;
}

/* A request that nobody waits for any more but that still reaches the store. */
static struct request *clone(const struct request *request)
{
    struct request *twin = request_new(request->kind);
    struct arena *arena = &twin->arena;

    ASSERT(twin != NULL);
    *twin = *request;
    *arena = (struct arena){0};
    twin->owner = NULL;
    twin->store_data = twin; /* marks it as late, for the book */
    ASSERT(arena_copy(arena, request->stream, &twin->stream) &&
           arena_copy(arena, request->group, &twin->group) &&
           arena_copy(arena, request->consumer, &twin->consumer));
    switch (request->kind) {
    case REQUEST_ACK:
        clone_items(arena, &twin->ack.items, twin->ack.item_count);
        break;
    case REQUEST_RETRY:
    case REQUEST_ADOPT:
    case REQUEST_RENEW:
    case REQUEST_RELEASE:
    case REQUEST_PARK:
        clone_items(arena, &twin->items.items, twin->items.item_count);
        ASSERT(arena_copy(arena, request->items.dead_letter, &twin->items.dead_letter));
        break;
    case REQUEST_CLAIM_FROM:
        ASSERT(arena_copy(arena, request->claim_from.owner, &twin->claim_from.owner) &&
               arena_copy(arena, request->claim_from.dead_letter, &twin->claim_from.dead_letter));
        twin->claim_from.entry_count = 0;
        break;
    case REQUEST_DROP:
        ASSERT(arena_copy(arena, request->leave.name, &twin->leave.name));
        break;
    default:
        break;
    }
    return twin;
}

/* The connection of `flight` is gone. Its effect may come yet, by a twin on its own. */
static void break_flight(struct sim *sim, struct flight *flight, bool arrives, int64_t later_ms)
{
    bool on_its_way = flight->state == FLIGHT_OUT || flight->state == FLIGHT_QUEUED;
    bool changes =
        flight->request->kind != REQUEST_READ && flight->request->kind != REQUEST_PENDING;

    if (on_its_way && changes && arrives) {
        struct flight *late = sim_alloc(sim, sizeof(*late));
        late->request = clone(flight->request);
        late->restarts = sim->restarts;
        int64_t at_ms = flight->at_ms + later_ms;
        sim_at(sim, at_ms, fire_arrive, late, ++late->tag);
        flight->node->late_ms = at_ms > flight->node->late_ms ? at_ms : flight->node->late_ms;
        sim_trace(sim, "net: %s of %s may come late", request_name(flight->request->kind),
                  flight->node->name);
    }
    if (flight->state == FLIGHT_BACK) {
        scrub(flight->request);
    }
    flight->state = FLIGHT_OUT;
    flight->broken = true;
    flight->tag++;
}

/* Takes it out of the store's lists, whichever it is in. */
static void unqueue(struct sim *sim, const struct flight *flight)
{
    struct flight **at = flight->state == FLIGHT_BLOCKED ? &sim->blocked : &sim->queued;

    if (flight->state != FLIGHT_BLOCKED && flight->state != FLIGHT_QUEUED) {
        return;
    }
    while (*at != flight) {
        at = &(*at)->after;
    }
    *at = flight->after;
    sim->queued_last = &sim->queued;
    while (*sim->queued_last != NULL) {
        sim->queued_last = &(*sim->queued_last)->after;
    }
}

void net_silence(struct sim *sim, struct node *node, int64_t until_ms)
{
    sim->any_fault = true;
    node->silent_until_ms = node->disturbed_ms = until_ms;
}

void net_cut(struct sim *sim, struct node *node, int64_t until_ms, bool server_gone)
{
    if (!node_alive(node)) {
        return;
    }
    sim->any_fault = true;
    node->cut_until_ms = until_ms;
    node->last_cut_ms = node->disturbed_ms = until_ms > sim->now_ms ? until_ms : sim->now_ms;
    struct flight *out[FLIGHTS_MAX];
    size_t count = 0;
    for (struct flight *flight = node->flights; flight != NULL; flight = flight->next) {
        if (flight->state != FLIGHT_OVER) {
            ASSERT(count < FLIGHTS_MAX);
            out[count++] = flight;
        }
    }
    /* The first few reach the store all the same, unless it has gone as well. */
    size_t arrive = server_gone ? 0 : sim_random(sim, count + 1);
    int64_t later_ms = sim_chance(sim, 50) ? 0 : sim_between(sim, 0, 3000);
    for (size_t i = 0; i < count; i++) {
        struct flight *flight = out[count - 1 - i];
        unqueue(sim, flight);
        break_flight(sim, flight, i < arrive, later_ms);
        sim_at(sim, sim->now_ms + sim_between(sim, 0, 20), fire_broken, flight, flight->tag);
    }
    node->arrive_ms[0] = node->arrive_ms[1] = node->reply_ms[0] = node->reply_ms[1] = 0;
    node_disconnected(sim, node);
}

/* What a dead process had sent may still be carried out, except for a read that waits: its
 * connection closed. */
void net_forget(struct sim *sim, struct node *node)
{
    bool arrives = false;

    while (node->flights != NULL) {
        struct flight *flight = node->flights;
        node->flights = flight->next;
        arrives = arrives || sim_chance(sim, 50);
        bool read = flight->request->kind == REQUEST_READ;
        bool waits = flight->state == FLIGHT_BLOCKED || flight->state == FLIGHT_QUEUED;
        if (flight->broken || flight->state == FLIGHT_BACK || (read && waits) || !arrives) {
            unqueue(sim, flight);
            flight->state = FLIGHT_OVER;
            request_free(flight->request);
            flight->request = NULL;
        }
        flight->node = NULL;
        flight->next = NULL;
    }
}

void net_flush(struct sim *sim)
{
    for (size_t i = 0; i < sim->node_count; i++) {
        struct node *node = sim->nodes[i];
        for (struct flight *flight = node->flights; flight != NULL; flight = flight->next) {
            request_free(flight->request);
            flight->request = NULL;
            flight->state = FLIGHT_OVER;
        }
        node->flights = NULL;
    }
    for (size_t i = 0; i < sim->heap_count; i++) {
        if (sim->heap[i].fire == fire_arrive || sim->heap[i].fire == fire_reply) {
            struct flight *flight = sim->heap[i].of;
            request_free(flight->request);
            flight->request = NULL;
        }
    }
    net_drop_queued(sim);
}
