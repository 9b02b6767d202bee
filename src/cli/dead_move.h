/* dead_move.h -- putting records that leave the dead-letter stream into batches: where each goes, how
 * fast, and how many at once. */
#ifndef IMPEL_CLI_DEAD_MOVE_H
#define IMPEL_CLI_DEAD_MOVE_H

#include "cli/console.h"
#include "cli/dead.h"

enum {
    AUDIT_LINE_MAX = 6,
};

struct mover {
    struct dead *dead;
    enum replay_mode mode;
    bool dry;
    /* The batch that is being filled, and what is told of its records. */
    struct request *batch; /* NULL: none */
    struct impel_bytes originals[REPLAY_ITEMS_MAX];
    size_t batch_bytes;
    size_t batch_max;
    /* Where the last record went: looked up once for all that follow it. */
    struct impel_bytes place_stream, place_group; /* as the record said; group perhaps empty */
    struct impel_bytes group;                     /* as it is */
    bool placed;
    struct arena place_arena;
    struct arena arena;
    struct impel_field line[AUDIT_LINE_MAX]; /* who does this */
    size_t line_count;
    double per_second; /* 0 = as fast as it goes */
    int64_t begun_ms;
    uint64_t sent; /* in batches that were carried out */
    uint64_t seen; /* entries that the walk has passed */
    uint64_t counts[REPLAY_FAILED + 1];
    uint64_t unplaced; /* records that say too little */
    char unplaced_first[ID_TEXT_SIZE];
    const char *unplaced_why;
    const char *why; /* of the last one */
    struct progress progress;
};

int mover_init(struct mover *mover, struct impel_error *err);
void mover_release(struct mover *mover);
/* A dead_record_fn: adds the record to a batch, and carries the one before out if it does not fit. */
int mover_record(void *user, const struct dead_record *record, struct impel_error *err);
/* Waits until the next batch may go, by the rate. */
void mover_pace(struct mover *mover);
/* Carries out what is in the batch (dead_replay.c). */
int mover_flush(struct mover *mover, struct impel_error *err);
/* Fills in the results as they would be, without doing anything. */
int mover_foresee(struct mover *mover, struct request *batch, struct impel_error *err);
/* The misuse of replaying into a stream with other groups; `other` may be NULL. */
int mover_refuse_groups(struct impel_bytes stream,
                        const struct impel_bytes *other,
                        struct impel_error *err);

#endif /* IMPEL_CLI_DEAD_MOVE_H */
