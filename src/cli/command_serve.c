/* command_serve.c -- impel serve: the server, with what the options and the environment say. */
#include "cli/command.h"
#include "cli/logging.h"
#include "server/server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    PASSWORD_SIZE_MAX = 4096,
};

static void server_event(void *user, int level, const char *text)
{
    struct impel_event event = {
        .name = "server",
        .level = (enum impel_level)level,
        .text = text,
        .count = 1,
        .delay_ms = -1,
        .idle_ms = -1,
    };
    logging_event(&event, user);
}

/* The first line of the file, without its end. */
static int read_password(const char *path, char *text, struct impel_error *err)
{
    FILE *file = fopen(path, "re");
    bool got = file != NULL && fgets(text, PASSWORD_SIZE_MAX, file) != NULL;

    if (file == NULL) {
        return error_set(err, IMPEL_ERR_INVALID, "--password-file %s: %s", path, strerror(errno));
    }
    (void)fclose(file);
    text[got ? strcspn(text, "\r\n") : 0] = '\0';
    if (text[0] == '\0') {
        return error_set(err, IMPEL_ERR_INVALID, "--password-file %s: its first line is empty",
                         path);
    }
    return IMPEL_OK;
}

int command_serve(struct options *options, struct impel_error *err)
{
    static const char scheme[] = "lmdb:";
    static const char *const listen_default[] = {"127.0.0.1:6379"};
    char password[PASSWORD_SIZE_MAX];
    struct logging logging;
    struct server *server = NULL;
    struct server_options serve = {
        .listen = options->listens.texts,
        .listen_count = options->listens.count,
        .unix_path = options->unix_path,
        .password = options->password,
        .tls_cert = options->tls_cert,
        .tls_key = options->tls_key,
        .tls_ca = options->tls_ca,
        .clients_max = (uint32_t)options->max_clients,
        .log = server_event,
        .user = &logging,
    };
    int rc = IMPEL_OK;

    if (strncmp(options->store, scheme, sizeof(scheme) - 1) != 0) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "only an embedded store can be served: --store lmdb:PATH");
    }
    serve.store = options->store + sizeof(scheme) - 1;
    if (serve.listen_count == 0 && serve.unix_path == NULL) {
        serve.listen = listen_default;
        serve.listen_count = 1;
    }
    if (options->tls_cert != NULL && serve.listen_count == 0) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "--tls-cert is for --listen, and there is none: the unix socket stays "
                         "plain (its file's rights say who may use it)");
    }
    if (options->password_file != NULL) {
        rc = read_password(options->password_file, password, err);
        serve.password = password;
    }
    if (rc < 0) {
        return rc;
    }
    logging_init(&logging, options);
    rc = server_new(&serve, &server, err);
    rc = rc < 0 ? rc : server_run(server, err);
    server_free(server);
    logging_release(&logging);
    return rc < 0 ? rc : EXIT_DONE;
}
