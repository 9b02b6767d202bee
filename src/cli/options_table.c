/* options_table.c -- every option there is. The order is the one of the help. */
#include "cli/options.h"

#define AT(MEMBER) .offset = offsetof(struct options, MEMBER)

enum {
    WITH_GROUP =
        COMMAND_RUN | COMMAND_SWEEP | COMMAND_STATUS | COMMAND_DEAD | COMMAND_EXPLAIN | COMMAND_TOP,
    WITH_POLICY = COMMAND_RUN | COMMAND_SWEEP | COMMAND_STATUS | COMMAND_EXPLAIN | COMMAND_TOP,
    WITH_STORE = COMMAND_ALL & ~(unsigned)(COMMAND_VERSION | COMMAND_HELP | COMMAND_COPY),
};

/* clang-format off */
const struct option_spec option_table[] = {
    {"store", "URL", "lmdb:./impel.db", "IMPEL_STORE", NULL,
     "Where the streams live. lmdb:PATH is the embedded store, a file on this machine that any "
     "number of processes may use at once; lmdb:PATH?sync=process writes without waiting for the "
     "disk, which survives the death of every process, but not of the machine. "
     "A Redis or Valkey server is (redis|valkey)://[USER:PASSWORD@]HOST[:PORT][/DB], over TLS "
     "(rediss|valkeys)://... or, over a socket, \"unix:///PATH[?db=N]\".",
     OPTION_TEXT, WITH_STORE, 0, 0, AT(store), false},
    {"connect-timeout", "DURATION", "0", NULL, NULL,
     "A server that cannot be reached is tried again for this long, at the start and whenever the "
     "connection was lost; then the command fails. 0 = run, and sweep without --once, try for ever, all "
     "else once.",
     OPTION_DURATION, (WITH_STORE | COMMAND_COPY) & ~(unsigned)COMMAND_SERVE, 0, 0,
     AT(connect_timeout_ms), false},
    {"tls-ca", "FILE", NULL, NULL, NULL,
     "For a rediss:// store: believe the authorities in FILE (PEM) instead of the system's. serve: let in only "
     "clients with a certificate of these.",
     OPTION_TEXT, WITH_STORE | COMMAND_COPY, 1, 0, AT(tls_ca), false},
    {"tls-cert", "FILE", NULL, NULL, NULL,
     "For a rediss:// store: the certificate to show (PEM, followed by those that lead to its authority), read at "
     "every connection. serve: speak TLS on every --listen, with this one; HUP makes it read its files anew.",
     OPTION_TEXT, WITH_STORE | COMMAND_COPY, 1, 0, AT(tls_cert), false},
    {"tls-key", "FILE", NULL, NULL, NULL,
     "The private key of --tls-cert, not encrypted.",
     OPTION_TEXT, WITH_STORE | COMMAND_COPY, 1, 0, AT(tls_key), false},
    {"tls-name", "HOST", NULL, NULL, NULL,
     "For a rediss:// store: the name or address that its certificate must have, and that is asked for (SNI); by "
     "default the URL's host. For tunnels, and for servers that are reached by another name.",
     OPTION_TEXT, (WITH_STORE | COMMAND_COPY) & ~(unsigned)COMMAND_SERVE, 1, 0, AT(tls_name), false},
    {"stream", "STREAM", NULL, NULL, NULL,
     "The stream. run, sweep, status, top, trim and copy take several: give the option again. For all of "
     "these but run a name with *, ? or [...] in it is a pattern, in which \\ takes the next sign as it is: "
     "the stream a*b is a\\*b.",
     OPTION_LIST, WITH_GROUP | COMMAND_ADD | COMMAND_READ | COMMAND_TRIM | COMMAND_COPY, 1, 0, AT(streams), false},
    {"group", "GROUP", NULL, NULL, NULL,
     "The consumer group. sweep, status and top take several, and patterns, as with --stream.",
     OPTION_LIST, WITH_GROUP, 1, 0, AT(group_names), false},
    {"consumer", "NAME", NULL, NULL, NULL,
     "The worker's name in the group. Two live workers cannot have the same one. Without it a worker "
     "takes the lowest free name HOST-N.",
     OPTION_TEXT, COMMAND_RUN, 1, 0, AT(consumer), false},
    {"dead-letter", "STREAM", NULL, NULL, NULL,
     "Where parked entries go; by default STREAM:dead.",
     OPTION_TEXT, WITH_GROUP, 1, 0, AT(dead_letter), false},

    {"min-idle", "DURATION", "60s", NULL, NULL,
     "An entry held by a worker that is not Impel's, and so does not beat, counts as abandoned after "
     "this long.",
     OPTION_DURATION, WITH_POLICY, 1, 0, AT(min_idle_ms), false},
    {"dead-after", "DURATION", "5s", NULL, NULL,
     "A worker of Impel's that is silent for this long counts as dead. At least 3s where a machine "
     "may be busy.",
     OPTION_DURATION, WITH_POLICY | COMMAND_DRILL, 100, 0, AT(dead_after_ms), false},
    {"max-deliveries", "N", "5", NULL, NULL,
     "An entry that was delivered this often without being done is parked.",
     OPTION_NUMBER, WITH_POLICY, 1, INT64_MAX, AT(max_deliveries), false},
    {"backoff", "FROM..TO", "1s..5m", NULL, NULL,
     "How long a failed entry waits for its next attempt: FROM after the first, doubled each time, at "
     "most TO. One duration alone is a wait that stays the same.",
     OPTION_RANGE, WITH_POLICY, 0, 0, AT(backoff), false},

    {"pipe", NULL, NULL, NULL, NULL,
     "Start COMMAND once and give it all entries, a line of JSON each on its standard input; for each it writes a "
     "line with the outcome to its standard output.",
     OPTION_FLAG, COMMAND_RUN, 0, 0, AT(pipe), false},
    {"processes", "N", "1", NULL, NULL,
     "With --pipe: how many processes of COMMAND there are. What runs at once is spread over them.",
     OPTION_NUMBER, COMMAND_RUN, 1, 1000, AT(processes), false},
    {"concurrency", "N", "1", NULL, NULL,
     "How many handlers run at once; with --pipe how many entries are in the processes' hands, at least one for "
     "each.",
     OPTION_NUMBER, COMMAND_RUN, 1, 100000, AT(concurrency), false},
    {"prefetch", "N|auto", "auto", NULL, NULL,
     "How many entries are held beyond those that run. auto: as many as will start within half a "
     "second, going by the handler's recent times.",
     OPTION_NUMBER, COMMAND_RUN, -1, 1000000, AT(prefetch), false},
    {"max-waiting", "N", "10000", NULL, NULL,
     "How many failed entries may wait for their next attempt before reading stops.",
     OPTION_NUMBER, COMMAND_RUN, 1, 10000000, AT(max_waiting), false},
    {"timeout", "DURATION", "15m", NULL, NULL,
     "A handler that takes longer is killed, TERM first, and its entry counts as failed. Time in which the "
     "machine slept or the worker was stopped does not count. 0 = never. With --pipe that is the process, "
     "which is started again; what else it had is given to others, and no attempt is counted for it. The time runs "
     "for the entry that a process has had longest.",
     OPTION_DURATION, COMMAND_RUN, 0, 0, AT(timeout_ms), false},
    {"grace", "DURATION", "25s", NULL, NULL,
     "After TERM, INT or HUP, running handlers may go on for this long; the rest is handed back at once, "
     "and no attempt is counted for it.",
     OPTION_DURATION, COMMAND_RUN, 0, 0, AT(grace_ms), false},
    {"until-idle", "DURATION", NULL, NULL, NULL,
     "End with exit code 0 when nothing of the group is undelivered or pending. With =DURATION give "
     "up after that, with exit code 1.",
     OPTION_MAYBE, COMMAND_RUN, 0, 0, AT(until_idle), false},
    {"recover-only", NULL, NULL, NULL, NULL,
     "Read nothing new; take over only what others dropped.",
     OPTION_FLAG, COMMAND_RUN, 0, 0, AT(recover_only), false},
    {"strict", NULL, NULL, NULL, NULL,
     "Count an entry as done only if it is still this worker's.",
     OPTION_FLAG, COMMAND_RUN, 0, 0, AT(strict), false},
    {"no-create", NULL, NULL, NULL, NULL,
     "A missing stream or group is an error. By default run creates both, the group from the "
     "stream's beginning, and add creates the stream.",
     OPTION_FLAG, COMMAND_RUN | COMMAND_ADD, 0, 0, AT(no_create), false},
    {"metrics-file", "PATH", NULL, NULL, NULL,
     "Write the counters there, in the text form of Prometheus, every second and at the end. The file "
     "is replaced in one step, so a reader never sees half of it. A sweep of many groups takes another "
     "millisecond for each.",
     OPTION_TEXT, COMMAND_RUN | COMMAND_SWEEP, 0, 0, AT(metrics_file), false},

    {"once", NULL, NULL, NULL, NULL,
     "One pass, and end. The pass begins after watching the workers' beats for --dead-after, so that "
     "nobody is judged by old news; longer if a worker that holds entries is silent and has a longer "
     "--dead-after of its own. top: print the groups once, as plain text, and end.",
     OPTION_FLAG, COMMAND_SWEEP | COMMAND_TOP, 0, 0, AT(once), true},
    {"interval", "DURATION", "1s", NULL, NULL,
     "How often a group is swept, whoever of its workers and sweeps does it; how often top asks the store.",
     OPTION_DURATION, COMMAND_SWEEP | COMMAND_TOP, 1, 0, AT(interval_ms), false},
    {"consumer-ttl", "DURATION", "1h", NULL, NULL,
     "Delete consumers that are not Impel's, hold nothing and were gone for this long; one that holds "
     "entries never is. Servers before Redis 7.2 do not say who asked in vain: there a consumer counts "
     "as gone only while others of its group are given entries. 0 = never.",
     OPTION_DURATION, COMMAND_SWEEP, 0, 0, AT(consumer_ttl_ms), false},
    {"requeue", NULL, NULL, NULL, NULL,
     "What is abandoned goes to the end of its stream again as a copy, and the original is acknowledged, "
     "in one step: workers that only read what is new get it once more. Refused where the stream has "
     "another group, to which the copy would be new work.",
     OPTION_FLAG, COMMAND_SWEEP, 0, 0, AT(requeue), false},
    {"hand-over", NULL, NULL, NULL, NULL,
     "What is abandoned is claimed for the live consumer that holds least, for workers that do read what "
     "they hold already. That counts as a delivery, like its reading; so twice --max-deliveries less one "
     "is the limit.",
     OPTION_FLAG, COMMAND_SWEEP, 0, 0, AT(hand_over), false},
    {"park", NULL, NULL, NULL, NULL,
     "All that is abandoned goes to the dead-letter stream, for a person to look at.",
     OPTION_FLAG, COMMAND_SWEEP, 0, 0, AT(park), false},
    {"report", NULL, NULL, NULL, NULL,
     "Only tell what is abandoned, by whom and since when, and what each way would do about it. Touches "
     "nothing at all: no beat is written, so where none was taken lately workers are unknown.",
     OPTION_FLAG, COMMAND_SWEEP, 0, 0, AT(report), true},
    {"budget", "N", "200", NULL, NULL,
     "Send the store at most N commands a second; 0 = no limit. A command looks at 1000 pending entries or "
     "moves 200.",
     OPTION_NUMBER, COMMAND_SWEEP, 0, 1000000, AT(budget), false},

    {"jsonl", NULL, NULL, NULL, NULL,
     "Add one entry for each line of FILE (- or nothing: standard input), a JSON object each. Values "
     "are strings; numbers and true or false become their text; {\"base64\":\"...\"} is for bytes that "
     "are no text; a list repeats the field.",
     OPTION_FLAG, COMMAND_ADD, 0, 0, AT(jsonl), true},
    {"id", "ID", NULL, NULL, NULL,
     "The entry's ID, greater than all before. By default the store makes one from its clock.",
     OPTION_ID, COMMAND_ADD, 0, 0, AT(id), true},
    {"max-length", "N", "-1", NULL, NULL,
     "Trim the stream to N entries after each add, also such as nobody has finished with.",
     OPTION_NUMBER, COMMAND_ADD, -1, INT64_MAX, AT(max_length), false},

    {"start", "ID", NULL, NULL, NULL,
     "The first ID to show; by default the stream's beginning.",
     OPTION_ID, COMMAND_READ | COMMAND_DEAD, 0, 0, AT(start), true},
    {"end", "ID", NULL, NULL, NULL,
     "The last ID to show; by default the stream's end.",
     OPTION_ID, COMMAND_READ | COMMAND_DEAD, 0, 1, AT(end), true},
    {"count", "N", "0", NULL, NULL,
     "Show at most N; 0 = all.",
     OPTION_NUMBER, COMMAND_READ | COMMAND_DEAD, 0, INT64_MAX, AT(count), true},
    {"reverse", NULL, NULL, NULL, NULL,
     "The newest first.",
     OPTION_FLAG, COMMAND_READ | COMMAND_DEAD, 0, 0, AT(reverse), true},
    {"reason", "REASON", NULL, NULL, NULL,
     "Only what was parked for this reason: max-deliveries, rejected, trimmed, abandoned.",
     OPTION_TEXT, COMMAND_DEAD, 0, 0, AT(reason), true},
    {"field", "NAME=PATTERN", NULL, NULL, NULL,
     "Only entries with a field NAME whose value is PATTERN, in which * stands for anything and ? for "
     "one byte. Given again: all of them must hold.",
     OPTION_LIST, COMMAND_DEAD, 3, 0, AT(fields), true},
    {"older-than", "DURATION", NULL, NULL, NULL,
     "Only what was parked at least this long ago.",
     OPTION_DURATION, COMMAND_DEAD, 1, 0, AT(older_than_ms), true},
    {"newer-than", "DURATION", NULL, NULL, NULL,
     "Only what was parked less than this long ago.",
     OPTION_DURATION, COMMAND_DEAD, 1, 0, AT(newer_than_ms), true},
    {"limit", "N", "0", NULL, NULL,
     "At most N records; 0 = all.",
     OPTION_NUMBER, COMMAND_DEAD, 0, INT64_MAX, AT(limit), true},
    {"to", "STREAM|URL", NULL, NULL, NULL,
     "dead: replay into this stream instead of the one that the entries came from. copy: the store that "
     "the streams are copied to; an embedded one is made if it is not there.",
     OPTION_TEXT, COMMAND_DEAD | COMMAND_COPY, 1, 0, AT(to), true},
    {"in-place", NULL, NULL, NULL, NULL,
     "Replay by making the original pending again in its group, under its own ID, as attempt 1: no "
     "other group sees it, and the order of the stream stays. Impel's workers and sweeps take it at "
     "once; readers of new entries only (XREADGROUP with >) do not see it.",
     OPTION_FLAG, COMMAND_DEAD, 0, 0, AT(in_place), true},
    {"all-groups", NULL, NULL, NULL, NULL,
     "Replay or requeue also where the stream has other groups, which all get the entries as new work.",
     OPTION_FLAG, COMMAND_DEAD | COMMAND_SWEEP, 0, 0, AT(all_groups), false},
    {"all", NULL, NULL, NULL, NULL,
     "Drop everything: needed where nothing else says which records.",
     OPTION_FLAG, COMMAND_DEAD, 0, 0, AT(all), true},
    {"rate", "N/s", NULL, NULL, NULL,
     "Replay at most so many records a second (or N/m a minute, N/h an hour).",
     OPTION_TEXT, COMMAND_DEAD, 1, 0, AT(rate), true},
    {"strip", "NAME", NULL, NULL, NULL,
     "A field of this name in a record that another tool wrote is the tool's, not the entry's. "
     "original_id, original_stream, original_group and reason are taken for that anyway.",
     OPTION_LIST, COMMAND_DEAD, 1, 0, AT(strip), true},
    {"audit", "STREAM", NULL, NULL, NULL,
     "Where replay and drop leave a line of who did what, in the same step; by default the "
     "dead-letter stream with :audit behind it. \"\" = nowhere.",
     OPTION_TEXT, COMMAND_DEAD, 0, 0, AT(audit), false},

    {"workers", "N", "4", NULL, NULL,
     "How many worker processes take part.",
     OPTION_NUMBER, COMMAND_DRILL, 2, 64, AT(workers), true},
    {"kills", "N", "2", NULL, NULL,
     "How many of them are killed with SIGKILL while they hold entries; at least one is left.",
     OPTION_NUMBER, COMMAND_DRILL, 1, 63, AT(kills), true},
    {"entries", "N", "0", NULL, NULL,
     "How many entries; 0 = the command's own choice.",
     OPTION_NUMBER, COMMAND_DRILL | COMMAND_BENCH, 0, 100000000, AT(entries), true},
    {"keep-scene", NULL, NULL, NULL, NULL,
     "Leave the drill's folder and stream in place, and say where they are.",
     OPTION_FLAG, COMMAND_DRILL, 0, 0, AT(keep_scene), true},

    {"trim", NULL, NULL, NULL, NULL,
     "Once a minute remove from the streams what every group has finished with, as impel trim does.",
     OPTION_FLAG, COMMAND_SWEEP, 0, 0, AT(trim), false},
    {"keep", "DURATION|N", NULL, NULL, NULL,
     "Leave entries that are younger than DURATION, or the last N, although all groups have finished "
     "with them.",
     OPTION_KEEP, COMMAND_TRIM | COMMAND_SWEEP, 0, 0, AT(keep), false},
    {"ignore-group", "GROUP", NULL, NULL, NULL,
     "This group holds nothing back: what it has not finished with may go, and is then lost for it. For "
     "a group that is stalled and will not come back. May be repeated.",
     OPTION_LIST, COMMAND_TRIM | COMMAND_SWEEP, 1, 0, AT(ignored_groups), false},
    {"stalled-after", "DURATION", "1h", NULL, NULL,
     "A group with unfinished work counts as stalled when no worker of it is alive and none of its "
     "consumers was seen for this long; without a consumer, when what it has not read is this old: servers do "
     "not tell a group's age, so a new one over old entries counts as stalled until somebody reads.",
     OPTION_DURATION, COMMAND_TRIM | COMMAND_SWEEP, 0, 0, AT(stalled_after_ms), false},
    {"dry-run", NULL, NULL, NULL, NULL,
     "Only show what would be done. sweep: one line an entry, and why.",
     OPTION_FLAG, COMMAND_SWEEP | COMMAND_TRIM | COMMAND_DEAD | COMMAND_COPY, 0, 0, AT(dry_run), true},

    {"runs", "N", "5", NULL, NULL,
     "How often each side is measured; the medians are compared.",
     OPTION_NUMBER, COMMAND_BENCH, 1, 1000, AT(runs), true},
    {"value-size", "BYTES", "100", NULL, NULL,
     "How large the value of each entry is.",
     OPTION_NUMBER, COMMAND_BENCH, 0, 1 << 20, AT(value_size), true},

    {"listen", "HOST:PORT", NULL, NULL, NULL,
     "Where to listen: a numeric address and a port, [ADDRESS]:PORT for IPv6. May be repeated; by "
     "default 127.0.0.1:6379. Addresses that other machines can reach need a password or --tls-ca.",
     OPTION_LIST, COMMAND_SERVE, 0, 0, AT(listens), false},
    {"unix", "PATH", NULL, NULL, NULL,
     "Listen on a unix socket too, for this user's programs; without --listen only there.",
     OPTION_TEXT, COMMAND_SERVE, 0, 0, AT(unix_path), false},
    {"password-file", "FILE", NULL, NULL, NULL,
     "Clients must give the password that is the first line of FILE. $IMPEL_PASSWORD does the same.",
     OPTION_TEXT, COMMAND_SERVE, 0, 0, AT(password_file), false},
    {"max-clients", "N", "10000", NULL, NULL,
     "At most so many connections; further ones are refused.",
     OPTION_NUMBER, COMMAND_SERVE, 1, 1000000, AT(max_clients), false},

    {"from", "URL", NULL, NULL, NULL,
     "The store that the streams are copied from, in the forms of --store.",
     OPTION_TEXT, COMMAND_COPY, 1, 0, AT(from), true},
    {"replace", NULL, NULL, NULL, NULL,
     "Overwrite streams of the same name, each in one step when its copy is complete.",
     OPTION_FLAG, COMMAND_COPY, 0, 0, AT(replace), true},
    {"force", NULL, NULL, NULL, NULL,
     "Copy although workers are alive, or the stream changes meanwhile.",
     OPTION_FLAG, COMMAND_COPY, 0, 0, AT(force), true},
    {"no-verify", NULL, NULL, NULL, NULL,
     "Do not compare the copy with its source.",
     OPTION_FLAG, COMMAND_COPY, 0, 0, AT(no_verify), true},

    {"json", NULL, NULL, NULL, NULL,
     "Print JSON: one object for status, one object a line for lists.",
     OPTION_FLAG, COMMAND_STATUS | COMMAND_EXPLAIN | COMMAND_TRIM | COMMAND_SWEEP | COMMAND_DEAD | COMMAND_READ |
         COMMAND_DRILL | COMMAND_BENCH | COMMAND_CHECK | COMMAND_COPY | COMMAND_COMPACT,
     0, 0, AT(json), true},

    {"man", NULL, NULL, NULL, NULL,
     "Print the manual page in roff, for man -l.",
     OPTION_FLAG, COMMAND_HELP, 0, 0, AT(man), true},
    {"completion", NULL, NULL, NULL, NULL,
     "Print the completion for bash.",
     OPTION_FLAG, COMMAND_HELP, 0, 0, AT(completion), true},
    {"sample-config", NULL, NULL, NULL, NULL,
     "Print a config file with every option and its default.",
     OPTION_FLAG, COMMAND_HELP, 0, 0, AT(sample_config), true},

    {"config", "FILE", NULL, "IMPEL_CONFIG", NULL,
     "A YAML file whose keys are the names of options, without the dashes. An option on the command "
     "line wins over the environment, the environment over the file. Under groups: stands a list of "
     "groups with options of their own.",
     OPTION_TEXT, COMMAND_ALL, 0, 0, AT(config), true},
    {"log-level", "LEVEL", "info", "IMPEL_LOG_LEVEL", "debug|info|warning|error",
     "What is worth a line on standard error: debug, info, warning or error.",
     OPTION_CHOICE, COMMAND_ALL, 0, 0, AT(log_level), false},
    {"log-format", "FORMAT", "text", "IMPEL_LOG_FORMAT", "text|logfmt|json",
     "The form of these lines: text for people, logfmt or json for programs.",
     OPTION_CHOICE, COMMAND_ALL, 0, 0, AT(log_format), false},
    {"help", NULL, NULL, NULL, NULL,
     "Show the help of the command.",
     OPTION_FLAG, COMMAND_ALL, 0, 0, AT(help), true},
};
/* clang-format on */

const size_t option_table_size = ARRAY_SIZE(option_table);
