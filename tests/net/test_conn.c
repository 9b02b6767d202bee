/* A connection against peers that echo, stay silent, or go away. Peers are child processes. */
#include "net/net.h"
#include "tap.h"

#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    ECHO_BYTES = 24 * 1024 * 1024,
    DEADLINE_MS = 30000,
};

static uv_loop_t loop;
static uv_timer_t deadline;
static pid_t peer;
static struct net_conn *conn;
static struct impel_error closed_with;
static bool opened, closed, greedy = true;
static uint64_t received;
static bool intact;

static uint8_t byte_at(uint64_t i)
{
    return (uint8_t)(i * 2654435761u >> 13);
}

static void on_opened(void *user)
{
    (void)user;
    opened = true;
}

static size_t on_received(void *user, struct impel_bytes input)
{
    (void)user;
    if (!greedy) {
        return 0;
    }
    /* Leaves some for the next time, as a codec does with half a message. */
    size_t take =
        input.size > 1000 && received + input.size < ECHO_BYTES ? input.size - 100 : input.size;
    for (size_t i = 0; i < take; i++) {
        intact = intact && ((const uint8_t *)input.data)[i] == byte_at(received + i);
    }
    received += take;
    if (received == ECHO_BYTES) {
        uv_stop(&loop);
    }
    return take;
}

static void on_closed(void *user, const struct impel_error *err)
{
    (void)user;
    closed = true;
    conn = NULL;
    closed_with = *err;
    uv_stop(&loop);
}

static void too_late(uv_timer_t *timer)
{
    (void)timer;
    uv_stop(&loop);
}

/* What a peer does with its one connection. */
typedef void peer_life(int fd);

static void live_echo(int fd)
{
    static char bytes[65536];
    ssize_t size;

    while ((size = read(fd, bytes, sizeof(bytes))) > 0) {
        for (ssize_t at = 0, n; at < size; at += n) {
            n = write(fd, bytes + at, (size_t)(size - at));
            if (n <= 0) {
                return;
            }
        }
    }
}

/* One byte there and back, and a word about it. */
static int answered[2];

static void live_answer(int fd)
{
    char byte;

    if (read(fd, &byte, 1) == 1 && write(fd, &byte, 1) == 1 && write(answered[1], &byte, 1) == 1) {
        (void)poll(NULL, 0, -1);
    }
}

static void live_silent(int fd)
{
    char byte;

    while (read(fd, &byte, 1) > 0) {
    }
}

static void live_deaf(int fd)
{
    (void)fd;
    (void)poll(NULL, 0, -1);
}

static void live_shout(int fd)
{
    static char bytes[65536];

    while (write(fd, bytes, sizeof(bytes)) > 0) {
    }
}

static void live_short(int fd)
{
    (void)fd;
}

/* Connects to a peer that lives like this. */
static void begin(peer_life *life, const struct net_limits *limits)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    signal(SIGPIPE, SIG_IGN); /* as net.h asks of whoever runs the loop */
    CHECK(bind(listener, (const struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    peer = fork();
    if (peer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        life(accept(listener, NULL, NULL));
        _exit(0);
    }
    close(listener);
    opened = closed = false;
    received = 0;
    intact = greedy = true;
    CHECK(uv_loop_init(&loop) == 0);
    uv_timer_init(&loop, &deadline);
    uv_timer_start(&deadline, too_late, DEADLINE_MS, 0);
    const struct net_handler handler = {on_opened, on_received, on_closed, NULL};
    const struct net_address to = {.host = "localhost", .port = ntohs(address.sin_port)};
    conn = net_connect(&loop, &to, limits, &handler);
    CHECK(conn != NULL);
}

static void end(void)
{
    net_close(conn);
    conn = NULL;
    kill(peer, SIGKILL);
    waitpid(peer, NULL, 0);
    uv_close((uv_handle_t *)&deadline, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&loop) == 0);
}

static const struct net_limits wide = {60000, (size_t)1 << 30, (size_t)1 << 30};

TEST(bytes_come_back_as_they_went)
{
    begin(live_echo, &wide);
    /* More than any socket buffer takes at once, appended before it is open, and then some. */
    struct buf *out = net_out(conn);
    for (uint64_t i = 0; i < ECHO_BYTES; i++) {
        uint8_t byte = byte_at(i);
        buf_append(out, &byte, 1);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(opened && !closed);
    CHECK_U64(received, ECHO_BYTES);
    CHECK(intact);
    end();
}

TEST(too_much_to_send_ends_it)
{
    const struct net_limits narrow = {5000, 1 << 20, 1 << 20};

    begin(live_deaf, &narrow);
    uint8_t *bytes = calloc(1, 2 << 20);
    buf_append(net_out(conn), bytes, 2 << 20);
    free(bytes);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(closed && closed_with.status == IMPEL_ERR_LIMIT);
    end();
}

TEST(too_much_that_is_not_taken_ends_it)
{
    const struct net_limits narrow = {5000, 1 << 20, 1 << 20};

    begin(live_shout, &narrow);
    greedy = false;
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(closed && closed_with.status == IMPEL_ERR_LIMIT);
    end();
}

TEST(a_peer_that_goes_is_noticed)
{
    begin(live_short, &wide);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(closed && closed_with.status == IMPEL_ERR_DISCONNECTED);
    end();
}

TEST(a_peer_that_is_silent_is_given_up)
{
    begin(live_silent, &wide);
    net_expect(conn, 100, "the question");
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(opened && closed && closed_with.status == IMPEL_ERR_TIMEOUT);
    CHECK(strstr(closed_with.text, "the question") != NULL);
    end();
}

TEST(an_answer_that_came_while_it_was_stopped_is_taken)
{
    char byte;

    CHECK(pipe(answered) == 0);
    begin(live_answer, &wide);
    while (!opened) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    net_expect(conn, 50, "the question");
    buf_append(net_out(conn), (uint8_t[]){byte_at(0)}, 1);
    net_flush(conn);
    uint64_t until_ms = uv_hrtime() / 1000000 + 60;
    CHECK(read(answered[0], &byte, 1) == 1);
    while (uv_hrtime() / 1000000 < until_ms) { /* the loop stands still until the time is over */
    }
    while (received == 0 && !closed) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    CHECK_U64(received, 1);
    CHECK(!closed);
    end();
    close(answered[0]);
    close(answered[1]);
}

/* The owner of the loop has something else to do. */
static void be_busy(uint64_t ms)
{
    uint64_t until_ms = uv_hrtime() / 1000000 + ms;

    while (uv_hrtime() / 1000000 < until_ms) {
    }
}

TEST(time_in_which_nobody_ran_the_loop_is_none_to_connect_in)
{
    const struct net_limits quick = {500, 1 << 20, 1 << 20};

    begin(live_silent, &quick);
    be_busy(700);
    while (!opened && !closed) {
        uv_run(&loop, UV_RUN_NOWAIT);
        be_busy(2);
    }
    CHECK(opened && !closed);
    end();
}

TEST(closing_while_it_connects_tells_nothing)
{
    begin(live_echo, &wide);
    net_close(conn);
    conn = NULL;
    for (int i = 0; i < 20; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    CHECK(!opened && !closed);
    end();
}

TAP_MAIN
