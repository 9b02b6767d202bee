/* worker_hold.c -- what is in hand: the index by (stream, ID), the lists, and what frees a hold. */
#include "core/worker_state.h"

#include <stdlib.h>
#include <string.h>

enum {
    INDEX_SIZE_FIRST = 256, /* buckets; a power of two */
};

static size_t bucket_of(const struct stream *s, struct impel_id id, size_t size)
{
    uint64_t hash = id.ms * 0x9e3779b97f4a7c15U ^ (id.seq + s->index * 0x100000001b3U);
    hash = (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9U;
    return (size_t)(hash ^ (hash >> 32)) & (size - 1);
}

/* Doubles the index. If memory is out the chains just grow longer. */
static bool index_grow(struct worker *w)
{
    size_t size = w->index_size == 0 ? INDEX_SIZE_FIRST : w->index_size * 2;
    struct hold **index = calloc(size, sizeof(struct hold *));

    if (index == NULL) {
        return w->index_size > 0;
    }
    for (size_t i = 0; i < w->index_size; i++) {
        while (w->index[i] != NULL) {
            struct hold *hold = w->index[i];
            size_t bucket = bucket_of(hold->stream, hold->id, size);
            w->index[i] = hold->chain;
            hold->chain = index[bucket];
            index[bucket] = hold;
        }
    }
    free(w->index);
    w->index = index;
    w->index_size = size;
    return true;
}

static void index_remove(struct worker *w, struct hold *hold)
{
    struct hold **at = &w->index[bucket_of(hold->stream, hold->id, w->index_size)];

    while (*at != hold) {
        ASSERT(*at != NULL);
        at = &(*at)->chain;
    }
    *at = hold->chain;
    w->index_count--;
}

struct hold *hold_find(const struct worker *w, const struct stream *s, struct impel_id id)
{
    if (w->index_size == 0) {
        return NULL;
    }
    struct hold *hold = w->index[bucket_of(s, id, w->index_size)];
    while (hold != NULL && (hold->stream != s || !id_equal(hold->id, id))) {
        hold = hold->chain;
    }
    return hold;
}

static struct hold *hold_alloc(struct stream *s, struct impel_id id)
{
    struct worker *w = s->worker;
    struct hold *hold = w->hold_pool;

    if (hold != NULL) {
        w->hold_pool = hold->chain;
    } else {
        hold = malloc(sizeof(*hold));
        if (hold == NULL) {
            worker_fail(w, IMPEL_ERR_NOMEM, NULL);
            return NULL;
        }
    }
    memset(hold, 0, sizeof(*hold));
    hold->id = id;
    hold->stream = s;
    hold->state = HOLD_GONE;
    list_init(&hold->held);
    list_init(&hold->queue);
    return hold;
}

static void hold_free(struct hold *hold)
{
    struct worker *w = hold->stream->worker;

    list_remove(&hold->held);
    entry_free(hold->entry);
    if (hold->error != NULL) {
        buf_release(hold->error);
        free(hold->error);
        hold->error = NULL;
    }
    hold->chain = w->hold_pool;
    w->hold_pool = hold;
}

struct hold *hold_new(struct stream *s, struct impel_id id, int64_t deliveries)
{
    struct worker *w = s->worker;

    if (w->index_count >= w->index_size && !index_grow(w)) {
        worker_fail(w, IMPEL_ERR_NOMEM, NULL);
        return NULL;
    }
    struct hold *hold = hold_alloc(s, id);
    if (hold == NULL) {
        return NULL;
    }
    size_t bucket = bucket_of(s, id, w->index_size);
    hold->chain = w->index[bucket];
    w->index[bucket] = hold;
    w->index_count++;
    hold->indexed = true;
    hold->deliveries = deliveries;
    hold->pass = w->pass;
    hold->renewed_ms = w->now_ms;
    hold->since_ms = w->now_ms;
    list_append(&s->held, &hold->held);
    s->held_count++;
    return hold;
}

struct hold *hold_new_late(struct stream *s, struct impel_id id)
{
    struct hold *hold = hold_alloc(s, id);
    if (hold != NULL) {
        list_append(&s->worker->loose, &hold->held);
    }
    return hold;
}

void hold_arrived(struct hold *hold, const struct flight *flight)
{
    struct stream *s = hold->stream;

    hold->pass = flight->pass;
    hold->renewed_ms = flight->submitted_ms;
    if (hold->pass < s->need_pass) {
        s->stale_count++;
    }
    if (hold->pass < s->need_pass || renew_overdue(hold)) {
        list_remove(&hold->held);
        list_prepend(&s->held, &hold->held);
    }
}

void hold_freshen(struct hold *hold, uint64_t pass, int64_t renewed_ms)
{
    struct stream *s = hold->stream;

    s->stale_count -= hold->pass < s->need_pass;
    hold->pass = pass;
    hold->renewed_ms = renewed_ms;
    list_remove(&hold->held);
    if (pass < s->need_pass) {
        s->stale_count++;
        list_prepend(&s->held, &hold->held);
    } else {
        list_append(&s->held, &hold->held);
    }
}

void hold_unqueue(struct hold *hold)
{
    struct stream *s = hold->stream;
    struct worker *w = s->worker;

    switch (hold->state) {
    case HOLD_BUFFERED:
        w->buffered_count--;
        break;
    case HOLD_READY:
        w->ready_count--;
        break;
    case HOLD_WAITING:
        heap_remove(&w->waiting, &hold->due);
        w->waiting_count--;
        break;
    case HOLD_RETRYING:
        w->waiting_count--;
        break;
    case HOLD_ACKING:
        s->ack_count -= !list_empty(&hold->queue);
        break;
    default:
        break;
    }
    list_remove(&hold->queue);
    if (list_empty(&s->buffer)) {
        list_remove(&s->buffered);
    }
}

void hold_drop(struct hold *hold)
{
    struct stream *s = hold->stream;
    struct worker *w = s->worker;

    ASSERT(hold->state != HOLD_RUNNING || hold->run == NULL);
    hold_unqueue(hold);
    if (w->alone_hold == hold) {
        w->alone_hold = NULL;
    }
    hold->state = HOLD_GONE;
    if (hold->indexed) {
        index_remove(w, hold);
        list_remove(&hold->held);
        s->held_count--;
        s->stale_count -= hold->pass < s->need_pass;
        hold->indexed = false;
    }
    if (hold->flights == 0) {
        hold_free(hold);
        return;
    }
    list_remove(&hold->held);
    list_append(&w->loose, &hold->held);
}

void hold_landed(struct hold *hold)
{
    ASSERT(hold->flights > 0);
    hold->flights--;
    if (hold->state == HOLD_GONE && hold->flights == 0) {
        hold_free(hold);
    }
}

struct run *run_new(struct worker *w)
{
    struct run *run = w->run_pool;

    if (run != NULL) {
        w->run_pool = run->delivery.driver;
    } else {
        run = malloc(sizeof(*run));
        if (run == NULL) {
            worker_fail(w, IMPEL_ERR_NOMEM, NULL);
            return NULL;
        }
    }
    memset(run, 0, sizeof(*run));
    list_init(&run->running);
    return run;
}

void run_free(struct worker *w, struct run *run)
{
    run->delivery.driver = w->run_pool; /* the pool's chain */
    w->run_pool = run;
}

static void pools_release(struct worker *w)
{
    while (w->hold_pool != NULL) {
        struct hold *hold = w->hold_pool;
        w->hold_pool = hold->chain;
        free(hold);
    }
    while (w->run_pool != NULL) {
        struct run *run = w->run_pool;
        w->run_pool = run->delivery.driver;
        free(run);
    }
}

void hold_release_all(struct worker *w)
{
    for (struct link *link = list_take(&w->runs); link != NULL; link = list_take(&w->runs)) {
        struct run *run = CONTAINER(link, struct run, running);
        if (run->hold != NULL) {
            run->hold->run = NULL;
        }
        entry_free(run->delivery.entry);
        run_free(w, run);
    }
    for (size_t i = 0; i < w->index_size; i++) {
        while (w->index[i] != NULL) {
            struct hold *hold = w->index[i];
            hold->flights = 0; /* their requests are the store's to end, not ours to wait for */
            hold_drop(hold);
        }
    }
    while (!list_empty(&w->loose)) {
        struct hold *hold = CONTAINER(w->loose.next, struct hold, held);
        list_remove(&hold->queue);
        hold_free(hold);
    }
    pools_release(w);
    free(w->index);
    w->index = NULL;
    w->index_size = 0;
}
