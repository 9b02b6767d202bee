/* serve.c -- the server alone, for tests and benches: serve PATH SYNC [LISTEN...] [unix:PATH]
 * [password:TEXT] [cert:FILE] [key:FILE] [ca:FILE] [handshake:MS] [clients:N] [output:BYTES]. SYNC is full or process. Prints what it logs. With "check" in place of SYNC it
 * checks the file instead. */
#include "server/server.h"
#include "store/lmdb/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LISTEN_MAX = 16,
};

static void print_line(void *user, int level, const char *text)
{
    (void)user;
    printf("%d %s\n", level, text);
    fflush(stdout);
}

static bool print_problem(void *user, const char *problem)
{
    (void)user;
    printf("%s\n", problem);
    return true;
}

int main(int argc, char **argv)
{
    const char *listen[LISTEN_MAX];
    struct server_options options = {.listen = listen, .log = print_line};
    struct server *server = NULL;
    struct impel_error err = {0};
    char store[4096];

    if (argc < 3) {
        fprintf(stderr, "usage: serve PATH full|process [LISTEN...]\n");
        return 2;
    }
    (void)snprintf(store, sizeof(store), "%s?sync=%s", argv[1], argv[2]);
    options.store = store;
    if (strcmp(argv[2], "check") == 0) {
        return lmdb_check(argv[1], print_problem, NULL, NULL, &err) < 0 ? 1 : 0;
    }
    for (int i = 3; i < argc && options.listen_count < LISTEN_MAX; i++) {
        if (strncmp(argv[i], "unix:", 5) == 0) {
            options.unix_path = argv[i] + 5;
        } else if (strncmp(argv[i], "password:", 9) == 0) {
            options.password = argv[i] + 9;
        } else if (strncmp(argv[i], "cert:", 5) == 0) {
            options.tls_cert = argv[i] + 5;
        } else if (strncmp(argv[i], "handshake:", 10) == 0) {
            options.handshake_ms = (unsigned)strtoul(argv[i] + 10, NULL, 10);
        } else if (strncmp(argv[i], "key:", 4) == 0) {
            options.tls_key = argv[i] + 4;
        } else if (strncmp(argv[i], "ca:", 3) == 0) {
            options.tls_ca = argv[i] + 3;
        } else if (strncmp(argv[i], "clients:", 8) == 0) {
            options.clients_max = (unsigned)strtoul(argv[i] + 8, NULL, 10);
        } else if (strncmp(argv[i], "output:", 7) == 0) {
            options.output_bytes_max = strtoull(argv[i] + 7, NULL, 10);
        } else {
            listen[options.listen_count++] = argv[i];
        }
    }
    int rc = server_new(&options, &server, &err);
    rc = rc < 0 ? rc : server_run(server, &err);
    server_free(server);
    if (rc < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    return 0;
}
