/* rows.c -- one table of all commands, the server's own and the store's, found by hash.
 *
 * The server's rows win: PING of a server closes over the connection, the store's does not. */
#include "server/state.h"
#include "store/lmdb/command/call.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static size_t slot_of(const struct row_table *table, struct impel_bytes name)
{
    return (size_t)hash_bytes(name, 0) & (table->slot_count - 1);
}

struct row *row_find(const struct row_table *table, struct impel_bytes name)
{
    for (size_t at = slot_of(table, name);; at = (at + 1) & (table->slot_count - 1)) {
        if (table->slots[at] == 0) {
            return NULL;
        }
        struct row *row = &table->rows[table->slots[at] - 1];
        if (row->name_size == name.size && memcmp(row->name, name.data, name.size) == 0) {
            return row;
        }
    }
}

static void row_add(struct row_table *table, const struct row *row)
{
    struct impel_bytes name = bytes_of(row->name);
    size_t at = slot_of(table, name);

    if (row_find(table, name) != NULL) {
        return;
    }
    while (table->slots[at] != 0) {
        at = (at + 1) & (table->slot_count - 1);
    }
    table->rows[table->count] = *row;
    table->rows[table->count++].name_size = name.size;
    table->slots[at] = (uint16_t)table->count;
}

static bool touches(const char *name)
{
    static const char *const names[] = {"set",     "rename",   "renamenx",  "restore", "expire",
                                        "pexpire", "expireat", "pexpireat", "persist"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void row_add_stored(struct row_table *table, const struct command *command)
{
    struct row row = {
        .arity = command->arity,
        .flags = ((command->flags & COMMAND_WRITES) != 0 ? ROW_WRITES : 0) |
                 ((command->flags & COMMAND_MAY_BLOCK) != 0 ? ROW_MAY_BLOCK : 0) |
                 ((command->flags & COMMAND_CONTAINER) != 0 ? ROW_CONTAINER : 0) |
                 ((command->flags & COMMAND_SUBCOMMAND) != 0 ? ROW_SUBCOMMAND : 0),
        .key_first = command->key_first,
        .key_last = command->key_last,
        .key_step = command->key_step,
        .command = command,
    };

    ASSERT(strlen(command->name) < sizeof(row.name));
    memcpy(row.name, command->name, strlen(command->name));
    if (strstr(row.name, "expire") != NULL || strcmp(row.name, "copy") == 0 ||
        strcmp(row.name, "restore") == 0) {
        row.flags |= ROW_EXPIRES;
    }
    row.flags |= touches(row.name) ? ROW_TOUCHES : 0;
    row_add(table, &row);
    for (const struct command *sub = command->subcommands; sub != NULL && sub->name != NULL;
         sub++) {
        row_add_stored(table, sub);
    }
}

static size_t count_stored(const struct command *command)
{
    size_t count = 0;

    for (; command != NULL && command->name != NULL; command++) {
        count += 1 + count_stored(command->subcommands);
    }
    return count;
}

static void row_add_native(struct row_table *table, const struct native *native)
{
    /* The keys are where their number says; a step that signals anything signals all. */
    struct row row = {.arity = -7 - native->words_min,
                      .flags = native->writes ? ROW_WRITES : 0,
                      .native = native};

    ASSERT(strlen(native->name) < sizeof(row.name));
    memcpy(row.name, native->name, strlen(native->name));
    row_add(table, &row);
}

int row_table_init(struct row_table *table)
{
    size_t count = count_stored(lmdb_command_table);

    for (const struct native *native = native_table; native->name != NULL; native++) {
        count++;
    }

    for (const struct row_spec *spec = row_specs; spec->name != NULL; spec++) {
        count++;
    }
    ASSERT(count > 0);
    table->slot_count = 64;
    while (table->slot_count < count * 2) {
        table->slot_count *= 2;
    }
    table->rows = calloc(count, sizeof(*table->rows));
    table->slots = calloc(table->slot_count, sizeof(*table->slots));
    if (table->rows == NULL || table->slots == NULL) {
        return IMPEL_ERR_NOMEM;
    }
    for (const struct row_spec *spec = row_specs; spec->name != NULL; spec++) {
        int keys = (spec->flags & ROW_KEYS) != 0;
        struct row row = {.arity = spec->arity,
                          .flags = spec->flags,
                          .key_first = keys,
                          .key_last = -keys,
                          .key_step = keys,
                          .run = spec->run};
        ASSERT(strlen(spec->name) < sizeof(row.name));
        memcpy(row.name, spec->name, strlen(spec->name));
        row_add(table, &row);
    }
    for (const struct command *command = lmdb_command_table; command->name != NULL; command++) {
        row_add_stored(table, command);
    }
    for (const struct native *native = native_table; native->name != NULL; native++) {
        row_add_native(table, native);
    }
    return IMPEL_OK;
}

void row_table_release(struct row_table *table)
{
    free(table->rows);
    free(table->slots);
    *table = (struct row_table){.rows = NULL};
}

/* ---- finding what was typed ---- */

enum {
    QUOTED_SIZE_MAX = 128, /* of what was typed, an error text shows about this much */
};

/* How much of a word an error text shows: up to a NUL, as C prints it. */
static int shown_size(struct impel_bytes word)
{
    size_t size = word.size == 0 ? 0 : strnlen(word.data, word.size);
    return (int)(size > QUOTED_SIZE_MAX ? QUOTED_SIZE_MAX : size);
}

static const char *shown(struct impel_bytes word)
{
    return word.size == 0 ? "" : word.data;
}

static void error_unknown(struct server *server,
                          const struct impel_bytes *args,
                          size_t arg_count,
                          struct buf *out)
{
    char rest[QUOTED_SIZE_MAX * 2] = "";
    size_t used = 0;

    for (size_t i = 1; i < arg_count && used < QUOTED_SIZE_MAX; i++) {
        int size = shown_size(args[i]), room = QUOTED_SIZE_MAX - (int)used;
        used += (size_t)snprintf(rest + used, sizeof(rest) - used, "'%.*s' ",
                                 size < room ? size : room, shown(args[i]));
    }
    turn_error(server, out, "ERR unknown command '%.*s', with args beginning with: %s",
               shown_size(args[0]), shown(args[0]), rest);
}

const char *row_container_upper(const struct row *row, char *upper)
{
    size_t i = 0;

    for (; row->name[i] != '\0' && row->name[i] != '|'; i++) {
        upper[i] = (char)(toupper)((unsigned char)row->name[i]); /* in brackets: no macro */
    }
    upper[i] = '\0';
    return upper;
}

static void error_unknown_subcommand(struct server *server,
                                     const struct row *row,
                                     struct impel_bytes typed,
                                     struct buf *out)
{
    char upper[ROW_NAME_SIZE];

    turn_error(server, out, "ERR unknown subcommand '%.*s'. Try %s HELP.", shown_size(typed),
               shown(typed), row_container_upper(row, upper));
}

static bool lower_word(struct impel_bytes word, char *at, size_t room)
{
    if (word.size >= room) {
        return false;
    }
    for (size_t i = 0; i < word.size; i++) {
        at[i] = (char)(tolower)(((const unsigned char *)word.data)[i]);
    }
    return true;
}

static bool arity_fits(const struct row *row, size_t arg_count)
{
    size_t words = (size_t)abs(row->arity);
    return row->arity < 0 ? arg_count >= words : arg_count == words;
}

struct row *
row_for(struct server *server, const struct impel_bytes *args, size_t arg_count, struct buf *out)
{
    char name[ROW_NAME_SIZE * 2];
    size_t size = args[0].size;
    struct row *row = NULL;

    if (lower_word(args[0], name, ROW_NAME_SIZE)) {
        row = row_find(&server->rows, (struct impel_bytes){name, size});
    }
    if (row == NULL || (row->flags & ROW_SUBCOMMAND) != 0) {
        error_unknown(server, args, arg_count, out);
        return NULL;
    }
    if ((row->flags & ROW_CONTAINER) != 0 && arg_count >= 2) {
        struct row *container = row;
        name[size] = '|';
        row = lower_word(args[1], name + size + 1, ROW_NAME_SIZE)
                  ? row_find(&server->rows, (struct impel_bytes){name, size + 1 + args[1].size})
                  : NULL;
        if (row == NULL) {
            error_unknown_subcommand(server, container, args[1], out);
            return NULL;
        }
    }
    if (!arity_fits(row, arg_count)) {
        row->rejected++;
        turn_error(server, out, "%s wrong number of arguments for '%s' command",
                   (row->flags & ROW_IS_EXEC) == 0 ? "ERR"
                                                   : "EXECABORT Transaction discarded because of:",
                   row->name);
        return NULL;
    }
    return row;
}

/* ---- keys ---- */

/* XREAD and XREADGROUP: what stands between STREAMS and the middle of the rest. */
static bool
stream_keys(const struct impel_bytes *args, size_t arg_count, size_t *first, size_t *count)
{
    for (size_t i = 1; i < arg_count; i++) {
        if (bytes_equal_nocase(args[i], "STREAMS")) {
            *first = i + 1;
            *count = (arg_count - i - 1) / 2;
            return *count > 0;
        }
        if (bytes_equal_nocase(args[i], "GROUP")) {
            i += 2;
        } else if (!bytes_equal_nocase(args[i], "NOACK")) {
            i++;
        }
    }
    return false;
}

bool row_keys(const struct row *row,
              const struct impel_bytes *args,
              size_t arg_count,
              void (*each)(void *user, struct impel_bytes key),
              void *user)
{
    size_t first = (size_t)row->key_first, step = 1, count = 0;

    if ((row->flags & ROW_MAY_BLOCK) != 0 && row->key_first == 0) {
        if (!stream_keys(args, arg_count, &first, &count)) {
            return false;
        }
    } else if (row->key_first <= 0) {
        return false;
    } else {
        size_t last =
            row->key_last < 0 ? arg_count - (size_t)-row->key_last : (size_t)row->key_last;
        step = row->key_step > 0 ? (size_t)row->key_step : 1;
        count = last >= first ? (last - first) / step + 1 : 0;
    }
    for (size_t i = 0; i < count && first + i * step < arg_count; i++) {
        each(user, args[first + i * step]);
    }
    return true;
}
