/* request.h -- the language between the core and a store: one struct per request, with its answer.
 *
 * The core fills in a request and hands it out as an action; a store (LMDB, Redis, the simulator's
 * model) carries it out and completes it. A request is one heap object that owns everything: inputs
 * copied into its arena, outputs that the store allocates in the same arena, and entries, each one
 * malloc'ed object of its own so that it can outlive the request.
 *
 * FENCES. A worker is (consumer, token). Operations marked FENCED are one atomic step in the store
 * that touches an entry only if its PEL row still has the expected owner and deliveries, and the
 * workers table still has the caller's token under the caller's name. An item that fails its fence
 * gets ITEM_LOST and nothing else happens to it; the other items go on. If the table has another
 * token under the name the whole request fails with IMPEL_ERR_REPLACED; if it has no row for it (or
 * one that was judged dead) with IMPEL_ERR_FENCED: beat (REQUEST_BEAT) first, renew all, go on.
 *
 * JUDGING. Requests marked JUDGES first take the caller's beat in the same step, then evaluate
 * liveness_dead() and policy_verdict() themselves: nobody passes a verdict from one step to
 * another. If the beat finds another token alive under the caller's name, nothing is judged and the
 * request fails with IMPEL_ERR_REPLACED (`beat` says BEAT_OCCUPIED); only REQUEST_BEAT itself
 * answers that with IMPEL_OK. FENCED steps take no beat and judge nobody. "Judged dead" may be a
 * mark that the store keeps with the row until its own next beat, or be computed from the clock
 * anew.
 *
 * ANSWERS. The store sets every output of its kind, also to 0, before it completes a request with
 * IMPEL_OK. With any other status a reader looks at `error` and at what is said to come with it;
 * but request_free() walks the entries all the same: a count never exceeds what was filled in, and
 * arrays come zeroed. Memory that runs out half-way fails the request and undoes the step.
 *
 * THE RECORD that PARK and CLAIM_SETTLE add to the dead-letter stream, under an ID generated there
 * and in the same step: the entry's fields as they were, then these ten, numbers in decimal:
 * original_id, original_stream, original_group, consumer (the owner; empty = nobody), deliveries,
 * reason, error, last_active_ms (the row's delivered-at), parked_ms (store time), impel_fields
 * ("10": how many these are). CLAIM_SETTLE's reason is "max-deliveries", its error empty. The
 * stream is created if it is missing.
 *
 * ATTEMPTS. A requeued entry begins a new life: its pending row counts from 1 again. What it had
 * before is kept beside the stream, per group under the copy's ID (never in the fields), and
 * CLAIM_FROM adds it to the row's deliveries wherever it judges: backoff, limit, the record. Fences
 * and what a worker is told go by the row alone. It goes with the row that is requeued or parked;
 * what was acknowledged since is swept up, a bounded part at each LOOK that takes the stamp.
 *
 * Except where it says otherwise a missing stream or group is IMPEL_ERR_NO_GROUP, a key of another
 * type IMPEL_ERR_WRONG_TYPE, and both leave everything as it was. */
#ifndef IMPEL_CORE_REQUEST_H
#define IMPEL_CORE_REQUEST_H

#include "core/id.h"
#include "core/liveness.h"
#include "core/policy.h"

enum request_kind {
    REQUEST_ADD,          /* XADD */
    REQUEST_READ,         /* XREADGROUP ... STREAMS s... >, perhaps blocking; not FENCED */
    REQUEST_ACK,          /* XACK; FENCED when `strict` */
    REQUEST_BEAT,         /* JUDGES nobody but who has the name; writes the caller's row */
    REQUEST_LOOK,         /* JUDGES (with LOOK_BEAT): who holds how much, who is alive */
    REQUEST_CLAIM_FROM,   /* JUDGES: walk one owner's PEL; claim, park, reap what is due */
    REQUEST_RETRY,        /* FENCED: claim from oneself, deliveries + 1, idle 0 */
    REQUEST_ADOPT,        /* FENCED: the same, for entries in the own PEL that nobody has in hand */
    REQUEST_RENEW,        /* FENCED: idle 0, owner and deliveries as they are */
    REQUEST_RELEASE,      /* FENCED: to RELEASED_NAME */
    REQUEST_PARK,         /* FENCED: copy to the dead-letter stream and ack, one step */
    REQUEST_LEAVE,        /* take the own row away, if nothing is held, and the consumer with it;
                             another token under the name is IMPEL_ERR_REPLACED */
    REQUEST_DROP,         /* JUDGES: delete a consumer that holds nothing and is not alive */
    REQUEST_PENDING,      /* XPENDING key group start end count [consumer] */
    REQUEST_RANGE,        /* XRANGE / XREVRANGE */
    REQUEST_INFO,         /* XINFO STREAM + GROUPS */
    REQUEST_GROUP_CREATE, /* XGROUP CREATE ... MKSTREAM */
    REQUEST_GROUP_SET,    /* XGROUP SETID */
    REQUEST_TRIM,         /* XTRIM */
    REQUEST_TRIM_DONE,    /* remove what every group has finished with, judged in the same step */
    REQUEST_REPLAY,       /* records of a dead-letter stream: put back, or dropped */
    REQUEST_CALL,         /* any one Redis command, for `impel call` */
};

/* ---- entries ---- */

/* One entry, in one malloc'ed block: header, fields, bytes. */
struct entry {
    struct impel_id id;
    size_t field_count;
    size_t size_bytes; /* of the whole block: what it weighs in memory */
    struct impel_field fields[];
};
/* A copy of the fields in a new entry, or NULL if memory is out. */
struct entry *entry_new(struct impel_id id, const struct impel_field *fields, size_t field_count);
void entry_free(struct entry *entry); /* NULL is fine */

/* ---- parts of requests ---- */

enum item_result {
    ITEM_NONE,    /* not reached */
    ITEM_DONE,    /* carried out. RELEASE does not ask whether the entry still exists */
    ITEM_LOST,    /* the fence failed: not the caller's any more; ACK without `strict`: was not
                     pending. Nothing was done */
    ITEM_TRIMMED, /* the caller's, but the entry is gone from the stream. RENEW leaves the PEL row
                     as it is (so that the caller can still finish and, should it die, a sweep
                     reports the loss); RETRY and ADOPT take the row away: the caller reports lost
                     work */
    ITEM_FAILED,  /* PARK only: the dead-letter stream refused the copy; the entry stays pending,
                     the other items go on, `status` is IMPEL_OK and `error` says why */
};

/* One entry that the caller believes to hold, in RENEW, RETRY, ADOPT, RELEASE, PARK, strict ACK. */
struct request_item {
    struct impel_id id;
    int64_t deliveries; /* the fence: the count that was seen */
    bool give_back; /* RELEASE: deliveries - 1 (never below 0), delivered-at 1: as if never handed
                       out */
    int64_t
        idle_ms; /* RELEASE without give_back: the idle time to record, so that a backoff goes on */
    struct impel_bytes reason; /* PARK: "max-deliveries", "rejected", ... */
    struct impel_bytes error;  /* PARK: the handler's words; may be empty */
    const struct entry *copy;  /* PARK: used if the stream no longer has the entry (reason becomes
                                "trimmed"); may be NULL: then such an item is ITEM_TRIMMED, row removed */
    enum item_result result;   /* out */
    struct entry *entry; /* out: RETRY, ADOPT. Owned by the request until taken (set to NULL) */
};

/* An entry that was handed out by READ or CLAIM_FROM. */
struct delivered {
    struct entry *entry;   /* owned by the request until taken (set to NULL) */
    size_t stream_index;   /* READ: which of the streams */
    int64_t deliveries;    /* now, this delivery included; 1 = the first. READ: always 1, also for a
                              row that was there already because the group was moved back */
    int64_t idle_ms;       /* CLAIM_FROM: how long it had been idle: the recovery time */
    enum owner_state from; /* CLAIM_FROM: whose it was */
};

/* An entry that was parked or reaped on the way, for reports. */
struct settled {
    struct impel_id id;
    int64_t deliveries; /* with what the entry carries (ATTEMPTS) */
};

/* An entry that was requeued or handed over. */
struct moved {
    struct impel_id id;
    struct impel_id copy; /* REQUEUE: the copy's ID */
    int64_t deliveries;   /* so far, with what the entry carries (ATTEMPTS) */
    int64_t idle_ms;
};

/* Where the sweep of a group stands, kept in the workers table for whoever sweeps next. */
struct sweep_cursor {
    struct impel_bytes owner; /* whose PEL is being walked; empty = start of the list */
    struct impel_id id;       /* the next ID to look at in it */
};

struct look_owner {
    struct impel_bytes name;
    uint64_t pending;
    enum owner_state state;
    bool in_table;
    int64_t beat_age_ms;   /* in the table: store time - beat; else -1 */
    int64_t dead_after_ms; /* in the table: its worker's, by which it is judged; else -1 */
    int64_t seen_age_ms;   /* since the consumer last asked for entries, or on servers before Redis
                              7.2 since it last got some; -1 without a consumer */
    struct token token;    /* in the table: as seen */
};

enum look_flags {
    LOOK_BEAT =
        1, /* take the caller's beat first; without it states are UNKNOWN when `last` is stale */
    LOOK_STAMP = 2, /* only look if the sweep stamp is at least `interval_ms` old; then take it */
    LOOK_FREE =
        4, /* with LOOK_STAMP: the caller has a free handler, so a younger stamp does not keep
                       it out while work is left: within two intervals after a walk left some that was
                       due, or after a worker was seen dead */
};

enum beat_result {
    BEAT_TAKEN,   /* the row is the caller's: it was absent (a first beat), its own, or a dead one's
                   */
    BEAT_REVIVED, /* the row was the caller's but had been judged dead, or had vanished (not on the
                     first beat): taken again; renew all before any handler starts */
    BEAT_OCCUPIED, /* another token is alive under this name; its row was left alone, but it was a
                      beat: `last` and `since` are written (liveness_note()), or the other's silence
                      would never count while nobody else beats. On a first beat: wait dead-after
                      and try again; later: this worker has been replaced */
};

/* How a CLAIM_FROM step behaves. */
enum claim_flags {
    /* May claim an entry whose next delivery is its last one although its holder died or is unknown
     * (DEAD, FOREIGN): the caller runs nothing else beside it. */
    CLAIM_LAST = 1,
    /* Park and reap what is due for it (dead-letter stream in `dead_letter`). */
    CLAIM_SETTLE = 2,
    /* For a sweep without a worker, at most one of these, instead of claiming; `claims_max` bounds
     * them, and the moved payload of a step is about 1 MiB at most beside one entry.
     * REQUEUE: copy the entry to the end of its stream and acknowledge it. */
    CLAIM_REQUEUE = 4,
    /* Give it to the consumer `heir` as its next delivery; if there is none of that name it is left
     * as due. */
    CLAIM_HAND_OVER = 8,
    /* Park it, reason "abandoned". */
    CLAIM_PARK = 16,
    /* REQUEUE also where the stream has another group, to which the copy would be new work. */
    CLAIM_ALL_GROUPS = 32,
};

/* ---- records that are replayed or dropped ---- */

enum {
    REPLAY_ITEMS_MAX = 200,
    AUDIT_LENGTH = 10000,
};

enum replay_mode {
    REPLAY_ADD,  /* a copy of the record's own fields is added to `request.stream`, which is created
                    if it is missing */
    REPLAY_BACK, /* the original is put back into the PEL of `request.group`: RELEASED_NAME's,
                    deliveries 0, delivered-at 1, so that any sweep may claim it at once. What it
                    carried (ATTEMPTS) is forgotten */
    REPLAY_DROP, /* the record is deleted, and nothing else */
};

enum replay_result {
    REPLAY_NONE,    /* not reached */
    REPLAY_DONE,    /* carried out; the record is gone */
    REPLAY_MISSING, /* no such record any more: somebody else was first */
    REPLAY_GONE, /* BACK: the original is not in its stream any more. The record stays, as below */
    REPLAY_STANDS, /* BACK: the group has the original before it: pending, or not delivered yet */
    REPLAY_FAILED, /* ADD: the stream refused the copy; `error` says why, `status` is IMPEL_OK */
};

/* A run of fields. */
struct replay_run {
    uint32_t first, count;
};

/* One record. Its ID and the number of its fields are the fence, for BACK also the original that it names
 * (a field original_id, be it the last of several): a record that has others is not the one that was looked
 * at, and is REPLAY_MISSING. */
struct replay_item {
    struct impel_id id;
    uint32_t field_count;
    struct impel_id original_id;   /* BACK */
    const struct replay_run *runs; /* ADD: which fields are the entry's own, ascending, inside
                                      field_count */
    size_t run_count;
    enum replay_result result; /* out */
    struct impel_id added;     /* out: ADD: the copy's ID */
};

/* Are these the fields of the record that is meant? */
bool replay_is_meant(const struct replay_item *item,
                     enum replay_mode mode,
                     const struct impel_field *fields,
                     size_t field_count);

/* ---- the request ---- */

struct value; /* src/base/value.h: a RESP reply as a tree */

struct request {
    enum request_kind kind;
    int status;               /* out: IMPEL_OK or an enum impel_status */
    struct impel_error error; /* out: on failure */
    int64_t store_now_ms; /* out: the store's wall clock (unix ms), 0 if it did not come to that */
    uint64_t serial;      /* the submitter's: given back untouched */
    void (*done)(struct request *request); /* called by the store exactly once, from its turn or its
                                              close; may free the request: the store is done with
                                              it before it calls */
    void *owner;                           /* the submitter's */
    /* Nobody waits for it any more, but the store has it still: request_free() puts itself off until
     * the store lets go. */
    bool left;
    bool unsent;          /* out: it failed for want of a connection, so nothing came of it */
    struct request *next; /* the store's queue */
    void *store_data;     /* the store's, while it has the request */
    struct arena arena;   /* inputs and outputs live here */

    /* Who asks. `consumer` is also who READ reads as; it, the token and dead-after are empty for
     * other requests that are neither FENCED nor JUDGES. A sweep without a worker has an empty
     * consumer: its beats write `last` and `since` only, and it claims nothing. */
    struct impel_bytes stream;
    struct impel_bytes group;
    struct impel_bytes consumer;
    struct token token;
    int64_t dead_after_ms; /* of the caller: goes into its row. Others are judged by their own rows'
                              and an entry by `claim_from.policy` */

    union {
        struct {
            struct impel_id id; /* in: 0-0 = generate ("*"); out: the entry's ID */
            const struct impel_field *fields;
            size_t field_count; /* >= 1 */
            bool no_create;     /* in: NOMKSTREAM; then a missing stream is IMPEL_ERR_NOT_FOUND */
            int64_t length_max; /* in: MAXLEN = length_max after the add, exact; -1 = no trimming; 0
                                   keeps nothing, so a submitter must set this */
        } add;
        struct {
            const struct impel_bytes *streams; /* `request.stream` is not used */
            size_t stream_count;
            size_t first;   /* in: the stream to begin with, so that none starves */
            uint32_t count; /* in: at most this many entries over all streams, >= 1 */
            size_t
                size_max; /* in: stop after the entry that brings the payload (names and values) to
                             this; 0 = none. The first entry always comes, whatever its size */
            int64_t block_ms; /* in: 0 = answer at once; at most 2000. Nothing by then: IMPEL_OK and
                                 no entries. A group that goes while it waits: NO_GROUP */
            struct delivered
                *entries; /* out: by stream in the order of asking, IDs ascending in each */
            size_t entry_count;
            /* Out, with IMPEL_ERR_NO_GROUP or IMPEL_ERR_WRONG_TYPE: which stream. Nothing is read
             * from the others either. */
            size_t missing;
            /* A read that completed, with whichever status, has no effect later: a store whose
             * connection broke makes sure that the server no longer serves it before it completes
             * the request. What it delivered before is pending under the caller's name: ADOPT. */
        } read;
        struct {
            struct request_item *items; /* id always; deliveries when strict */
            size_t item_count;
            bool strict;
            uint64_t acked; /* out: how many were pending */
        } ack;
        struct {
            bool first;              /* in: this worker's first beat in the group */
            enum beat_result result; /* out */
            int64_t wait_ms; /* out: OCCUPIED: until the other would be dead if it is silent */
        } beat;
        struct {
            unsigned flags;      /* in: enum look_flags */
            int64_t interval_ms; /* in: with LOOK_STAMP */
            bool stamped; /* out: the stamp was taken (always true without LOOK_STAMP); if false
                             nothing below is filled in */
            enum beat_result beat; /* out: with LOOK_BEAT */
            struct look_owner
                *owners; /* out: every consumer of the group and every row of the table */
            size_t owner_count;
            uint64_t pending; /* out: of the group; more than the owners' sum = some are unowned */
            uint64_t undelivered; /* out: entries after last-delivered; exact up to 1, a lower bound
                                above (0 = nothing undelivered, in the same step as `pending`) */
            struct sweep_cursor cursor; /* out */
        } look;
        struct {
            struct impel_bytes owner; /* in: whose PEL; empty + `nobody` = unowned entries. An owner
                                         without a consumer has no rows; one who turns out to be
                                         ME or LIVE in this step is not walked */
            bool nobody;
            struct impel_id from;           /* in: the first ID to look at */
            uint32_t rows_max;              /* in: examine at most this many rows */
            uint32_t claims_max;            /* in: claim at most this many; 0 = only find */
            unsigned flags;                 /* in: enum claim_flags */
            struct policy policy;           /* in */
            struct impel_bytes dead_letter; /* in: with CLAIM_SETTLE, CLAIM_PARK */
            struct impel_bytes heir;        /* in: with CLAIM_HAND_OVER; not the owner itself */
            enum owner_state state;         /* out: the owner's state in this step */
            enum beat_result beat;          /* out */
            struct delivered *entries;      /* out: claimed, IDs ascending */
            size_t entry_count;
            struct settled *parked; /* out */
            size_t parked_count;
            struct settled *reaped; /* out */
            size_t reaped_count;
            struct moved *moved; /* out: requeued or handed over, IDs ascending */
            size_t moved_count;
            bool other_groups;  /* out: something was due for REQUEUE, but the stream has another
                                   group: counted in `due` */
            size_t park_failed; /* out: left pending because the dead-letter stream refused, or with
                                   REQUEUE the stream */
            struct impel_error park_error; /* out: why, of the first */
            size_t rows;                   /* out: examined */
            size_t due;      /* out: due for a claim, but not claimed (claims_max, CLAIM_LAST) */
            size_t due_last; /* out: of these, left because CLAIM_LAST was not set */
            struct impel_id due_first; /* out: the first of `due`; 0-0 if none */
            size_t not_due;            /* out: abandoned, but not idle for long enough yet */
            int64_t wait_ms;           /* out: until the first of these is due; -1 if none. Of a
                                          requeued entry a store may say less */
            /* Out: where to go on; 0-0 = this PEL's end was reached. The store keeps (owner, next)
             * as the group's sweep_cursor. The walk stops in front of the row that `claims_max`
             * left no room for, unless claims_max was 0. Rows that are parked, reaped, not due or
             * left for CLAIM_LAST do not stop it, unless a store finds the step large enough. */
            struct impel_id next;
        } claim_from;
        struct {
            struct request_item *items;     /* at most 200, no ID twice */
            size_t item_count;              /* may be 0: RELEASE with `rest` */
            struct impel_bytes dead_letter; /* PARK */
            bool rest; /* RELEASE: release what else the store says the caller owns, counts kept,
                          claimable at once (at most 1000 in a step), after the items */
            bool more; /* out: RELEASE with `rest`: there is more; ask again */
            size_t rested; /* out: how many that were */
        } items;           /* RETRY, ADOPT, RENEW, RELEASE, PARK */
        struct {
            bool left;               /* out: LEAVE: the row is gone, or was not there. DROP: the
                                        consumer and its row are gone; false also if neither was
                                        there */
            int64_t inactive_ms;     /* in: DROP of a consumer that is not in the table: only if
                                        inactive for this long; -1 = never, 0 = at once */
            struct impel_bytes name; /* in: DROP: which consumer */
        } leave;                     /* LEAVE, DROP */
        struct {
            struct impel_id start, end; /* inclusive */
            uint32_t count;             /* 0 = no row */
            struct impel_bytes owner;   /* in: with `by_owner`: only this consumer's */
            bool by_owner;
            struct pending_row {
                struct impel_id id;
                struct impel_bytes owner; /* empty also where it is nobody's */
                int64_t idle_ms; /* may be negative if the clock was set back; nobody's: -1 */
                int64_t deliveries;
                int64_t carried; /* deliveries before it was requeued (ATTEMPTS) */
                bool exists;     /* the entry is still in the stream */
            } * rows;
            size_t row_count;
        } pending;
        struct {
            struct impel_id start, end; /* inclusive, start <= end also with `reverse` */
            uint32_t count;             /* >= 1 */
            size_t bytes_max; /* in: end behind the entry with which they weigh so much, in memory;
                                 0 = no such limit. Of a server, which cannot do that, few come at once */
            bool cut;         /* out: it ended early, and there may be more */
            bool reverse;
            struct entry **entries; /* out: owned by the request until taken (set to NULL) */
            size_t entry_count;     /* a missing stream has none */
        } range;
        struct {
            bool exists; /* out: false for a missing stream, which is no error */
            uint64_t length;
            struct impel_id last_id;  /* last-generated-id */
            struct impel_id first_id; /* of the first live entry; 0-0 when empty */
            uint64_t entries_added;
            struct info_group {
                struct impel_bytes name;
                struct impel_id last_delivered;
                uint64_t pending;
                uint64_t consumers;
                int64_t lag; /* entries not delivered yet, as XINFO GROUPS says; -1 = unknown */
                int64_t entries_read;          /* the counter of the same name; -1 = unknown */
                struct impel_id first_pending; /* 0-0 if none */
                int64_t oldest_idle_ms;        /* of first_pending; -1 if none */
            } * groups;
            size_t group_count;
        } info;
        struct {
            struct impel_id start; /* last-delivered-id to set */
            bool at_end;           /* "$" instead of `start` */
            /* GROUP_CREATE, of a group that was lost: instead of `start` from its ack floor, before
             * which all was acknowledged, as far as the store knows it (a LOOK with LOOK_STAMP keeps
             * it); from 0 if it knows none, or the stream is a new one of the same name. */
            bool at_floor;
            bool no_create; /* GROUP_CREATE: a missing stream is an error instead of created */
            bool created;   /* out: GROUP_CREATE: false = it was there already (no error) */
        } group_set;        /* GROUP_CREATE, GROUP_SET */
        struct {
            bool by_id; /* MINID `id_min`; else MAXLEN `length_max`, where 0 removes all */
            uint64_t length_max;
            struct impel_id id_min;
            bool approximate;
            uint64_t removed; /* out */
        } trim;
        /* A group has finished with what lies before its first pending entry and before the entry
         * after its last-delivered. Only what all groups have finished with goes; nothing that is
         * pending or unread for any of them, also not what is delivered at the same moment. A
         * stream without a group (or with ignored ones only) is IMPEL_ERR_NO_GROUP: nobody can say
         * what is finished. */
        struct {
            const struct impel_bytes *ignored; /* in: groups that are not asked */
            size_t ignored_count;
            uint64_t length_min;       /* in: so many entries stay at least */
            struct impel_id keep_from; /* in: what is not below this ID stays; ID_MAX = no such */
            uint32_t limit;            /* in: about so many go in this step at most, >= 1. Redis: a
                                          node of more entries than this goes at once */
            uint64_t removed;          /* out */
            bool more;                 /* out: there may be more to remove: ask again */
            struct impel_id floor;     /* out: the first ID that some group has not finished with */
        } trim_done;
        /* One atomic step for each item: what it puts back and the record's end, or neither. All that
         * are carried out together have one line in the audit stream, written in the same step:
         * the fields given here, then `count` and `records`, the IDs with blanks between. That
         * stream keeps its last AUDIT_LENGTH lines or some more. BACK needs the group
         * (IMPEL_ERR_NO_GROUP). A missing dead-letter stream has no records; the dead-letter or
         * the audit key of another type is IMPEL_ERR_WRONG_TYPE, a dead-letter stream that is
         * `request.stream` itself IMPEL_ERR_INVALID, except for DROP, which does not look at
         * `request.stream` and `group`. */
        struct {
            enum replay_mode mode;
            bool alone; /* ADD: refuse (IMPEL_ERR_EXISTS, its name in `error`) where the stream has
                           another group than `request.group`, which would get the copy too */
            struct impel_bytes dead_letter;
            struct impel_bytes audit; /* empty = no audit */
            const struct impel_field *audit_fields;
            size_t audit_field_count;
            struct replay_item *items; /* at most 200, no ID twice, carried out in this order */
            size_t item_count;
        } replay;
        struct {
            const struct impel_bytes *args;
            size_t arg_count;
            bool resp3;          /* in: XREAD's reply is a map, as RESP3 has it */
            struct value *reply; /* out: in the arena; error replies are values, status stays OK */
            uint64_t changes;    /* out: as Redis counts them, for rdb_changes_since_last_save */
        } call;
    };
};

/* A zeroed request with its kind and an empty arena, or NULL if memory is out. */
/* True if a row has no owner; a consumer's name may be empty as well. */
static inline bool pending_row_nobodys(const struct pending_row *row)
{
    return row->owner.size == 0 && row->idle_ms == -1;
}

struct request *request_new(enum request_kind kind);
/* Frees the request, its arena and the entries still in it. Not while a store has it, unless it was `left`. */
void request_free(struct request *request);
const char *request_name(enum request_kind kind); /* "claim_from", for events and tests */

#endif /* IMPEL_CORE_REQUEST_H */
