/* sweep_report.c -- what `sweep --once` found and did, as a table or as JSON. */
#include "cli/sweep_report.h"

#include "base/json.h"
#include "cli/console.h"

static void print_json(struct buf *out, const struct group_sweep *group)
{
    for (size_t i = 0; i < group->report_count; i++) {
        const struct owner_report *report = &group->reports[i];
        buf_append_text(out, "{\"stream\":");
        json_value(out, group->stream);
        buf_append_text(out, ",\"group\":");
        json_value(out, group->group);
        buf_append_text(out, ",\"consumer\":");
        json_value(out, report->name);
        buf_appendf(out,
                    ",\"state\":\"%s\",\"abandoned\":%llu,\"not_due\":%llu,\"parked\":%llu,"
                    "\"park_failed\":%llu,\"lost\":%llu,\"moved\":%llu}\n",
                    owner_state_name(report->state), (unsigned long long)report->due,
                    (unsigned long long)report->not_due, (unsigned long long)report->parked,
                    (unsigned long long)report->park_failed, (unsigned long long)report->reaped,
                    (unsigned long long)report->moved);
    }
}

static void print_table(struct buf *out, const struct group_sweep *group)
{
    char stream[64], name[64];

    buf_appendf(out, "%s%s%s, group %s\n", console_style(1, STYLE_BOLD),
                bytes_quote(group->stream, stream, sizeof(stream)), console_style(1, STYLE_END),
                bytes_quote(group->group, name, sizeof(name)));
    for (size_t i = 0; i < group->report_count; i++) {
        const struct owner_report *report = &group->reports[i];
        buf_appendf(out, "  %-24s %-8s abandoned %llu, not due %llu, parked %llu, lost %llu",
                    report->name.size == 0 ? "(nobody)"
                                           : bytes_quote(report->name, name, sizeof(name)),
                    owner_state_name(report->state), (unsigned long long)report->due,
                    (unsigned long long)report->not_due, (unsigned long long)report->parked,
                    (unsigned long long)report->reaped);
        if (group->action & (CLAIM_REQUEUE | CLAIM_HAND_OVER)) {
            buf_appendf(out, ", %s %llu",
                        group->action & CLAIM_REQUEUE ? "requeued" : "handed over",
                        (unsigned long long)report->moved);
        }
        if (report->park_failed > 0) {
            buf_appendf(out, ", could not %spark %llu",
                        group->action & CLAIM_REQUEUE ? "requeue or " : "",
                        (unsigned long long)report->park_failed);
        }
        buf_append_text(out, "\n");
    }
    if (group->report_count == 0) {
        buf_append_text(out, "  nothing is abandoned\n");
    }
}

int sweep_report_print(const struct sweep_list *list, bool json, struct impel_error *err)
{
    struct buf out;

    buf_init(&out, SIZE_MAX / 4);
    for (size_t i = 0; i < list->count; i++) {
        const struct swept *swept = list->items[i];
        if (swept->over && swept->sweep.status >= 0) {
            (json ? print_json : print_table)(&out, &swept->sweep);
        }
    }
    return console_print(&out, err);
}
