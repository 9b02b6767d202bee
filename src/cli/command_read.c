/* command_read.c -- impel read: a range of a stream as JSON Lines, page by page. */
#include "base/json.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/pages.h"

struct printing {
    struct buf line;
    bool any; /* something was printed */
};

static int print_entry(void *user, struct impel_bytes stream, const struct entry *entry)
{
    struct printing *printing = user;
    struct buf *line = &printing->line;
    char id[ID_TEXT_SIZE];

    buf_clear(line);
    buf_appendf(line, "{\"id\":\"%s\",\"stream\":", id_format(entry->id, id));
    json_value(line, stream);
    buf_append_text(line, ",\"fields\":");
    json_fields(line, entry->fields, entry->field_count);
    buf_append_text(line, "}\n");
    if (!line->failed) {
        console_out(buf_bytes(line));
        printing->any = true;
    }
    return buf_status(line);
}

int command_read(struct options *options, struct impel_error *err)
{
    struct store *store = NULL;
    struct impel_bytes stream;
    struct printing printing = {0};
    int rc;

    rc = command_one_stream(options, &stream, err);
    if (rc < 0) {
        return rc;
    }
    rc = session_open_existing(options, &store, err);
    if (rc < 0) {
        return rc;
    }
    buf_init(&printing.line, SIZE_MAX / 4);
    struct pages pages = {
        .store = store,
        .stream = stream,
        .start = options->start,
        .end = option_given(options, "end") ? options->end : ID_MAX,
        .count = (uint64_t)options->count,
        .reverse = options->reverse,
        .entry = print_entry,
        .user = &printing,
    };
    rc = pages_walk(&pages, err);
    if (rc >= 0 && !printing.any) {
        rc = session_check_stream(store, stream, err);
    }
    buf_release(&printing.line);
    store_close(store);
    return rc < 0 ? rc : EXIT_DONE;
}
