/* sim_queue.c -- the events by time (a binary heap), and the few helpers that everything uses. */
#include "sim/sim.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static bool before(const struct event *a, const struct event *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

void sim_at(struct sim *sim,
            int64_t at_ms,
            void (*fire)(struct sim *sim, void *of, uint64_t tag),
            void *of,
            uint64_t tag)
{
    if (sim->heap_count == sim->heap_room) {
        sim->heap_room = sim->heap_room * 2 + 64;
        sim->heap = realloc(sim->heap, sim->heap_room * sizeof(*sim->heap));
        ASSERT(sim->heap != NULL);
    }
    at_ms = at_ms < sim->now_ms ? sim->now_ms : at_ms;
    struct event event = {at_ms, ++sim->order, fire, of, tag};
    size_t at = sim->heap_count++;
    while (at > 0 && before(&event, &sim->heap[(at - 1) / 2])) {
        sim->heap[at] = sim->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim->heap[at] = event;
}

static struct event pop(struct sim *sim)
{
    struct event first = sim->heap[0];
    struct event last = sim->heap[--sim->heap_count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < sim->heap_count && before(&sim->heap[child + 1], &sim->heap[child])) {
            child++;
        }
        if (child >= sim->heap_count || !before(&sim->heap[child], &last)) {
            break;
        }
        sim->heap[at] = sim->heap[child];
        at = child;
    }
    if (sim->heap_count > 0) {
        sim->heap[at] = last;
    }
    return first;
}

bool sim_step(struct sim *sim)
{
    if (sim->failed || sim->heap_count == 0) {
        return false;
    }
    struct event event = pop(sim);
    sim->model.now_ms += event.at_ms - sim->now_ms;
    sim->now_ms = event.at_ms;
    if (++sim->steps > SIM_STEPS_MAX) {
        sim_fail(sim, "the world has no end");
    }
    event.fire(sim, event.of, event.tag);
    return !sim->failed;
}

void sim_run_until(struct sim *sim, int64_t at_ms)
{
    while (!sim->failed && sim->heap_count > 0 && sim->heap[0].at_ms <= at_ms) {
        (void)sim_step(sim);
    }
    if (!sim->failed && sim->now_ms < at_ms) {
        sim->model.now_ms += at_ms - sim->now_ms;
        sim->now_ms = at_ms;
    }
}

uint64_t sim_random(struct sim *sim, uint64_t below)
{
    return random_next(&sim->random) % below;
}

int64_t sim_between(struct sim *sim, int64_t low, int64_t high)
{
    return low + (int64_t)sim_random(sim, (uint64_t)(high - low) + 1);
}

bool sim_chance(struct sim *sim, uint64_t percent)
{
    return sim_random(sim, 100) < percent;
}

void *sim_alloc(struct sim *sim, size_t size)
{
    void *memory = arena_calloc(&sim->arena, 1, size);
    ASSERT(memory != NULL);
    return memory;
}

struct impel_bytes sim_group(void)
{
    return bytes_of("g");
}

void sim_trace(struct sim *sim, const char *format, ...)
{
    va_list args;

    if (!sim->trace) {
        return;
    }
    printf("# %7.3f ", (double)sim->now_ms / 1000.0);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

void sim_fail(struct sim *sim, const char *format, ...)
{
    va_list args;

    if (sim->failed) {
        return;
    }
    sim->failed = true;
    va_start(args, format);
    (void)vsnprintf(sim->text, sizeof(sim->text), format, args);
    va_end(args);
    sim_trace(sim, "BROKEN: %s", sim->text);
}
