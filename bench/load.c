/* load.c -- a loader for a server that speaks the Redis protocol: clients that each send a pipeline of
 * one command, wait for all its replies and send the next.
 *
 *     load SOCKET CLIENTS PIPELINE REQUESTS WORD...
 *
 * "__seq__" in a word becomes 1, 2, 3, … over all clients, so that entries are acknowledged about in the
 * order in which workers do it; redis-benchmark knows only random numbers. Prints how many requests were
 * answered in a second. */
#include "resp/resp.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    CLIENTS_MAX = 1024,
    PIPELINE_MAX = 10000,
    WORDS_MAX = 64,
    WORD_MAX = 256,
    READ_SIZE = 64 * 1024,
    BUF_MAX = 1 << 30,
};

struct client {
    struct resp_scan scan;
    struct buf in, out;
    size_t sent;
    unsigned long waiting; /* requests that are not answered */
};

struct load {
    const char *words[WORDS_MAX];
    size_t word_count;
    unsigned long client_count, pipeline, requests;
    unsigned long begun, done;
    struct client clients[CLIENTS_MAX];
    struct pollfd polls[CLIENTS_MAX];
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static bool give_up(const char *what, const char *why)
{
    fprintf(stderr, "load: %s: %s\n", what, why);
    return false;
}

static bool connect_client(struct load *load, size_t i, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct resp_limits limits;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (strlen(path) >= sizeof(address.sun_path)) {
        return give_up(path, "too long for a socket");
    }
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        return give_up(path, strerror(errno));
    }
    resp_limits_default(&limits);
    resp_scan_init(&load->clients[i].scan, &limits);
    buf_init(&load->clients[i].in, BUF_MAX);
    buf_init(&load->clients[i].out, BUF_MAX);
    load->polls[i].fd = fd;
    return true;
}

static void put_request(struct load *load, struct buf *out)
{
    load->begun++;
    resp_put_array(out, load->word_count);
    for (size_t i = 0; i < load->word_count; i++) {
        const char *word = load->words[i];
        const char *mark = strstr(word, "__seq__");
        char text[WORD_MAX];
        if (mark != NULL) {
            snprintf(text, sizeof(text), "%.*s%lu%s", (int)(mark - word), word, load->begun,
                     mark + strlen("__seq__"));
            word = text;
        }
        resp_put_text(out, word);
    }
}

/* The next pipeline, once the last is answered. */
static void fill(struct load *load, struct client *client)
{
    if (client->waiting > 0 || client->sent < client->out.size) {
        return;
    }
    buf_clear(&client->out);
    client->sent = 0;
    while (client->waiting < load->pipeline && load->begun < load->requests) {
        put_request(load, &client->out);
        client->waiting++;
    }
}

static bool send_some(struct client *client, int fd)
{
    const uint8_t *data = client->out.data + client->sent;
    ssize_t n = send(fd, data, client->out.size - client->sent, MSG_NOSIGNAL);

    if (n < 0) {
        return errno == EAGAIN || give_up("send", strerror(errno));
    }
    client->sent += (size_t)n;
    return true;
}

/* Counts the whole replies that have come in, and keeps what is left. */
static bool count_replies(struct load *load, struct client *client)
{
    struct impel_error err;
    size_t at = 0;

    while (client->waiting > 0 && at < client->in.size) {
        struct impel_bytes rest = {client->in.data + at, client->in.size - at};
        size_t size = 0;
        int rc = resp_scan_reply(&client->scan, rest, &size, &err);
        if (rc < 0) {
            return give_up("reply", err.text);
        }
        if (rc == 0) {
            break;
        }
        if (client->in.data[at] == '-') {
            fprintf(stderr, "load: %.*s", (int)size - 1, (const char *)client->in.data + at + 1);
            return false;
        }
        at += size;
        client->waiting--;
        load->done++;
    }
    memmove(client->in.data, client->in.data + at, client->in.size - at);
    client->in.size -= at;
    return true;
}

static bool receive_some(struct load *load, struct client *client, int fd)
{
    void *room = buf_reserve(&client->in, READ_SIZE);

    if (room == NULL) {
        return give_up("reply", "out of memory");
    }
    ssize_t n = recv(fd, room, READ_SIZE, 0);
    if (n == 0) {
        return give_up("recv", "the server has closed the connection");
    }
    if (n < 0) {
        return errno == EAGAIN || give_up("recv", strerror(errno));
    }
    client->in.size += (size_t)n;
    return count_replies(load, client);
}

static bool turn(struct load *load)
{
    for (size_t i = 0; i < load->client_count; i++) {
        struct client *client = &load->clients[i];
        fill(load, client);
        load->polls[i].events = client->waiting > 0 ? POLLIN : 0;
        if (client->sent < client->out.size) {
            load->polls[i].events |= POLLOUT;
        }
    }
    if (poll(load->polls, load->client_count, -1) < 0) {
        return give_up("poll", strerror(errno));
    }
    for (size_t i = 0; i < load->client_count; i++) {
        short events = load->polls[i].revents;
        bool good = true;
        if ((events & POLLOUT) != 0) {
            good = send_some(&load->clients[i], load->polls[i].fd);
        }
        if (good && (events & (POLLIN | POLLHUP | POLLERR)) != 0) {
            good = receive_some(load, &load->clients[i], load->polls[i].fd);
        }
        if (!good) {
            return false;
        }
    }
    return true;
}

static bool number(const char *text, unsigned long max, unsigned long *out)
{
    char *end;

    *out = strtoul(text, &end, 10);
    return *text != '\0' && *end == '\0' && *out > 0 && *out <= max;
}

static bool parse(struct load *load, int argc, char **argv)
{
    if (argc < 6 || argc - 5 > WORDS_MAX || !number(argv[2], CLIENTS_MAX, &load->client_count) ||
        !number(argv[3], PIPELINE_MAX, &load->pipeline) ||
        !number(argv[4], 1000000000, &load->requests)) {
        fprintf(stderr, "usage: load SOCKET CLIENTS PIPELINE REQUESTS WORD...\n");
        return false;
    }
    for (int i = 5; i < argc; i++) {
        load->words[load->word_count++] = argv[i];
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct load load;
    bool good;

    if (!parse(&load, argc, argv)) {
        return 2;
    }
    for (size_t i = 0; i < load.client_count; i++) {
        if (!connect_client(&load, i, argv[1])) {
            return 1;
        }
    }
    double begun = now();
    do {
        good = turn(&load);
    } while (good && load.done < load.requests);
    if (good) {
        printf("%.0f\n", (double)load.done / (now() - begun));
    }
    for (size_t i = 0; i < load.client_count; i++) {
        close(load.polls[i].fd);
        buf_release(&load.clients[i].in);
        buf_release(&load.clients[i].out);
    }
    return good ? 0 : 1;
}
