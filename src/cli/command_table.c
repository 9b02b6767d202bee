/* command_table.c -- every subcommand there is, with all that help and the manual say of it. */
#include "cli/command.h"

#include <string.h>

const struct command command_table[] = {
    {
        .name = "run",
        .bit = COMMAND_RUN,
        .words = "-- COMMAND [ARG...]",
        .summary = "run a command for every entry, and take over what dead workers dropped",
        .text =
            "Reads the entries of one or more streams as a worker of a group and runs COMMAND once "
            "for each. The entry comes as one line of JSON on standard input: "
            "{\"id\",\"stream\",\"group\",\"consumer\",\"attempt\",\"fields\":{...}}; bytes that "
            "are not UTF-8 come as {\"base64\":\"...\"}, a repeated field as a list. The "
            "environment has IMPEL_ID, IMPEL_STREAM, IMPEL_GROUP, IMPEL_CONSUMER, IMPEL_ATTEMPT, "
            "and IMPEL_FIELD_name for fields with a plain name.\n\n"
            "Exit code 0 of COMMAND means done. 65 means never: the entry is parked in the "
            "dead-letter stream. Anything else, or a death by a signal, means again later: after "
            "the backoff, at most --max-deliveries times, then it is parked. What COMMAND wrote "
            "last to standard error becomes the reason in the record.\n\n"
            "With --pipe COMMAND stays: it is started once (--processes times), is given all "
            "entries, a line each, "
            "several at once if --concurrency says so, and writes a line for each of them, in any "
            "order: "
            "{\"id\":\"...\",\"outcome\":\"done\"|\"retry\"|\"reject\",\"delay_ms\":...,\"error\":"
            "\"...\"}. "
            "delay_ms goes with retry, error is the reason in the record, other members are "
            "ignored. "
            "COMMAND has to flush each line (Python: print(..., flush=True), jq: --unbuffered), "
            "and "
            "writes nothing else there. "
            "The environment has IMPEL_GROUP, IMPEL_CONSUMER and, of one stream, IMPEL_STREAM. "
            "Standard error goes to "
            "the worker's. A process that dies is started again, at once or after a while that "
            "doubles while it "
            "answers nothing; so is one that writes what is no answer, or a second one. What it "
            "had read is tried "
            "again and counts, and from then on has a process to itself, as every last attempt "
            "has: poison takes no "
            "neighbour along. What it had not read is given to the next process. It need not know "
            "of an entry that "
            "another worker took: its answer is let fall, except for a late done. When the worker "
            "stops, its "
            "standard input is closed behind the last answer; it has 5 seconds to end. To be "
            "replaced, close the "
            "standard input, answer what was read, and end.\n\n"
            "Start as many workers as you like. When one dies, the others notice within "
            "--dead-after and run its entries. However long COMMAND takes, nobody else gets its "
            "entry while this worker lives. TERM, INT or HUP ends the worker cleanly: running "
            "commands "
            "may finish, the rest is handed back.",
        .examples =
            "impel run --stream orders --group workers -- ./handle-order.sh\n"
            "impel run --stream orders --group workers --concurrency 8 --until-idle -- "
            "sh -c 'jq -r .fields.total >> totals.txt'\n"
            "impel run --stream orders --group workers --pipe --processes 2 --concurrency 16 -- "
            "./handler.py\n",
        .words_max = 0,
        .tail = true,
        .run = command_run,
    },
    {
        .name = "sweep",
        .bit = COMMAND_SWEEP,
        .words = "",
        .summary = "settle what was abandoned, without running anything",
        .text =
            "Looks through the pending entries of dead and foreign workers. Entries that reached "
            "--max-deliveries are parked in the dead-letter stream; pending entries that are gone "
            "from their stream are reaped and reported as lost work; all else that is abandoned is "
            "reported, with its owner. A sweep has no handler and so never claims: entries that "
            "can still be tried are left to the workers.\n\n"
            "For workers in other languages, which stay as they are, it can do more with what is "
            "abandoned. --requeue puts a copy at the end of the stream and acknowledges the "
            "original, in one step: a visibility timeout for workers that only read what is new. "
            "What the entry has had before is kept beside the stream and counts, so poison is "
            "parked all the same. --hand-over claims it for the live consumer that holds least, "
            "for workers that read what they hold. --park moves all of it to the dead-letter "
            "stream. An entry counts as abandoned after --min-idle, also where its worker is only "
            "slow: choose it longer than the slowest handler takes.\n\n"
            "Several sweeps may run side by side: whoever comes first sweeps, and each step "
            "checks and acts at once, so nothing is done twice for one abandonment.\n\n"
            "--report tells what is abandoned and what each way would do about it; --dry-run "
            "lists the entries that would be dealt with in the way that is given, and why. Both "
            "touch nothing, not even the table of beats: where no beat was taken lately, workers "
            "count as unknown.\n\n"
            "With --trim it also removes, once a minute, what every group of these streams has "
            "finished with (see impel trim); it says when that frees something, and, when it "
            "begins, that a group is stalled or has lost entries to others' trimming.\n\n"
            "Several streams and groups may be given, and patterns: --stream 'orders:*' --group "
            "'*' "
            "means every group of every such stream. A stream that is named, with one group that "
            "is "
            "named, is swept whether it is there or not; everything else is looked for, again and "
            "again: what is new is swept within ten times --interval (10 s), or as long as it "
            "takes "
            "to ask about each of these streams once, with at most half of the --budget; what is "
            "gone is dropped. Patterns do not mean dead-letter streams, the audits beside them, "
            "and "
            "Impel's own keys; one of these is swept if its name is given. One sweep takes 10,000 "
            "groups.\n\n"
            "Without --once it goes on until TERM or INT, once a second for each group. Without "
            "--group it sweeps the groups of the config file's list, in which names and patterns "
            "stand as well. A group that several items mean belongs to the one that names more of "
            "it, the stream before the group, and else to the first.",
        .examples = "impel sweep --once --stream orders --group workers\n"
                    "impel sweep --requeue --stream 'orders:*' --group workers\n"
                    "impel sweep --requeue --stream orders --group workers\n"
                    "impel sweep --requeue --dry-run --stream orders --group workers\n"
                    "impel sweep --config impel.yaml --metrics-file /var/lib/metrics/impel.prom\n",
        .words_max = 0,
        .run = command_sweep,
    },
    {
        .name = "status",
        .bit = COMMAND_STATUS,
        .words = "",
        .summary = "show who holds what, what is overdue and what was parked",
        .text =
            "Shows every stream (or those given) with its groups: what is not delivered yet, what "
            "is pending, what is abandoned and may be taken over now, what is abandoned but not "
            "due yet, what was parked, and which workers are alive. It changes nothing and does "
            "not beat, so where no beat was taken lately it says 'unknown'.\n\n"
            "What is undelivered is counted, because servers derive their lag from counters that "
            "are wrong as soon as something was trimmed or deleted ahead of a group; more than "
            "10,000 entries from both ends of a stream are not counted: then it says about. Lost "
            "are entries that others trimmed or deleted while they were pending, or before the "
            "group read them, until it has read past the gap.\n\n"
            "The exit code is 3 if a group needs attention, and the first of these reasons is "
            "told: lost entries; abandoned work that no live worker will take; work of workers "
            "that may be dead, and nobody beats (unknown); undelivered work without a worker, or "
            "whose consumers were not seen for --min-idle; parked entries.",
        .examples = "impel status --stream orders\n"
                    "impel status --json | jq '.streams[].groups[] | select(.health != \"ok\")'\n",
        .words_max = 0,
        .run = command_status,
    },
    {
        .name = "top",
        .bit = COMMAND_TOP,
        .words = "",
        .summary = "watch the groups and workers of a store, live",
        .text =
            "Shows every group (or those given) on the terminal, anew every --interval: its "
            "health, what it has not read yet, what is pending, how much it finishes in a second, "
            "how long the oldest pending entry has been idle, what was parked, and how many of its "
            "workers are alive. Below stand the reason for the chosen group's health and its "
            "workers. It changes nothing and does not beat.\n\n"
            "Keys: s and S choose the order, r reverses it, / shows only names that contain a "
            "text, the arrows choose a group, p pauses, space asks at once, h explains the "
            "columns, q quits. Where asking takes long it asks less often, at most a quarter of "
            "the time. With --once it prints the rows as plain text after one --interval.",
        .examples = "impel top\n"
                    "impel top --store redis://127.0.0.1:6379 --group workers\n"
                    "impel top --once | sort -k5 -n\n",
        .words_max = 0,
        .run = command_top,
    },
    {
        .name = "explain",
        .bit = COMMAND_EXPLAIN,
        .words = "ID...",
        .summary = "tell where an entry stands, and why",
        .text =
            "Tells of each entry whether it is undelivered, pending, acked, parked, gone (trimmed "
            "or deleted) or unknown (no entry of this stream ever had the ID). If it is pending: "
            "who holds it, since when, how often it was delivered, whether the holder lives and "
            "which clock says so, its beats or the entry's idle time, and what will happen next, "
            "when, and by which rule:\n\n"
            "Rule 2: a live worker's entry is left to its holder. Rule 4: what was handed back is "
            "due after its backoff. Rule 5: a dead worker's entry is due after its backoff, too. "
            "Rule 6: what a consumer holds that is no worker of Impel's is due after --min-idle, "
            "or its backoff if that is longer. What is due is taken over, or parked if it had "
            "--max-deliveries already, or reported as lost work if the stream no longer has it. "
            "(Rules 1 and 3 are a worker's own, for what it holds itself.)\n\n"
            "Give --min-idle, --max-deliveries and --backoff as the workers have them. Nothing is "
            "changed.",
        .examples = "impel explain --stream orders --group workers 1700000000000-0\n",
        .words_max = -1,
        .run = command_explain,
    },
    {
        .name = "trim",
        .bit = COMMAND_TRIM,
        .words = "",
        .summary = "remove from a stream what every group has finished with",
        .text =
            "Acknowledged entries stay in a stream until somebody removes them. Trim removes "
            "exactly what every group has finished with: all that lies before the first entry "
            "that is pending in some group or has not been read by it. The store finds that place "
            "and cuts there in one step, so what is delivered at the same moment is safe; a long "
            "cut is made of many small ones, between which others get their turn. --keep leaves "
            "more than that.\n\n"
            "A group that has unfinished work and that nobody came for within --stalled-after "
            "holds the stream's memory for as long as it exists. What it has not finished is not "
            "touched: the exit code is 3 and the group is named, until its workers are back or "
            "--ignore-group gives its work up. The exit code is also 3 when others, a MAXLEN of a "
            "producer for example, removed entries that a group had not read or not finished: how "
            "many is told. A stream without a group is never trimmed; one that only a pattern "
            "means is "
            "passed by then.",
        .examples = "impel trim --stream orders\n"
                    "impel trim --stream orders --keep 1h --dry-run\n"
                    "impel trim --stream orders --keep 100000 --ignore-group old-report\n",
        .words_max = 0,
        .run = command_trim,
    },
    {
        .name = "dead",
        .bit = COMMAND_DEAD,
        .words = "list|show|stats|replay|drop [ID...]",
        .summary = "look at parked entries, put them back, or drop them",
        .text =
            "list shows the records of a dead-letter stream, a line each: which entry it was, why "
            "it was parked, when, after how many deliveries, and the handler's last words. show "
            "prints records in full. stats counts them by reason, stream and group. IDs are those "
            "of the records. With --json each line is an object, the entry's own fields "
            "included.\n\n"
            "replay gives entries back to be worked on, oldest first, as attempt 1 and byte for "
            "byte: by default as new entries at the end of their stream, which is refused (exit "
            "code 2) where the stream has other groups, since these would get them too; with "
            "--in-place to their own group only, under their old IDs; with --to in another stream. "
            "drop deletes records; it wants to know which, or --all.\n\n"
            "Each record leaves the dead-letter stream in the same atomic step that puts its entry "
            "back, so none is ever replayed twice, by whomever and however often the command is "
            "killed: start it again and it goes on. What is parked while it runs is left alone. A "
            "line of who did what is left in the audit stream (impel read --stream "
            "orders:dead:audit), which keeps the last 10,000.\n\n"
            "Records that other tools wrote are understood if they have a field original_id or "
            "reason. Where such a record does not name its stream or group, --stream and --group "
            "do. The exit code is 1 if records were meant that could not be replayed or are not "
            "there, "
            "or if there is neither the stream nor its dead-letter stream.",
        .examples = "impel dead list --stream orders\n"
                    "impel dead list --stream orders --reason rejected --json\n"
                    "impel dead show --stream orders 1700000000000-0\n"
                    "impel dead replay --stream orders --newer-than 1h --field 'city=Par*' "
                    "--dry-run\n"
                    "impel dead replay --stream orders --in-place --rate 100/s\n"
                    "impel dead drop --stream orders --older-than 30d\n",
        .words_max = -1,
        .run = command_dead,
    },
    {
        .name = "add",
        .bit = COMMAND_ADD,
        .words = "[FIELD=VALUE...] | --jsonl [FILE]",
        .summary = "add entries to a stream",
        .text =
            "Adds one entry made of the FIELD=VALUE words and prints its ID. A word that begins "
            "with a dash goes behind \"--\". With --jsonl it adds an entry for each line of FILE, "
            "many in one transaction, and prints how many. A line that is no such object ends the "
            "work with the line's number; the lines before it are added, and the number that was "
            "added is printed. Where the store refuses a line, those behind it in the same "
            "transaction "
            "may be in: it is said which are not.",
        .examples = "impel add --stream orders number=17 total=12.50\n"
                    "seq 1000 | sed 's/.*/{\"n\":&}/' | impel add --stream orders --jsonl\n",
        .words_max = -1,
        .tail = true,
        .run = command_add,
    },
    {
        .name = "read",
        .bit = COMMAND_READ,
        .words = "",
        .summary = "print the entries of a stream",
        .text =
            "Prints a range of entries, one JSON object a line: {\"id\",\"stream\",\"fields\"}. "
            "It reads past all groups: nothing becomes pending or acknowledged by it. The exit "
            "code is 1 if "
            "there is no such stream.",
        .examples = "impel read --stream orders --count 10\n"
                    "impel read --stream orders --reverse --count 1 | jq .fields\n",
        .words_max = 0,
        .run = command_read,
    },
    {
        .name = "call",
        .bit = COMMAND_CALL,
        .words = "COMMAND [ARG...]",
        .summary = "carry out one Redis command on the store",
        .text =
            "Carries out one command as Redis would and prints the reply as redis-cli does: with "
            "types and numbers on a terminal, raw elsewhere. All words after COMMAND belong to it. "
            "An error reply is printed and makes the exit code 1.",
        .examples = "impel call XLEN orders\n"
                    "impel call XPENDING orders workers - + 10\n",
        .words_max = -1,
        .own_words = true,
        .run = command_call,
    },
    {
        .name = "serve",
        .bit = COMMAND_SERVE,
        .words = "",
        .summary = "serve the embedded store to Redis clients",
        .text =
            "Speaks the Redis protocol in front of an embedded store: any Redis client, in any "
            "language, can use its streams, groups and pending entries as if it were Redis. "
            "Other processes may go on using the file directly meanwhile. What was answered is as "
            "durable as the store's URL says: with lmdb:PATH every reply comes after its commit "
            "has reached the disk, with ?sync=process it survives the death of the server, but "
            "not of the machine.\n\n"
            "Without a password, or --tls-ca, it listens only on addresses of this machine. With "
            "--tls-cert and --tls-key every --listen speaks TLS (1.2 and 1.3) and nothing else; "
            "the "
            "unix socket stays plain. HUP reads the certificates anew, for connections to come. "
            "TERM "
            "or INT ends it cleanly.\n\n"
            "A client that does not take its replies is cut at 256 MiB, a request may have 1 GiB, "
            "and "
            "a handshake 10 s. The limit of open files is raised as far as the system lets it.",
        .examples = "impel serve --store lmdb:/var/lib/orders\n"
                    "impel serve --listen 0.0.0.0:6379 --password-file /etc/impel.password \\\n"
                    "            --tls-cert /etc/impel.pem --tls-key /etc/impel.key\n",
        .words_max = 0,
        .run = command_serve,
    },
    {
        .name = "drill",
        .bit = COMMAND_DRILL,
        .words = "",
        .summary = "prove that recovery works: kill workers and see that nothing is lost",
        .text =
            "A fire drill in a stream of its own: adds entries, starts workers as real processes, "
            "kills some of them with SIGKILL while they hold entries, has one poison entry and "
            "trims one pending entry. Then it shows the four results by which recovery is "
            "accepted: (1) the dead workers' pending entries went to the survivors; (2) every "
            "sweep's cursor moved on and came back to its start; (3) every entry was acknowledged "
            "or parked, and nothing is pending; (4) the metrics tell what happened. The exit code "
            "is 0 only if all four hold.\n\n"
            "Without --store it works in a temporary folder.",
        .examples = "impel drill\n"
                    "impel drill --store lmdb:/var/lib/orders --workers 8 --kills 5\n",
        .words_max = 0,
        .run = command_drill,
    },
    {
        .name = "copy",
        .bit = COMMAND_COPY,
        .words = "",
        .summary = "copy streams to another store, with groups and pending entries",
        .text =
            "Copies whole streams, all or those of --stream, between any two stores: entries with "
            "their IDs, groups with what they have delivered, consumers, and pending entries with "
            "owner, delivery count and time. --stream takes names and patterns (*, ?, [...]). "
            "Impel's own tables stay where they are.\n\n"
            "Each copy is built under a name of its own (impel:{STREAM}:copy:STREAM), compared "
            "with its source, and given its name in one step. So after a kill a stream is there "
            "whole or not at all, and the same command again goes on where it was. Streams that "
            "the target already has are left alone if they are the same, and refused if they are "
            "not, unless --replace says otherwise. What one stream is refused for is told, and "
            "the others are copied; the exit code is 1 then.\n\n"
            "Workers of a group must be stopped first, and so should whatever adds entries: a "
            "stream that changed while it was copied is not given its name.\n\n"
            "Servers before 7.0 know less of a stream and get what they know; entries that XNACK "
            "made nobody's go to the consumer impel-released, from whom everybody may claim them. "
            "How long the IDs of idempotent adds are kept is copied, the IDs are not: no command "
            "lists them. How many stay behind is told, by --dry-run, too.\n\n"
            "Memory: a stream that the source estimates at 64 MiB or less is copied as one value "
            "and takes up to three times that. A larger one is copied in pieces: from an embedded "
            "store 8 MiB and one entry at a time, from a server, which does not say beforehand "
            "what its entries weigh, 32 entries, so at most 64 times what the largest takes.",
        .examples = "impel copy --from lmdb:/var/lib/orders --to redis://10.0.0.5\n"
                    "impel copy --from redis://10.0.0.5 --to lmdb:./orders --stream 'orders*' "
                    "--dry-run\n",
        .words_max = 0,
        .run = command_copy,
    },
    {
        .name = "check",
        .bit = COMMAND_CHECK,
        .words = "",
        .summary = "verify every invariant of an embedded store",
        .text =
            "Reads the whole file and compares counters with contents, both orders of the pending "
            "entries with each other, and every row with what it belongs to. It may run beside "
            "workers. The exit code is 1 if anything is wrong.",
        .examples = "impel check --store lmdb:/var/lib/orders\n",
        .words_max = 0,
        .run = command_check,
    },
    {
        .name = "compact",
        .bit = COMMAND_COMPACT,
        .words = "",
        .summary = "make an embedded store's file as small as what is in it",
        .text =
            "The file of an embedded store does not shrink when entries are trimmed: what they "
            "leave is used again. This writes what is in it into a new file, which then takes the "
            "old one's place in one step. Nobody else may have the store open, and the disk needs "
            "room for the new file beside the old one. Interrupted at any point, the store is as "
            "it was or compacted.",
        .examples = "impel compact --store lmdb:/var/lib/orders\n",
        .words_max = 0,
        .run = command_compact,
    },
    {
        .name = "bench",
        .bit = COMMAND_BENCH,
        .words = "recover|steady|exec|pipe|takeover|sweep|memory",
        .summary = "measure the embedded store and Redis against plain loops",
        .text =
            "Measures, in one run and side by side, how fast abandoned entries are recovered "
            "(recover) or new ones are worked through (steady): on the embedded store with "
            "sync=full and sync=process, against a loop over LMDB that keeps two rows for each "
            "pending entry and does nothing else; and, where there is a redis-server (one of its "
            "own is started), against "
            "the loops that people write with hiredis and redis-py, which are in bench/peers of a "
            "build. It shows the medians and their ratios. exec compares a command for each entry "
            "with xargs, and pipe the two processes of --pipe with a command for each; takeover "
            "shows how long after a kill -9 a worker's entries run elsewhere; "
            "sweep what looking for abandoned entries costs beside a million healthy ones; memory "
            "what a worker takes that holds 10,000 entries of 1 KiB.",
        .examples = "impel bench recover\n"
                    "impel bench steady --entries 200000 --runs 7\n",
        .words_max = 1,
        .run = command_bench,
    },
    {
        .name = "version",
        .bit = COMMAND_VERSION,
        .words = "",
        .summary = "print the version",
        .text = "Prints the program's version.",
        .examples = "impel version\n",
        .words_max = 0,
        .run = command_version,
    },
    {
        .name = "help",
        .bit = COMMAND_HELP,
        .words = "[COMMAND]",
        .summary = "explain a command and its options",
        .text = "Shows the commands, or one of them with its options. It can also print the manual "
                "pages, the completion for bash, and a sample config file.",
        .examples = "impel help run\n"
                    "impel help run --man | man -l -\n"
                    "impel help --completion > ~/.local/share/bash-completion/completions/impel\n"
                    "impel help --sample-config > impel.yaml\n",
        .words_max = 1,
        .run = command_help,
    },
};

const size_t command_table_size = ARRAY_SIZE(command_table);

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < command_table_size; i++) {
        if (strcmp(command_table[i].name, name) == 0) {
            return &command_table[i];
        }
    }
    return NULL;
}

int command_needs(const char *option, struct impel_error *err)
{
    const struct option_spec *spec = option_find(bytes_of(option));
    return error_set(err, IMPEL_ERR_INVALID, "the option --%s %s is needed", spec->name,
                     spec->argument);
}

int command_one_stream(const struct options *options,
                       struct impel_bytes *stream,
                       struct impel_error *err)
{
    if (options->streams.count == 0) {
        return command_needs("stream", err);
    }
    if (options->streams.count > 1) {
        return error_set(err, IMPEL_ERR_INVALID, "--stream may be given only once here");
    }
    *stream = bytes_of(options->streams.texts[0]);
    return IMPEL_OK;
}
