/* trim.c -- removing what every group has finished with, as a script: the groups are asked and the
 * stream is cut in one step.
 *
 * XTRIM with ACKED and XACKDEL, which newer servers have, are not used: some of their releases delete
 * nothing or too much, and MINID with an ID that was computed in the same step does it everywhere
 * from 6.2 on; before, what lies below that ID is counted, up to 1,000 entries a step. */
#include "store/redis/redis.h"

static int trim_done_send(struct op *op, struct buf *out)
{
    const struct request *request = op->request;
    uint64_t length_min = request->trim_done.length_min;

    cmd_script(op, SCRIPT_TRIM, (struct impel_bytes){NULL, 0});
    cmd_number(op, length_min > INT64_MAX ? INT64_MAX : (int64_t)length_min);
    cmd_id(op, request->trim_done.keep_from);
    cmd_number(op, request->trim_done.limit);
    for (size_t i = 0; i < request->trim_done.ignored_count; i++) {
        cmd_bytes(op, request->trim_done.ignored[i]);
    }
    cmd_end(op, out);
    return 1;
}

static enum op_next trim_done_take(struct op *op, const struct value *reply)
{
    struct request *request = op->request;

    if (!script_answered(op, reply)) {
        return OP_DONE;
    }
    request->trim_done.removed = (uint64_t)item_number(reply, 1);
    request->trim_done.more = item_number(reply, 2) != 0;
    if (!item_id(reply, 3, &request->trim_done.floor)) {
        return op_garbled(op);
    }
    op_finish(op, IMPEL_OK);
    return OP_DONE;
}

const struct op_kind op_trim_done = {
    .name = "trim", .send = trim_done_send, .take = trim_done_take};
