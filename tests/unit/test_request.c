/* test_request.c -- requests and entries own what they carry. */
#include "core/request.h"
#include "tap.h"

#include <stdlib.h>

static struct entry *entry_test(uint64_t ms)
{
    struct impel_field fields[] = {
        {bytes_of("name"), {"a\0b", 3}},
        {{NULL, 0}, {NULL, 0}},
    };
    return entry_new((struct impel_id){ms, 1}, fields, ARRAY_SIZE(fields));
}

TEST(an_entry_is_a_copy_in_one_block)
{
    char value[7] = "before";
    struct impel_field field = {bytes_of("f"), bytes_of(value)};
    struct entry *entry = entry_new((struct impel_id){5, 6}, &field, 1);
    CHECK(entry != NULL);
    value[0] = 'B';
    CHECK(id_equal(entry->id, (struct impel_id){5, 6}));
    CHECK(bytes_equal(entry->fields[0].value, bytes_of("before")));
    CHECK_U64(entry->size_bytes, sizeof(*entry) + sizeof(field) + 7);
    entry_free(entry);
    entry = entry_test(1);
    CHECK_U64(entry->field_count, 2);
    CHECK_U64(entry->fields[0].value.size, 3);
    CHECK_U64(entry->fields[1].name.size + entry->fields[1].value.size, 0);
    entry_free(entry);
    entry_free(NULL);
}

TEST(an_entry_of_impossible_size_is_refused)
{
    struct impel_field field = {{"x", SIZE_MAX - 10}, {"y", 20}};
    CHECK(entry_new(ID_MIN, &field, 1) == NULL);
    CHECK(entry_new(ID_MIN, &field, SIZE_MAX / 2) == NULL);
}

/* Leaks show under the sanitizers. */
TEST(a_request_frees_the_entries_that_nobody_took)
{
    struct request *read = request_new(REQUEST_READ);
    read->read.entries = arena_calloc(&read->arena, 2, sizeof(struct delivered));
    read->read.entry_count = 2;
    read->read.entries[0].entry = entry_test(1);
    read->read.entries[1].entry = entry_test(2);
    struct entry *taken = read->read.entries[1].entry;
    read->read.entries[1].entry = NULL;
    request_free(read);
    CHECK_U64(taken->id.ms, 2);
    entry_free(taken);

    struct request *retry = request_new(REQUEST_RETRY);
    retry->items.items = arena_calloc(&retry->arena, 1, sizeof(struct request_item));
    retry->items.item_count = 1;
    retry->items.items[0].entry = entry_test(3);
    request_free(retry);

    struct request *claim = request_new(REQUEST_CLAIM_FROM);
    claim->claim_from.entries = arena_calloc(&claim->arena, 1, sizeof(struct delivered));
    claim->claim_from.entry_count = 1;
    claim->claim_from.entries[0].entry = entry_test(4);
    request_free(claim);

    struct request *range = request_new(REQUEST_RANGE);
    range->range.entries = arena_calloc(&range->arena, 1, sizeof(struct entry *));
    range->range.entry_count = 1;
    range->range.entries[0] = entry_test(5);
    request_free(range);
    request_free(NULL);
}

TEST(every_kind_has_a_name)
{
    for (int kind = REQUEST_ADD; kind <= REQUEST_CALL; kind++) {
        CHECK(request_name((enum request_kind)kind) != NULL);
        CHECK(strlen(request_name((enum request_kind)kind)) > 0);
    }
    CHECK(strcmp(request_name(REQUEST_CLAIM_FROM), "claim_from") == 0);
}

TAP_MAIN
