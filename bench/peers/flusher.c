/* flusher.c -- the least that a server has to do if what it answered is on the disk: it takes what all
 * clients have sent, appends that to a file, flushes the file once, and answers "+OK" to every request.
 * It keeps nothing in order and finds nothing again, so a store that flushes once for each batch is
 * slower than this, with the same clients on the same machine.
 *
 *     flusher SOCKET FILE */
#include "resp/resp.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    CLIENTS_MAX = 256,
    INPUT_MAX = 1 << 20, /* of one client, not answered yet */
    OUTPUT_MAX = 1 << 20,
};

struct client {
    struct resp_request_scan scan;
    char input[INPUT_MAX];
    size_t size;
    unsigned long unanswered;
};

struct flusher {
    int file;
    size_t count; /* of clients; polls[count] is the socket they come by */
    struct client clients[CLIENTS_MAX];
    struct pollfd polls[CLIENTS_MAX + 1];
};

static struct flusher flusher;

static bool write_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t written = write(fd, bytes, size);
        if (written < 0 && errno != EINTR) {
            return false;
        }
        size_t taken = written < 0 ? 0 : (size_t)written;
        bytes += taken;
        size -= taken;
    }
    return true;
}

static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    if (fd < 0 || strlen(path) >= sizeof(address.sun_path)) {
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, CLIENTS_MAX) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void accept_one(void)
{
    int fd = accept(flusher.polls[flusher.count].fd, NULL, NULL);
    struct resp_limits limits;

    if (fd < 0 || flusher.count == CLIENTS_MAX) {
        close(fd);
        return;
    }
    struct client *client = &flusher.clients[flusher.count];
    resp_limits_default(&limits);
    resp_request_scan_init(&client->scan, &limits);
    client->size = 0;
    client->unanswered = 0;
    flusher.polls[flusher.count + 1] = flusher.polls[flusher.count];
    flusher.polls[flusher.count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

static void drop(size_t i)
{
    close(flusher.polls[i].fd);
    flusher.count--;
    flusher.clients[i] = flusher.clients[flusher.count];
    flusher.polls[i] = flusher.polls[flusher.count];
    flusher.polls[flusher.count] = flusher.polls[flusher.count + 1]; /* the socket */
}

/* What a client sent goes to the file. False: it is gone, or speaks nonsense. */
static bool take(struct client *client, int fd)
{
    ssize_t got = read(fd, client->input + client->size, sizeof(client->input) - client->size);
    struct impel_error err;
    size_t at = 0, size = 0;
    int rc = 1;

    if (got <= 0) {
        return false;
    }
    client->size += (size_t)got;
    while (rc > 0 && at < client->size) {
        struct impel_bytes rest = {client->input + at, client->size - at};
        rc = resp_scan_request(&client->scan, rest, &size, &err);
        at += rc > 0 ? size : 0;
        client->unanswered += rc > 0;
    }
    if (rc < 0 || !write_all(flusher.file, client->input, at)) {
        return false;
    }
    memmove(client->input, client->input + at, client->size - at);
    client->size -= at;
    return true;
}

static bool answer(struct client *client, int fd)
{
    static char output[OUTPUT_MAX];
    static const char ok[] = "+OK\r\n";
    const size_t ok_size = sizeof(ok) - 1;

    while (client->unanswered > 0) {
        size_t n = client->unanswered;
        n = n < sizeof(output) / ok_size ? n : sizeof(output) / ok_size;
        for (size_t i = 0; i < n; i++) {
            memcpy(output + i * ok_size, ok, ok_size);
        }
        if (!write_all(fd, output, n * ok_size)) {
            return false;
        }
        client->unanswered -= n;
    }
    return true;
}

static bool turn(void)
{
    bool took = false;

    if (poll(flusher.polls, (nfds_t)flusher.count + 1, -1) < 0) {
        return errno == EINTR;
    }
    bool arrives = (flusher.polls[flusher.count].revents & POLLIN) != 0;
    for (size_t i = flusher.count; i-- > 0;) {
        if (flusher.polls[i].revents != 0) {
            if (take(&flusher.clients[i], flusher.polls[i].fd)) {
                took = true;
            } else {
                drop(i);
            }
        }
    }
    if (took && fdatasync(flusher.file) < 0) {
        return false;
    }
    for (size_t i = flusher.count; took && i-- > 0;) {
        if (!answer(&flusher.clients[i], flusher.polls[i].fd)) {
            drop(i);
        }
    }
    if (arrives) {
        accept_one();
    }
    return true;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: flusher SOCKET FILE\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    flusher.file = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int fd = flusher.file < 0 ? -1 : listen_at(argv[1]);
    if (fd < 0) {
        perror(argv[flusher.file < 0 ? 2 : 1]);
        return 1;
    }
    flusher.polls[0] = (struct pollfd){.fd = fd, .events = POLLIN};
    while (turn()) {
    }
    perror("flusher");
    return 1;
}
