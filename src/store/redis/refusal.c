/* refusal.c -- what an error reply means, and its words without the place in a script that it came from,
 * which says nothing to anybody outside:
 *
 *   before 7.0   ERR Error running script (call to f_HASH): @user_script:12: @user_script: 12: -OOM command ...
 *                @user_script: 12: -OOM command ...
 *   7.0          OOM command ... script: HASH, on @user_script:12.
 *   Valkey 9     OOM command ... script: on @user_script:12. */
#include "store/redis/redis.h"

#include <string.h>

static const char place[] = "@user_script:";
static const char script_call[] = "ERR Error running script (call to f_";

/* By the word that an error begins with. */
static const struct {
    const char *word;
    int status;
} words[] = {
    {"NOGROUP ", IMPEL_ERR_NO_GROUP},
    {"UNBLOCKED ", IMPEL_ERR_NO_GROUP},
    {"WRONGTYPE ", IMPEL_ERR_WRONG_TYPE},
    {"BUSYGROUP ", IMPEL_ERR_EXISTS},
    {"BUSYKEY ", IMPEL_ERR_EXISTS},
    {"OTHERS ", IMPEL_ERR_EXISTS},
    {"FENCED ", IMPEL_ERR_FENCED},
    {"REPLACED ", IMPEL_ERR_REPLACED},
    {"OOM ", IMPEL_ERR_FULL},
    {"MISCONF ", IMPEL_ERR_IO},
    {"LOADING ", IMPEL_ERR_BUSY},
    {"BUSY ", IMPEL_ERR_BUSY},
    {"MASTERDOWN ", IMPEL_ERR_BUSY},
    {"TRYAGAIN ", IMPEL_ERR_BUSY},
    {"CLUSTERDOWN ", IMPEL_ERR_BUSY},
    {"NOREPLICAS ", IMPEL_ERR_BUSY},
    {"READONLY ", IMPEL_ERR_READ_ONLY},
    {"NOAUTH ", IMPEL_ERR_AUTH},
    {"WRONGPASS ", IMPEL_ERR_AUTH},
    {"NOPERM ", IMPEL_ERR_AUTH},
    {"ERR ACL failure in script", IMPEL_ERR_AUTH},
    {"ERR The user executing the script can't", IMPEL_ERR_AUTH},
    {"The user executing the script can't", IMPEL_ERR_AUTH},
    {"MOVED ", IMPEL_ERR_UNSUPPORTED},
    {"ASK ", IMPEL_ERR_UNSUPPORTED},
    {"CROSSSLOT ", IMPEL_ERR_INVALID},
    {"ERR invalid password", IMPEL_ERR_AUTH},
    {"ERR unknown command", IMPEL_ERR_UNSUPPORTED},
    {"ERR The XGROUP subcommand requires the key to exist", IMPEL_ERR_NO_GROUP},
    {"ERR no such key", IMPEL_ERR_NO_GROUP},
};

static bool begins(struct impel_bytes text, const char *with)
{
    size_t size = strlen(with);

    return text.size >= size && memcmp(text.data, with, size) == 0;
}

static struct impel_bytes from(struct impel_bytes text, size_t at)
{
    at = at < text.size ? at : text.size;
    return (struct impel_bytes){(const char *)text.data + at, text.size - at};
}

static bool begins_with_hash(struct impel_bytes text)
{
    const size_t size = SHA1_TEXT_SIZE - 1;
    const char *at = text.data;

    for (size_t i = 0; i < size && i < text.size; i++) {
        if ((at[i] < '0' || at[i] > '9') && (at[i] < 'a' || at[i] > 'f')) {
            return false;
        }
    }
    return text.size >= size;
}

/* Skips what of these bytes stands at the beginning. */
static struct impel_bytes behind(struct impel_bytes text, const char *bytes)
{
    const char *at = text.data;
    size_t i = 0;

    while (i < text.size && at[i] != '\0' && strchr(bytes, at[i]) != NULL) {
        i++;
    }
    return from(text, i);
}

static struct impel_bytes without_place_before(struct impel_bytes text)
{
    const size_t call_size = sizeof(script_call) - 1 + SHA1_TEXT_SIZE - 1;

    if (begins(text, script_call) && begins_with_hash(from(text, sizeof(script_call) - 1)) &&
        begins(from(text, call_size), "): ")) {
        text = from(text, call_size + strlen("): "));
    }
    while (begins(text, place)) {
        text = behind(from(text, sizeof(place) - 1), " 0123456789:-");
    }
    return text;
}

static struct impel_bytes without_place_behind(struct impel_bytes text)
{
    static const char mark[] = " script: ";

    for (size_t i = 0; i < text.size; i++) {
        struct impel_bytes rest = from(text, i);
        if (!begins(rest, mark)) {
            continue;
        }
        rest = from(rest, sizeof(mark) - 1);
        if (begins_with_hash(rest) || (begins(rest, "on ") && begins(from(rest, 3), place))) {
            return (struct impel_bytes){text.data, i};
        }
    }
    return text;
}

struct impel_bytes refusal_words(struct impel_bytes text)
{
    text = without_place_behind(without_place_before(text));
    while (text.size > 0 && ((const char *)text.data)[text.size - 1] == ' ') {
        text.size--;
    }
    return text;
}

int reply_status(struct impel_bytes text)
{
    text = refusal_words(text);
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (begins(text, words[i].word)) {
            return words[i].status;
        }
    }
    return IMPEL_ERR_REPLY;
}
