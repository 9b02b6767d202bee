/* test_api.c -- the public API as a program uses it, on an embedded store. */
#include "impel/impel.h"
#include "tap.h"

#include <sys/wait.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64];
static struct impel_store *store;
static struct impel_error error;

static struct impel_bytes text(const char *text)
{
    return (struct impel_bytes){text, strlen(text)};
}

static int is(struct impel_bytes bytes, const char *want)
{
    return bytes.size == strlen(want) && memcmp(bytes.data, want, bytes.size) == 0;
}

/* A store in a folder of its own; the test ends with done(). */
static void begin(void)
{
    char url[128];
    (void)snprintf(folder, sizeof folder, "/tmp/impel-api-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(url, sizeof url, "lmdb:%s/db?sync=process", folder);
    error = (struct impel_error){0};
    int rc = impel_store_open(url, NULL, &store, &error);
    if (rc < 0) {
        printf("# %s\n", error.text);
    }
    CHECK(rc == IMPEL_OK);
}

static void done(void)
{
    char command[128];
    impel_store_close(store);
    store = NULL;
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

static struct impel_id add(const char *name, const char *value)
{
    struct impel_field field = {text(name), text(value)};
    struct impel_id id;
    CHECK(impel_add(store, text("orders"), &field, 1, &id, &error) == IMPEL_OK);
    return id;
}

/* ---- adding and reading ---- */

TEST(what_was_added_is_read_back)
{
    begin();
    const struct impel_field fields[] = {
        {text("a"), text("1")}, {text("a"), {"x\0y", 3}}, {{NULL, 0}, text("")}};
    struct impel_id id = {0, 0};
    struct impel_range *range = NULL;
    size_t count = 0;
    CHECK(impel_add(store, text("orders"), fields, 3, &id, &error) == IMPEL_OK);
    CHECK(impel_read(store, text("orders"), NULL, &range, &error) == IMPEL_OK);
    CHECK_U64(impel_range_count(range), 1);
    CHECK(impel_id_compare(impel_range_id(range, 0), id) == 0);
    const struct impel_field *read = impel_range_fields(range, 0, &count);
    CHECK_U64(count, 3);
    CHECK(is(read[0].name, "a") && is(read[0].value, "1"));
    CHECK(read[1].value.size == 3 && memcmp(read[1].value.data, "x\0y", 3) == 0);
    CHECK(read[2].name.size == 0 && read[2].value.size == 0);
    impel_range_free(range);
    done();
}

TEST(an_entry_needs_a_field)
{
    begin();
    struct impel_new_entry entry = {0};
    CHECK(impel_add(store, text("orders"), NULL, 0, NULL, &error) == IMPEL_ERR_INVALID);
    CHECK(impel_add_batch(store, text("orders"), &entry, 1, NULL) == IMPEL_ERR_INVALID);
    CHECK(impel_add_batch(store, text("orders"), NULL, 0, NULL) == 0);
    done();
}

TEST(a_batch_that_is_added_again_adds_only_what_is_missing)
{
    begin();
    struct impel_field field = {text("n"), text("1")};
    struct impel_new_entry entries[5];
    for (uint64_t i = 0; i < 5; i++) {
        entries[i] = (struct impel_new_entry){&field, 1, {i + 1, 0}};
    }
    CHECK(impel_add_batch(store, text("orders"), entries, 3, &error) == 3);
    for (uint64_t i = 0; i < 5; i++) {
        entries[i].id = (struct impel_id){i + 1, 0};
    }
    CHECK(impel_add_batch(store, text("orders"), entries, 5, &error) == 2);
    CHECK(error.status == IMPEL_ERR_REPLY);
    CHECK(entries[2].id.ms == 0 && entries[3].id.ms == 4 && entries[4].id.ms == 5);
    CHECK(impel_add_batch(store, text("orders"), entries, 3, &error) == 3); /* "generate" now */
    done();
}

TEST(a_large_batch_goes_in_whole)
{
    begin();
    static struct impel_new_entry entries[2500];
    struct impel_field field = {text("n"), text("1")};
    for (size_t i = 0; i < 2500; i++) {
        entries[i] = (struct impel_new_entry){.fields = &field, .field_count = 1};
    }
    CHECK(impel_add_batch(store, text("orders"), entries, 2500, &error) == 2500);
    int ascending = 1;
    for (size_t i = 1; i < 2500; i++) {
        ascending = ascending && impel_id_compare(entries[i - 1].id, entries[i].id) < 0;
    }
    CHECK(ascending);
    done();
}

TEST(a_range_has_bounds_a_count_and_a_direction)
{
    begin();
    struct impel_field field = {text("n"), text("1")};
    struct impel_new_entry entries[5];
    for (uint64_t i = 0; i < 5; i++) {
        entries[i] = (struct impel_new_entry){&field, 1, {i + 1, 0}};
    }
    CHECK(impel_add_batch(store, text("orders"), entries, 5, &error) == 5);
    struct impel_range *range = NULL;
    struct impel_range_options options = {.first = {2, 0}, .last = {4, UINT64_MAX}, .count = 2};
    CHECK(impel_read(store, text("orders"), &options, &range, &error) == IMPEL_OK);
    CHECK(impel_range_count(range) == 2 && impel_range_id(range, 0).ms == 2);
    impel_range_free(range);
    options.reverse = 1;
    CHECK(impel_read(store, text("orders"), &options, &range, &error) == IMPEL_OK);
    CHECK(impel_range_count(range) == 2 && impel_range_id(range, 0).ms == 4);
    impel_range_free(range);
    options.first.ms = 5;
    CHECK(impel_read(store, text("orders"), &options, &range, &error) == IMPEL_OK);
    CHECK(impel_range_count(range) == 0);
    impel_range_free(range);
    CHECK(impel_read(store, text("nothing"), NULL, &range, &error) == IMPEL_OK);
    CHECK(impel_range_count(range) == 0);
    impel_range_free(range);
    options.reserved[0] = 1;
    CHECK(impel_read(store, text("orders"), &options, &range, &error) == IMPEL_ERR_INVALID);
    CHECK(range == NULL);
    done();
}

/* ---- IDs, commands ---- */

TEST(ids_have_a_text)
{
    char buffer[IMPEL_ID_TEXT_SIZE];
    struct impel_id id = {7, 7};
    CHECK(strcmp(impel_id_format((struct impel_id){UINT64_MAX, UINT64_MAX}, buffer),
                 "18446744073709551615-18446744073709551615") == 0);
    CHECK(impel_id_parse(text("5-1"), &id) == IMPEL_OK && id.ms == 5 && id.seq == 1);
    CHECK(impel_id_parse(text("6"), &id) == IMPEL_OK && id.ms == 6 && id.seq == 0);
    CHECK(impel_id_parse(text("-"), &id) == IMPEL_ERR_INVALID && id.ms == 6);
    CHECK(impel_id_compare((struct impel_id){1, 9}, (struct impel_id){2, 0}) < 0);
}

TEST(a_command_answers_with_a_tree)
{
    begin();
    (void)add("n", "1");
    struct impel_reply *reply = NULL;
    const struct impel_bytes range[] = {text("XRANGE"), text("orders"), text("-"), text("+")};
    CHECK(impel_call(store, range, 4, &reply, &error) == IMPEL_OK);
    CHECK(impel_reply_kind(reply) == IMPEL_REPLY_ARRAY && impel_reply_count(reply) == 1);
    const struct impel_reply *fields = impel_reply_item(impel_reply_item(reply, 0), 1);
    CHECK(is(impel_reply_bytes(impel_reply_item(fields, 0)), "n"));
    CHECK(is(impel_reply_bytes(impel_reply_item(fields, 1)), "1"));
    CHECK(impel_reply_item(fields, 2) == NULL);
    CHECK(impel_reply_kind(impel_reply_item(NULL, 3)) == IMPEL_REPLY_NULL);
    impel_reply_free(reply);
    const struct impel_bytes length[] = {text("XLEN"), text("orders")};
    CHECK(impel_call(store, length, 2, &reply, &error) == IMPEL_OK);
    CHECK(impel_reply_integer(reply) == 1);
    impel_reply_free(reply);
    const struct impel_bytes wrong[] = {text("XLEN")};
    CHECK(impel_call(store, wrong, 1, &reply, &error) == IMPEL_OK);
    CHECK(impel_reply_kind(reply) == IMPEL_REPLY_ERROR);
    impel_reply_free(reply);
    CHECK(impel_call(store, NULL, 0, &reply, &error) == IMPEL_ERR_INVALID && reply == NULL);
    done();
}

/* ---- opening ---- */

TEST(bad_stores_are_errors_that_leave_null)
{
    struct impel_store *bad = (struct impel_store *)&error;
    struct impel_store_options options = {.timeout_ms = -1};
    CHECK(impel_store_open("nonsense:x", NULL, &bad, &error) == IMPEL_ERR_INVALID && bad == NULL);
    CHECK(impel_store_open(NULL, NULL, &bad, &error) == IMPEL_ERR_INVALID);
    CHECK(impel_store_open("lmdb:/tmp/x", &options, &bad, &error) == IMPEL_ERR_INVALID);
    options = (struct impel_store_options){.reserved = {1}};
    CHECK(impel_store_open("lmdb:/tmp/x", &options, &bad, &error) == IMPEL_ERR_INVALID);
    CHECK(impel_store_open("lmdb:/no/such/folder/db", NULL, &bad, &error) == IMPEL_ERR_NOT_FOUND);
    CHECK(strstr(error.text, "/no/such/folder") != NULL);
    impel_store_close(NULL);
}

TEST(a_forked_child_is_refused)
{
    begin();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct impel_field field = {text("n"), text("1")};
        int rc = impel_add(store, text("orders"), &field, 1, NULL, NULL);
        _exit(rc == IMPEL_ERR_FORKED ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    done();
}

/* ---- threads ---- */

static void *adds_many(void *user)
{
    struct impel_field field = {text("n"), text("1")};
    for (int i = 0; i < 100; i++) {
        if (impel_add(store, text("orders"), &field, 1, NULL, NULL) < 0) {
            *(atomic_int *)user += 1;
        }
    }
    return NULL;
}

TEST(threads_may_share_a_store)
{
    begin();
    pthread_t threads[4];
    atomic_int failures = 0;
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, adds_many, &failures) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(failures == 0);
    struct impel_range *range = NULL;
    struct impel_range_options options = {.count = 1000};
    CHECK(impel_read(store, text("orders"), &options, &range, &error) == IMPEL_OK);
    CHECK_U64(impel_range_count(range), 400);
    impel_range_free(range);
    done();
}

TAP_MAIN
