/* arena.c -- memory with one lifetime: a list of blocks, freed together.
 *
 * A request larger than a block gets one of its own size. Blocks grow from 1 KiB to 64 KiB, so that
 * a small request costs little and a large one few calls of malloc. */
#include "base/base.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_SIZE_FIRST = 1024,
    BLOCK_SIZE_MAX = 65536,
};

struct arena_block {
    struct arena_block *next;
    size_t size;
    alignas(max_align_t) uint8_t data[];
};

static struct arena_block *arena_grow(struct arena *arena, size_t size)
{
    size_t block_size = arena->blocks == NULL ? BLOCK_SIZE_FIRST : arena->blocks->size * 2;
    struct arena_block *block;

    block_size = block_size > BLOCK_SIZE_MAX ? BLOCK_SIZE_MAX : block_size;
    block_size = block_size < size ? size : block_size;
    if (block_size > SIZE_MAX - sizeof(*block)) {
        return NULL;
    }
    block = malloc(sizeof(*block) + block_size);
    if (block == NULL) {
        return NULL;
    }
    block->size = block_size;
    block->next = arena->blocks;
    arena->blocks = block;
    arena->used = 0;
    return block;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    size_t align = alignof(max_align_t);
    struct arena_block *block = arena->blocks;

    if (size > SIZE_MAX - align) {
        return NULL;
    }
    size = (size + align - 1) / align * align;
    if (block == NULL || block->size - arena->used < size) {
        block = arena_grow(arena, size);
        if (block == NULL) {
            return NULL;
        }
    }
    void *data = block->data + arena->used;
    arena->used += size;
    return data;
}

void *arena_calloc(struct arena *arena, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size) {
        return NULL;
    }
    void *data = arena_alloc(arena, count * size);
    return data == NULL ? NULL : memset(data, 0, count * size);
}

bool arena_copy(struct arena *arena, struct impel_bytes bytes, struct impel_bytes *out)
{
    void *data = arena_alloc(arena, bytes.size);
    if (data == NULL) {
        return false;
    }
    if (bytes.size > 0) {
        memcpy(data, bytes.data, bytes.size);
    }
    *out = (struct impel_bytes){data, bytes.size};
    return true;
}

void arena_release(struct arena *arena)
{
    while (arena->blocks != NULL) {
        struct arena_block *block = arena->blocks;
        arena->blocks = block->next;
        free(block);
    }
    arena->used = 0;
}

void arena_reset(struct arena *arena, size_t keep_max)
{
    size_t size = 0;

    for (const struct arena_block *block = arena->blocks; block != NULL; block = block->next) {
        size += block->size;
    }
    if (arena->blocks == NULL || arena->blocks->next != NULL || size > keep_max) {
        arena_release(arena);
        if (size > 0 && size <= keep_max) {
            (void)arena_grow(arena, size); /* without it the next use begins from nothing */
        }
    }
    arena->used = 0;
}
