/* check_others.c -- the check of what is no stream: strings, lists, sets. Their rows 'v' go into a
 * table; the key that leads there says what they are, elements and members are counted. */
#include "store/lmdb/check_own.h"

#include <string.h>

enum {
    ELEMENT_KEY_SIZE = 17, /* letter, number, position */
};

void check_other_object(struct checking *checking, MDB_val key, MDB_val value)
{
    const uint8_t *bytes = key.mv_data;
    struct disk_collection disk = {.count = 0};

    if (bytes[0] != 'v') {
        return;
    }
    if (key.mv_size != 9) {
        check_problem(checking, "catalog: a row 'v' is damaged");
        return;
    }
    struct seen *seen = check_add(checking, &checking->others, get_be64(bytes + 1));
    if (seen == NULL) {
        return;
    }
    if (seen->number < NUMBER_FIRST || seen->number >= checking->meta.next_number) {
        check_problem(checking, "catalog: object %llu was never made", NUMBER(seen->number));
    }
    seen->sized = value.mv_size == sizeof(disk);
    if (seen->sized) {
        memcpy(&disk, value.mv_data, sizeof(disk));
        seen->said = disk.count;
        seen->head = disk.head;
    }
}

void check_other_key(struct checking *checking, const struct disk_key *disk)
{
    struct seen *seen = check_find(&checking->others, disk->number);

    if (seen == NULL) {
        check_problem(checking, "a key leads to %llu, which is not there", NUMBER(disk->number));
        return;
    }
    seen->names++;
    seen->kind = (enum lmdb_key_kind)disk->kind;
}

static void check_element(struct checking *checking, MDB_val key)
{
    const uint8_t *bytes = key.mv_data;
    struct seen *list = NULL;

    if (key.mv_size == ELEMENT_KEY_SIZE) {
        list = check_find(&checking->others, get_be64(bytes + 1));
    }
    if (list == NULL || get_be64(bytes + 9) - list->head >= list->said) {
        check_problem(checking, "an element of a list that does not have it");
        return;
    }
    list->counted++;
}

static void check_member(struct checking *checking, MDB_val key, MDB_val value)
{
    const uint8_t *bytes = key.mv_data;
    struct seen *set = NULL;
    struct lmdb_key want = {.size = 0};

    if (key.mv_size >= 9) {
        set = check_find(&checking->others, get_be64(bytes + 1));
    }
    if (set != NULL) {
        key_of_name(&want, 'S', set->number, (struct impel_bytes){value.mv_data, value.mv_size});
    }
    if (set == NULL || want.size != key.mv_size ||
        memcmp(want.data, key.mv_data, key.mv_size) != 0) {
        check_problem(checking, "a member of a set that is not there, or under another name");
        return;
    }
    set->children++;
}

bool check_other_row(struct checking *checking, MDB_val key, MDB_val value)
{
    switch (*(const uint8_t *)key.mv_data) {
    case 'v':
        return true;
    case 'l':
        check_element(checking, key);
        return true;
    case 'S':
        check_member(checking, key, value);
        return true;
    default:
        return false;
    }
}

void check_other_counts(struct checking *checking)
{
    for (size_t i = 0; i < checking->others.count && !checking->stop; i++) {
        const struct seen *seen = &checking->others.items[i];
        bool list = seen->kind == LMDB_KEY_LIST, set = seen->kind == LMDB_KEY_SET;
        if (seen->names != 1) {
            check_problem(checking, "value %llu is reached by %u names", NUMBER(seen->number),
                          seen->names);
        } else if ((list || set) && (!seen->sized || seen->said == 0)) {
            check_problem(checking, "value %llu is damaged", NUMBER(seen->number));
        } else if (seen->counted != (list ? seen->said : 0) ||
                   seen->children != (set ? seen->said : 0)) {
            check_problem(checking, "value %llu counts %llu, there are %llu", NUMBER(seen->number),
                          NUMBER(list || set ? seen->said : 0),
                          NUMBER(seen->counted + seen->children));
        }
    }
}
