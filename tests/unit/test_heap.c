/* test_heap.c -- the heap gives back what is due first, whatever was moved or taken out. */
#include "base/base.h"
#include "core/heap.h"
#include "tap.h"

enum {
    COUNT = 500,
};

/* The first is the earliest of those that are in, and every place is right. */
static bool sound(const struct heap *heap, const struct heap_node *nodes)
{
    const struct heap_node *first = heap_first(heap);
    size_t in_heap = 0;

    for (size_t i = 0; i < COUNT; i++) {
        if (nodes[i].place == 0) {
            continue;
        }
        in_heap++;
        if (first->due_ms > nodes[i].due_ms || heap->nodes[nodes[i].place - 1] != &nodes[i]) {
            return false;
        }
    }
    return in_heap == heap->size;
}

TEST(always_gives_the_earliest)
{
    static struct heap_node nodes[COUNT];
    struct heap heap = {0};
    uint64_t seed = 42;

    memset(nodes, 0, sizeof(nodes));
    CHECK(heap_reserve(&heap, COUNT));
    for (int turn = 0; turn < 20000; turn++) {
        struct heap_node *node = &nodes[random_next(&seed) % COUNT];
        if (random_next(&seed) % 4 == 0) {
            heap_remove(&heap, node);
        } else {
            heap_put(&heap, node, (int64_t)(random_next(&seed) % 1000));
        }
        CHECK(sound(&heap, nodes));
    }
    heap_release(&heap);
    CHECK(heap_first(&heap) == NULL);
}

TAP_MAIN
