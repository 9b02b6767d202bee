/* table.c -- requests about the workers table: beat, look, leave, drop; and making a group again
 * from what the table has kept of it. */
#include "store/redis/redis.h"

#include <string.h>

static const struct impel_bytes no_key = {NULL, 0};

static enum op_next out_of_memory(struct op *op)
{
    struct impel_error err;

    (void)error_set(&err, IMPEL_ERR_NOMEM, "no memory for an answer");
    op_fail(op, &err);
    return OP_DONE;
}

/* Under another's name nothing was judged: beside the error `beat` says so. */
static bool answered(struct op *op, const struct value *reply, enum beat_result *beat)
{
    if (reply->kind == VALUE_ERROR && reply_status(reply->bytes) == IMPEL_ERR_REPLACED) {
        *beat = BEAT_OCCUPIED;
    }
    return script_answered(op, reply);
}

/* ---- beat ---- */

static int beat_send(struct op *op, struct buf *out)
{
    cmd_script(op, SCRIPT_BEAT, no_key);
    cmd_text(op, op->request->beat.first ? "1" : "0");
    cmd_end(op, out);
    return 1;
}

static enum op_next beat_take(struct op *op, const struct value *reply)
{
    if (script_answered(op, reply)) {
        op->request->beat.result = (enum beat_result)item_number(reply, 1);
        op->request->beat.wait_ms = item_number(reply, 2);
        op_finish(op, IMPEL_OK);
    }
    return OP_DONE;
}

const struct op_kind op_beat = {.name = "beat", .send = beat_send, .take = beat_take};

/* ---- look ---- */

static int look_send(struct op *op, struct buf *out)
{
    const struct request *request = op->request;

    cmd_script(op, SCRIPT_LOOK, no_key);
    cmd_text(op, request->look.flags & LOOK_BEAT ? "1" : "0");
    cmd_text(op, request->look.flags & LOOK_STAMP ? "1" : "0");
    cmd_number(op, request->look.interval_ms);
    cmd_text(op, request->look.flags & LOOK_FREE ? "1" : "0");
    cmd_end(op, out);
    return 1;
}

static int hex_value(uint8_t c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static void read_token(struct impel_bytes text, struct token *out)
{
    const uint8_t *hex = text.data;

    for (size_t i = 0; i < TOKEN_SIZE && text.size == (size_t)TOKEN_SIZE * 2; i++) {
        out->bytes[i] = (uint8_t)(hex_value(hex[i * 2]) << 4 | hex_value(hex[i * 2 + 1]));
    }
}

/* "<ms>-<seq> <owner>" */
static bool read_cursor(struct arena *arena, struct impel_bytes text, struct sweep_cursor *out)
{
    const char *blank = text.size > 0 ? memchr(text.data, ' ', text.size) : NULL;

    if (blank == NULL) {
        return true; /* nobody has swept yet */
    }
    struct impel_bytes id = {text.data, (size_t)(blank - (const char *)text.data)};
    struct impel_bytes owner = {blank + 1, text.size - id.size - 1};
    return id_parse(id, 0, &out->id) >= 0 && arena_copy(arena, owner, &out->owner);
}

/* Those that are not in the table have four words only. */
static bool read_owner(struct arena *arena, const struct value *from, struct look_owner *to)
{
    to->pending = (uint64_t)item_number(from, 1);
    to->seen_age_ms = item_number(from, 2);
    to->state = (enum owner_state)item_number(from, 3);
    to->in_table = from->item_count > 4;
    to->beat_age_ms = to->in_table ? item_number(from, 4) : -1;
    to->dead_after_ms = to->in_table ? item_number(from, 5) : -1;
    read_token(item_bytes(from, 6), &to->token);
    return arena_copy(arena, item_bytes(from, 0), &to->name);
}

static enum op_next look_take(struct op *op, const struct value *reply)
{
    struct request *request = op->request;

    if (!answered(op, reply, &request->look.beat)) {
        return OP_DONE;
    }
    request->look.beat = (enum beat_result)item_number(reply, 1);
    request->look.stamped = item_number(reply, 2) != 0;
    if (!request->look.stamped) {
        op_finish(op, IMPEL_OK);
        return OP_DONE;
    }
    const struct value *owners = item(reply, 6);
    request->look.pending = (uint64_t)item_number(reply, 4);
    request->look.undelivered = (uint64_t)item_number(reply, 5);
    request->look.owner_count = 0;
    request->look.owners =
        arena_calloc(&request->arena, owners->item_count + 1, sizeof(struct look_owner));
    bool good = request->look.owners != NULL &&
                read_cursor(&request->arena, item_bytes(reply, 3), &request->look.cursor);
    for (size_t i = 0; good && i < owners->item_count; i++) {
        good = read_owner(&request->arena, item(owners, i),
                          &request->look.owners[request->look.owner_count++]);
    }
    if (!good) {
        return out_of_memory(op);
    }
    op_finish(op, IMPEL_OK);
    return OP_DONE;
}

const struct op_kind op_look = {.name = "look", .send = look_send, .take = look_take};

/* ---- leave and drop ---- */

static int leave_send(struct op *op, struct buf *out)
{
    cmd_script(op, SCRIPT_LEAVE, no_key);
    cmd_end(op, out);
    return 1;
}

static int drop_send(struct op *op, struct buf *out)
{
    cmd_script(op, SCRIPT_DROP, no_key);
    cmd_bytes(op, op->request->leave.name);
    cmd_number(op, op->request->leave.inactive_ms);
    cmd_end(op, out);
    return 1;
}

static enum op_next leave_take(struct op *op, const struct value *reply)
{
    if (script_answered(op, reply)) {
        op->request->leave.left = item_number(reply, 1) != 0;
        op_finish(op, IMPEL_OK);
    }
    return OP_DONE;
}

const struct op_kind op_leave = {.name = "leave", .send = leave_send, .take = leave_take};
const struct op_kind op_drop = {.name = "drop", .send = drop_send, .take = leave_take};

/* ---- a group that was lost ---- */

static int create_send(struct op *op, struct buf *out)
{
    cmd_script(op, SCRIPT_CREATE, no_key);
    cmd_end(op, out);
    return 1;
}

static enum op_next create_take(struct op *op, const struct value *reply)
{
    if (script_answered(op, reply)) {
        op->request->group_set.created = item_number(reply, 1) != 0;
        op_finish(op, IMPEL_OK);
    }
    return OP_DONE;
}

const struct op_kind op_create = {.name = "create", .send = create_send, .take = create_take};
