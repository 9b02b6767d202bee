/* test_policy.c -- the backoff and every row of the verdict. */
#include "core/id.h"
#include "core/policy.h"
#include "tap.h"

static struct policy policy_test(void)
{
    struct policy policy;
    policy_defaults(&policy);
    return policy;
}

/* An id_test whose jitter hash is 0 would be a lucky find; so expected waits are computed here, in the
 * other direction than the code under test: from the hash as documented. */
static int64_t with_jitter(int64_t wait_ms, struct impel_id id)
{
    return wait_ms + wait_ms * (int64_t)policy_jitter_hash(id) / 655360;
}

static const struct impel_id id_test = {1700000000000, 3};

TEST(hash_is_the_documented_one)
{
    /* "1-2": ('1' * 31 + '-') * 31 + '2' */
    CHECK_U64(policy_jitter_hash((struct impel_id){1, 2}), ((49 * 31 + 45) * 31 + 50) % 65536);
    CHECK(policy_jitter_hash(ID_MAX) < 65536);
}

TEST(backoff_doubles_up_to_the_cap)
{
    struct policy policy = policy_test();
    CHECK(policy_backoff_ms(&policy, 0, id_test) == 0);
    CHECK(policy_backoff_ms(&policy, 1, id_test) == with_jitter(1000, id_test));
    CHECK(policy_backoff_ms(&policy, 4, id_test) == with_jitter(8000, id_test));
    CHECK(policy_backoff_ms(&policy, 9, id_test) == with_jitter(256000, id_test));
    CHECK(policy_backoff_ms(&policy, 10, id_test) == with_jitter(300000, id_test));
    CHECK(policy_backoff_ms(&policy, 64, id_test) == with_jitter(300000, id_test));
    CHECK(policy_backoff_ms(&policy, INT64_MAX, id_test) == with_jitter(300000, id_test));
    CHECK(policy_backoff_ms(&policy, -1, id_test) == with_jitter(300000, id_test));
    CHECK(policy_backoff_ms(&policy, 1, id_test) <= 1100);
}

TEST(backoff_saturates_and_may_be_off)
{
    struct policy policy = policy_test();
    policy.backoff_cap_ms = INT64_MAX;
    CHECK(policy_backoff_ms(&policy, 62, id_test) > INT64_MAX / 2);
    CHECK(policy_backoff_ms(&policy, INT64_MIN, id_test) == INT64_MAX);
    policy.backoff_base_ms = 0;
    CHECK(policy_backoff_ms(&policy, 5, id_test) == 0);
    policy = policy_test();
    policy.backoff_cap_ms = 0;
    CHECK(policy_backoff_ms(&policy, 5, id_test) == 0);
}

TEST(exhausted_at_max_and_past_all_counting)
{
    struct policy policy = policy_test();
    CHECK(!policy_exhausted(&policy, 0));
    CHECK(!policy_exhausted(&policy, 4));
    CHECK(policy_exhausted(&policy, 5));
    CHECK(policy_exhausted(&policy, INT64_MAX));
    CHECK(policy_exhausted(&policy, INT64_MIN));
}

struct row {
    enum owner_state owner;
    int64_t idle_ms, silence_ms, deliveries;
    bool gone;
    enum verdict verdict;
    int64_t wait_ms;
};

TEST(every_row_of_the_verdict)
{
    struct policy policy = policy_test();
    int64_t wait1 = with_jitter(1000, id_test);
    int64_t wait4 = with_jitter(8000, id_test);
    int64_t wait8 = with_jitter(128000, id_test);
    int64_t wait9 = with_jitter(256000, id_test);
    policy.max_deliveries = 9;
    const struct row rows[] = {
        {OWNER_ME, INT64_MAX, 0, 99, true, VERDICT_MINE, 0},
        {OWNER_LIVE, INT64_MAX, 0, 99, true, VERDICT_LEAVE, 0},
        {OWNER_UNKNOWN, INT64_MAX, 0, 99, true, VERDICT_LEAVE, 0},
        {OWNER_RELEASED, 0, 0, 0, false, VERDICT_CLAIM, 0},
        {OWNER_RELEASED, wait1 - 1, 0, 1, false, VERDICT_WAIT, 1},
        {OWNER_RELEASED, wait1, 0, 1, false, VERDICT_CLAIM, 0},
        {OWNER_RELEASED, -5, 0, 1, false, VERDICT_CLAIM, 0},
        {OWNER_RELEASED, wait9, 0, 9, false, VERDICT_PARK, 0},
        {OWNER_NOBODY, -1, 0, 4, false, VERDICT_CLAIM, 0},
        {OWNER_NOBODY, wait4 - 1, 0, 4, false, VERDICT_WAIT, 1},
        {OWNER_NOBODY, -1, 0, INT64_MAX, false, VERDICT_PARK, 0},
        {OWNER_NOBODY, -1, 0, INT64_MIN, false, VERDICT_PARK, 0},
        {OWNER_DEAD, 0, 5000, 1, false, VERDICT_CLAIM, 0},
        {OWNER_DEAD, -3600000, 5000, 1, false, VERDICT_CLAIM, 0},
        {OWNER_DEAD, 0, 5000, 4, false, VERDICT_WAIT, wait4 - 5000},
        {OWNER_DEAD, wait4, 5000, 4, false, VERDICT_CLAIM, 0},
        {OWNER_DEAD, 0, 5000, 9, false, VERDICT_WAIT, wait9 - 5000},
        {OWNER_DEAD, wait9, 5000, 9, false, VERDICT_PARK, 0},
        {OWNER_DEAD, wait9, 5000, 9, true, VERDICT_REAP, 0},
        {OWNER_DEAD, 0, 5000, 4, true, VERDICT_WAIT, wait4 - 5000},
        {OWNER_FOREIGN, 59999, 0, 1, false, VERDICT_WAIT, 1},
        {OWNER_FOREIGN, 60000, 0, 1, false, VERDICT_CLAIM, 0},
        {OWNER_FOREIGN, 60000, 0, 8, false, VERDICT_WAIT, wait8 - 60000},
        {OWNER_FOREIGN, 10, 0, 9, false, VERDICT_WAIT, wait9 - 10},
        {OWNER_FOREIGN, 60000, 0, 0, true, VERDICT_REAP, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct pending_view view = {.id = id_test,
                                    .owner = rows[i].owner,
                                    .idle_ms = rows[i].idle_ms,
                                    .silence_ms = rows[i].silence_ms,
                                    .deliveries = rows[i].deliveries,
                                    .exists = !rows[i].gone};
        int64_t wait_ms = -77;
        enum verdict verdict = policy_verdict(&policy, &view, &wait_ms);
        if (verdict != rows[i].verdict || wait_ms != rows[i].wait_ms) {
            printf("# row %zu: verdict %d, wait %lld\n", i, (int)verdict, (long long)wait_ms);
        }
        CHECK(verdict == rows[i].verdict && wait_ms == rows[i].wait_ms);
        CHECK(policy_verdict(&policy, &view, NULL) == verdict);
    }
}

TAP_MAIN
