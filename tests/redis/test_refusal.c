/* What servers of all versions say when they refuse something, in a script or outside, as they said it. */
#include "store/redis/redis.h"
#include "tap.h"

#define HASH     "e792460617dacf8c5d3053f37d8e8c697d9146b7"
#define BEFORE_7 "ERR Error running script (call to f_" HASH "): @user_script:313: "

#define READ_ONLY  "READONLY You can't write against a read only replica."
#define FULL       "OOM command not allowed when used memory > 'maxmemory'."
#define NO_STREAM  "WRONGTYPE Operation against a key holding the wrong kind of value"
#define NO_RIGHT_6 "The user executing the script can't run this command or subcommand"
#define NO_RIGHT_7 "ERR " NO_RIGHT_6
#define NO_RIGHT_8 \
    "ERR ACL failure in script: User default has no permissions to run the 'xadd' command"

static const struct row {
    const char *reply, *words;
    int status;
} rows[] = {
    {READ_ONLY, READ_ONLY, IMPEL_ERR_READ_ONLY},
    {"ERR what", "ERR what", IMPEL_ERR_REPLY},
    {"", "", IMPEL_ERR_REPLY},
    /* Redis 6.0 */
    {BEFORE_7 "@user_script: 313: -" READ_ONLY, READ_ONLY, IMPEL_ERR_READ_ONLY},
    {"@user_script: 1: -" READ_ONLY "  ", READ_ONLY, IMPEL_ERR_READ_ONLY},
    {BEFORE_7 "@user_script: 1: -" FULL, FULL, IMPEL_ERR_FULL},
    {"@user_script: 1: -" FULL "  ", FULL, IMPEL_ERR_FULL},
    {BEFORE_7 NO_STREAM, NO_STREAM, IMPEL_ERR_WRONG_TYPE},
    {BEFORE_7 "@user_script: 1: " NO_RIGHT_6, NO_RIGHT_6, IMPEL_ERR_AUTH},
    {"@user_script: 1: " NO_RIGHT_6, NO_RIGHT_6, IMPEL_ERR_AUTH},
    /* Redis 7.0, and since */
    {READ_ONLY " script: " HASH ", on @user_script:1.", READ_ONLY, IMPEL_ERR_READ_ONLY},
    {FULL " script: " HASH ", on @user_script:1.", FULL, IMPEL_ERR_FULL},
    {NO_STREAM " script: " HASH ", on @user_script:1.", NO_STREAM, IMPEL_ERR_WRONG_TYPE},
    {NO_RIGHT_7 " script: " HASH ", on @user_script:1.", NO_RIGHT_7, IMPEL_ERR_AUTH},
    {NO_RIGHT_8 " script: " HASH ", on @user_script:1.", NO_RIGHT_8, IMPEL_ERR_AUTH},
    /* Valkey 9 */
    {READ_ONLY " script: on @user_script:318.", READ_ONLY, IMPEL_ERR_READ_ONLY},
    {NO_RIGHT_8 " script: on @user_script:1.", NO_RIGHT_8, IMPEL_ERR_AUTH},
    /* what only looks like it */
    {"ERR no script: on call", "ERR no script: on call", IMPEL_ERR_REPLY},
    {"ERR no script: "
     "e79246",
     "ERR no script: e79246", IMPEL_ERR_REPLY},
    {"ERR Error running script (call to f_e79", "ERR Error running script (call to f_e79",
     IMPEL_ERR_REPLY},
    {"ERR Error running script (call to f_" HASH, "ERR Error running script (call to f_" HASH,
     IMPEL_ERR_REPLY},
};

static void check_row(const struct row *row)
{
    struct impel_bytes said = bytes_of(row->reply), words = refusal_words(said);
    int status = reply_status(said);

    if (!bytes_equal(words, bytes_of(row->words)) || status != row->status) {
        printf("# '%s': '%.*s', %s\n", row->reply, (int)words.size, (const char *)words.data,
               status_text(status));
        CHECK(false);
    }
}

TEST(the_place_in_a_script_is_left_out_and_the_meaning_is_found)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        check_row(&rows[i]);
    }
}

TAP_MAIN
