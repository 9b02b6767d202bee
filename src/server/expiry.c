/* expiry.c -- keys that expire while nobody looks at them.
 *
 * Whoever looks finds an expired key missing anyway; but a client that is blocked on it does not
 * look. So there is a timer for the next key that expires. */
#include "server/state.h"

enum {
    EXPIRY_WAIT_MAX_MS = 1000, /* other processes set times too, and clocks are set */
    EXPIRY_RETRY_MS = 1000,    /* after what was due could not be deleted */
};

static void on_expiry(uv_timer_t *timer)
{
    struct server *server = timer->data;

    server->expiry_due = true;
    server_kick(server);
}

int expiry_run(struct server *server)
{
    struct impel_error err;
    bool foreign = false;
    int64_t next_ms = 0;
    int rc = engine_begin(&server->engine, true, &foreign, &err);

    if (rc < 0) {
        return rc;
    }
    server->expiry_due = false;
    server->expiry_unknown = true;
    rc = engine_expire(&server->engine, &next_ms);
    if (rc < 0) { /* it would be due again at once, and fail again */
        server->expiry_unknown = false;
        uv_timer_start(&server->expiry, on_expiry, EXPIRY_RETRY_MS, 0);
    }
    if (rc >= 0 && server->engine.signalled) {
        wait_signal_all(server);
    }
    return rc;
}

void expiry_plan(struct server *server)
{
    struct impel_error err;
    bool foreign = false;
    int64_t next_ms = INT64_MAX;

    server->expiry_unknown = false;
    if (engine_begin(&server->engine, false, &foreign, &err) < 0) {
        return;
    }
    int rc = engine_expire(&server->engine, &next_ms);
    (void)engine_commit(&server->engine, NULL);
    if (rc < 0 || next_ms == INT64_MAX) {
        uv_timer_stop(&server->expiry);
        return;
    }
    int64_t wait_ms = next_ms - server->engine.now_ms;
    wait_ms = wait_ms < 0 ? 0 : wait_ms > EXPIRY_WAIT_MAX_MS ? EXPIRY_WAIT_MAX_MS : wait_ms + 1;
    uv_timer_start(&server->expiry, on_expiry, (uint64_t)wait_ms, 0);
}
