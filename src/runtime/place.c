/* place.c -- feeding a command, and remembering the end of what it says. */
#include "runtime/place.h"

#include <errno.h>
#include <unistd.h>

enum {
    EXIT_REJECT = 65, /* EX_DATAERR: the entry will never be any better */
};

bool place_feed(struct place *place)
{
    while (place->written < place->json.size) {
        ssize_t n = write(place->child.fds[CHILD_STDIN], place->json.data + place->written,
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

bool place_drain(struct place *place, int reads)
{
    char data[16 * 1024];
    while (reads-- > 0) {
        ssize_t n = read(place->child.fds[CHILD_STDERR], data, sizeof data);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 && errno == EAGAIN;
        }
        tail_keep(&place->tail, data, (size_t)n);
    }
    return true;
}

struct handler_result
place_result(const struct place *place, const siginfo_t *info, char *text, size_t size)
{
    struct handler_result result = {.outcome = OUTCOME_RETRY, .delay_ms = -1};
    if (info->si_code == CLD_EXITED && info->si_status == 0) {
        result.outcome = OUTCOME_DONE;
        return result;
    }
    child_end_text(info, text, size);
    if (info->si_code == CLD_EXITED && info->si_status == EXIT_REJECT) {
        result.outcome = OUTCOME_REJECT;
    } else if (place->cancelled && place->reason == CANCEL_STOP) {
        result.outcome = OUTCOME_RELEASE;
    }
    struct impel_bytes said = tail_text(&place->tail);
    result.error = said.size > 0 ? said : bytes_of(text);
    return result;
}
