/* check.c -- verifying what the rows say: the catalog first, into sorted tables of objects, then
 * every other row against them.
 *
 * Memory goes with the number of streams, groups and consumers, not with entries. */
#include "store/lmdb/check.h"

#include "store/lmdb/check_own.h"
#include "store/lmdb/env.h"
#include "store/lmdb/pages.h"

#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void check_problem(struct checking *checking, const char *format, ...)
{
    char text[256];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (checking->counts.problems++ == 0) {
        error_set(checking->first, IMPEL_ERR_CORRUPT, "%s", text);
    }
    if (checking->report != NULL && !checking->report(checking->user, text)) {
        checking->stop = true;
    }
}

/* ---- objects ---- */

/* Rows come by number, so tables are sorted as they grow. */
struct seen *check_add(struct checking *checking, struct table *table, uint64_t number)
{
    if (table->count == table->room) {
        size_t room = table->room == 0 ? 64 : table->room * 2;
        struct seen *items = realloc(table->items, room * sizeof(*items));
        if (items == NULL) {
            checking->status = IMPEL_ERR_NOMEM;
            return NULL;
        }
        table->items = items;
        table->room = room;
    }
    struct seen *seen = &table->items[table->count++];
    *seen = (struct seen){.number = number};
    return seen;
}

struct seen *check_find(const struct table *table, uint64_t number)
{
    size_t low = 0;
    size_t high = table->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->items[middle].number < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < table->count && table->items[low].number == number ? &table->items[low] : NULL;
}

static void object_stream(struct checking *checking, uint64_t number, MDB_val value)
{
    struct disk_stream disk;
    struct seen *seen = check_add(checking, &checking->streams, number);

    if (seen == NULL) {
        return;
    }
    memcpy(&disk, value.mv_data, sizeof(disk));
    seen->said = disk.length;
    seen->children_said = disk.group_count;
    seen->nodes_said = disk.node_count;
    seen->first = (struct impel_id){disk.first_ms, disk.first_seq};
    seen->last = (struct impel_id){disk.last_ms, disk.last_seq};
    seen->tail = disk.tail;
    seen->tail_first = (struct impel_id){disk.tail_ms, disk.tail_seq};
    if (disk.entries_added < disk.length) {
        check_problem(checking, "stream %llu: fewer entries were added than it has",
                      NUMBER(number));
    }
}

static void object_group(struct checking *checking, uint64_t number, MDB_val value)
{
    struct disk_group disk;
    struct seen *seen = check_add(checking, &checking->groups, number);

    if (seen == NULL) {
        return;
    }
    memcpy(&disk, value.mv_data, sizeof(disk));
    seen->parent = disk.stream;
    seen->said = disk.pending;
    seen->children_said = disk.consumers_and_flags & DISK_GROUP_CONSUMERS;
    seen->ordered = (disk.consumers_and_flags & DISK_GROUP_ORDERED) != 0;
}

static void object_consumer(struct checking *checking, uint64_t number, MDB_val value)
{
    struct disk_consumer disk;
    struct seen *seen = check_add(checking, &checking->consumers, number);

    if (seen == NULL) {
        return;
    }
    memcpy(&disk, value.mv_data, sizeof(disk));
    seen->parent = disk.group;
    seen->said = disk.pending;
}

static void check_object(struct checking *checking, MDB_val key, MDB_val value)
{
    static const struct {
        char letter;
        size_t size;
        void (*take)(struct checking *checking, uint64_t number, MDB_val value);
    } kinds[] = {
        {'C', sizeof(struct disk_consumer), object_consumer},
        {'G', sizeof(struct disk_group), object_group},
        {'s', sizeof(struct disk_stream), object_stream},
    };
    const uint8_t *bytes = key.mv_data;

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (bytes[0] != (uint8_t)kinds[i].letter) {
            continue;
        }
        if (key.mv_size != 9 || value.mv_size < kinds[i].size) {
            check_problem(checking, "catalog: a row '%c' is damaged", kinds[i].letter);
            return;
        }
        uint64_t number = get_be64(bytes + 1);
        if (number < NUMBER_FIRST || number >= checking->meta.next_number) {
            check_problem(checking, "catalog: object %llu was never made", NUMBER(number));
        }
        kinds[i].take(checking, number, value);
    }
    check_newer_object(checking, key, value);
    check_other_object(checking, key, value);
}

/* ---- names ---- */

/* The name in an object's row has to lead to the key under which it was found. */
static bool name_leads(struct checking *checking, char letter, uint64_t number, MDB_val key)
{
    char kind = 'C';
    size_t head = letter == 'k'   ? sizeof(struct disk_stream)
                  : letter == 'g' ? sizeof(struct disk_group)
                                  : sizeof(struct disk_consumer);
    struct lmdb_key object;
    struct lmdb_key want;
    MDB_val value;

    if (letter != 'c') {
        kind = letter == 'k' ? 's' : 'G';
    }
    key_of_number(&object, kind, number);
    if (row_get(checking->txn, DB_CATALOG, (MDB_val){object.size, object.data}, &value) < 0 ||
        value.mv_size < head) {
        return false;
    }
    struct impel_bytes name = {(const uint8_t *)value.mv_data + head, value.mv_size - head};
    key_of_name(&want, letter, letter == 'k' ? 0 : get_be64((const uint8_t *)key.mv_data + 1),
                name);
    return want.size == key.mv_size && memcmp(want.data, key.mv_data, key.mv_size) == 0;
}

static void name_of(struct checking *checking, char letter, MDB_val key, MDB_val value)
{
    bool group = letter == 'g';
    struct table *table = group ? &checking->groups : &checking->consumers;
    struct table *parents = group ? &checking->streams : &checking->groups;
    uint64_t number = 0;

    if (key.mv_size < 9 || value.mv_size != sizeof(number)) {
        check_problem(checking, "catalog: a name '%c' is damaged", letter);
        return;
    }
    memcpy(&number, value.mv_data, sizeof(number));
    uint64_t parent_number = get_be64((const uint8_t *)key.mv_data + 1);
    struct seen *seen = check_find(table, number);
    struct seen *parent = check_find(parents, parent_number);
    if (seen == NULL || parent == NULL || seen->parent != parent_number) {
        check_problem(checking, "catalog: a name leads to %s %llu, which is not there",
                      group ? "group" : "consumer", NUMBER(number));
        return;
    }
    seen->names++;
    parent->children++;
    if (!name_leads(checking, letter, number, key)) {
        check_problem(checking, "%s %llu is found under a name that is not its own",
                      group ? "group" : "consumer", NUMBER(number));
    }
}

static void name_key(struct checking *checking, MDB_val key, MDB_val value)
{
    struct disk_key disk;
    struct lmdb_key want;

    checking->keys++;
    if (value.mv_size < sizeof(disk)) {
        check_problem(checking, "catalog: a key's row is damaged");
        return;
    }
    memcpy(&disk, value.mv_data, sizeof(disk));
    struct impel_bytes name = {(const uint8_t *)value.mv_data + sizeof(disk),
                               value.mv_size - sizeof(disk)};
    checking->expiring += disk.expires_ms != 0;
    key_of_name(&want, 'k', 0, name);
    if (want.size != key.mv_size || memcmp(want.data, key.mv_data, key.mv_size) != 0) {
        check_problem(checking, "a key is found under a name that is not its own");
    }
    if (disk.kind == LMDB_KEY_STREAM) {
        struct seen *seen = check_find(&checking->streams, disk.number);
        if (seen == NULL) {
            check_problem(checking, "a key leads to stream %llu, which is not there",
                          NUMBER(disk.number));
            return;
        }
        seen->names++;
        if (!name_leads(checking, 'k', disk.number, key)) {
            check_problem(checking, "stream %llu is found under a name that is not its own",
                          NUMBER(disk.number));
        }
    } else if (disk.kind == LMDB_KEY_NONE || disk.kind > LMDB_KEY_SET) {
        check_problem(checking, "a key of the unknown kind %u", disk.kind);
    } else {
        check_other_key(checking, &disk);
    }
}

/* 'x' time number -> NAME: the key must say the same. */
static void check_expiry(struct checking *checking, MDB_val key, MDB_val value)
{
    const uint8_t *at = key.mv_data;
    struct disk_key disk = {.kind = 0};
    struct lmdb_key name;
    MDB_val row;

    key_of_name(&name, 'k', 0, (struct impel_bytes){value.mv_data, value.mv_size});
    if (key.mv_size == 17 &&
        row_get(checking->txn, DB_CATALOG, (MDB_val){name.size, name.data}, &row) >= 0 &&
        row.mv_size >= sizeof(disk)) {
        memcpy(&disk, row.mv_data, sizeof(disk));
    }
    if (disk.kind == 0 || disk.expires_ms != (int64_t)get_be64(at + 1) ||
        disk.number != get_be64(at + 9)) {
        check_problem(checking, "a row tells when a key expires that does not say so");
        return;
    }
    checking->expiring--;
}

static void check_name(struct checking *checking, MDB_val key, MDB_val value)
{
    switch (*(const uint8_t *)key.mv_data) {
    case 'k':
        name_key(checking, key, value);
        break;
    case 'x':
        check_expiry(checking, key, value);
        break;
    case 'g':
    case 'c':
        name_of(checking, (char)*(const uint8_t *)key.mv_data, key, value);
        break;
    case 'a':
        check_version(checking, LMDB_FORMAT_CARRIED_ROWS);
        if (key.mv_size != 25 || value.mv_size != 8 ||
            check_find(&checking->groups, get_be64((const uint8_t *)key.mv_data + 1)) == NULL) {
            check_problem(checking, "catalog: attempts of an entry without a group");
        }
        break;
    case 'f':
        check_version(checking, LMDB_FORMAT_FLOOR_ROWS);
        if (key.mv_size < 9 || value.mv_size != 16 ||
            check_find(&checking->streams, get_be64((const uint8_t *)key.mv_data + 1)) == NULL) {
            check_problem(checking, "the floor of a group that was destroyed is damaged");
        }
        break;
    case 'r':
        check_version(checking, LMDB_FORMAT_REDO_AREA);
        if (key.mv_size != 1 || value.mv_size <= 2 * (size_t)REDO_SLOT_SIZE) {
            check_problem(checking, "the area for records is damaged");
        }
        break;
    case 'm':
    case 's':
    case 'G':
    case 'C':
        break;
    default:
        if (!check_newer_row(checking, key, value) && !check_other_row(checking, key, value) &&
            !check_bitmap(checking, key, value)) {
            check_problem(checking, "catalog: a row of an unknown kind");
        }
        break;
    }
}

/* ---- rows ---- */

static void check_entry(struct checking *checking, MDB_val key, MDB_val value)
{
    struct seen *stream = check_find(&checking->streams, get_be64(key.mv_data));
    struct impel_bytes bytes = {value.mv_data, value.mv_size};
    const uint8_t *sizes = NULL;
    char text[ID_TEXT_SIZE];
    struct arena arena = {0};

    if (stream == NULL) {
        check_problem(checking, "an entry of stream %llu, which is not there",
                      NUMBER(get_be64(key.mv_data)));
        return;
    }
    struct impel_id id = get_id((const uint8_t *)key.mv_data + 8);
    if (stream->counted++ == 0 && !id_equal(id, stream->first)) {
        check_problem(checking, "stream %llu: its first entry is %s, it says another",
                      NUMBER(stream->number), id_format(id, text));
    }
    if (id_compare(id, stream->last) > 0) {
        check_problem(checking, "stream %llu: entry %s is above its last ID",
                      NUMBER(stream->number), id_format(id, text));
    }
    int64_t count = fields_count(bytes, &sizes);
    struct impel_field *fields =
        count < 0 ? NULL : arena_calloc(&arena, (size_t)count, sizeof(*fields));
    if (fields == NULL || !fields_read(bytes, sizes, fields, (size_t)count)) {
        check_problem(checking, "stream %llu: entry %s is damaged", NUMBER(stream->number),
                      id_format(id, text));
    }
    arena_release(&arena);
    checking->counts.entries++;
}

/* Counts the entries of a node, which begins behind the one before. */
static void check_node_of(struct checking *checking,
                          struct seen *stream,
                          struct impel_id first,
                          const struct disk_node *node)
{
    uint8_t start[ROW_KEY_SIZE];
    MDB_val key = {sizeof(start), start};
    MDB_val value;
    MDB_cursor *cursor = NULL;
    uint64_t live = 0;
    struct impel_id last = {node->last_ms, node->last_seq};
    char text[ID_TEXT_SIZE];

    row_key(start, stream->number, first);
    if (mdb_cursor_open(checking->txn->mdb, checking->txn->dbi[DB_ENTRIES], &cursor) != 0) {
        checking->status = IMPEL_ERR_NOMEM;
        return;
    }
    int code = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    while (code == 0 && key.mv_size == ROW_KEY_SIZE && memcmp(key.mv_data, start, 8) == 0 &&
           id_compare(get_id((const uint8_t *)key.mv_data + 8), last) <= 0) {
        live++;
        code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    if (id_compare(last, first) < 0 ||
        (stream->in_nodes > 0 && id_compare(first, stream->nodes_end) <= 0)) {
        check_problem(checking, "stream %llu: the node at %s is out of place",
                      NUMBER(stream->number), id_format(first, text));
    }
    stream->nodes_end = last;
    stream->in_nodes += live;
    if (live != node->live || node->total == 0 || node->total < node->live) {
        check_problem(checking, "stream %llu: the node at %s has %llu entries and counts %u",
                      NUMBER(stream->number), id_format(first, text), NUMBER(live), node->live);
    }
}

static void check_node(struct checking *checking, MDB_val key, MDB_val value)
{
    struct seen *stream = check_find(&checking->streams, get_be64(key.mv_data));
    struct disk_node disk;

    if (stream == NULL || value.mv_size != sizeof(disk)) {
        check_problem(checking, "a node of stream %llu, which is not there or damaged",
                      NUMBER(get_be64(key.mv_data)));
        return;
    }
    memcpy(&disk, value.mv_data, sizeof(disk));
    stream->nodes++;
    check_node_of(checking, stream, get_id((const uint8_t *)key.mv_data + 8), &disk);
}

/* ---- the whole ---- */

static void each_row(struct checking *checking,
                     enum lmdb_database db,
                     void (*take)(struct checking *checking, MDB_val key, MDB_val value))
{
    MDB_cursor *cursor = NULL;
    MDB_val key;
    MDB_val value;
    int code = checking->status < 0
                   ? MDB_NOTFOUND
                   : mdb_cursor_open(checking->txn->mdb, checking->txn->dbi[db], &cursor);

    while (code == 0 && !checking->stop && checking->status >= 0) {
        code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
        if (code == 0 && (key.mv_size == 0 || (db != DB_CATALOG && key.mv_size != ROW_KEY_SIZE))) {
            check_problem(checking, "%s: a key is damaged", lmdb_database_names[db]);
        } else if (code == 0) {
            take(checking, key, value);
        }
    }
    if (code != 0 && code != MDB_NOTFOUND) {
        check_problem(checking, "%s: %s", lmdb_database_names[db], mdb_strerror(code));
    }
    if (cursor != NULL) {
        mdb_cursor_close(cursor);
    }
}

void check_counts_of(struct checking *checking, const struct table *table, const char *kind)
{
    for (size_t i = 0; i < table->count && !checking->stop; i++) {
        struct seen *seen = &table->items[i];
        if (seen->names != 1) {
            check_problem(checking, "%s %llu is reached by %u names", kind, NUMBER(seen->number),
                          seen->names);
        }
        if (seen->said != seen->counted) {
            check_problem(checking, "%s %llu counts %llu, there are %llu", kind,
                          NUMBER(seen->number), NUMBER(seen->said), NUMBER(seen->counted));
        }
        if (seen->children_said != seen->children) {
            check_problem(checking, "%s %llu counts %llu below it, there are %llu", kind,
                          NUMBER(seen->number), NUMBER(seen->children_said),
                          NUMBER(seen->children));
        }
        if (seen->tail.total > 0) {
            check_node_of(checking, seen, seen->tail_first, &seen->tail);
        }
        if (seen->nodes_said != seen->nodes + (seen->tail.total > 0)) {
            check_problem(checking, "stream %llu counts %llu nodes, there are %llu",
                          NUMBER(seen->number), NUMBER(seen->nodes_said), NUMBER(seen->nodes));
        }
    }
}

/* Trimming goes by nodes: what is in none of them would stay for ever. */
static void check_in_nodes(struct checking *checking)
{
    for (size_t i = 0; i < checking->streams.count && !checking->stop; i++) {
        const struct seen *stream = &checking->streams.items[i];
        if (stream->in_nodes != stream->counted) {
            check_problem(checking, "stream %llu has %llu entries and %llu in its nodes",
                          NUMBER(stream->number), NUMBER(stream->counted),
                          NUMBER(stream->in_nodes));
        }
    }
}

static void check_all(struct checking *checking)
{
    if (catalog_meta(checking->txn) < 0) {
        check_problem(checking, "catalog: the file's own row is missing or damaged");
        return;
    }
    checking->meta = checking->txn->meta;
    each_row(checking, DB_CATALOG, check_object);
    each_row(checking, DB_CATALOG, check_name);
    each_row(checking, DB_ENTRIES, check_entry);
    each_row(checking, DB_NODES, check_node);
    each_row(checking, DB_PEL, check_pending);
    each_row(checking, DB_OWNED, check_owned);
    if (checking->status < 0 || checking->stop) {
        return;
    }
    check_counts_of(checking, &checking->streams, "stream");
    check_in_nodes(checking);
    check_counts_of(checking, &checking->groups, "group");
    check_counts_of(checking, &checking->consumers, "consumer");
    check_newer_counts(checking);
    check_other_counts(checking);
    if (checking->expiring != 0) {
        check_problem(checking, "keys that expire and rows that tell when differ in number");
    }
    if (checking->keys != checking->meta.key_count) {
        check_problem(checking, "the file counts %llu keys, there are %llu",
                      NUMBER(checking->meta.key_count), NUMBER(checking->keys));
    }
}

/* In `txn`; counts what there is. */
static int check_in(struct lmdb_txn *txn, struct checking *checking, struct impel_error *err)
{
    struct impel_error first = {0};

    checking->txn = txn;
    checking->first = &first;
    check_all(checking);
    checking->txn = NULL;
    checking->first = NULL;
    checking->counts.streams = checking->streams.count;
    checking->counts.groups = checking->groups.count;
    checking->counts.consumers = checking->consumers.count;
    free(checking->streams.items);
    free(checking->groups.items);
    free(checking->consumers.items);
    free(checking->producers.items);
    free(checking->idmps.items);
    free(checking->others.items);
    if (checking->counts.problems > 0) {
        return error_set(err, IMPEL_ERR_CORRUPT, "%s", first.text);
    }
    return checking->status < 0 ? error_set(err, checking->status, "out of memory") : IMPEL_OK;
}

int check_transaction(struct lmdb_txn *txn,
                      lmdb_check_report report,
                      void *user,
                      struct impel_error *err)
{
    struct checking checking = {.report = report, .user = user};
    return check_in(txn, &checking, err);
}

static int check_rows(struct lmdb_env *env, struct checking *checking, struct impel_error *err)
{
    struct lmdb_txn txn;
    MDB_txn *mdb = NULL;
    int rc = env_begin_read(env, &mdb, &txn, err);

    if (rc < 0) {
        return rc;
    }
    rc = check_in(&txn, checking, err);
    lmdb_txn_release(&txn);
    mdb_txn_abort(mdb);
    return rc;
}

int check_contents(struct lmdb_env *env,
                   lmdb_check_report report,
                   void *user,
                   struct impel_error *err)
{
    struct checking checking = {.report = report, .user = user};
    return check_rows(env, &checking, err);
}

/* What a power cut left torn is no damage. */
static int recover(struct side *side, const char *path, struct impel_error *err)
{
    struct redo redo = {0};
    int rc = IMPEL_OK;
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd >= 0 && !files_held(fd)) {
        rc = redo_recover(&redo, side->header, fd, path, err);
    }
    redo_free(&redo);
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

/* The pages, if nobody writes them: 0 = they are whole, or cannot be looked at now. */
static int check_pages(const char *path, struct impel_error *err)
{
    char side_path[PATH_MAX];
    struct side side;

    if (snprintf(side_path, sizeof(side_path), "%s-wake", path) >= (int)sizeof(side_path)) {
        return error_set(err, IMPEL_ERR_LIMIT, "the path is too long");
    }
    int rc = side_open(&side, side_path, SIDE_SYNC_KEEP, err);
    if (rc < 0) {
        return rc;
    }
    if (side_alone(&side)) {
        rc = recover(&side, path, err);
        rc = rc < 0 ? rc : pages_check(path, err);
    }
    side_close(&side);
    return rc;
}

int lmdb_check(const char *path,
               lmdb_check_report report,
               void *user,
               struct lmdb_check_counts *counts,
               struct impel_error *err)
{
    char file[PATH_MAX];
    struct checking checking = {.report = report, .user = user};
    struct env_options options = {.path = file, .sync = SIDE_SYNC_KEEP, .must_exist = true};
    struct lmdb_env *env = NULL;
    struct impel_error found = {0};
    struct stat st;

    if (stat(path, &st) < 0) {
        return error_set(err, errno == ENOENT ? IMPEL_ERR_NOT_FOUND : IMPEL_ERR_IO, "%s: %s", path,
                         strerror(errno));
    }
    int rc = env_follow(path, file, err);
    rc = rc < 0 ? rc : env_check_folder(file, err);
    rc = rc < 0 ? rc : env_check_file(file, err);
    if (rc < 0) {
        return rc;
    }
    rc = check_pages(file, &found);
    rc = rc < 0 ? rc : env_open(&options, &env, &found);
    if (rc == IMPEL_ERR_CORRUPT) {
        struct impel_error same = found;
        checking.first = &found;
        check_problem(&checking, "%s", same.text);
    } else if (rc >= 0) {
        rc = check_rows(env, &checking, &found);
    }
    env_close(env);
    if (counts != NULL) {
        *counts = checking.counts;
    }
    return rc < 0 ? error_set(err, rc, "%s", found.text) : IMPEL_OK;
}
