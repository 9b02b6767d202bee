/* place.c -- feeding a command, and remembering the end of what it says. */
#include "runtime/place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    EXIT_REJECT = 65, /* EX_DATAERR: the entry will never be any better */
};

bool place_feed(struct place *place)
{
    while (place->written < place->json.size) {
        ssize_t n = write(place->fds[WATCH_STDIN], place->json.data + place->written,
                          place->json.size - place->written);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return errno != EAGAIN; /* EPIPE: a command need not read its input */
        }
        place->written += (size_t)n;
    }
    return true;
}

static void keep_tail(struct place *place, const char *data, size_t size)
{
    if (size > ERROR_SIZE_MAX) {
        data += size - ERROR_SIZE_MAX;
        size = ERROR_SIZE_MAX;
        place->tail_cut = true;
    }
    if (place->tail_size + size > ERROR_SIZE_MAX) {
        size_t drop = place->tail_size + size - ERROR_SIZE_MAX;
        memmove(place->tail, place->tail + drop, place->tail_size - drop);
        place->tail_size -= drop;
        place->tail_cut = true;
    }
    memcpy(place->tail + place->tail_size, data, size);
    place->tail_size += size;
}

bool place_drain(struct place *place, int reads)
{
    char data[16 * 1024];
    while (reads-- > 0) {
        ssize_t n = read(place->fds[WATCH_STDERR], data, sizeof data);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 && errno == EAGAIN;
        }
        keep_tail(place, data, (size_t)n);
    }
    return true;
}

/* The end of its standard error without blanks at the end, nor half a character in front. */
static struct impel_bytes tail_text(const struct place *place)
{
    size_t from = 0, to = place->tail_size;
    while (place->tail_cut && from < to && ((uint8_t)place->tail[from] & 0xc0) == 0x80) {
        from++;
    }
    while (to > from && strchr(" \t\r\n", place->tail[to - 1]) != NULL && place->tail[to - 1]) {
        to--;
    }
    return (struct impel_bytes){place->tail + from, to - from};
}

struct handler_result
place_result(const struct place *place, const siginfo_t *info, char *text, size_t size)
{
    struct handler_result result = {.outcome = OUTCOME_RETRY, .delay_ms = -1};
    if (info->si_code == CLD_EXITED && info->si_status == 0) {
        result.outcome = OUTCOME_DONE;
        return result;
    }
    if (info->si_code == CLD_EXITED) {
        (void)snprintf(text, size, "exit status %d", info->si_status);
    } else if (info->si_code == 0) {
        (void)snprintf(text, size, "its exit status was taken by another part of the program");
    } else {
        const char *name = sigabbrev_np(info->si_status);
        (void)snprintf(text, size, "killed by signal %d (%s%s)", info->si_status,
                       name != NULL ? "SIG" : "", name != NULL ? name : "?");
    }
    if (info->si_code == CLD_EXITED && info->si_status == EXIT_REJECT) {
        result.outcome = OUTCOME_REJECT;
    } else if (place->cancelled && place->reason == CANCEL_STOP) {
        result.outcome = OUTCOME_RELEASE;
    }
    struct impel_bytes said = tail_text(place);
    result.error = said.size > 0 ? said : bytes_of(text);
    return result;
}
