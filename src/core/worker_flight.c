/* worker_flight.c -- requests on their way: made, handed out as actions, come back.
 *
 * A request's `serial` is the slot of its flight, so that an answer finds what it is about at once.
 * A request that comes back finds its holds even if they were dropped meanwhile (HOLD_GONE). */
#include "core/worker_state.h"

#include <stdlib.h>

enum {
    SLOTS_FIRST = 64,
};

struct request *request_for(struct worker *w, struct stream *s, enum request_kind kind)
{
    struct request *request = request_new(kind);

    if (request != NULL) {
        request->token = w->options.token;
        request->dead_after_ms = w->options.policy.dead_after_ms;
        if ((s == NULL || arena_copy(&request->arena, s->name, &request->stream)) &&
            arena_copy(&request->arena, w->options.group, &request->group) &&
            arena_copy(&request->arena, w->options.consumer, &request->consumer)) {
            return request;
        }
    }
    request_free(request);
    worker_fail(w, IMPEL_ERR_NOMEM, NULL);
    return NULL;
}

static bool slots_grow(struct worker *w)
{
    size_t capacity = w->flight_capacity == 0 ? SLOTS_FIRST : w->flight_capacity * 2;
    struct flight **flights = realloc(w->flights, capacity * sizeof(struct flight *));

    if (flights == NULL) {
        return false;
    }
    w->flights = flights;
    size_t *slots = realloc(w->flight_free, capacity * sizeof(*slots));
    if (slots == NULL) {
        return false;
    }
    w->flight_free = slots;
    for (size_t slot = capacity; slot-- > w->flight_capacity;) {
        w->flights[slot] = NULL;
        w->flight_free[w->flight_free_count++] = slot;
    }
    w->flight_capacity = capacity;
    return true;
}

struct flight *flight_submit(struct worker *w, struct stream *s, struct request *request)
{
    struct flight *flight = arena_calloc(&request->arena, 1, sizeof(*flight));

    if (flight == NULL || (w->flight_free_count == 0 && !slots_grow(w))) {
        request_free(request);
        worker_fail(w, IMPEL_ERR_NOMEM, NULL);
        return NULL;
    }
    flight->slot = w->flight_free[w->flight_free_count - 1];
    request->serial = flight->slot;
    if (!worker_action(w, &(struct action){.kind = ACTION_SUBMIT, .request = request})) {
        request_free(request);
        return NULL;
    }
    w->flight_free_count--;
    w->flights[flight->slot] = flight;
    w->flight_count++;
    flight->request = request;
    flight->stream = s;
    flight->seq = ++w->seq;
    flight->pass = w->pass;
    flight->submitted_ms = w->now_ms;
    if (s != NULL) {
        s->flights++;
    }
    return flight;
}

struct flight *flight_of(struct worker *w, const struct request *request)
{
    ASSERT(request->serial < w->flight_capacity && w->flights[request->serial] != NULL);
    struct flight *flight = w->flights[request->serial];
    ASSERT(flight->request == request);
    return flight;
}

void flight_land(struct worker *w, struct flight *flight)
{
    w->flights[flight->slot] = NULL;
    w->flight_free[w->flight_free_count++] = flight->slot;
    w->flight_count--;
    w->reserved -= flight->places;
    if (flight->stream != NULL) {
        flight->stream->flights--;
        if (flight->taking) {
            audit_landed(flight->stream, flight);
        }
    }
    w->alone_claiming = w->alone_claiming && !flight->alone;
}

void flight_free(struct worker *w, struct flight *flight)
{
    (void)w;
    for (size_t i = 0; i < flight->hold_count; i++) {
        hold_landed(flight->holds[i]);
    }
    request_free(flight->request); /* and with it the flight */
}

bool batch_begin(struct batch *batch, struct stream *s, enum request_kind kind, size_t count_max)
{
    struct worker *w = s->worker;

    *batch = (struct batch){.stream = s, .count_max = count_max};
    batch->request = request_for(w, s, kind);
    if (batch->request == NULL) {
        return false;
    }
    struct arena *arena = &batch->request->arena;
    batch->items = arena_calloc(arena, count_max, sizeof(*batch->items));
    batch->holds = arena_calloc(arena, count_max, sizeof(struct hold *));
    if (batch->items == NULL || batch->holds == NULL) {
        request_free(batch->request);
        batch->request = NULL;
        worker_fail(w, IMPEL_ERR_NOMEM, NULL);
        return false;
    }
    return true;
}

struct request_item *batch_add(struct batch *batch, struct hold *hold)
{
    struct request_item *item = &batch->items[batch->count];

    ASSERT(batch->count < batch->count_max);
    item->id = hold->id;
    item->deliveries = hold->deliveries;
    batch->holds[batch->count++] = hold;
    hold->flights++;
    return item;
}

struct flight *batch_submit(struct batch *batch)
{
    struct worker *w = batch->stream->worker;
    struct request *request = batch->request;

    if (request->kind == REQUEST_ACK) {
        request->ack.items = batch->items;
        request->ack.item_count = batch->count;
    } else {
        request->items.items = batch->items;
        request->items.item_count = batch->count;
    }
    struct flight *flight = flight_submit(w, batch->stream, request);
    if (flight != NULL) {
        flight->holds = batch->holds;
        flight->hold_count = batch->count;
    }
    return flight;
}

struct request_item *flight_items(const struct flight *flight)
{
    return flight->request->kind == REQUEST_ACK ? flight->request->ack.items
                                                : flight->request->items.items;
}
