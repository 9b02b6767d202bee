/* answer.c -- reading answers. */
#include "runtime/answer.h"

#include "base/json_read.h"

enum {
    GOT_ID = 1,
    GOT_OUTCOME = 2,
    GOT_DELAY = 4,
    GOT_ERROR = 8,
};

struct parser {
    struct json_reader json;
    struct answer answer;
    unsigned got;
};

static int take_id(struct parser *parser)
{
    struct impel_bytes text = {0};
    struct json_reader *json = &parser->json;
    const uint8_t *at = json->at;
    int rc = json_take_string(json, &text);

    if (rc >= 0 && id_parse(text, 0, &parser->answer.id) < 0) {
        json->at = at;
        rc = json_wrong(json, "\"id\" has to be the entry's ID, as it was given");
    }
    return rc;
}

static int take_outcome(struct parser *parser)
{
    static const struct {
        const char *name;
        enum worker_outcome outcome;
    } outcomes[] = {{"done", OUTCOME_DONE}, {"retry", OUTCOME_RETRY}, {"reject", OUTCOME_REJECT}};
    struct impel_bytes text = {0};
    struct json_reader *json = &parser->json;
    const uint8_t *at = json->at;
    int rc = json_take_string(json, &text);

    for (size_t i = 0; rc >= 0 && i < ARRAY_SIZE(outcomes); i++) {
        if (bytes_equal(text, bytes_of(outcomes[i].name))) {
            parser->answer.outcome = outcomes[i].outcome;
            return IMPEL_OK;
        }
    }
    json->at = at;
    return rc < 0 ? rc : json_wrong(json, "\"outcome\" has to be done, retry or reject");
}

/* Digits alone: a whole number of milliseconds, none of them negative. Beyond what counts it is
 * as long as can be. */
static int take_delay(struct parser *parser)
{
    struct impel_bytes text = {0};
    struct json_reader *json = &parser->json;
    const uint8_t *at = json->at;
    int64_t delay_ms = 0;

    bool good = json_take_number(json, &text);
    for (size_t i = 0; good && i < text.size; i++) {
        char digit = ((const char *)text.data)[i];
        good = digit >= '0' && digit <= '9';
        delay_ms = add_saturating(mul_saturating(delay_ms, 10), digit - '0');
    }
    if (!good) {
        json->at = at;
        return json_wrong(json, "\"delay_ms\" has to be a whole number of milliseconds");
    }
    parser->answer.delay_ms = delay_ms;
    return IMPEL_OK;
}

static int take_value(struct parser *parser, unsigned member)
{
    struct impel_bytes text;

    switch (member) {
    case GOT_ID:
        return take_id(parser);
    case GOT_OUTCOME:
        return take_outcome(parser);
    case GOT_DELAY:
        return json_take_word(&parser->json, "null", &text) ? IMPEL_OK : take_delay(parser);
    case GOT_ERROR:
        return json_take_word(&parser->json, "null", &text)
                   ? IMPEL_OK
                   : json_take_string(&parser->json, &parser->answer.error);
    default:
        return json_skip(&parser->json);
    }
}

static int take_member(struct parser *parser)
{
    static const struct {
        const char *name;
        unsigned member;
    } members[] = {
        {"id", GOT_ID}, {"outcome", GOT_OUTCOME}, {"delay_ms", GOT_DELAY}, {"error", GOT_ERROR}};
    struct impel_bytes name = {0};
    struct json_reader *json = &parser->json;
    unsigned member = 0;
    int rc = json_take_string(json, &name);

    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        member = bytes_equal(name, bytes_of(members[i].name)) ? members[i].member : member;
    }
    if ((parser->got & member) != 0) {
        return json_wrong(json, "this member stands twice");
    }
    parser->got |= member;
    if (!json_take(json, ':')) {
        return json_wrong(json, "a colon is needed here");
    }
    rc = take_value(parser, member);
    json_skip_blanks(json);
    return rc;
}

static int check(const struct parser *parser)
{
    if ((parser->got & GOT_ID) == 0) {
        return error_set(parser->json.err, IMPEL_ERR_IO, "an answer needs \"id\"");
    }
    if ((parser->got & GOT_OUTCOME) == 0) {
        return error_set(parser->json.err, IMPEL_ERR_IO, "an answer needs \"outcome\"");
    }
    if (parser->answer.delay_ms >= 0 && parser->answer.outcome != OUTCOME_RETRY) {
        return error_set(parser->json.err, IMPEL_ERR_IO, "\"delay_ms\" goes with a retry only");
    }
    return IMPEL_OK;
}

int answer_parse(struct impel_bytes line,
                 struct arena *arena,
                 struct answer *answer,
                 struct impel_error *err)
{
    struct parser parser = {.answer.delay_ms = -1};
    struct json_reader *json = &parser.json;

    json_reader_init(json, line, arena, err);
    if (!utf8_valid(line)) {
        return json_wrong(json, "not UTF-8");
    }
    if (!json_take(json, '{')) {
        return json_wrong(json, "a JSON object is needed here");
    }
    if (!json_take(json, '}')) {
        do {
            int rc = take_member(&parser);
            if (rc < 0) {
                return rc;
            }
        } while (json_take(json, ','));
        if (!json_take(json, '}')) {
            return json_wrong(json, "a comma or } is needed here");
        }
    }
    if (json->at != json->end) {
        return json_wrong(json, "something follows the object");
    }
    int rc = check(&parser);
    if (rc >= 0) {
        *answer = parser.answer;
    }
    return rc;
}
