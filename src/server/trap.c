/* trap.c -- the end of a server whose file is damaged where LMDB cannot tell.
 *
 * LMDB trusts what it maps. A small file is walked before it is opened (pages.h); one that is too large
 * for that, or is damaged while it is served, may send LMDB out of its map, into a part of the map
 * that the file does not reach, beyond its own copies of pages, or to one of its assertions; or it tells
 * the store to write there. That is no crash of ours to dump a core of: the server says what it is and
 * ends, and whoever opens the file next walks all of it.
 * Aborts, and faults anywhere else, may come of damage, too: LMDB copies pages into the heap and believes
 * what they say of their size. That is said, the file is walked by whoever opens it next, and the signal
 * goes on to whoever handled it before. */
#include "server/state.h"

#include <sys/stat.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if __has_include(<execinfo.h>) /* musl has none: then only what lies in the map is told of */
#include <execinfo.h>
#else
#define backtrace(frames, count) 0
#endif

enum {
    STACK_SIZE = 64 * 1024,
    TEXT_SIZE = 4352,
    TRAPS = 5,
    FRAMES_MAX = 16,
};

static const int numbers[TRAPS] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};

static struct {
    struct server *server;
    uintptr_t map, map_end;   /* of the file */
    uintptr_t code, code_end; /* of LMDB */
    struct sigaction before[TRAPS];
    stack_t stack_before;
    void *stack;
    /* Made before, for a handler may do next to nothing. */
    char text[TEXT_SIZE], crash_text[TEXT_SIZE];
    size_t text_size, crash_size;
} trap;

static void give_up(void)
{
    struct side *side = &trap.server->engine.env->side;

    atomic_store(&side->header->suspect, 1);
    (void)!write(STDERR_FILENO, trap.text, trap.text_size);
    _exit(1);
}

/* LMDB is among those who called what went wrong. */
static bool is_within_lmdb(void)
{
    void *frames[FRAMES_MAX];
    int count = backtrace(frames, FRAMES_MAX);

    for (int i = 0; i < count; i++) {
        if ((uintptr_t)frames[i] >= trap.code && (uintptr_t)frames[i] < trap.code_end) {
            return true;
        }
    }
    return false;
}

/* The store was filling what LMDB gave it for a row. */
static bool is_in_room(uintptr_t at)
{
    const MDB_val *room = &trap.server->engine.txn.room;
    return at - (uintptr_t)room->mv_data < room->mv_size;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    bool fault = info->si_code > 0 && number != SIGABRT; /* neither raised nor sent */

    (void)context;
    if (fault && ((at >= trap.map && at < trap.map_end) || is_in_room(at) || is_within_lmdb())) {
        give_up();
    }
    atomic_store(&trap.server->engine.env->side.header->suspect, 1);
    (void)!write(STDERR_FILENO, trap.crash_text, trap.crash_size);
    for (size_t i = 0; i < TRAPS; i++) {
        if (numbers[i] == number) {
            sigaction(number, &trap.before[i], NULL);
        }
    }
    if (!fault) { /* a fault happens again when this returns */
        (void)raise(number);
    }
}

static void on_assert(MDB_env *env, const char *text)
{
    (void)env;
    (void)text;
    give_up();
}

/* "START-END MODE OFFSET DEVICE INODE ...", the first two in hexadecimal. */
static bool
read_mapping(const char *line, uintptr_t *start, uintptr_t *end, unsigned long long *inode)
{
    char *at;

    *start = (uintptr_t)strtoull(line, &at, 16);
    if (*at != '-') {
        return false;
    }
    *end = (uintptr_t)strtoull(at + 1, &at, 16);
    for (int words = 0; words < 3; words++) {
        at += strspn(at, " ");
        at += strcspn(at, " ");
    }
    const char *digits = at;
    *inode = strtoull(digits, &at, 10);
    return at != digits;
}

/* Where the file is mapped: the widest of its mappings; and LMDB's code. */
static void find_map(const char *path)
{
    char line[4608];
    uintptr_t known = (uintptr_t)mdb_cursor_del;
    struct stat st;
    FILE *maps = stat(path, &st) == 0 ? fopen("/proc/self/maps", "re") : NULL;

    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        uintptr_t start = 0, end = 0;
        unsigned long long inode = 0;
        if (!read_mapping(line, &start, &end, &inode)) {
            continue;
        }
        if (inode == (unsigned long long)st.st_ino && end - start > trap.map_end - trap.map) {
            trap.map = start;
            trap.map_end = end;
        }
        if (known >= start && known < end) {
            trap.code = start;
            trap.code_end = end;
        }
    }
    if (maps != NULL) {
        (void)fclose(maps);
    }
}

/* "impel serve: BEFORE PATH AFTER" */
static size_t make_text(char *text, const char *before, const char *path, const char *after)
{
    int size = snprintf(text, TEXT_SIZE, "impel serve: %s%s%s\n", before, path, after);
    return size < 0 ? 0 : (size_t)size < TEXT_SIZE ? (size_t)size : TEXT_SIZE - 1;
}

void trap_set(struct server *server)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct env_options *store = &server->store;

    trap.server = server;
    trap.stack = malloc(STACK_SIZE);
    if (trap.stack == NULL) {
        return; /* then a fault is a crash */
    }
    find_map(store->path);
    (void)is_within_lmdb(); /* the first call may have something to load */
    trap.text_size = make_text(trap.text, "", store->path,
                               " is damaged (LMDB could not go on): see `impel check`");
    trap.crash_size = make_text(trap.crash_text, "crashed while it had ", store->path,
                                " open: if `impel check` finds that damaged, this is why");
    stack_t stack = {.ss_sp = trap.stack, .ss_size = STACK_SIZE};
    (void)sigaltstack(&stack, &trap.stack_before);
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < TRAPS; i++) {
        sigaction(numbers[i], &action, &trap.before[i]);
    }
    (void)mdb_env_set_assert(server->engine.env->mdb, on_assert);
}

void trap_release(void)
{
    if (trap.stack == NULL) {
        return;
    }
    for (size_t i = 0; i < TRAPS; i++) {
        sigaction(numbers[i], &trap.before[i], NULL);
    }
    (void)sigaltstack(&trap.stack_before, NULL);
    free(trap.stack);
    trap.stack = NULL;
    trap.map = trap.map_end = trap.code = trap.code_end = 0;
}
