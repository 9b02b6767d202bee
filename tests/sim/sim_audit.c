/* sim_audit.c -- the book of entries against all that the store holds: nothing vanished, nothing is
 * in two places, nothing is parked twice; and what a rollback does to the book. */
#include "sim/sim.h"

#include <string.h>

struct snapshot {
    struct model_state state;
    struct sim_entry *entries[SIM_STREAMS_MAX]; /* copies */
    size_t counts[SIM_STREAMS_MAX];
};

static void count_records(struct sim *sim, size_t stream)
{
    const struct sim_stream *s = &sim->streams[stream];
    const struct model_stream *dead = state_stream(&sim->model.state, bytes_of(s->dead));

    for (size_t i = 0; i < s->count; i++) {
        s->entries[i]->records = 0;
    }
    for (size_t i = 0; dead != NULL && i < dead->entry_count; i++) {
        const struct entry *record = dead->entries[i]->entry;
        struct impel_id id = ID_MIN;
        struct sim_entry *entry = NULL;
        if (record->field_count < 10 ||
            id_parse(record->fields[record->field_count - 10].value, 0, &id) < 0) {
            sim_fail(sim, "a dead-letter record without an original");
            return;
        }
        entry = check_entry(sim, stream, id);
        if (entry != NULL) {
            entry->records++;
        }
    }
}

static void audit_entry(struct sim *sim,
                        const struct sim_entry *entry,
                        const struct model_stream *stream,
                        struct model_group *group)
{
    bool pending = group_row(group, entry->id) != NULL;
    bool there = stream_entry(stream, entry->id) != NULL;
    bool ahead = id_compare(entry->id, group->last_delivered) > 0;
    bool moved = sim->streams[entry->stream].moved_ms >= 0;

    if (pending != (entry->place == PLACE_PENDING)) {
        sim_fail(sim, "%d-%d %s pending, place %d", (int)entry->id.ms, (int)entry->id.seq,
                 pending ? "is" : "is not", (int)entry->place);
    }
    if (entry->place == PLACE_UNDELIVERED && (!ahead || !there) && !moved) {
        sim_fail(sim, "%d-%d has vanished", (int)entry->id.ms, (int)entry->id.seq);
    }
    if (there == entry->gone) {
        sim_fail(sim, "%d-%d was %s by nobody", (int)entry->id.ms, (int)entry->id.seq,
                 there ? "put back" : "deleted");
    }
    if (!entry->loose && entry->records != (entry->place == PLACE_PARKED ? 1 : 0)) {
        sim_fail(sim, "%d-%d has %d dead-letter records, place %d", (int)entry->id.ms,
                 (int)entry->id.seq, (int)entry->records, (int)entry->place);
    }
}

void audit(struct sim *sim)
{
    for (size_t i = 0; i < sim->options.stream_count && !sim->failed; i++) {
        const struct sim_stream *s = &sim->streams[i];
        struct model_stream *stream = state_stream(&sim->model.state, bytes_of(s->name));
        struct model_group *group = stream == NULL ? NULL : stream_group(stream, sim_group());
        if (group == NULL) {
            continue;
        }
        size_t rows = group->row_count;
        count_records(sim, i);
        for (size_t k = 0; k < s->count && !sim->failed; k++) {
            rows -= s->entries[k]->place == PLACE_PENDING;
            audit_entry(sim, s->entries[k], stream, group);
        }
        if (rows != 0 && !sim->failed) {
            sim_fail(sim, "%s: a pending row that is no entry's", s->name);
        }
    }
}

void audit_trimmed(struct sim *sim, size_t stream)
{
    const struct sim_stream *s = &sim->streams[stream];
    const struct model_stream *model = state_stream(&sim->model.state, bytes_of(s->name));

    for (size_t i = 0; i < s->count; i++) {
        struct sim_entry *entry = s->entries[i];
        if (!entry->gone && stream_entry(model, entry->id) == NULL) {
            entry->gone = true;
            if (entry->place == PLACE_UNDELIVERED) {
                entry->place = PLACE_TRIMMED;
            }
        }
    }
}

bool audit_settled(struct sim *sim)
{
    for (size_t i = 0; i < sim->options.stream_count; i++) {
        struct model_stream *stream =
            state_stream(&sim->model.state, bytes_of(sim->streams[i].name));
        struct model_group *group = stream == NULL ? NULL : stream_group(stream, sim_group());
        if (group == NULL) {
            return stream == NULL || stream->entry_count == 0;
        }
        struct impel_id next = group->last_delivered;
        if (group->row_count > 0 ||
            (id_next(&next) && stream_seek(stream, next) < stream->entry_count)) {
            return false;
        }
    }
    for (size_t i = 0; i < sim->node_count; i++) {
        if (node_alive(sim->nodes[i]) && sim->nodes[i]->runs != NULL) {
            return false;
        }
    }
    return true;
}

void audit_left(struct sim *sim, const struct node *node)
{
    for (size_t i = 0; i < node->options.stream_count; i++) {
        struct model_stream *stream =
            state_stream(&sim->model.state, bytes_of(sim->streams[i].name));
        struct model_group *group = stream == NULL ? NULL : stream_group(stream, sim_group());
        if (group == NULL || !node->entered[i]) {
            continue; /* a first beat may have come whose answer was lost: it is soon dead */
        }
        const struct model_worker *row = group_worker(group, bytes_of(node->name));
        const struct model_consumer *consumer = group_consumer(group, bytes_of(node->name));
        bool other = row != NULL && !token_equal(&row->row.token, &node->token);
        if (other || node->last_cut_ms >= node->stopped_at_ms ||
            node->late_ms >= node->stopped_at_ms || sim->rolled_ms >= node->born_ms) {
            continue; /* another's; or what was sent before the cut came after the leaving */
        }
        if (row != NULL || consumer != NULL) {
            sim_fail(sim, "%s stopped cleanly, but left %s on %s", node->name,
                     consumer != NULL && consumer->pending > 0 ? "entries" : "its row",
                     sim->streams[i].name);
        }
    }
    bool whole =
        sim->rolled_ms < 0; /* no group was lost: then answers about it are not listened to */
    for (size_t i = 0; i < node->options.stream_count; i++) {
        whole = whole && sim->streams[i].moved_ms < 0;
    }
    if (whole && node->late_acks != node->late_reports) {
        sim_fail(sim, "%s acknowledged %d entries too late but reported %d", node->name,
                 (int)node->late_acks, (int)node->late_reports);
    }
    if (node->reaps != node->lost_reports && node->last_cut_ms < 0) {
        sim_fail(sim, "%s reaped %d entries but reported %d", node->name, (int)node->reaps,
                 (int)node->lost_reports);
    }
}

/* ---- losing the last writes ---- */

void audit_snapshot(struct sim *sim)
{
    struct snapshot *snapshot = sim->snapshot;

    if (snapshot != NULL) {
        state_release(&snapshot->state);
    } else {
        snapshot = sim_alloc(sim, sizeof(*snapshot));
    }
    state_copy(&sim->model.state, &snapshot->state);
    for (size_t i = 0; i < sim->options.stream_count; i++) {
        const struct sim_stream *s = &sim->streams[i];
        snapshot->counts[i] = s->count;
        snapshot->entries[i] = sim_alloc(sim, (s->count + 1) * sizeof(struct sim_entry));
        for (size_t k = 0; k < s->count; k++) {
            snapshot->entries[i][k] = *s->entries[k];
        }
    }
    sim->snapshot = snapshot;
}

/* What the entry has lived through stays true, where it is goes back. */
static void rewind_entry(struct sim_entry *entry, const struct sim_entry *before)
{
    entry->place = before->place;
    entry->gone = before->gone;
    entry->parks = before->parks;
    entry->failed = entry->given_back = false;
}

static void rewind_rows(struct sim *sim)
{
    for (size_t i = 0; i < sim->node_count; i++) {
        struct node *node = sim->nodes[i];
        for (size_t k = 0; k < sim->options.stream_count; k++) {
            struct model_stream *stream =
                state_stream(&sim->model.state, bytes_of(sim->streams[k].name));
            struct model_group *group = stream == NULL ? NULL : stream_group(stream, sim_group());
            struct model_worker *row =
                group == NULL ? NULL : group_worker(group, bytes_of(node->name));
            node->has_row[k] = row != NULL && token_equal(&row->row.token, &node->token);
        }
    }
}

void audit_rollback(struct sim *sim)
{
    struct snapshot *snapshot = sim->snapshot;

    if (snapshot == NULL) {
        return;
    }
    state_release(&sim->model.state);
    sim->model.state = snapshot->state;
    sim->snapshot = NULL;
    sim->rolled_ms = sim->disturbed_ms = sim->now_ms;
    sim->any_fault = true;
    sim_trace(sim, "store: loses its last writes");
    for (size_t i = 0; i < sim->options.stream_count; i++) {
        struct sim_stream *s = &sim->streams[i];
        s->count = snapshot->counts[i];
        for (size_t k = 0; k < s->count; k++) {
            rewind_entry(s->entries[k], &snapshot->entries[i][k]);
        }
        check_loosen(sim, i);
    }
    rewind_rows(sim);
}

void audit_release(struct sim *sim)
{
    if (sim->snapshot != NULL) {
        state_release(&sim->snapshot->state);
        sim->snapshot = NULL;
    }
}
