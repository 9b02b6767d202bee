/* fuzz_answer.c -- the lines that a handler's process answers with. What is taken is within bounds,
 * and the same said plainly is taken as the same; what is refused leaves the answer alone. */
#include "base/json.h"
#include "core/id.h"
#include "runtime/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *name_of(enum worker_outcome outcome)
{
    switch (outcome) {
    case OUTCOME_DONE:
        return "done";
    case OUTCOME_RETRY:
        return "retry";
    default:
        ASSERT(outcome == OUTCOME_REJECT);
        return "reject";
    }
}

/* Says it as plainly as can be, and has it read again. */
static void read_again(const struct answer *answer)
{
    struct answer again;
    struct arena arena = {0};
    struct buf line;
    char id[ID_TEXT_SIZE];

    buf_init(&line, 1U << 24);
    buf_appendf(&line, "{\"id\":\"%s\",\"outcome\":\"%s\"", id_format(answer->id, id),
                name_of(answer->outcome));
    if (answer->delay_ms >= 0) {
        buf_appendf(&line, ",\"delay_ms\":%lld", (long long)answer->delay_ms);
    }
    buf_append_text(&line, ",\"error\":");
    json_string(&line, answer->error);
    buf_append_text(&line, "}");
    ASSERT(answer_parse(buf_bytes(&line), &arena, &again, NULL) >= 0);
    ASSERT(id_equal(again.id, answer->id) && again.outcome == answer->outcome);
    ASSERT(again.delay_ms == answer->delay_ms && bytes_equal(again.error, answer->error));
    buf_release(&line);
    arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {0};
    struct answer answer = {.delay_ms = -7};
    struct impel_error error = {0};
    int rc = answer_parse((struct impel_bytes){data, size}, &arena, &answer, &error);

    if (rc >= 0) {
        ASSERT(answer.delay_ms >= -1 && utf8_valid(answer.error));
        ASSERT(answer.delay_ms < 0 || answer.outcome == OUTCOME_RETRY);
        read_again(&answer);
    } else {
        ASSERT(rc == IMPEL_ERR_IO && answer.delay_ms == -7 && error.text[0] != '\0');
    }
    arena_release(&arena);
    return 0;
}
