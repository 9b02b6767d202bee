/* text.c -- the small parts of the API: statuses and IDs in words. */
#include "base/base.h"
#include "core/id.h"
#include "impel/id.h"
#include "impel/version.h"

_Static_assert((int)IMPEL_ID_TEXT_SIZE >= (int)ID_TEXT_SIZE, "the public size holds every ID");

const char *impel_status_text(int status)
{
    return status_text(status);
}

const char *impel_id_format(struct impel_id id, char *text)
{
    return id_format(id, text);
}

int impel_id_parse(struct impel_bytes text, struct impel_id *id)
{
    return id_parse(text, 0, id);
}

int impel_id_compare(struct impel_id a, struct impel_id b)
{
    return id_compare(a, b);
}
