/* heap.h -- an intrusive binary heap by due time: what is due next, in O(log n) per change. */
#ifndef IMPEL_CORE_HEAP_H
#define IMPEL_CORE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
    int64_t due_ms;
    size_t place; /* in the heap's array, counted from 1; 0 = in no heap */
};

/* A zeroed heap is empty and ready. */
struct heap {
    struct heap_node **nodes;
    size_t size;
    size_t capacity;
};

/* Makes room for `count` more nodes, so that the next heap_put()s cannot fail. */
bool heap_reserve(struct heap *heap, size_t count);
/* Puts the node in, or moves it, to `due_ms`. Room must have been reserved for a new one. */
void heap_put(struct heap *heap, struct heap_node *node, int64_t due_ms);
void heap_remove(struct heap *heap, struct heap_node *node); /* harmless if it is in none */
struct heap_node *heap_first(const struct heap *heap);       /* NULL if empty */
void heap_release(struct heap *heap);

#endif /* IMPEL_CORE_HEAP_H */
