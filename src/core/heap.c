/* heap.c -- an intrusive binary heap by due time. */
#include "core/heap.h"

#include "base/base.h"

#include <stdlib.h>

enum {
    CAPACITY_FIRST = 64,
};

bool heap_reserve(struct heap *heap, size_t count)
{
    size_t capacity = heap->capacity == 0 ? CAPACITY_FIRST : heap->capacity;

    if (heap->capacity - heap->size >= count) {
        return true;
    }
    while (capacity - heap->size < count) {
        if (capacity > SIZE_MAX / 2 / sizeof(struct heap_node *)) {
            return false;
        }
        capacity *= 2;
    }
    struct heap_node **nodes = realloc(heap->nodes, capacity * sizeof(struct heap_node *));
    if (nodes == NULL) {
        return false;
    }
    heap->nodes = nodes;
    heap->capacity = capacity;
    return true;
}

static void settle_at(struct heap *heap, struct heap_node *node, size_t place)
{
    heap->nodes[place - 1] = node;
    node->place = place;
}

static void sift_up(struct heap *heap, struct heap_node *node, size_t place)
{
    while (place > 1 && heap->nodes[place / 2 - 1]->due_ms > node->due_ms) {
        settle_at(heap, heap->nodes[place / 2 - 1], place);
        place /= 2;
    }
    settle_at(heap, node, place);
}

static void sift_down(struct heap *heap, struct heap_node *node, size_t place)
{
    for (;;) {
        size_t child = place * 2;
        if (child > heap->size) {
            break;
        }
        if (child < heap->size && heap->nodes[child]->due_ms < heap->nodes[child - 1]->due_ms) {
            child++;
        }
        if (heap->nodes[child - 1]->due_ms >= node->due_ms) {
            break;
        }
        settle_at(heap, heap->nodes[child - 1], place);
        place = child;
    }
    settle_at(heap, node, place);
}

void heap_put(struct heap *heap, struct heap_node *node, int64_t due_ms)
{
    bool later = node->place != 0 && due_ms > node->due_ms;

    node->due_ms = due_ms;
    if (node->place == 0) {
        ASSERT(heap->size < heap->capacity);
        heap->size++;
        sift_up(heap, node, heap->size);
    } else if (later) {
        sift_down(heap, node, node->place);
    } else {
        sift_up(heap, node, node->place);
    }
}

void heap_remove(struct heap *heap, struct heap_node *node)
{
    size_t place = node->place;

    if (place == 0) {
        return;
    }
    struct heap_node *last = heap->nodes[heap->size - 1];
    heap->size--;
    node->place = 0;
    if (last != node) {
        last->place = place;
        sift_up(heap, last, place);
        sift_down(heap, last, last->place);
    }
}

struct heap_node *heap_first(const struct heap *heap)
{
    return heap->size == 0 ? NULL : heap->nodes[0];
}

void heap_release(struct heap *heap)
{
    free(heap->nodes);
    *heap = (struct heap){0};
}
