/* policy.c -- is an entry overdue, and what follows? */
#include "core/policy.h"

#include "core/id.h"

enum {
    JITTER_DIVISOR = 655360, /* ten times 65536: the jitter is less than a tenth of the wait */
};

void policy_defaults(struct policy *policy)
{
    *policy = (struct policy){
        .min_idle_ms = 60000,
        .dead_after_ms = 5000,
        .max_deliveries = 5,
        .backoff_base_ms = 1000,
        .backoff_cap_ms = 300000,
    };
}

uint32_t policy_jitter_hash(struct impel_id id)
{
    char text[ID_TEXT_SIZE];
    uint32_t hash = 0;

    for (const char *at = id_format(id, text); *at != '\0'; at++) {
        hash = (hash * 31 + (uint8_t)*at) & 0xffff;
    }
    return hash;
}

int64_t policy_backoff_ms(const struct policy *policy, int64_t deliveries, struct impel_id id)
{
    int64_t wait_ms = policy->backoff_base_ms;

    if (deliveries == 0 || wait_ms <= 0) {
        return 0;
    }
    if (deliveries < 0 || deliveries - 1 >= 62) {
        wait_ms = policy->backoff_cap_ms;
    } else {
        wait_ms = mul_saturating(wait_ms, (int64_t)1 << (deliveries - 1));
    }
    wait_ms = wait_ms > policy->backoff_cap_ms ? policy->backoff_cap_ms : wait_ms;
    if (wait_ms <= 0) {
        return 0;
    }
    /* floor(wait * hash / divisor) without the product, which may not fit. */
    int64_t hash = policy_jitter_hash(id);
    int64_t jitter_ms =
        wait_ms / JITTER_DIVISOR * hash + wait_ms % JITTER_DIVISOR * hash / JITTER_DIVISOR;
    return add_saturating(wait_ms, jitter_ms);
}

bool policy_exhausted(const struct policy *policy, int64_t deliveries)
{
    return deliveries < 0 || deliveries >= policy->max_deliveries;
}

/* How long the entry must have idled before anybody may take it, and how long it has. */
static void overdue(const struct policy *policy,
                    const struct pending_view *view,
                    int64_t *need_ms,
                    int64_t *idle_ms)
{
    *need_ms = policy_backoff_ms(policy, view->deliveries, view->id);
    *idle_ms = view->idle_ms;
    switch (view->owner) {
    case OWNER_DEAD:
        /* Its silence has reached its own dead-after already, or it would not be called dead. */
        *idle_ms = view->silence_ms > *idle_ms ? view->silence_ms : *idle_ms;
        break;
    case OWNER_FOREIGN:
        *need_ms = policy->min_idle_ms > *need_ms ? policy->min_idle_ms : *need_ms;
        break;
    case OWNER_RELEASED: /* nobody runs these: a clock that was set back must not keep them */
    case OWNER_NOBODY:
        *idle_ms = view->idle_ms < 0 ? INT64_MAX : view->idle_ms;
        break;
    default:
        break;
    }
}

enum verdict
policy_verdict(const struct policy *policy, const struct pending_view *view, int64_t *wait_ms)
{
    int64_t need_ms = 0;
    int64_t idle_ms = 0;

    if (wait_ms != NULL) {
        *wait_ms = 0;
    }
    if (view->owner == OWNER_ME) {
        return VERDICT_MINE;
    }
    if (view->owner == OWNER_LIVE || view->owner == OWNER_UNKNOWN) {
        return VERDICT_LEAVE;
    }
    overdue(policy, view, &need_ms, &idle_ms);
    if (idle_ms < need_ms) {
        if (wait_ms != NULL) {
            *wait_ms = sub_saturating(need_ms, idle_ms);
        }
        return VERDICT_WAIT;
    }
    if (!view->exists) {
        return VERDICT_REAP;
    }
    return policy_exhausted(policy, view->deliveries) ? VERDICT_PARK : VERDICT_CLAIM;
}
