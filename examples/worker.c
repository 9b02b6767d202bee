/* worker.c -- handles the orders that producer.c adds.
 *
 *     cc worker.c $(pkg-config --cflags --libs impel) -o worker
 *     ./worker lmdb:orders.db
 *
 * Start as many of them as you like, and kill some: what they held is taken over by the others within
 * seconds. With a second argument it ends when nothing is left to do. An order without an order_id is
 * moved to the stream orders:dead at once; one that fails is tried again with growing pauses, and
 * moved there after the fifth attempt. */
#include <impel/impel.h>

#include <stdio.h>

/* Called on four threads at once. Delivery is at-least-once: an order that was charged just before a
 * crash comes again, which is what the order's own ID is for. */
static enum impel_outcome on_order(struct impel_delivery *delivery, void *user)
{
    struct impel_bytes order_id = impel_delivery_field(delivery, "order_id");
    struct impel_bytes amount = impel_delivery_field(delivery, "amount");
    (void)user;
    if (order_id.size == 0) {
        return impel_delivery_reject(delivery, "it has no order_id");
    }
    if (amount.size == 0) {
        return impel_delivery_fail(delivery, "the amount is not known yet");
    }
    printf("order %.*s: %.*s\n", (int)order_id.size, (const char *)order_id.data, (int)amount.size,
           (const char *)amount.data);
    return IMPEL_DONE;
}

static void on_event(const struct impel_event *event, void *user)
{
    char id[IMPEL_ID_TEXT_SIZE];
    (void)user;
    fprintf(stderr, "worker: %s: %s (%s) %.*s\n", event->name, event->text,
            impel_id_format(event->id, id), (int)event->error.size,
            event->error.size > 0 ? (const char *)event->error.data : "");
}

int main(int argc, char **argv)
{
    struct impel_error err;
    struct impel_store *store = NULL;
    struct impel_worker *worker = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: worker STORE [until-idle]\n");
        return 2;
    }
    const struct impel_worker_options options = {
        .stream = "orders",
        .group = "billing",
        .handler = on_order,
        .concurrency = 4,
        .until_idle = argc > 2,
        .event = on_event,
        .event_level = IMPEL_WARNING,
    };
    int rc = impel_store_open(argv[1], NULL, &store, &err);
    if (rc >= 0) {
        rc = impel_worker_new(store, &options, &worker, &err);
    }
    if (rc >= 0) {
        rc = impel_worker_run(worker, &err); /* until Ctrl-C */
    }
    if (rc < 0) {
        fprintf(stderr, "worker: %s\n", err.text);
    }
    impel_worker_free(worker);
    impel_store_close(store);
    return rc < 0 ? 1 : 0;
}
