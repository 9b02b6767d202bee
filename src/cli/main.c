/* main.c -- the program's entry: finds the subcommand, reads its options, runs it, and turns what
 * comes back into one line and an exit code. */
#include "cli/command.h"
#include "cli/console.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int unknown_command(const char *name)
{
    size_t best = 4;
    const char *nearest = NULL;
    char quoted[64];

    for (size_t i = 0; i < command_table_size; i++) {
        const char *found = nearest_text(bytes_of(name), command_table[i].name, &best);
        nearest = found != NULL ? found : nearest;
    }
    bytes_quote(bytes_of(name), quoted, sizeof(quoted));
    if (nearest != NULL) {
        console_error("unknown command '%s'; did you mean '%s'? 'impel help' lists all", quoted,
                      nearest);
    } else {
        console_error("unknown command '%s'; 'impel help' lists all", quoted);
    }
    return EXIT_MISUSE;
}

/* Overwrites the password of a URL, so that `ps` does not show it. */
static void wipe_url(char *word)
{
    char *user = strstr(word, "://");
    char *at = user == NULL ? NULL : strrchr(user + 3, '@');
    char *colon = at == NULL ? NULL : memchr(user + 3, ':', (size_t)(at - user - 3));

    if (colon != NULL) {
        memset(colon + 1, 'x', (size_t)(at - colon - 1));
    }
}

/* The words of the command line as they were given; the originals lose their passwords. What
 * follows a lone "--" is a handler's and stays as it is. */
static char **take_argv(int argc, char **argv)
{
    char **copies = calloc((size_t)argc + 1, sizeof(*copies));
    bool ours = true;

    for (int i = 0; copies != NULL && i < argc; i++) {
        copies[i] = strdup(argv[i]);
        if (copies[i] == NULL) {
            while (i > 0) {
                free(copies[--i]);
            }
            free(copies);
            return NULL;
        }
        ours = ours && strcmp(argv[i], "--") != 0;
        if (ours) {
            wipe_url(argv[i]);
        }
    }
    return copies;
}

/* Handlers inherit the environment, but not the password, and /proc does not keep it. */
static const char *take_password(void)
{
    char *text = getenv("IMPEL_PASSWORD");
    char *copy = text == NULL ? NULL : strdup(text);

    if (text != NULL) {
        memset(text, 'x', strlen(text));
        unsetenv("IMPEL_PASSWORD");
    }
    return copy;
}

static int print_help(const struct command *command, struct impel_error *err)
{
    struct buf out;
    int rc;

    buf_init(&out, 1 << 20);
    help_command(&out, command);
    rc = buf_status(&out);
    if (rc >= 0) {
        console_out(buf_bytes(&out));
    } else {
        error_set(err, rc, "out of memory");
    }
    buf_release(&out);
    return rc;
}

static int
check_words(const struct command *command, const struct options *options, struct impel_error *err)
{
    char quoted[64];

    if (command->words_max >= 0 && options->words.count > (size_t)command->words_max) {
        const char *word = options->words.texts[command->words_max];
        bytes_quote(bytes_of(word), quoted, sizeof(quoted));
        return error_set(err, IMPEL_ERR_INVALID, "'%s' is one word too many", quoted);
    }
    if (options->has_tail && !command->tail) {
        return error_set(err, IMPEL_ERR_INVALID, "nothing may follow '--' here");
    }
    return IMPEL_OK;
}

static int run_command(const struct command *command, int argc, char **argv, const char *password)
{
    struct parse_input input = {
        .command = command->bit, .own_words = command->own_words, .argc = argc, .argv = argv};
    struct impel_error err = {0};
    struct options options;
    bool parsed = false;
    int rc;

    rc = options_parse(&options, &input, &err);
    options.password = password;
    if (rc >= 0) {
        rc = options_login(&options, &err);
    }
    if (rc >= 0 && options.help) {
        rc = print_help(command, &err);
    } else if (rc >= 0) {
        rc = check_words(command, &options, &err);
        if (rc >= 0) {
            parsed = true;
            options.input = &input;
            rc = command->run(&options, &err);
        }
    }
    options_release(&options);
    if (rc >= 0) {
        int flushed = console_flush(&err);
        rc = flushed < 0 ? flushed : rc;
    } else {
        console_flush(NULL);
    }
    if (rc >= 0) {
        return rc;
    }
    console_error("%s", err.text[0] != '\0' ? err.text : status_text(rc));
    if (rc == IMPEL_ERR_INVALID && !parsed) {
        fprintf(stderr, "Try 'impel help %s'.\n", command->name);
    }
    return rc == IMPEL_ERR_INVALID ? EXIT_MISUSE : EXIT_FAILED;
}

/* Closed standard descriptors would be given to the first files that are opened: what is meant for
 * standard output would then be written into the store. Held open the wrong way round they go on
 * failing as closed ones do. */
static bool hold_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) {
            return false;
        }
    }
    return true;
}

/* For as long as the process lives. */
static char **words;
static const char *password;

/* A mapped file that ends before what is read or written. The store looks before it touches its files,
 * but they may be cut at any instant. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    static const char text[] = "impel: a file of the store was emptied or cut while it was in use, "
                               "or its disk fails: stop "
                               "all that use the store, then see `impel check`\n";

    (void)context;
    if (info->si_code != BUS_ADRERR) {
        signal(number, SIG_DFL); /* a fault of our own: as it would have been */
        return;
    }
    (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
    _exit(EXIT_FAILED);
}

static void catch_cut_files(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};

    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

int main(int argc, char **argv)
{
    const struct command *command;
    const char *name;

    if (!hold_standard_descriptors()) {
        return EXIT_FAILED;
    }
    /* A reader that went away is told by EPIPE, which becomes a message and an exit code. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* so is a limit on the size of files, by EFBIG */
    catch_cut_files();
    words = take_argv(argc, argv);
    password = take_password();
    if (words == NULL) {
        console_error("%s", status_text(IMPEL_ERR_NOMEM));
        return EXIT_FAILED;
    }
    name = argc < 2 ? "help" : words[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        name = "help";
    } else if (strcmp(name, "--version") == 0) {
        name = "version";
    }
    if (name[0] == '-') {
        console_error("the command comes first, then its options: impel COMMAND %s ...", name);
        return EXIT_MISUSE;
    }
    command = command_find(name);
    if (command == NULL) {
        return unknown_command(name);
    }
    console_name(command->name);
    int code = run_command(command, argc < 2 ? 0 : argc - 2, words + (argc < 2 ? 1 : 2), password);
    return argc < 2 && code == EXIT_DONE ? EXIT_MISUSE : code;
}
