/* replay.c -- records leave the dead-letter stream: a script puts back or drops up to 200 at once.
 *
 * An entry of more fields than a script can pass to XADD comes back whole and goes out again in one
 * MULTI/EXEC: XADD, then the script once more, which deletes the record, or, if somebody else was
 * first, the copy. Then the script goes on behind it, so that the order is kept. */
#include "store/redis/redis.h"

enum {
    STAGE_SCRIPT,
    STAGE_LARGE, /* the record that the script stopped at */
    RESULT_LARGE = 6,
    LARGE_REPLIES = 4, /* MULTI, XADD, EVAL, EXEC */
};

struct replaying {
    size_t from; /* the first record that has no result yet */
    struct entry *large;
    struct impel_bytes last; /* the stream's last ID before the copy of `large` */
    struct impel_error why;  /* what went wrong inside the MULTI */
};

static void replaying_free(struct op *op)
{
    struct replaying *replaying = op->user;

    if (replaying != NULL) {
        entry_free(replaying->large);
    }
    op->user = NULL;
}

static void put_item(struct op *op, const struct replay_item *each, struct impel_bytes last)
{
    cmd_id(op, each->id);
    cmd_number(op, each->field_count);
    if (last.size > 0) {
        cmd_bytes(op, last);
    } else {
        cmd_id(op, each->original_id);
    }
    cmd_number(op, (int64_t)each->run_count);
    for (size_t i = 0; i < each->run_count; i++) {
        cmd_number(op, each->runs[i].first);
        cmd_number(op, each->runs[i].count);
    }
}

static void put_script(struct op *op, const char *mode)
{
    const struct request *request = op->request;
    bool audited = request->replay.audit.size > 0;

    cmd_script(op, SCRIPT_REPLAY, request->replay.dead_letter);
    cmd_text(op, mode);
    cmd_text(op, request->replay.alone ? "1" : "0");
    cmd_number(op, audited ? AUDIT_LENGTH : 0);
    cmd_number(op, (int64_t)request->replay.audit_field_count * 2);
    for (size_t i = 0; i < request->replay.audit_field_count; i++) {
        cmd_bytes(op, request->replay.audit_fields[i].name);
        cmd_bytes(op, request->replay.audit_fields[i].value);
    }
}

static int send_large(struct op *op, const struct replaying *replaying, struct buf *out)
{
    const struct request *request = op->request;
    bool by_text = op->by_text;

    resp_put_command(out, (struct impel_bytes[]){bytes_of("MULTI")}, 1);
    cmd_begin(op);
    cmd_text(op, "XADD");
    cmd_bytes(op, request->stream);
    cmd_text(op, "*");
    for (size_t i = 0; i < replaying->large->field_count; i++) {
        cmd_bytes(op, replaying->large->fields[i].name);
        cmd_bytes(op, replaying->large->fields[i].value);
    }
    cmd_end(op, out);
    op->by_text = true; /* a name that is not known would be found out too late, behind the XADD */
    put_script(op, "settle");
    op->by_text = by_text;
    put_item(op, &request->replay.items[replaying->from], replaying->last);
    cmd_end(op, out);
    resp_put_command(out, (struct impel_bytes[]){bytes_of("EXEC")}, 1);
    return LARGE_REPLIES;
}

static int replay_send(struct op *op, struct buf *out)
{
    static const char *const modes[] = {
        [REPLAY_ADD] = "add", [REPLAY_BACK] = "back", [REPLAY_DROP] = "drop"};
    const struct request *request = op->request;
    const struct replaying *replaying = op->user;

    if (op->stage == STAGE_LARGE) {
        return send_large(op, replaying, out);
    }
    if (request->replay.mode != REPLAY_DROP &&
        bytes_equal(request->stream, request->replay.dead_letter)) {
        return IMPEL_ERR_INVALID;
    }
    put_script(op, modes[request->replay.mode]);
    for (size_t i = replaying == NULL ? 0 : replaying->from; i < request->replay.item_count; i++) {
        put_item(op, &request->replay.items[i], (struct impel_bytes){NULL, 0});
    }
    cmd_end(op, out);
    return 1;
}

static enum op_next replay_over(struct op *op, int status)
{
    if (status < 0) {
        (void)error_set(&op->request->error, status, "replay: %s", status_text(status));
    }
    op_finish(op, status);
    return OP_DONE;
}

static void failed_because(struct op *op, int status, struct impel_bytes why)
{
    char text[250];

    if (op->request->error.status == 0) {
        (void)error_set(&op->request->error, status, "replay: %s",
                        bytes_quote(refusal_words(why), text, sizeof(text)));
    }
}

/* Keeps an entry that has to go out again; `answer` is {6, fields, the stream's last ID}. */
static bool keep_large(struct op *op, struct replaying *replaying, const struct value *answer)
{
    struct value id = {.kind = VALUE_BULK, .bytes = bytes_of("1-0")};

    entry_free(replaying->large);
    replaying->large = entry_of(op->store, &id, item(answer, 1));
    return replaying->large != NULL &&
           arena_copy(&op->request->arena, item_bytes(answer, 2), &replaying->last);
}

static void take_answer(struct op *op, struct replay_item *each, const struct value *answer)
{
    each->result = (enum replay_result)item_number(answer, 0);
    if (each->result == REPLAY_DONE && op->request->replay.mode == REPLAY_ADD &&
        !item_id(answer, 1, &each->added)) {
        each->added = ID_MIN;
    }
    if (each->result == REPLAY_FAILED) {
        struct impel_bytes why = item_bytes(answer, 1);
        failed_because(op, reply_status(why), why);
    }
}

static enum op_next take_script(struct op *op, const struct value *reply)
{
    struct request *request = op->request;
    struct replaying *replaying = op->user;
    const struct value *answers = item(reply, 1);

    if (replaying == NULL) {
        op->user = replaying = arena_calloc(&request->arena, 1, sizeof(*replaying));
    }
    if (replaying == NULL) {
        return replay_over(op, IMPEL_ERR_NOMEM);
    }
    for (size_t i = 0; i < answers->item_count && replaying->from < request->replay.item_count;
         i++) {
        const struct value *answer = item(answers, i);
        if (item_number(answer, 0) == RESULT_LARGE) {
            op->stage = STAGE_LARGE;
            return keep_large(op, replaying, answer) ? OP_AGAIN : replay_over(op, IMPEL_ERR_NOMEM);
        }
        take_answer(op, &request->replay.items[replaying->from++], answer);
    }
    return replay_over(op, IMPEL_OK);
}

static enum op_next take_large(struct op *op, const struct value *reply)
{
    struct request *request = op->request;
    struct replaying *replaying = op->user;
    struct replay_item *each = &request->replay.items[replaying->from];
    char text[200];

    if (op->taken < LARGE_REPLIES - 1) {
        if (reply->kind == VALUE_ERROR && replaying->why.status == 0) {
            (void)error_set(&replaying->why, reply_status(reply->bytes), "%s",
                            bytes_quote(refusal_words(reply->bytes), text, sizeof(text)));
        }
        return OP_MORE;
    }
    const struct value *added = item(reply, 0), *settled = item(reply, 1);
    const struct value *error = reply->kind == VALUE_ERROR     ? reply
                                : added->kind == VALUE_ERROR   ? added
                                : settled->kind == VALUE_ERROR ? settled
                                                               : NULL;
    if (replaying->why.status != 0) {
        each->result = REPLAY_FAILED;
        failed_because(op, replaying->why.status, bytes_of(replaying->why.text));
    } else if (error != NULL) {
        each->result = REPLAY_FAILED;
        failed_because(op, reply_status(error->bytes), error->bytes);
    } else {
        take_answer(op, each, item(item(settled, 1), 0));
    }
    replaying->why = (struct impel_error){0};
    replaying->from++;
    if (replaying->from == request->replay.item_count) {
        return replay_over(op, IMPEL_OK);
    }
    op->stage = STAGE_SCRIPT;
    return OP_AGAIN;
}

static enum op_next replay_take(struct op *op, const struct value *reply)
{
    if (op->stage == STAGE_LARGE) {
        return take_large(op, reply);
    }
    return script_answered(op, reply) ? take_script(op, reply) : OP_DONE;
}

const struct op_kind op_replay = {
    .name = "replay", .send = replay_send, .take = replay_take, .forget = replaying_free};
