/* layout.c -- keys and values, to bytes and back. */
#include "store/lmdb/layout.h"

void key_of_number(struct lmdb_key *key, char letter, uint64_t number)
{
    key->data[0] = (uint8_t)letter;
    put_be64(key->data + 1, number);
    key->size = 9;
}

void key_of_name(struct lmdb_key *key, char letter, uint64_t number, struct impel_bytes name)
{
    size_t size = name.size < NAME_KEY_SIZE_MAX ? name.size : NAME_KEY_SIZE_MAX;

    key->data[0] = (uint8_t)letter;
    key->size = 1;
    if (number != 0) {
        put_be64(key->data + 1, number);
        key->size = 9;
    }
    if (size > 0) {
        memcpy(key->data + key->size, name.data, size);
        key->size += size;
    }
    if (name.size > NAME_KEY_SIZE_MAX) {
        put_be64(key->data + key->size, hash_bytes(name, 0));
        put_be64(key->data + key->size + 8, hash_bytes(name, 0x9e3779b97f4a7c15U));
        key->size += NAME_HASH_SIZE;
    }
}

static size_t varint_size(uint64_t value)
{
    size_t size = 1;
    while (value >= 0x80) {
        value >>= 7;
        size++;
    }
    return size;
}

static uint8_t *varint_write(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

/* NULL if the number does not end before `end` or is longer than 63 bits. */
static const uint8_t *varint_read(const uint8_t *at, const uint8_t *end, uint64_t *value)
{
    uint64_t result = 0;

    for (unsigned shift = 0; at < end && shift < 63; shift += 7) {
        uint8_t byte = *at++;
        result |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = result;
            return at;
        }
    }
    return NULL;
}

size_t fields_size(const struct impel_field *fields, size_t field_count)
{
    size_t size = varint_size(field_count);

    for (size_t i = 0; i < field_count; i++) {
        size += varint_size(fields[i].name.size) + varint_size(fields[i].value.size);
        size += fields[i].name.size + fields[i].value.size;
    }
    return size;
}

static uint8_t *bytes_write(uint8_t *at, struct impel_bytes bytes)
{
    if (bytes.size > 0) {
        memcpy(at, bytes.data, bytes.size);
    }
    return at + bytes.size;
}

void fields_write(uint8_t *at, const struct impel_field *fields, size_t field_count)
{
    at = varint_write(at, field_count);
    for (size_t i = 0; i < field_count; i++) {
        at = varint_write(at, fields[i].name.size);
        at = varint_write(at, fields[i].value.size);
    }
    for (size_t i = 0; i < field_count; i++) {
        at = bytes_write(at, fields[i].name);
        at = bytes_write(at, fields[i].value);
    }
}

int64_t fields_count(struct impel_bytes raw, const uint8_t **sizes)
{
    uint64_t count = 0;
    const uint8_t *start = raw.data;

    *sizes = raw.size == 0 ? NULL : varint_read(start, start + raw.size, &count);
    /* Every field takes two bytes at least, which bounds what a broken count can ask for. */
    return *sizes == NULL || count > raw.size / 2 ? -1 : (int64_t)count;
}

bool fields_read(struct impel_bytes raw,
                 const uint8_t *sizes,
                 struct impel_field *fields,
                 size_t field_count)
{
    const uint8_t *end = (const uint8_t *)raw.data + raw.size;
    const uint8_t *at = sizes;
    uint64_t total = 0;

    for (size_t i = 0; i < field_count; i++) {
        uint64_t name_size;
        uint64_t value_size;
        at = varint_read(at, end, &name_size);
        at = at == NULL ? NULL : varint_read(at, end, &value_size);
        if (at == NULL || name_size > raw.size || value_size > raw.size) {
            return false;
        }
        total += name_size + value_size;
        fields[i].name.size = name_size;
        fields[i].value.size = value_size;
    }
    if (total != (uint64_t)(end - at)) {
        return false;
    }
    for (size_t i = 0; i < field_count; i++) {
        fields[i].name.data = at;
        at += fields[i].name.size;
        fields[i].value.data = at;
        at += fields[i].value.size;
    }
    return true;
}
