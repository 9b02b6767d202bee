/* dead_replay.c -- impel dead replay and drop: records leave the dead-letter stream, in order.
 *
 * Records of the same destination go together, some hundred in a step of the store; each step is
 * atomic for each of its records. So whoever kills this program, or its store, finds every record
 * either parked still or put back: running it again goes on where it ended. What a step has done
 * stands in the audit stream, written in the same step. */
#include "base/json.h"
#include "cli/console.h"
#include "cli/dead.h"
#include "cli/dead_move.h"

#include <string.h>

/* ---- what is told ---- */

static const char *const result_names[] = {
    [REPLAY_NONE] = "not-reached", [REPLAY_DONE] = "done",       [REPLAY_MISSING] = "missing",
    [REPLAY_GONE] = "gone",        [REPLAY_STANDS] = "in-group", [REPLAY_FAILED] = "failed",
};

static const char *action_of(const struct mover *mover)
{
    return mover->mode == REPLAY_DROP ? "drop" : mover->mode == REPLAY_BACK ? "put-back" : "add";
}

static void
write_json(const struct mover *mover, struct buf *line, const struct request *batch, size_t i)
{
    const struct replay_item *item = &batch->replay.items[i];
    char id[ID_TEXT_SIZE];

    buf_appendf(line, "{\"id\":\"%s\"", id_format(item->id, id));
    dead_json_text(line, "original_id", mover->originals[i]);
    dead_json_text(line, "action", bytes_of(action_of(mover)));
    if (mover->mode != REPLAY_DROP) {
        dead_json_text(line, "stream", batch->stream);
        dead_json_text(line, "group", batch->group);
    }
    dead_json_text(line, "result",
                   bytes_of(mover->dry && item->result == REPLAY_DONE
                                ? "would-be-done"
                                : result_names[item->result]));
    if (!mover->dry && mover->mode == REPLAY_ADD && item->result == REPLAY_DONE) {
        dead_json_text(line, "added_id", bytes_of(id_format(item->added, id)));
    }
    buf_append_text(line, "}\n");
}

static void
write_plan(const struct mover *mover, struct buf *line, const struct request *batch, size_t i)
{
    char id[ID_TEXT_SIZE], original[64], stream[64], group[64];

    buf_appendf(line, "%s  entry %s: ", id_format(batch->replay.items[i].id, id),
                bytes_quote(mover->originals[i], original, sizeof(original)));
    if (batch->replay.items[i].result != REPLAY_DONE) {
        buf_appendf(line, "would stay (%s)\n", result_names[batch->replay.items[i].result]);
    } else if (mover->mode == REPLAY_DROP) {
        buf_append_text(line, "would be dropped\n");
    } else if (mover->mode == REPLAY_ADD) {
        buf_appendf(line, "would be added to '%s' as a new entry\n",
                    bytes_quote(batch->stream, stream, sizeof(stream)));
    } else {
        buf_appendf(line, "would be put back to the group '%s' of '%s'\n",
                    bytes_quote(batch->group, group, sizeof(group)),
                    bytes_quote(batch->stream, stream, sizeof(stream)));
    }
}

static int tell(struct mover *mover, const struct request *batch, struct impel_error *err)
{
    struct buf line;

    if (!mover->dead->options->json && !mover->dry) {
        return IMPEL_OK;
    }
    buf_init(&line, 1 << 26);
    for (size_t i = 0; i < batch->replay.item_count; i++) {
        (mover->dead->options->json ? write_json : write_plan)(mover, &line, batch, i);
    }
    int rc = console_print(&line, err);
    return rc < 0 ? rc : console_flush(err);
}

/* ---- a batch ---- */

/* Counts what became of the records; the first that the store refused ends the work. */
static int account(struct mover *mover, const struct request *batch, struct impel_error *err)
{
    for (size_t i = 0; i < batch->replay.item_count; i++) {
        mover->counts[batch->replay.items[i].result]++;
    }
    if (mover->counts[REPLAY_FAILED] > 0) {
        char name[100];
        return error_set(err, batch->error.status < 0 ? batch->error.status : IMPEL_ERR_REPLY,
                         "'%s' does not take the entries: %s",
                         bytes_quote(batch->stream, name, sizeof(name)), batch->error.text);
    }
    return IMPEL_OK;
}

int mover_flush(struct mover *mover, struct impel_error *err)
{
    struct request *batch = mover->batch;
    int rc = IMPEL_OK;

    mover->batch = NULL;
    if (batch == NULL || batch->replay.item_count == 0) {
        request_free(batch);
        return IMPEL_OK;
    }
    if (mover->dry) {
        rc = mover_foresee(mover, batch, err);
    } else {
        mover_pace(mover);
        rc = session_ask(mover->dead->store, batch, err);
        if (rc == IMPEL_ERR_EXISTS) {
            /* A group that was not there when it was looked for. */
            rc = mover_refuse_groups(batch->stream, NULL, err);
        }
    }
    int told = rc < 0 ? rc : tell(mover, batch, err);
    rc = rc < 0 ? rc : account(mover, batch, err);
    rc = rc < 0 ? rc : told;
    mover->sent += batch->replay.item_count;
    progress_show(&mover->progress, mover->seen, mover->counts[REPLAY_DONE]);
    request_free(batch);
    return rc;
}

/* ---- the whole ---- */

static void say(uint64_t count, const char *what)
{
    if (count > 0) {
        console_note("%llu %s", (unsigned long long)count, what);
    }
}

static int conclude(struct mover *mover)
{
    const uint64_t *counts = mover->counts;
    bool drops = mover->mode == REPLAY_DROP;

    if (!mover->dead->options->json) {
        console_outf("%llu %s%s\n", (unsigned long long)counts[REPLAY_DONE],
                     mover->dry ? "would be " : "", drops ? "dropped" : "replayed");
    }
    say(counts[REPLAY_MISSING], "were replayed or dropped by somebody else meanwhile");
    say(counts[REPLAY_GONE], "stay parked: their original is no longer in its stream (without "
                             "--in-place they can be added anew)");
    say(counts[REPLAY_STANDS],
        "stay parked: the group has their original before it already, pending "
        "or not delivered yet");
    if (mover->unplaced > 0) {
        say(mover->unplaced, "stay parked, the first for this reason:");
        console_note("record %s: %s", mover->unplaced_first, mover->unplaced_why);
    }
    return counts[REPLAY_GONE] + counts[REPLAY_STANDS] + mover->unplaced > 0 ? EXIT_FAILED
                                                                             : EXIT_DONE;
}

static int move(struct dead *dead, enum replay_mode mode, struct impel_error *err)
{
    struct mover mover = {.dead = dead, .mode = mode, .dry = dead->options->dry_run};
    int rc = mover_init(&mover, err);

    if (rc >= 0) {
        progress_init(&mover.progress, mode == REPLAY_DROP ? "dropping" : "replaying",
                      dead->id_count > 0 ? dead->id_count : dead->length);
        rc = dead_walk(dead, mover_record, &mover, &mover.seen, err);
        int last = rc >= 0 || rc == IMPEL_ERR_NOT_FOUND ? mover_flush(&mover, rc < 0 ? NULL : err)
                                                        : IMPEL_OK;
        rc = rc < 0 ? rc : last;
        progress_end(&mover.progress);
    }
    if (rc < 0 && !mover.dry && mover.counts[REPLAY_DONE] > 0) {
        console_note("%llu were %s before that", (unsigned long long)mover.counts[REPLAY_DONE],
                     mode == REPLAY_DROP ? "dropped" : "replayed");
    }
    if (rc < 0 && rc != IMPEL_ERR_INVALID && rc != IMPEL_ERR_NOT_FOUND && err != NULL) {
        char place[256];
        struct impel_error cause = *err;
        error_set(err, cause.status, "%s: %s", session_place(dead->options, place, sizeof(place)),
                  cause.text);
    }
    int code = rc < 0 ? rc : conclude(&mover);
    if (code >= 0) {
        rc = console_flush(err);
        code = rc < 0 ? rc : code;
    }
    mover_release(&mover);
    return code;
}

int dead_replay(struct dead *dead, struct impel_error *err)
{
    return move(dead, dead->options->in_place ? REPLAY_BACK : REPLAY_ADD, err);
}

int dead_drop(struct dead *dead, struct impel_error *err)
{
    return move(dead, REPLAY_DROP, err);
}
