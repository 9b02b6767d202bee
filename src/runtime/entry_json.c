/* entry_json.c -- an entry as a JSON object. */
#include "runtime/entry_json.h"

#include "base/json.h"

#include <inttypes.h>

void entry_json(struct buf *buf, const struct entry *entry, const struct entry_origin *origin)
{
    char id[ID_TEXT_SIZE];
    buf_appendf(buf, "{\"id\":\"%s\",\"stream\":", id_format(entry->id, id));
    json_value(buf, origin->stream);
    if (origin->group.data != NULL) {
        buf_append_text(buf, ",\"group\":");
        json_value(buf, origin->group);
        buf_append_text(buf, ",\"consumer\":");
        json_value(buf, origin->consumer);
        buf_appendf(buf, ",\"attempt\":%" PRId64, origin->attempt);
    }
    buf_append_text(buf, ",\"fields\":");
    json_fields(buf, entry->fields, entry->field_count);
    buf_append_text(buf, "}\n");
}
