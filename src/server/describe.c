/* describe.c -- COMMAND: the table of commands, told to clients.
 *
 * Redis tells more of each command (categories, tips, key specifications). Clients use the names,
 * the number of words, the flags and where the keys are; the rest is empty here. */
#include "base/glob.h"
#include "server/own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_shown(const struct row *row)
{
    return (row->flags & ROW_SUBCOMMAND) == 0;
}

static size_t count_shown(const struct row_table *table)
{
    size_t count = 0;

    for (size_t i = 0; i < table->count; i++) {
        count += is_shown(&table->rows[i]);
    }
    return count;
}

static bool is_sub_of(const struct row *sub, const struct row *row)
{
    size_t size = strlen(row->name);
    return strncmp(sub->name, row->name, size) == 0 && sub->name[size] == '|';
}

static void put_flags(struct serve *serve, const struct row *row)
{
    static const struct {
        unsigned flag;
        const char *name;
    } names[] = {{ROW_WRITES, "write"},
                 {ROW_MAY_BLOCK, "blocking"},
                 {ROW_ADMIN, "admin"},
                 {ROW_NO_AUTH, "no_auth"},
                 {ROW_NOT_QUEUED, "no_multi"}};
    bool reads = row->key_first > 0 && (row->flags & ROW_WRITES) == 0 && row->run == NULL;
    size_t count = reads;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        count += (row->flags & names[i].flag) != 0;
    }
    resp_put_set(serve->out, count, serve->version);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if ((row->flags & names[i].flag) != 0) {
            resp_put_status(serve->out, bytes_of(names[i].name));
        }
    }
    if (reads) {
        resp_put_status(serve->out, bytes_of("readonly"));
    }
}

static void put_row(struct serve *serve, const struct row *row)
{
    struct buf *out = serve->out;
    const struct row_table *table = &serve->server->rows;
    size_t subs = 0;

    resp_put_array(out, 10);
    resp_put_text(out, row->name);
    resp_put_number(out, row->arity);
    put_flags(serve, row);
    resp_put_number(out, row->key_first);
    resp_put_number(out, row->key_last);
    resp_put_number(out, row->key_step);
    resp_put_set(out, 0, serve->version);
    resp_put_set(out, 0, serve->version);
    resp_put_set(out, 0, serve->version);
    for (size_t i = 0; i < table->count; i++) {
        subs += is_sub_of(&table->rows[i], row);
    }
    resp_put_array(out, subs);
    for (size_t i = 0; i < table->count && subs > 0; i++) {
        if (is_sub_of(&table->rows[i], row)) {
            put_row(serve, &table->rows[i]);
        }
    }
}

/* False: it is longer than any name. */
static bool lower_name(struct impel_bytes word, char name[ROW_NAME_SIZE])
{
    if (word.size >= ROW_NAME_SIZE) {
        return false;
    }
    for (size_t i = 0; i < word.size; i++) {
        char c = ((const char *)word.data)[i];
        name[i] = (char)(c >= 'A' && c <= 'Z' ? c + 'a' - 'A' : c);
    }
    return true;
}

/* The row of a name as typed, NULL if there is none. */
static const struct row *find_typed(struct serve *serve, struct impel_bytes word)
{
    char name[ROW_NAME_SIZE];

    return lower_name(word, name)
               ? row_find(&serve->server->rows, (struct impel_bytes){name, word.size})
               : NULL;
}

void command_command(struct serve *serve)
{
    const struct row_table *table = &serve->server->rows;

    resp_put_array(serve->out, count_shown(table));
    for (size_t i = 0; i < table->count; i++) {
        if (is_shown(&table->rows[i])) {
            put_row(serve, &table->rows[i]);
        }
    }
}

void command_command_count(struct serve *serve)
{
    resp_put_number(serve->out, (int64_t)count_shown(&serve->server->rows));
}

/* What COMMAND LIST filters by; the pattern is NULL for all but subcommands. */
struct list_filter {
    bool none; /* nothing here has a module or a category */
    struct impel_bytes pattern;
};

static bool list_has(const struct list_filter *filter, const struct row *row)
{
    return !filter->none &&
           (filter->pattern.data == NULL ? is_shown(row)
                                         : glob_matches(filter->pattern, bytes_of(row->name)));
}

/* False: an error was appended. */
static bool list_parse(struct serve *serve, char *pattern, struct list_filter *filter)
{
    if (serve->arg_count == 2) {
        return true;
    }
    if (serve->arg_count != 5 || !own_word_is(serve, 2, "FILTERBY")) {
        own_error_syntax(serve);
        return false;
    }
    if (own_word_is(serve, 3, "PATTERN")) {
        filter->none = !lower_name(serve->args[4], pattern);
        filter->pattern = (struct impel_bytes){pattern, serve->args[4].size};
    } else if (own_word_is(serve, 3, "MODULE") || own_word_is(serve, 3, "ACLCAT")) {
        filter->none = true;
    } else {
        own_error_syntax(serve);
        return false;
    }
    return true;
}

void command_command_list(struct serve *serve)
{
    const struct row_table *table = &serve->server->rows;
    struct list_filter filter = {.none = false};
    char pattern[ROW_NAME_SIZE];
    size_t count = 0;

    if (!list_parse(serve, pattern, &filter)) {
        return;
    }
    for (size_t i = 0; i < table->count; i++) {
        count += list_has(&filter, &table->rows[i]);
    }
    if (serve->arg_count == 2) {
        resp_put_set(serve->out, count, serve->version);
    } else {
        resp_put_array(serve->out, count); /* as Redis has it */
    }
    for (size_t i = 0; i < table->count; i++) {
        if (list_has(&filter, &table->rows[i])) {
            resp_put_text(serve->out, table->rows[i].name);
        }
    }
}

void command_command_info(struct serve *serve)
{
    if (serve->arg_count == 2) {
        command_command(serve);
        return;
    }
    resp_put_array(serve->out, serve->arg_count - 2);
    for (size_t i = 2; i < serve->arg_count; i++) {
        const struct row *row = find_typed(serve, serve->args[i]);
        if (row == NULL) {
            resp_put_null(serve->out, serve->version);
        } else {
            put_row(serve, row);
        }
    }
}

static void put_doc(struct serve *serve, const struct row *row)
{
    bool stream = row->name[0] == 'x';

    resp_put_text(serve->out, row->name);
    resp_put_map(serve->out, 1, serve->version);
    resp_put_text(serve->out, "group");
    resp_put_text(serve->out, stream ? "stream" : row->run != NULL ? "server" : "generic");
}

void command_command_docs(struct serve *serve)
{
    const struct row_table *table = &serve->server->rows;
    size_t count = 0;

    if (serve->arg_count == 2) {
        resp_put_map(serve->out, count_shown(table), serve->version);
        for (size_t i = 0; i < table->count; i++) {
            if (is_shown(&table->rows[i])) {
                put_doc(serve, &table->rows[i]);
            }
        }
        return;
    }
    for (size_t i = 2; i < serve->arg_count; i++) {
        count += find_typed(serve, serve->args[i]) != NULL;
    }
    resp_put_map(serve->out, count, serve->version);
    for (size_t i = 2; i < serve->arg_count; i++) {
        const struct row *row = find_typed(serve, serve->args[i]);
        if (row != NULL) {
            put_doc(serve, row);
        }
    }
}

/* ---- GETKEYS ---- */

struct keys {
    struct buf *out; /* NULL: only counted */
    size_t count;
};

static void take_key(void *user, struct impel_bytes key)
{
    struct keys *keys = user;

    keys->count++;
    if (keys->out != NULL) {
        resp_put_bulk(keys->out, key);
    }
}

void command_command_getkeys(struct serve *serve)
{
    const struct impel_bytes *args = serve->args + 2;
    size_t arg_count = serve->arg_count - 2;
    struct keys keys = {.out = NULL};
    struct buf error;

    buf_init(&error, 4096);
    uint64_t errors = serve->server->stats.errors;
    const struct row *row = row_for(serve->server, args, arg_count, &error);
    serve->server->stats.errors = errors;
    bool arity = error.size > 0 && strncmp((const char *)error.data, "-ERR unknown", 12) != 0;
    buf_release(&error);
    if (row == NULL) {
        own_error(serve, arity ? "ERR Invalid number of arguments specified for command"
                               : "ERR Invalid command specified");
        return;
    }
    if (!row_keys(row, args, arg_count, take_key, &keys) || keys.count == 0) {
        bool streams =
            (row->flags & ROW_MAY_BLOCK) != 0; /* keys there are, but not in these words */
        own_error(serve, streams ? "ERR Invalid arguments specified for command"
                                 : "ERR The command has no key arguments");
        return;
    }
    resp_put_array(serve->out, keys.count);
    keys.out = serve->out;
    (void)row_keys(row, args, arg_count, take_key, &keys);
}

/* ---- HELP of those that have no text of their own ---- */

/* A subcommand of the same container, whose name has `size` bytes, but not HELP itself. */
static bool is_other_sub(const struct row *help, const struct row *row, size_t size)
{
    return row != help && strncmp(row->name, help->name, size + 1) == 0;
}

void command_subcommands(struct serve *serve)
{
    const struct row_table *table = &serve->server->rows;
    char name[ROW_NAME_SIZE], text[ROW_NAME_SIZE + 64];
    size_t count = 3;

    row_container_upper(serve->row, name);
    size_t size = strlen(name);
    for (size_t i = 0; i < table->count; i++) {
        count += is_other_sub(serve->row, &table->rows[i], size);
    }
    resp_put_array(serve->out, count);
    (void)snprintf(text, sizeof(text),
                   "%s <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", name);
    resp_put_status(serve->out, bytes_of(text));
    for (size_t i = 0; i < table->count; i++) {
        if (is_other_sub(serve->row, &table->rows[i], size)) {
            char *at = text;
            for (const char *c = table->rows[i].name + size + 1; *c != '\0'; c++) {
                *at++ = (char)(*c >= 'a' && *c <= 'z' ? *c + 'A' - 'a' : *c);
            }
            *at = '\0';
            resp_put_status(serve->out, bytes_of(text));
        }
    }
    resp_put_status(serve->out, bytes_of("HELP"));
    resp_put_status(serve->out, bytes_of("    Print this help."));
}
