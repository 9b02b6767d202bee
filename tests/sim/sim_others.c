/* sim_others.c -- everybody who is no worker: producers, foreign consumers (which read, may forget to
 * ack, and take what has been idle for long), trimmers, and sweeps without a worker. */
#include "sim/sim.h"

#include <string.h>

/* ---- producers ---- */

struct sim_entry *
others_add(struct sim *sim, size_t stream, enum plan_kind plan, int64_t handler_ms)
{
    static const struct impel_field field = {{"f", 1}, {"v", 1}};
    struct request *request = request_new(REQUEST_ADD);
    struct sim_entry *entry = NULL;

    ASSERT(request != NULL);
    request->stream = bytes_of(sim->streams[stream].name);
    request->add.fields = &field;
    request->add.field_count = 1;
    request->add.length_max = -1;
    /* The book first: a waiting read is served before the add returns. */
    struct model_stream *model = state_stream_make(&sim->model.state, request->stream);
    struct impel_id id = ID_MIN;
    if (!sim->model.refuse_writes && model_next_id(&sim->model, model, &id)) {
        entry = check_add(sim, stream, id);
        entry->plan = plan;
        entry->handler_ms = handler_ms;
        request->add.id = id;
        sim_trace(sim, "added %d-%d to %s, plan %d, %d ms", (int)id.ms, (int)id.seq,
                  sim->streams[stream].name, (int)plan, (int)handler_ms);
        net_apply(sim, request, false);
        ASSERT(request->status == IMPEL_OK);
    }
    request_free(request);
    return entry;
}

static enum plan_kind draw_plan(struct sim *sim)
{
    static const struct {
        enum plan_kind plan;
        uint64_t weight;
    } plans[] = {
        {PLAN_FLAKY, 12}, {PLAN_POISON, 4},    {PLAN_REJECT, 4},     {PLAN_KILLER, 2},
        {PLAN_WEDGED, 1}, {PLAN_KILL_ONCE, 2}, {PLAN_WEDGE_ONCE, 2},
    };
    uint64_t at = sim_random(sim, 100);

    for (size_t i = 0; i < ARRAY_SIZE(plans); i++) {
        bool fault = plans[i].plan == PLAN_KILLER || plans[i].plan == PLAN_KILL_ONCE;
        if (at < plans[i].weight) {
            return fault && !sim->options.faults ? PLAN_GOOD : plans[i].plan;
        }
        at -= plans[i].weight;
    }
    return PLAN_GOOD;
}

static int64_t draw_handler_ms(struct sim *sim)
{
    if (sim_chance(sim, 60)) {
        return sim_between(sim, 0, 50);
    }
    if (sim_chance(sim, 90)) {
        return sim_between(sim, 0, 3000);
    }
    return 4 * sim->options.policy.min_idle_ms;
}

static void fire_produce(struct sim *sim, void *of, uint64_t tag)
{
    (void)of;
    size_t stream = sim_random(sim, sim->options.stream_count);
    uint64_t burst = sim_chance(sim, 20) ? 1 + sim_random(sim, 10) : 1;

    if (sim->quiet || tag == 0) {
        return;
    }
    if (!sim->stalled) {
        for (uint64_t i = 0; i < burst && tag > 0; i++, tag--) {
            enum plan_kind plan = draw_plan(sim);
            struct sim_entry *entry = others_add(sim, stream, plan, draw_handler_ms(sim));
            if (entry != NULL && plan == PLAN_FLAKY) {
                entry->fails = sim_between(sim, 1, 3);
                entry->delay_ms = sim_chance(sim, 20) ? sim_between(sim, 0, 5000) : -1;
            }
        }
    }
    int64_t gap_ms = sim->options.horizon_ms / (int64_t)(sim->options.entries + 1);
    sim_at(sim, sim->now_ms + sim_between(sim, 0, gap_ms), fire_produce, NULL, tag);
}

/* ---- trimmers ---- */

void others_trim(struct sim *sim, size_t stream, size_t length)
{
    struct request *request = request_new(REQUEST_TRIM);

    ASSERT(request != NULL);
    request->stream = bytes_of(sim->streams[stream].name);
    request->trim.length_max = length;
    sim_trace(sim, "%s is trimmed to %d", sim->streams[stream].name, (int)length);
    net_apply(sim, request, true);
    request_free(request);
    audit_trimmed(sim, stream);
}

/* Removes what all have finished with: nothing that anybody still has to do may go. */
static void others_trim_done(struct sim *sim, size_t stream)
{
    const struct sim_stream *s = &sim->streams[stream];
    struct request *request = request_new(REQUEST_TRIM_DONE);

    ASSERT(request != NULL);
    request->stream = bytes_of(s->name);
    request->trim_done.keep_from = ID_MAX;
    request->trim_done.limit = UINT32_MAX;
    net_apply(sim, request, true);
    sim_trace(sim, "%s is rid of %d that are done", s->name, (int)request->trim_done.removed);
    request_free(request);
    const struct model_stream *model = state_stream(&sim->model.state, bytes_of(s->name));
    for (size_t i = 0; model != NULL && i < s->count && !sim->failed; i++) {
        const struct sim_entry *entry = s->entries[i];
        if (!entry->gone && (entry->place == PLACE_UNDELIVERED || entry->place == PLACE_PENDING) &&
            stream_entry(model, entry->id) == NULL) {
            sim_fail(sim, "%s: unfinished work was trimmed as done", s->name);
        }
    }
    if (model != NULL && !sim->failed) {
        audit_trimmed(sim, stream);
    }
}

static void fire_trim(struct sim *sim, void *of, uint64_t tag)
{
    (void)of;
    (void)tag;
    if (sim->quiet) {
        return;
    }
    for (size_t i = 0; !sim->stalled && i < sim->options.stream_count; i++) {
        others_trim_done(sim, i);
    }
    if (!sim->stalled) {
        others_trim(sim, sim_random(sim, sim->options.stream_count), sim_random(sim, 20));
    }
    sim_at(sim, sim->now_ms + sim_between(sim, 500, 10000), fire_trim, NULL, 0);
}

/* ---- foreign consumers ---- */

struct foreigner {
    size_t stream;
    char name[16];
    int64_t min_idle_ms; /* 0: never takes from others */
};

static void fire_foreign_done(struct sim *sim, void *of, uint64_t tag)
{
    struct sim_entry *entry = of;

    (void)tag;
    if (sim->stalled) {
        sim_at(sim, sim->now_ms + 100, fire_foreign_done, entry, 0);
        return;
    }
    struct request *request = request_new(REQUEST_ACK);
    struct request_item item = {.id = entry->id};
    ASSERT(request != NULL);
    request->stream = bytes_of(sim->streams[entry->stream].name);
    request->group = sim_group();
    request->ack.items = &item;
    request->ack.item_count = 1;
    entry->dones++;
    net_apply(sim, request, true);
    request_free(request);
}

/* It works on the entry, or has died with it. */
void others_foreign_got(struct sim *sim, struct sim_entry *entry)
{
    if (!sim->strangers_die && sim_chance(sim, 75)) {
        sim_at(sim, sim->now_ms + sim_between(sim, 0, sim->options.policy.min_idle_ms / 2),
               fire_foreign_done, entry, 0);
    }
}

size_t others_foreign_read(struct sim *sim, size_t stream, const char *name, uint32_t count)
{
    struct request *request = request_new(REQUEST_READ);
    struct impel_bytes streams = bytes_of(sim->streams[stream].name);

    ASSERT(request != NULL);
    request->group = sim_group();
    request->consumer = bytes_of(name);
    request->read.streams = &streams;
    request->read.stream_count = 1;
    request->read.count = count;
    net_apply(sim, request, true);
    size_t got = request->read.entry_count;
    request_free(request);
    return got;
}

static void fire_foreigner(struct sim *sim, void *of, uint64_t tag)
{
    struct foreigner *foreigner = of;

    (void)tag;
    if (sim->quiet) {
        return;
    }
    if (!sim->stalled) {
        if (foreigner->min_idle_ms > 0) {
            (void)model_autoclaim(&sim->model, bytes_of(sim->streams[foreigner->stream].name),
                                  sim_group(), bytes_of(foreigner->name), foreigner->min_idle_ms,
                                  10);
        }
        if (sim_chance(sim, 30)) {
            (void)others_foreign_read(sim, foreigner->stream, foreigner->name,
                                      (uint32_t)sim_between(sim, 1, 3));
        }
    }
    sim_at(sim, sim->now_ms + sim_between(sim, 100, 3000), fire_foreigner, foreigner, 0);
}

void others_foreign_start(struct sim *sim, size_t stream, int64_t min_idle_ms)
{
    struct foreigner *foreigner = sim_alloc(sim, sizeof(*foreigner));

    foreigner->stream = stream;
    foreigner->min_idle_ms = min_idle_ms;
    (void)snprintf(foreigner->name, sizeof(foreigner->name), "f%d", (int)++sim->names);
    sim_at(sim, sim->now_ms, fire_foreigner, foreigner, 0);
}

/* ---- sweeps without a worker ---- */

struct sweeper {
    struct sweep *sweep;
    struct sweeper *next;
};

static void fire_sweep(struct sim *sim, void *of, uint64_t tag)
{
    struct sweeper *sweeper = of;
    struct request *request = NULL;
    int count = 0;

    (void)tag;
    if (sweeper->sweep == NULL) {
        return;
    }
    while (!sim->stalled && (request = sweep_next(sweeper->sweep, 0, false, sim->now_ms)) != NULL) {
        net_apply(sim, request, false);
        sweep_done(sweeper->sweep, request, sim->now_ms);
        request_free(request);
        if (++count > 1000) {
            sim_fail(sim, "a sweep has no end");
            return;
        }
    }
    int64_t wait_ms = sweep_deadline(sweeper->sweep, sim->now_ms);
    sim_at(sim, sim->now_ms + (sim->stalled ? 100 : wait_ms), fire_sweep, sweeper, 0);
}

void others_sweep_start(struct sim *sim, size_t stream)
{
    struct sweeper *sweeper = sim_alloc(sim, sizeof(*sweeper));
    const struct sweep_options options = {
        .stream = bytes_of(sim->streams[stream].name),
        .group = sim_group(),
        .policy = sim->options.policy,
        .dead_letter = bytes_of(sim->streams[stream].dead),
        .interval_ms = 1000,
        .settle = true,
        .action = sim->options.sweep_action,
        .consumer_ttl_ms = -1,
        .seed = random_next(&sim->random),
    };

    sweeper->sweep = sweep_new(&options, sim->now_ms);
    ASSERT(sweeper->sweep != NULL);
    sweeper->next = sim->sweepers;
    sim->sweepers = sweeper;
    sim_at(sim, sim->now_ms, fire_sweep, sweeper, 0);
}

void others_release(struct sim *sim)
{
    for (struct sweeper *sweeper = sim->sweepers; sweeper != NULL; sweeper = sweeper->next) {
        sweep_free(sweeper->sweep);
        sweeper->sweep = NULL;
    }
}

/* ---- all of them ---- */

void others_start(struct sim *sim)
{
    sim_at(sim, sim->now_ms, fire_produce, NULL, sim->options.entries);
    if (sim->options.trimmers) {
        sim_at(sim, sim_between(sim, 0, sim->options.horizon_ms), fire_trim, NULL, 0);
    }
    if (sim->options.foreigners) {
        int64_t renew_ms = sim->options.policy.min_idle_ms / 3;
        renew_ms = renew_ms > WORKER_RENEW_MAX_MS ? WORKER_RENEW_MAX_MS : renew_ms;
        int64_t polite_ms = 2 * renew_ms + 1000;
        uint64_t count = 1 + sim_random(sim, 2);
        for (uint64_t i = 0; i < count; i++) {
            others_foreign_start(sim, sim_random(sim, sim->options.stream_count),
                                 sim_chance(sim, 50) ? polite_ms : 0);
        }
    }
    if (sim->options.sweeps) {
        others_sweep_start(sim, sim_random(sim, sim->options.stream_count));
    }
}
