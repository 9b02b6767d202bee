/* sim_main.c -- the simulator as a program:
 *
 *   sim --seeds 1..10000      worlds by seed, in TAP; says how to replay one that fails
 *   sim --seed 42 --trace     one of them, step by step */
#include "sim/sim.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum {
    FAILURES_SHOWN = 10,
    MEMORY_KEPT = 64 << 20, /* bytes */
    SEEDS_A_TEST = 1000,
};

static uint64_t failures;
static struct {
    uint64_t steps, requeued, handed_over;
} seen; /* in all worlds: what never happens is not proved */

static bool run_seed(uint64_t seed, bool trace)
{
    static struct sim sim;
    bool held = world_run(&sim, seed, trace);

    seen.steps += sim.steps;
    seen.requeued += sim.requeued;
    seen.handed_over += sim.handed_over;
    if (!held && ++failures <= FAILURES_SHOWN) {
        printf("# seed %" PRIu64 ": %s\n# replay: build/tests/sim/sim --seed %" PRIu64 " --trace\n",
               seed, sim.text, seed);
        fflush(stdout);
    }
    return held;
}

static int run_seeds(uint64_t first, uint64_t last, bool trace)
{
    uint64_t tests = (last - first) / SEEDS_A_TEST + 1;

    printf("TAP version 13\n1..%" PRIu64 "\n", tests);
    for (uint64_t test = 0; test < tests; test++) {
        uint64_t from = first + test * SEEDS_A_TEST;
        uint64_t to = from + SEEDS_A_TEST - 1 < last ? from + SEEDS_A_TEST - 1 : last;
        bool held = true;
        for (uint64_t seed = from; seed <= to; seed++) {
            held = run_seed(seed, trace) && held;
        }
        printf("%s %" PRIu64 " - seeds %" PRIu64 " to %" PRIu64 " keep the promises\n",
               held ? "ok" : "not ok", test + 1, from, to);
        fflush(stdout);
    }
    printf("# %" PRIu64 " steps, %" PRIu64 " requeued, %" PRIu64 " handed over, %" PRIu64
           " seeds failed\n",
           seen.steps, seen.requeued, seen.handed_over, failures);
    return failures == 0 ? 0 : 1;
}

static bool parse_range(const char *text, uint64_t *first, uint64_t *last)
{
    char *end = NULL;

    *first = strtoull(text, &end, 10);
    if (end == text) {
        return false;
    }
    *last = *first;
    if (strncmp(end, "..", 2) == 0) {
        text = end + 2;
        *last = strtoull(text, &end, 10);
    }
    return *end == '\0' && end != text && *last >= *first;
}

int main(int argc, char **argv)
{
    uint64_t first = 1;
    uint64_t last = 1000;
    bool trace = false;

    /* One world's memory is the next one's: given back in between it costs a third of all the time. */
    (void)mallopt(M_TRIM_THRESHOLD, MEMORY_KEPT);
    (void)mallopt(M_MMAP_THRESHOLD, MEMORY_KEPT);

    for (int i = 1; i < argc; i++) {
        bool takes = strcmp(argv[i], "--seeds") == 0 || strcmp(argv[i], "--seed") == 0;
        if (takes && i + 1 < argc && parse_range(argv[i + 1], &first, &last)) {
            i++;
        } else if (strcmp(argv[i], "--trace") == 0) {
            trace = true;
        } else {
            fprintf(stderr, "usage: %s [--seeds FIRST..LAST | --seed N] [--trace]\n", argv[0]);
            return 2;
        }
    }
    return run_seeds(first, last, trace);
}
