/* command_env.c -- building environments. */
#include "runtime/command_env.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIELD_PREFIX "IMPEL_FIELD_"

enum {
    OWN_COUNT = 5,                      /* IMPEL_ID to IMPEL_ATTEMPT */
    FIELD_SIZE_MAX = 64 * 1024,         /* of a value that becomes a variable */
    STRING_SIZE_MAX = 128 * 1024 - 1,   /* the kernel's, for one string */
    TEXT_SIZE_MAX = 1024 * 1024 * 1024, /* an entry's fields all fit, whatever the store allows */
};

static const char *const own_names[] = {"IMPEL_ID",       "IMPEL_STREAM",  "IMPEL_GROUP",
                                        "IMPEL_CONSUMER", "IMPEL_ATTEMPT", "IMPEL_PASSWORD"};

/* True for a variable that commands do not inherit. A store's URL stays, unless it has a password in
 * it. */
static bool not_for_commands(const char *variable)
{
    const char *equals = strchrnul(variable, '=');
    struct impel_bytes name = {variable, (size_t)(equals - variable)};
    for (size_t i = 0; i < ARRAY_SIZE(own_names); i++) {
        if (bytes_equal(name, bytes_of(own_names[i]))) {
            return true;
        }
    }
    return strncmp(variable, FIELD_PREFIX, sizeof FIELD_PREFIX - 1) == 0 ||
           (bytes_equal(name, bytes_of("IMPEL_STORE")) && strchr(equals, '@') != NULL);
}

int command_env_init(struct command_env *env, struct impel_error *err)
{
    *env = (struct command_env){0};
    buf_init(&env->text, TEXT_SIZE_MAX);
    size_t count = 0;
    while (environ != NULL && environ[count] != NULL) {
        count++;
    }
    env->base = arena_calloc(&env->arena, count + 1, sizeof(char *));
    for (size_t i = 0; i < count && env->base != NULL; i++) {
        struct impel_bytes copy;
        if (not_for_commands(environ[i])) {
            continue;
        }
        if (!arena_copy(&env->arena, (struct impel_bytes){environ[i], strlen(environ[i]) + 1},
                        &copy)) {
            env->base = NULL;
            break;
        }
        env->base[env->base_count++] = (char *)copy.data;
    }
    if (env->base == NULL) {
        command_env_release(env);
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for the environment of commands");
    }
    return IMPEL_OK;
}

void command_env_release(struct command_env *env)
{
    arena_release(&env->arena);
    buf_release(&env->text);
    free(env->full);
    free(env->small);
    free(env->offsets);
    free(env->sorted);
    *env = (struct command_env){0};
}

/* ---- one build ---- */

static bool has_byte(struct impel_bytes bytes, int byte)
{
    return bytes.size > 0 && memchr(bytes.data, byte, bytes.size) != NULL;
}

/* Room for `count` strings besides the base. */
static bool make_room(struct command_env *env, size_t count)
{
    if (env->full != NULL && count <= env->capacity) {
        return true;
    }
    free(env->full);
    free(env->small);
    free(env->offsets);
    free(env->sorted);
    env->full = calloc(count + env->base_count + 1, sizeof(char *));
    env->small = calloc(OWN_COUNT + env->base_count + 1, sizeof(char *));
    env->offsets = calloc(count, sizeof *env->offsets);
    env->sorted = calloc(count, sizeof(struct impel_field *));
    env->capacity = count;
    if (env->full == NULL || env->small == NULL || env->offsets == NULL || env->sorted == NULL) {
        free(env->full);
        env->full = NULL;
        return false;
    }
    return true;
}

/* NAME=value and a NUL, unless an environment cannot hold it. True if it was put. */
static bool put(struct command_env *env,
                size_t index,
                const char *prefix,
                struct impel_bytes name,
                struct impel_bytes value)
{
    size_t start = env->text.size;
    if (has_byte(value, 0) || strlen(prefix) + name.size + 1 + value.size > STRING_SIZE_MAX) {
        return false;
    }
    buf_append_text(&env->text, prefix);
    buf_append_bytes(&env->text, name);
    buf_append_text(&env->text, "=");
    buf_append_bytes(&env->text, value);
    buf_append(&env->text, "", 1);
    env->offsets[index] = start;
    return true;
}

static bool shell_name(struct impel_bytes name)
{
    const char *data = name.data;
    for (size_t i = 0; i < name.size; i++) {
        char c = data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '_')) {
            return false;
        }
    }
    return name.size > 0;
}

static int by_name(const void *a, const void *b)
{
    const struct impel_field *const *left = a, *const *right = b;
    return bytes_compare((*left)->name, (*right)->name);
}

/* The fields whose names appear once and that a shell can name. */
static size_t put_fields(struct command_env *env, const struct entry *entry, size_t index)
{
    size_t candidates = 0;
    for (size_t i = 0; i < entry->field_count; i++) {
        if (shell_name(entry->fields[i].name)) {
            env->sorted[candidates++] = &entry->fields[i];
        }
    }
    qsort(env->sorted, candidates, sizeof(struct impel_field *), by_name);
    for (size_t i = 0; i < candidates; i++) {
        const struct impel_field *field = env->sorted[i];
        bool repeated = (i > 0 && bytes_equal(field->name, env->sorted[i - 1]->name)) ||
                        (i + 1 < candidates && bytes_equal(field->name, env->sorted[i + 1]->name));
        if (!repeated && field->value.size <= FIELD_SIZE_MAX &&
            put(env, index, FIELD_PREFIX, field->name, field->value)) {
            index++;
        }
    }
    return index;
}

/* What was put, `count` strings of which the first `own` are no fields, and the base behind. */
static bool compose(struct command_env *env, size_t own, size_t count)
{
    if (buf_status(&env->text) < 0) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        env->full[i] = (char *)env->text.data + env->offsets[i];
    }
    memcpy(env->small, env->full, own * sizeof(char *));
    memcpy(env->small + own, env->base, (env->base_count + 1) * sizeof(char *));
    memcpy(env->full + count, env->base, (env->base_count + 1) * sizeof(char *));
    return true;
}

bool command_env_constant(struct command_env *env, const struct entry_origin *origin)
{
    size_t count = 0;
    if (!make_room(env, OWN_COUNT)) {
        return false;
    }
    buf_clear(&env->text);
    if (origin->stream.data != NULL) {
        count += put(env, count, "", bytes_of("IMPEL_STREAM"), origin->stream) ? 1 : 0;
    }
    count += put(env, count, "", bytes_of("IMPEL_GROUP"), origin->group) ? 1 : 0;
    count += put(env, count, "", bytes_of("IMPEL_CONSUMER"), origin->consumer) ? 1 : 0;
    return compose(env, count, count);
}

bool command_env_build(struct command_env *env,
                       const struct entry *entry,
                       const struct entry_origin *origin)
{
    char id[ID_TEXT_SIZE];
    char attempt[24];
    if (!make_room(env, OWN_COUNT + entry->field_count)) {
        return false;
    }
    (void)snprintf(attempt, sizeof attempt, "%" PRId64, origin->attempt);
    const struct impel_bytes values[OWN_COUNT] = {bytes_of(id_format(entry->id, id)),
                                                  origin->stream, origin->group, origin->consumer,
                                                  bytes_of(attempt)};
    buf_clear(&env->text);
    size_t own = 0;
    for (size_t i = 0; i < OWN_COUNT; i++) {
        own += put(env, own, "", bytes_of(own_names[i]), values[i]) ? 1 : 0;
    }
    return compose(env, own, put_fields(env, entry, own));
}
