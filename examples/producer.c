/* producer.c -- adds orders to a stream.
 *
 *     cc producer.c $(pkg-config --cflags --libs impel) -o producer
 *     ./producer lmdb:orders.db 1000
 *
 * Prints the ID of the last one. The stream is created by the first. */
#include <impel/impel.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct impel_bytes text(const char *text)
{
    return (struct impel_bytes){text, strlen(text)};
}

static int
add_order(struct impel_store *store, long number, struct impel_id *id, struct impel_error *err)
{
    char order_id[32];
    char amount[32];
    snprintf(order_id, sizeof order_id, "%ld", number);
    snprintf(amount, sizeof amount, "%ld.50", number % 100);
    const struct impel_field fields[] = {
        {text("order_id"), text(order_id)},
        {text("amount"), text(amount)},
    };
    return impel_add(store, text("orders"), fields, sizeof fields / sizeof fields[0], id, err);
}

int main(int argc, char **argv)
{
    struct impel_error err;
    struct impel_store *store = NULL;
    struct impel_id id = {0, 0};
    char id_text[IMPEL_ID_TEXT_SIZE];
    if (argc != 3) {
        fprintf(stderr, "usage: producer STORE COUNT\n");
        return 2;
    }
    long count = strtol(argv[2], NULL, 10);
    int rc = impel_store_open(argv[1], NULL, &store, &err);
    for (long number = 1; number <= count && rc >= 0; number++) {
        rc = add_order(store, number, &id, &err);
    }
    if (rc < 0) {
        fprintf(stderr, "producer: %s\n", err.text);
    } else {
        printf("%s\n", impel_id_format(id, id_text));
    }
    impel_store_close(store);
    return rc < 0 ? 1 : 0;
}
