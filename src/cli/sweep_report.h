/* sweep_report.h -- what `sweep --once` found and did, owner by owner. */
#ifndef IMPEL_CLI_SWEEP_REPORT_H
#define IMPEL_CLI_SWEEP_REPORT_H

#include "cli/sweep_list.h"

/* Prints the groups whose one pass is over to standard output. */
int sweep_report_print(const struct sweep_list *list, bool json, struct impel_error *err);

#endif /* IMPEL_CLI_SWEEP_REPORT_H */
