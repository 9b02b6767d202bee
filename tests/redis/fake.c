/* fake.c -- the scripted server: one thread, all connections in one poll(). */
#include "fake.h"

#include "resp/resp.h"
#include "tap.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 64,
};

struct peer {
    int fd;
    struct buf in;
};

bool fake_greeting(struct buf *out, const struct impel_bytes *args, size_t arg_count)
{
    if (bytes_equal_nocase(args[0], "ping")) {
        resp_put_status(out, bytes_of("PONG"));
    } else if (bytes_equal_nocase(args[0], "info")) {
        resp_put_text(out, "# Server\r\nredis_version:7.0.15\r\nrun_id:0123456789\r\n");
    } else if (bytes_equal_nocase(args[0], "time")) {
        resp_put_array(out, 2);
        resp_put_text(out, "1700000000");
        resp_put_text(out, "0");
    } else if (bytes_equal_nocase(args[0], "client")) {
        if (arg_count > 1 && bytes_equal_nocase(args[1], "id")) {
            resp_put_number(out, 7);
        } else {
            resp_put_status(out, bytes_of("OK"));
        }
    } else {
        return false;
    }
    return true;
}

/* Answers what is whole; false when the connection is to be closed. */
static bool answer_all(struct peer *peer, fake_answer *answer, int connection)
{
    struct resp_limits limits;
    struct resp_request_scan scan;
    bool open = true;
    size_t size = 0;
    struct buf out;

    resp_limits_default(&limits);
    resp_request_scan_init(&scan, &limits);
    buf_init(&out, (size_t)1 << 30);
    while (open && resp_scan_request(&scan, buf_bytes(&peer->in), &size, NULL) == 1) {
        struct arena arena = {0};
        struct impel_bytes *args = NULL;
        size_t count = 0;
        (void)resp_read_request((struct impel_bytes){peer->in.data, size}, &arena, &args, &count,
                                NULL);
        open = count == 0 || answer(&out, args, count, connection);
        arena_release(&arena);
        memmove(peer->in.data, peer->in.data + size, peer->in.size - size);
        peer->in.size -= size;
    }
    bool sent = out.size == 0 || send(peer->fd, out.data, out.size, MSG_NOSIGNAL) >= 0;
    buf_release(&out);
    return open && sent;
}

static bool serve_peer(struct peer *peer, fake_answer *answer, int connection)
{
    void *room = buf_reserve(&peer->in, 65536);
    ssize_t size = room == NULL ? 0 : read(peer->fd, room, 65536);

    if (size <= 0) {
        return false;
    }
    peer->in.size += (size_t)size;
    return answer_all(peer, answer, connection);
}

_Noreturn static void serve(int listener, fake_answer *answer)
{
    struct peer peers[CONNECTIONS_MAX];
    struct pollfd fds[CONNECTIONS_MAX + 1] = {{.fd = listener, .events = POLLIN}};
    int count = 0;

    for (;;) {
        (void)poll(fds, (nfds_t)count + 1, -1);
        for (int i = 0; i < count; i++) {
            if (fds[i + 1].revents != 0 && !serve_peer(&peers[i], answer, i)) {
                close(peers[i].fd);
                fds[i + 1].fd = -1; /* poll() leaves it out; numbers stay as they are */
            }
        }
        if (fds[0].revents != 0 && count < CONNECTIONS_MAX) {
            peers[count].fd = accept(listener, NULL, NULL);
            buf_init(&peers[count].in, (size_t)1 << 30);
            fds[count + 1] = (struct pollfd){.fd = peers[count].fd, .events = POLLIN};
            count++;
        }
    }
}

void fake_start(struct fake *fake, fake_answer *answer)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(fake->folder, sizeof(fake->folder), "/tmp/impel-fake-XXXXXX");
    CHECK(mkdtemp(fake->folder) != NULL);
    (void)snprintf(fake->socket, sizeof(fake->socket), "%s/s", fake->folder);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", fake->socket);
    CHECK(bind(listener, (const struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(listen(listener, 16) == 0);
    fake->pid = fork();
    if (fake->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(listener, answer);
    }
    CHECK(fake->pid > 0);
    close(listener);
}

void fake_end(struct fake *fake)
{
    if (fake->pid > 0) {
        kill(fake->pid, SIGKILL);
        waitpid(fake->pid, NULL, 0);
        unlink(fake->socket);
        rmdir(fake->folder);
    }
    fake->pid = 0;
}
