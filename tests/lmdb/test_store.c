/* test_store.c -- the embedded store by its port: what lies in one process. */
#include "await.h"
#include "lmdb/help.h"

#include <unistd.h>

static struct impel_id id(uint64_t ms)
{
    return (struct impel_id){ms, 0};
}

TEST(add_read_ack)
{
    struct store *store = help_open(help_url("a.db", ""));

    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    CHECK(help_add(store, "s", id(1), "one") == IMPEL_OK);
    CHECK(help_add(store, "s", id(2), "two") == IMPEL_OK);
    struct request *read = help_read(store, "s", "g", "c", 10);
    CHECK_U64(read->read.entry_count, 2);
    CHECK(bytes_equal(read->read.entries[1].entry->fields[0].value, bytes_of("two")));
    request_free(read);
    CHECK(help_ack(store, "s", "g", id(1)) == 1);
    CHECK(help_ack(store, "s", "g", id(1)) == 0);
    store_close(store);
    store = help_open(help_url("a.db", ""));
    read = help_read(store, "s", "g", "c", 10);
    CHECK_U64(read->read.entry_count, 0);
    request_free(read);
    struct request *info = help_request(REQUEST_INFO, "s", "");
    CHECK(help_run(store, info) == IMPEL_OK);
    CHECK_U64(info->info.length, 2);
    CHECK_U64(info->info.group_count, 1);
    CHECK_U64(info->info.groups[0].pending, 1);
    request_free(info);
    store_close(store);
}

TEST(a_dead_workers_entries_are_claimed)
{
    struct store *store = help_open(help_url("b.db", "?sync=process"));

    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    CHECK(help_add(store, "s", id(1), "one") == IMPEL_OK);
    struct request *beat = help_beat(store, "s", "g", "a", 1, 200);
    CHECK(beat->status == IMPEL_OK);
    request_free(beat);
    request_free(help_read(store, "s", "g", "a", 1));
    struct request *claim = NULL;
    int64_t deadline = help_now_ms() + 10000;
    for (;;) {
        claim = help_request(REQUEST_CLAIM_FROM, "s", "g");
        claim->consumer = bytes_of("b");
        claim->token = help_token(2);
        claim->dead_after_ms = 200;
        claim->claim_from.owner = bytes_of("a");
        claim->claim_from.rows_max = 100;
        claim->claim_from.claims_max = 10;
        policy_defaults(&claim->claim_from.policy);
        claim->claim_from.policy.backoff_base_ms = 0;
        CHECK(help_run(store, claim) == IMPEL_OK);
        if (claim->claim_from.entry_count > 0) {
            break;
        }
        CHECK(claim->claim_from.state == OWNER_LIVE || claim->claim_from.state == OWNER_UNKNOWN);
        request_free(claim);
        CHECK(help_now_ms() < deadline);
        await_clock_us(10000);
    }
    CHECK(claim->claim_from.state == OWNER_DEAD);
    CHECK_U64(claim->claim_from.entries[0].deliveries, 2);
    request_free(claim);
    beat = help_beat(store, "s", "g", "a", 1, 200);
    CHECK(beat->beat.result == BEAT_REVIVED);
    request_free(beat);
    struct request *look = help_request(REQUEST_LOOK, "s", "g");
    CHECK(help_run(store, look) == IMPEL_OK);
    CHECK_U64(look->look.owner_count, 2);
    CHECK_U64(look->look.owners[0].pending, 0);
    CHECK_U64(look->look.owners[1].pending, 1);
    CHECK(look->look.owners[1].in_table);
    request_free(look);
    store_close(store);
}

TAP_MAIN
