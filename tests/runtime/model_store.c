/* model_store.c -- stands in for src/store/open.c: every URL is the model. */
#include "runtime/model_store.h"

#include "tap.h"

#include <time.h>

struct model model_store;
static const struct store_ops *model_ops;
static struct store_ops live_ops; /* the model's, with a clock that goes by itself */

static int64_t wall_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void model_store_reset(void)
{
    static bool used;
    if (used) {
        model_release(&model_store);
    }
    used = true;
    model_init(&model_store, wall_ms());
}

static int64_t live_turn(struct store *store, int64_t now_ms)
{
    model_store.now_ms = wall_ms();
    return model_ops->turn(store, now_ms);
}

int store_open(const char *url,
               const struct store_env *env,
               struct store **out,
               struct impel_error *err)
{
    struct store *store = model_connect(&model_store, env);
    if (store == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for %s", url);
    }
    model_ops = store->ops;
    live_ops = *model_ops;
    live_ops.turn = live_turn;
    store->ops = &live_ops;
    *out = store;
    return IMPEL_OK;
}

void store_close(struct store *store)
{
    if (store != NULL) {
        store->ops->close(store);
    }
}

void model_store_do(struct request *request)
{
    model_store.now_ms = wall_ms();
    request->status = IMPEL_OK;
    CHECK(model_apply(&model_store, request));
}

void model_store_add(const char *stream, const char *name, const char *value)
{
    struct request *request = request_new(REQUEST_ADD);
    struct impel_field field = {bytes_of(name), bytes_of(value)};
    CHECK(request != NULL);
    request->stream = bytes_of(stream);
    request->add.fields = &field;
    request->add.field_count = 1;
    request->add.length_max = -1;
    model_store_do(request);
    CHECK(request->status == IMPEL_OK);
    request_free(request);
}
