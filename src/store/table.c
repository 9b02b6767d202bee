/* table.c -- all stores there are, one row each. */
#include "store/lmdb/embedded.h"
#include "store/redis/store.h"
#include "store/store.h"

const struct store_ops *const store_table[] = {
    &lmdb_store_ops,   &redis_store_ops,   &valkey_store_ops,
    &rediss_store_ops, &valkeys_store_ops, &unix_store_ops,
};
const size_t store_table_size = sizeof(store_table) / sizeof(store_table[0]);
