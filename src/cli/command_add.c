/* command_add.c -- impel add: one entry from words, or many from JSON Lines.
 *
 * Lines go in batches: all that is submitted between two turns of the store is one transaction. A
 * batch ends early when the input pauses, so that a slow writer's lines are not kept waiting. TERM or
 * INT ends it behind the lines that were read, and says which is the last; a second one at once. */
#include "cli/command.h"
#include "cli/console.h"
#include "cli/jsonl.h"
#include "cli/session.h"

#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum {
    BATCH_ENTRIES_MAX = 1000,
    BATCH_BYTES_MAX = 8 << 20,
    STOP_LOOK_MS = 100,  /* between two looks at whether it is to end */
    STOP_LOOKS_MAX = 20, /* with which a store that does not answer is waited for then */
};

static int stop_pipe[2] = {-1, -1};

static void on_signal(int number)
{
    (void)number;
    (void)!write(stop_pipe[1], "", 1);
}

static int catch_signals(struct impel_error *err)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    struct sigaction before;
    static const int numbers[] = {SIGTERM, SIGINT};

    if (pipe2(stop_pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
        return error_set(err, IMPEL_ERR_IO, "no pipe: %s", strerror(errno));
    }
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        /* Who starts it in a shell's background wants it to go on through an INT. */
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            sigaction(numbers[i], &action, NULL);
        }
    }
    return IMPEL_OK;
}

static bool stop_wanted(void)
{
    struct pollfd stop = {.fd = stop_pipe[0], .events = POLLIN};
    return poll(&stop, 1, 0) > 0;
}

struct bulk {
    struct store *store;
    const struct options *options;
    struct impel_bytes stream;
    struct request *requests[BATCH_ENTRIES_MAX];
    uint64_t lines[BATCH_ENTRIES_MAX]; /* where each came from */
    bool over[BATCH_ENTRIES_MAX];
    size_t count;
    size_t size_bytes;
    uint64_t added;
    uint64_t last_line; /* that was added */
    bool given_up;      /* the store has the batch still: it is freed behind it */
};

static void fill_request(struct request *request, const struct options *options)
{
    request->add.id = options->id;
    request->add.no_create = options->no_create;
    request->add.length_max = options->max_length;
}

static void request_over(struct request *request)
{
    bool *over = request->owner;
    *over = true;
}

/* A stream that is missing is an error only because it was asked for. */
static int not_created(const struct request *request, struct impel_error *err)
{
    char stream[128];
    return error_set(err, request->status,
                     "there is no stream '%s', and it may not be created (--no-create)",
                     bytes_quote(request->stream, stream, sizeof(stream)));
}

/* The error of a request, said of its line. */
static int line_failed(const struct request *request, uint64_t line, struct impel_error *err)
{
    if (request->status == IMPEL_ERR_NOT_FOUND && request->add.no_create) {
        return not_created(request, err);
    }
    return error_set(err, request->status, "line %llu: %s", (unsigned long long)line,
                     request->error.text[0] != '\0' ? request->error.text
                                                    : status_text(request->status));
}

/* The lines of one outcome, as "9, 12-17". Batches have no blank lines, so what stands between may be one. */
struct line_ranges {
    struct buf text;
    uint64_t first, last; /* not in the text yet; 0 = none */
    size_t index;         /* of `last` in the batch */
};

static void ranges_flush(struct line_ranges *ranges)
{
    if (ranges->first > 0) {
        buf_appendf(&ranges->text, "%s%llu", ranges->text.size > 0 ? ", " : "",
                    (unsigned long long)ranges->first);
    }
    if (ranges->last > ranges->first) {
        buf_appendf(&ranges->text, "-%llu", (unsigned long long)ranges->last);
    }
    ranges->first = ranges->last = 0;
}

static void ranges_add(struct line_ranges *ranges, size_t index, uint64_t line)
{
    if (ranges->first > 0 && index != ranges->index + 1) {
        ranges_flush(ranges);
    }
    ranges->first = ranges->first > 0 ? ranges->first : line;
    ranges->last = line;
    ranges->index = index;
}

/* May a request that failed have been carried out? See impel/types.h. */
static bool is_unknown(const struct request *request)
{
    int status = request->status;
    if (request->unsent) {
        return false;
    }
    return status == IMPEL_ERR_TIMEOUT || status == IMPEL_ERR_DISCONNECTED ||
           status == IMPEL_ERR_PROTOCOL || status == IMPEL_ERR_IO || status == IMPEL_ERR_NOMEM;
}

/* One that is refused does not keep those behind it in the batch from being added: who goes on from the
 * first would add them twice, so it is said which are in and which are not. */
static void tell_failed(const struct bulk *bulk)
{
    struct line_ranges refused = {.first = 0}, unknown = {.first = 0};
    bool added_behind = false, some_added = bulk->lines[0] > 1;

    buf_init(&refused.text, 1 << 16);
    buf_init(&unknown.text, 1 << 16);
    for (size_t i = 0; i < bulk->count; i++) {
        if (bulk->requests[i]->status < 0) {
            ranges_add(is_unknown(bulk->requests[i]) ? &unknown : &refused, i, bulk->lines[i]);
        } else {
            some_added = true;
            added_behind = added_behind || refused.last > 0 || unknown.last > 0;
        }
    }
    bool some_unknown = unknown.last > 0;
    ranges_flush(&refused);
    ranges_flush(&unknown);
    if (some_unknown) {
        console_error("whether these lines were added is not known: %.*s", (int)unknown.text.size,
                      (const char *)unknown.text.data);
    }
    if (refused.text.size > 0 && (added_behind || some_unknown)) {
        console_error("lines that were not added: %.*s", (int)refused.text.size,
                      (const char *)refused.text.data);
    }
    if (added_behind || (some_unknown && some_added)) {
        console_error("all others up to line %llu were added, and none behind it",
                      (unsigned long long)bulk->lines[bulk->count - 1]);
    }
    buf_release(&refused.text);
    buf_release(&unknown.text);
}

/* Requests are answered in their order: the last one is the end. False if it is to end and the store does
 * not answer. */
static bool bulk_wait(struct bulk *bulk, struct request *last)
{
    unsigned looks = 0;

    while (store_wait(bulk->store, last, STOP_LOOK_MS) == IMPEL_ERR_TIMEOUT) {
        looks += stop_wanted();
        if (looks > STOP_LOOKS_MAX) {
            return false;
        }
    }
    return true;
}

static int give_up(struct bulk *bulk, struct impel_error *err)
{
    bulk->given_up = true;
    return error_set(err, IMPEL_ERR_CANCELLED,
                     "stopped while the store did not answer: %llu lines were added; whether lines "
                     "%llu to %llu were is not known, and none behind them was",
                     (unsigned long long)bulk->added, (unsigned long long)bulk->lines[0],
                     (unsigned long long)bulk->lines[bulk->count - 1]);
}

/* Hands the batch to the store, waits for all of it and counts what was added. */
static int bulk_flush(struct bulk *bulk, struct impel_error *err)
{
    size_t count = bulk->count;
    int rc = IMPEL_OK;

    if (count == 0 || bulk->given_up) {
        return IMPEL_OK;
    }
    for (size_t i = 0; i + 1 < count; i++) {
        bulk->over[i] = false;
        bulk->requests[i]->owner = &bulk->over[i];
        bulk->requests[i]->done = request_over;
        store_submit(bulk->store, bulk->requests[i]);
    }
    if (!bulk_wait(bulk, bulk->requests[count - 1])) {
        return give_up(bulk, err);
    }
    for (size_t i = 0; i < count; i++) {
        ASSERT(i + 1 == count || bulk->over[i]);
        if (bulk->requests[i]->status >= 0) {
            bulk->added++;
            bulk->last_line = bulk->lines[i];
        } else if (rc >= 0) {
            rc = line_failed(bulk->requests[i], bulk->lines[i], err);
        }
    }
    if (rc < 0) {
        tell_failed(bulk);
    }
    for (size_t i = 0; i < count; i++) {
        request_free(bulk->requests[i]);
    }
    bulk->count = 0;
    bulk->size_bytes = 0;
    return rc;
}

static int
bulk_add(struct bulk *bulk, struct impel_bytes line, uint64_t number, struct impel_error *err)
{
    struct request *request = session_request(REQUEST_ADD, bulk->stream, (struct impel_bytes){0});
    struct impel_field *fields;
    struct impel_error why;
    int rc;

    if (request == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    rc = jsonl_parse(line, &request->arena, &fields, &request->add.field_count, &why);
    if (rc < 0) {
        request_free(request);
        return error_set(err, rc, "line %llu, %s", (unsigned long long)number, why.text);
    }
    request->add.fields = fields;
    fill_request(request, bulk->options);
    bulk->requests[bulk->count] = request;
    bulk->lines[bulk->count] = number;
    bulk->count++;
    bulk->size_bytes += line.size;
    if (bulk->count == BATCH_ENTRIES_MAX || bulk->size_bytes >= BATCH_BYTES_MAX) {
        return bulk_flush(bulk, err);
    }
    return IMPEL_OK;
}

static bool is_blank(struct impel_bytes line)
{
    const char *data = line.data;
    for (size_t i = 0; i < line.size; i++) {
        if (data[i] != ' ' && data[i] != '\t' && data[i] != '\r') {
            return false;
        }
    }
    return true;
}

static int add_lines(struct bulk *bulk,
                     struct line_reader *reader,
                     struct progress *progress,
                     struct impel_error *err)
{
    struct impel_bytes line;
    int rc;

    for (;;) {
        if (bulk->count > 0 && line_reader_would_wait(reader)) {
            rc = bulk_flush(bulk, err);
            if (rc < 0) {
                return rc;
            }
        }
        rc = line_reader_next(reader, &line, err);
        if (rc <= 0) {
            break;
        }
        if (!is_blank(line)) {
            rc = bulk_add(bulk, line, reader->line, err);
            if (rc < 0) {
                break;
            }
        }
        progress_show(progress, reader->taken, bulk->added);
    }
    /* What came before a bad line is good, and goes in; of two errors the first is told. */
    bool stopped = rc == IMPEL_ERR_CANCELLED && !bulk->given_up;
    int flushed = bulk_flush(bulk, rc < 0 && !stopped ? NULL : err);
    if (stopped && flushed >= 0) {
        return error_set(err, rc,
                         "stopped by a signal: lines up to %llu were added, and none behind it",
                         (unsigned long long)bulk->last_line);
    }
    return rc < 0 ? rc : flushed;
}

static int open_input(const struct options *options, int *fd, struct impel_error *err)
{
    const char *path = options->words.count == 0 ? "-" : options->words.texts[0];

    if (options->words.count + options->tail.count > 1) {
        return error_set(err, IMPEL_ERR_INVALID, "--jsonl takes one file");
    }
    if (strcmp(path, "-") == 0) {
        *fd = STDIN_FILENO;
        return IMPEL_OK;
    }
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) {
        return error_set(err, IMPEL_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    }
    return IMPEL_OK;
}

static int add_jsonl(struct bulk *bulk, struct impel_error *err)
{
    struct progress progress;
    struct line_reader reader;
    struct stat file;
    int fd = -1, rc;

    rc = open_input(bulk->options, &fd, err);
    rc = rc < 0 ? rc : catch_signals(err);
    if (rc < 0) {
        return rc;
    }
    bool regular = fstat(fd, &file) == 0 && S_ISREG(file.st_mode);
    progress_init(&progress, "adding", regular ? (uint64_t)file.st_size : 0);
    line_reader_init(&reader, fd);
    reader.stop_fd = stop_pipe[0];
    rc = add_lines(bulk, &reader, &progress, err);
    progress_end(&progress);
    line_reader_release(&reader);
    if (fd != STDIN_FILENO) {
        close(fd);
    }
    console_outf("%llu\n", (unsigned long long)bulk->added);
    return rc;
}

/* ---- one entry ---- */

static int parse_words(const struct text_list *words,
                       struct impel_field *fields,
                       size_t *count,
                       struct impel_error *err)
{
    char quoted[64];

    for (size_t i = 0; i < words->count; i++) {
        const char *word = words->texts[i];
        const char *sign = strchr(word, '=');
        if (sign == NULL) {
            return error_set(err, IMPEL_ERR_INVALID, "'%s' is no FIELD=VALUE",
                             bytes_quote(bytes_of(word), quoted, sizeof(quoted)));
        }
        fields[(*count)++] =
            (struct impel_field){{word, (size_t)(sign - word)}, bytes_of(sign + 1)};
    }
    return IMPEL_OK;
}

static int add_words(struct bulk *bulk, struct impel_error *err)
{
    const struct options *options = bulk->options;
    size_t count = 0, most = options->words.count + options->tail.count;
    struct request *request = session_request(REQUEST_ADD, bulk->stream, (struct impel_bytes){0});
    struct impel_field *fields =
        request == NULL ? NULL : arena_calloc(&request->arena, most, sizeof(*fields));
    char id[ID_TEXT_SIZE];
    int rc;

    if (fields == NULL) {
        request_free(request);
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    rc = parse_words(&options->words, fields, &count, err);
    if (rc >= 0) {
        rc = parse_words(&options->tail, fields, &count, err);
    }
    if (rc >= 0) {
        request->add.fields = fields;
        request->add.field_count = count;
        fill_request(request, options);
        rc = session_ask(bulk->store, request, err);
        if (rc == IMPEL_ERR_NOT_FOUND && options->no_create) {
            rc = not_created(request, err);
        }
    }
    if (rc >= 0) {
        console_outf("%s\n", id_format(request->add.id, id));
    }
    request_free(request);
    return rc;
}

int command_add(struct options *options, struct impel_error *err)
{
    struct bulk *bulk = NULL;
    struct store *store = NULL;
    struct impel_bytes stream;
    int rc;

    rc = command_one_stream(options, &stream, err);
    if (rc < 0) {
        return rc;
    }
    if (option_given(options, "id") && id_is_zero(options->id)) {
        return error_set(err, IMPEL_ERR_INVALID, "an entry's ID must be greater than 0-0");
    }
    if (!options->jsonl && options->words.count + options->tail.count == 0) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "nothing to add: give FIELD=VALUE words, or --jsonl");
    }
    rc = session_open(options, &store, err);
    if (rc < 0) {
        return rc;
    }
    bulk = arena_calloc(&options->arena, 1, sizeof(*bulk));
    if (bulk == NULL) {
        rc = error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    } else {
        bulk->store = store;
        bulk->options = options;
        bulk->stream = stream;
        rc = options->jsonl ? add_jsonl(bulk, err) : add_words(bulk, err);
    }
    store_close(store);
    for (size_t i = 0; bulk != NULL && i < bulk->count; i++) {
        request_free(bulk->requests[i]); /* of a batch that was given up */
    }
    return rc < 0 ? rc : EXIT_DONE;
}
