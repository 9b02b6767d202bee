/* redis_server.h -- a redis-server of the test's own, on a unix socket in a folder of its own. It dies
 * with the test. */
#ifndef REDIS_SERVER_H
#define REDIS_SERVER_H

#include <sys/types.h>

#include <stdbool.h>

struct redis_server {
    char folder[32];
    char socket[64]; /* its path */
    pid_t pid;
    bool impel; /* an `impel serve` instead */
};

/* Starts one; `args` (NULL-terminated, may be NULL) go behind the usual ones. NULL, or why not: there
 * is no redis-server here. One that does not come up fails the test. */
const char *redis_server_start(struct redis_server *server, const char *const *args);
/* An `impel serve` in its place: the program is $IMPEL_BIN. */
const char *redis_server_start_impel(struct redis_server *server);
/* The same folder and socket again after redis_server_kill(). */
const char *redis_server_again(struct redis_server *server, const char *const *args);
void redis_server_kill(struct redis_server *server); /* SIGKILL, and waits for its end */
void redis_server_end(struct redis_server *server);  /* the same, and removes the folder */

#endif /* REDIS_SERVER_H */
