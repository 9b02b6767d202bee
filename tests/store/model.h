/* model.h -- a store in memory that is meant to be read: the reference for what a store must do.
 *
 * It carries out every request of the port (of REQUEST_CALL only the few commands that tests need
 * to set a scene: SET, DEL, XDEL, XGROUP DESTROY) on plain arrays and a clock that only its owner
 * moves. Other stores are checked against it by the conformance suite, and the simulator runs
 * workers on it. Nothing here is fast, durable or shared between processes.
 *
 * A `struct model` is the server; model_connect() gives handles that speak the store port. Who has
 * a network of its own, like the simulator, calls model_apply() instead. */
#ifndef MODEL_H
#define MODEL_H

#include "base/value.h"
#include "store/model_state.h"
#include "store/store.h"

/* What happened to a pending row, a consumer or a worker's row. */
enum model_what {
    MODEL_ADDED,
    MODEL_DELIVERED, /* by READ, or a foreign XREADGROUP */
    MODEL_CLAIMED,   /* CLAIM_FROM, RETRY, ADOPT, or a foreign XAUTOCLAIM */
    MODEL_RENEWED,
    MODEL_RELEASED,
    MODEL_ACKED,
    MODEL_PARKED,
    MODEL_MOVED,    /* requeued (the row is gone) or handed over */
    MODEL_REAPED,   /* the row was taken away because the entry is gone */
    MODEL_DROPPED,  /* a consumer was deleted; `owner` is its name */
    MODEL_BEAT,     /* a beat of `owner` was written */
    MODEL_LEFT,     /* a worker's row was taken away */
    MODEL_PUT_BACK, /* REPLAY made a pending row; `owner`, `deliveries` are the new row's */
};

struct model_note {
    enum model_what what;
    const struct request *request; /* NULL: a command that is none of ours */
    struct model_stream *stream;
    struct model_group *group;
    struct impel_id id;
    struct impel_bytes owner; /* before */
    enum owner_state state;   /* CLAIM_FROM: what the owner was judged to be */
    int64_t deliveries;       /* before */
    int64_t idle_ms;          /* before */
};

struct model {
    struct model_state state;
    int64_t now_ms;     /* the store's wall clock; moved from outside, back as well as forth */
    bool refuse_writes; /* out of room: adds, parks and every scripted step fail with FULL */
    bool refuse_beats;  /* beats and everything that judges fail with BUSY */
    bool dead_by_time;  /* no mark for "was judged dead": only the clock counts, as in a script that
                           keeps no such mark */
    void (*observe)(void *user, const struct model_note *note); /* may be NULL */
    void *user;
    struct model_handle *handles; /* to wake the others' blocked reads */
    bool signalled;               /* blocked reads may have something to read */
};

void model_init(struct model *model, int64_t now_ms);
void model_release(struct model *model); /* after its handles were closed */

/* A handle that speaks the port; close it with store_close(). */
struct store *model_connect(struct model *model, const struct store_env *env);

/* Carries out a request in one step and fills in its answer; does not call `done`. Returns false
 * for a READ that found nothing and may block: nothing has happened, try again when `signalled` is
 * set or its time is over (then clear read.block_ms). */
bool model_apply(struct model *model, struct request *request);

/* What other programs do to a group, without our rules. `count` rows are looked at. */
size_t model_autoclaim(struct model *model,
                       struct impel_bytes stream,
                       struct impel_bytes group,
                       struct impel_bytes consumer,
                       int64_t min_idle_ms,
                       size_t count);
/* XNACK: the row stays, owned by nobody, idle at once. False if there is no such row. */
bool model_disown(struct model *model,
                  struct impel_bytes stream,
                  struct impel_bytes group,
                  struct impel_id id,
                  int64_t deliveries);
/* XCLAIM ... FORCE JUSTID RETRYCOUNT: false if there is no such group. */
bool model_force(struct model *model,
                 struct impel_bytes stream,
                 struct impel_bytes group,
                 struct impel_bytes consumer,
                 struct impel_id id,
                 int64_t deliveries);

/* ---- shared by the files of the model ---- */

/* How long a row has been pending; -1 = it is nobody's: for ever. */
int64_t row_idle_ms(const struct model *model, const struct model_row *row);

void model_notify(struct model *model,
                  enum model_what what,
                  const struct request *request,
                  struct model_stream *stream,
                  struct model_group *group,
                  const struct model_row *row);
/* Finds the stream and group of a request: IMPEL_OK, IMPEL_ERR_NO_GROUP or IMPEL_ERR_WRONG_TYPE. */
int model_find(struct model *model,
               struct impel_bytes stream_name,
               struct impel_bytes group_name,
               struct model_stream **stream,
               struct model_group **group);
/* The next ID of a stream ("*"); false if there is none. */
bool model_next_id(const struct model *model,
                   const struct model_stream *stream,
                   struct impel_id *id);

bool model_read(struct model *model, struct request *request);
int model_add(struct model *model, struct request *request);
int model_ack(struct model *model, struct request *request);
int model_pending(struct model *model, struct request *request);
int model_range(struct model *model, struct request *request);
int model_info(struct model *model, struct request *request);
int model_group_set(struct model *model, struct request *request);
int model_trim(struct model *model, struct request *request);
int model_trim_done(struct model *model, struct request *request);
int model_replay(struct model *model, struct request *request);
int model_call(struct model *model, struct request *request);

/* Takes the caller's beat; the result in `*result`. */
int model_beat_step(struct model *model,
                    struct request *request,
                    bool first,
                    enum beat_result *result,
                    int64_t *wait_ms);
/* The fence on the whole request: its token is in the table under its name, and not judged dead. */
int model_fence(struct model *model, struct model_group *group, const struct request *request);
enum owner_state model_owner_state(struct model *model,
                                   struct model_group *group,
                                   const struct request *request,
                                   struct impel_bytes name);
int model_beat(struct model *model, struct request *request);
int model_look(struct model *model, struct request *request);
int model_leave(struct model *model, struct request *request);
int model_drop(struct model *model, struct request *request);
int model_claim_from(struct model *model, struct request *request);
int model_items(struct model *model, struct request *request);
/* Copies the entry of a row to the dead-letter stream and takes the row away, or neither. */
struct model_parking {
    struct model_stream *stream;
    struct model_group *group;
    struct model_row *row;
    const struct entry *entry;
    struct impel_bytes dead_letter, reason, error;
    int64_t deliveries; /* for the record */
};
int model_park(struct model *model,
               struct request *request,
               const struct model_parking *parking,
               struct impel_error *err);

#endif /* MODEL_H */
