/* room.c -- how much adds may still take, so that what makes room always has some.
 *
 * Whoever acks, parks or trims writes pages before any become free. So adds end before the map does,
 * at ENV_ADDS_PERCENT of it; and before the disk does: blocks behind the end of the file are taken in
 * advance (fallocate, which leaves its size alone), and adds go no further than to ROOM of them.
 *
 *     0                          end of the pages               taken
 *     |--------- pages ----------|--- ROOM: not for adds ---|---|
 *
 * Where the disk gives no more, adds still use the pages that were freed in the file. What a failed
 * commit has written behind the end is no loss: those blocks stay the file's. On a filesystem that
 * cannot take blocks in advance, or that writes every block to a new place (btrfs, ZFS), nothing is
 * kept, and a full disk may refuse everything. Reading is not counted: it writes little, and without
 * it nothing could be acked. */
#include "store/lmdb/env.h"

#include <stdlib.h>
#include <string.h>

enum {
    COUNT_FREE_PERCENT = 90,
    ROOM_LEAST = 1 << 20, /* some thousand acks or parks of small entries, without any page free */
    ROOM_MOST = 16 << 20,
    ROOM_SHARE = 16,     /* of the file; in between */
    ROOM_AGAIN_MS = 500, /* after the disk had none; asking may be slow then */
};

/* The oldest transaction that somebody still reads: pages freed since cannot be used again. */
static int oldest_reader(const char *line, void *user)
{
    uint64_t *oldest = user;
    const char *last = strrchr(line, ' ');
    char *end = NULL;

    /* "pid thread txnid", a line of LMDB's own making; "-" for a reader that is at rest. */
    uint64_t number = last == NULL ? 0 : strtoull(last + 1, &end, 10);
    if (end != NULL && end != last + 1 && number < *oldest) {
        *oldest = number;
    }
    return 0;
}

/* How many pages below the end of the file can be used again. */
static uint64_t free_pages(struct lmdb_env *env)
{
    MDB_txn *txn = NULL;
    MDB_cursor *cursor = NULL;
    MDB_val key;
    MDB_val value;
    uint64_t oldest = UINT64_MAX;
    uint64_t count = 0;

    env_clear_readers(env, true);
    (void)mdb_reader_list(env->mdb, oldest_reader, &oldest);
    if (mdb_txn_begin(env->mdb, NULL, MDB_RDONLY, &txn) != 0) {
        return 0;
    }
    if (mdb_cursor_open(txn, 0, &cursor) == 0) {
        while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
            size_t number = 0;
            size_t pages = 0;
            if (key.mv_size == sizeof(number) && value.mv_size >= sizeof(pages)) {
                memcpy(&number, key.mv_data, sizeof(number));
                memcpy(&pages, value.mv_data, sizeof(pages));
                count += number < oldest ? pages : 0;
            }
        }
        mdb_cursor_close(cursor);
    }
    mdb_txn_abort(txn);
    return count;
}

static int64_t room_size(uint64_t used)
{
    uint64_t size = used / ROOM_SHARE;

    size = size < ROOM_LEAST ? ROOM_LEAST : size;
    return (int64_t)(size > ROOM_MOST ? ROOM_MOST : size);
}

/* Takes blocks up to `most`, or at least up to `least`. False: not up to `most`. */
static bool take(struct lmdb_env *env, int64_t least, int64_t most)
{
    int64_t now_ms = side_now_ms();
    int64_t from = atomic_load(&env->room_taken);

    if (most <= from) {
        return true;
    }
    if (now_ms < atomic_load(&env->room_again_ms)) {
        return false;
    }
    bool all = side_reserve(env->data_fd, (size_t)from, (size_t)(most - from)) == 0;
    if (all) {
        atomic_store(&env->room_taken, most);
        return true;
    }
    atomic_store(&env->room_again_ms, now_ms + ROOM_AGAIN_MS);
    if (least > from && side_reserve(env->data_fd, (size_t)from, (size_t)(least - from)) == 0) {
        atomic_store(&env->room_taken, least);
    }
    return false;
}

static int64_t map_room(const MDB_envinfo *info, uint64_t used, uint64_t reusable)
{
    uint64_t limit = info->me_mapsize / 100 * ENV_ADDS_PERCENT;

    used -= reusable;
    return used < limit ? (int64_t)(limit - used) : 0;
}

void room_begin(struct lmdb_env *env, struct lmdb_txn *txn)
{
    MDB_envinfo info;

    (void)mdb_env_info(env->mdb, &info);
    uint64_t used = ((uint64_t)info.me_last_pgno + 1) * env->page_size;
    int64_t kept = (int64_t)used + room_size(used);
    int64_t spare = room_size(used) / 2;
    bool map_low = used >= info.me_mapsize / 100 * COUNT_FREE_PERCENT;
    bool disk_low = false;
    if (env->data_fd >= 0) {
        if (atomic_load(&env->room_taken) < (int64_t)used) { /* the pages themselves are there */
            atomic_store(&env->room_taken, (int64_t)used);
        }
        /* In steps: a system call for every page by which the file grows would be felt. */
        if (atomic_load(&env->room_taken) < kept + spare / 2) {
            disk_low = !take(env, kept, kept + spare);
        }
    }
    uint64_t reusable = map_low || disk_low ? free_pages(env) * env->page_size : 0;
    if (map_low) {
        txn->add_bytes_left = map_room(&info, used, reusable);
    }
    if (env->data_fd >= 0) {
        txn->disk_bytes_left = atomic_load(&env->room_taken) - kept + (int64_t)reusable;
        txn->env = env;
    }
}

bool room_more(struct lmdb_txn *txn, int64_t size)
{
    struct lmdb_env *env = txn->env;

    if (env == NULL) {
        return false;
    }
    int64_t from = atomic_load(&env->room_taken);
    int64_t most = from + size + ROOM_LEAST;
    bool all = take(env, from + size, most);
    txn->disk_bytes_left += atomic_load(&env->room_taken) - from;
    return all || txn->disk_bytes_left >= size;
}
