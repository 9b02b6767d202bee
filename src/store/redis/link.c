/* link.c -- a connection that is made again for ever.
 *
 *   IDLE ──start──► CONNECTING ──greeted──► READY
 *                     ▲    │ failed           │ lost
 *                     └─ PAUSED ◄─────────────┘
 *
 * The greeting is one pipeline: log in, choose the database, ask whether the server is loading, say
 * our name, learn the client's number (by which another connection can unblock or kill this one),
 * the server's version and its clock. Where the connection before was to the same server it is
 * killed by its number then: nothing that was sent over it can take effect after what comes now.
 *
 * Pauses double from 50 ms to a second, with jitter, so that a restarted server is not met by
 * everybody at once, and never last longer than a third of the shortest time after which a silent
 * worker counts as dead. */
#include "store/redis/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PAUSE_MIN_MS = 50,
    PAUSE_MAX_MS = 1000,
    IN_MAX = 1024 * 1024 * 1024,
    OUT_MAX = 1024 * 1024 * 1024,
    TREE_KEEP_MAX = 4 * 1024 * 1024, /* of a reply's tree: a thousand entries take a tenth of it */
    GREETING_MAX = 1024 * 1024,      /* a server that is none may say anything */
    BULK_LIMIT_MIN = 1024 * 1024,    /* less no server can be told to take */
    BULK_LIMIT_DEFAULT = 512 * 1024 * 1024, /* of proto-max-bulk-len */
    MAJOR_MIN = 6,                          /* nothing was ever tried on an older server */
};

enum step {
    STEP_AUTH,
    STEP_SELECT,
    STEP_PING,
    STEP_NAME,
    STEP_INFO_NAME,
    STEP_INFO_VERSION,
    STEP_ID,
    STEP_SERVER,
    STEP_MEMORY,
    STEP_TIME,
    STEP_KILL,
};

static void link_connect(struct link *link);
static void link_lost(void *user, const struct impel_error *why);

/* ---- pauses ---- */

static void pause_over(uv_timer_t *timer)
{
    struct link *link = timer->data;

    if (link->state == LINK_PAUSED) {
        link_connect(link);
    }
}

static void link_pause(struct link *link)
{
    unsigned doublings = link->attempts > 5 ? 5 : link->attempts;
    uint64_t most = (uint64_t)PAUSE_MIN_MS << doublings;

    most = most > PAUSE_MAX_MS ? PAUSE_MAX_MS : most;
    uint64_t ms = most / 2 + random_next(&link->store->seed) % (most / 2 + 1);
    link->attempts++;
    link->state = LINK_PAUSED;
    uv_timer_start(&link->timer, pause_over, ms, 0);
}

/* ---- the end of a connection ---- */

/* Everything that waits fails if the link has been down for as long as it is to be waited for, or this is no
 * Redis at all. */
static void link_give_up(struct link *link, const struct impel_error *err)
{
    struct redis_store *store = link->store;
    uint64_t down_ms = uv_now(store->loop) - link->down_since_ms;

    if (down_ms < (uint64_t)store->url.give_up_ms && err->status != IMPEL_ERR_PROTOCOL) {
        return;
    }
    if (store->url.give_up_ms > 0 && link == &store->main && !store->own &&
        !link->said_unreachable && err->status != IMPEL_ERR_PROTOCOL) {
        link->said_unreachable = true;
        store_say(store, "unreachable", 3, "no connection within %lld ms: %s",
                  (long long)store->url.give_up_ms, err->text);
    }
    for (struct op *op = op_pop(&link->waiting); op != NULL; op = op_pop(&link->waiting)) {
        if (op->request != NULL) {
            op->request->unsent = !op->sent;
        }
        op_fail(op, err);
    }
}

/* The largest word that a request sends as it stands. */
static size_t largest_word(const struct request *request)
{
    size_t largest = 0;

    if (request != NULL && request->kind == REQUEST_ADD) {
        for (size_t i = 0; i < request->add.field_count; i++) {
            const struct impel_field *field = &request->add.fields[i];
            largest = field->name.size > largest ? field->name.size : largest;
            largest = field->value.size > largest ? field->value.size : largest;
        }
    } else if (request != NULL && request->kind == REQUEST_CALL) {
        for (size_t i = 0; i < request->call.arg_count; i++) {
            size_t size = request->call.args[i].size;
            largest = size > largest ? size : largest;
        }
    }
    return largest;
}

/* A server closes the connection over a word that it finds too large, often before its words of that arrive. */
struct impel_error op_say_large(const struct op *op, const struct impel_error *err)
{
    struct impel_error said = *err;
    size_t size = largest_word(op->request);

    if (size > BULK_LIMIT_MIN) {
        bool over = size > BULK_LIMIT_DEFAULT;
        (void)error_set(
            &said, over ? IMPEL_ERR_LIMIT : err->status,
            "%s; a value of %zu bytes was being sent, and a server closes the connection "
            "over more than its proto-max-bulk-len (512 MiB if it was not changed): raise "
            "that, or add where the value is instead",
            err->text, size);
    }
    return said;
}

static void link_fail_sent(struct link *link, const struct impel_error *err)
{
    struct op *op;

    while ((op = op_pop(&link->sent)) != NULL) {
        if (op == &link->greeting) {
            continue;
        }
        if (op->kind->lost != NULL) {
            op->kind->lost(op, err);
        } else {
            struct impel_error said = op_say_large(op, err);
            op_fail(op, &said);
        }
    }
}

static void link_lost(void *user, const struct impel_error *why)
{
    struct link *link = user;
    struct redis_store *store = link->store;
    struct impel_error err;
    bool was_up = link->state == LINK_READY;

    /* A timeout is one of this connection: who asked may try again. Just so where there was a Redis before:
     * something stands in its place for a while. Where there never was one, there will be none. */
    bool passes =
        why->status == IMPEL_ERR_TIMEOUT || (why->status == IMPEL_ERR_PROTOCOL && store->greeted);
    bool no_redis = why->status == IMPEL_ERR_PROTOCOL && !store->greeted;
    /* As a Redis with TLS does, and a proxy, when somebody begins without. */
    bool speechless = why->status == IMPEL_ERR_DISCONNECTED && !store->greeted && !store->url.tls &&
                      link->sent.first == &link->greeting;
    (void)error_set(&err, passes ? IMPEL_ERR_DISCONNECTED : why->status, "redis at %s: %s%s",
                    store->url.shown, why->text,
                    speechless ? ", without a word: if it speaks TLS, rediss:// in the URL" : "");
    link->conn = NULL;
    if (was_up) {
        link->down_since_ms = uv_now(store->loop);
    }
    link_pause(link);
    /* On its own loop the store serves one question after another: there the answer says it. */
    if (!link->said_down && link == &store->main && (was_up || !store->own)) {
        link->said_down = true;
        store_say(store, "disconnected", 2, no_redis ? "%s" : "%s; trying again", err.text);
    }
    link_fail_sent(link, &err);
    if (!was_up) {
        link_give_up(link, &err);
    }
    if (link == &store->read && link->waiting.first == NULL) {
        /* The next blocking read asks for it again. */
        uv_timer_stop(&link->timer);
        link->state = LINK_IDLE;
    }
}

/* This server is not to be used: as if it had closed the connection. */
static void link_refuse(struct link *link, int status, const char *text)
{
    struct impel_error err;

    (void)error_set(&err, status, "%s", text);
    net_close(link->conn);
    link_lost(link, &err);
}

/* ---- the greeting ---- */

static void greet(struct op *op, enum step step)
{
    op->link->steps[op->replies++] = (uint8_t)step;
}

static void greet_login(struct op *op, struct buf *out)
{
    const struct redis_url *url = &op->store->url;

    if (url->has_password) {
        cmd_begin(op);
        cmd_text(op, "AUTH");
        if (url->user.size > 0) {
            cmd_bytes(op, url->user);
        }
        cmd_bytes(op, url->password);
        cmd_end(op, out);
        greet(op, STEP_AUTH);
    }
    if (url->db != 0) {
        cmd_begin(op);
        cmd_text(op, "SELECT");
        cmd_number(op, url->db);
        cmd_end(op, out);
        greet(op, STEP_SELECT);
    }
}

static void greet_words(struct op *op, struct buf *out, enum step step, const char *const *words)
{
    cmd_begin(op);
    for (; *words != NULL; words++) {
        cmd_text(op, *words);
    }
    cmd_end(op, out);
    greet(op, step);
}

static int greeting_send(struct op *op, struct buf *out)
{
    struct link *link = op->link;

    op->replies = 0;
    if (op->stage == 1) {
        cmd_begin(op);
        cmd_text(op, "CLIENT");
        cmd_text(op, "KILL");
        cmd_text(op, "ID");
        cmd_number(op, link->client_id);
        cmd_end(op, out);
        greet(op, STEP_KILL);
        return 1;
    }
    greet_login(op, out);
    greet_words(op, out, STEP_PING, (const char *const[]){"PING", NULL});
    greet_words(op, out, STEP_NAME, (const char *const[]){"CLIENT", "SETNAME", link->name, NULL});
    greet_words(op, out, STEP_INFO_NAME,
                (const char *const[]){"CLIENT", "SETINFO", "LIB-NAME", "impel", NULL});
    greet_words(op, out, STEP_INFO_VERSION,
                (const char *const[]){"CLIENT", "SETINFO", "LIB-VER", IMPEL_VERSION, NULL});
    greet_words(op, out, STEP_TIME, (const char *const[]){"TIME", NULL});
    greet_words(op, out, STEP_SERVER, (const char *const[]){"INFO", "server", NULL});
    if (link == &link->store->main) {
        greet_words(op, out, STEP_MEMORY, (const char *const[]){"INFO", "memory", NULL});
    }
    greet_words(op, out, STEP_ID, (const char *const[]){"CLIENT", "ID", NULL});
    return (int)op->replies;
}

/* The value of a line "name:value" of INFO. */
static bool info_field(struct impel_bytes info, const char *name, char *out, size_t size)
{
    char key[40];
    int n = snprintf(key, sizeof(key), "\n%s:", name);
    const char *at = info.size > 0 ? memmem(info.data, info.size, key, (size_t)n) : NULL;

    if (at == NULL) {
        return false;
    }
    at += n;
    size_t left = (size_t)((const char *)info.data + info.size - at), i = 0;
    for (; i < left && i + 1 < size && at[i] != '\r' && at[i] != '\n'; i++) {
        out[i] = at[i];
    }
    out[i] = '\0';
    return true;
}

static int64_t wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Which server it is; false if it is too old, and refused. Who may not ask for INFO is taken as before 6.2. */
static bool learn_server(struct link *link, const struct value *reply, char *run_id)
{
    char version[32] = "", text[200];

    run_id[0] = '\0';
    if (reply->kind != VALUE_BULK && reply->kind != VALUE_VERBATIM) {
        return true;
    }
    (void)info_field(reply->bytes, "run_id", run_id, RUN_ID_SIZE);
    link->store->native = info_field(reply->bytes, "impel_version", version, sizeof(version));
    if (info_field(reply->bytes, "redis_version", version, sizeof(version))) {
        char *rest = NULL;
        unsigned long major = strtoul(version, &rest, 10);
        if (rest != version && *rest == '.') {
            unsigned long minor = strtoul(rest + 1, NULL, 10);
            link->store->old = major < 6 || (major == 6 && minor < 2);
            if (major < MAJOR_MIN) {
                (void)snprintf(text, sizeof(text),
                               "the server is Redis %s; version %d.0 or later is needed", version,
                               MAJOR_MIN);
                link_refuse(link, IMPEL_ERR_UNSUPPORTED, text);
                return false;
            }
        }
    }
    return true;
}

/* A server that evicts any key when its memory is full evicts streams, and with one all its groups. */
static void learn_memory(struct redis_store *store, const struct value *reply)
{
    char policy[32] = "";

    if ((reply->kind == VALUE_BULK || reply->kind == VALUE_VERBATIM) && !store->said_evicts &&
        info_field(reply->bytes, "maxmemory_policy", policy, sizeof(policy)) &&
        strncmp(policy, "allkeys", 7) == 0) {
        store->said_evicts = true;
        store_say(store, "evicts", 2,
                  "redis at %s may throw whole streams away when its memory is full: its "
                  "maxmemory-policy is %s; make it noeviction",
                  store->url.shown, policy);
    }
}

/* A reply that ends the attempt, or NULL. */
static bool greeting_refused(struct link *link, enum step step, const struct value *reply)
{
    char text[200];
    int status;

    if (reply->kind != VALUE_ERROR ||
        (step != STEP_AUTH && step != STEP_SELECT && step != STEP_PING)) {
        return false;
    }
    (void)bytes_quote(reply->bytes, text, sizeof(text));
    status = reply_status(reply->bytes);
    if (step == STEP_AUTH && status == IMPEL_ERR_REPLY) {
        status = IMPEL_ERR_AUTH;
    } else if (step == STEP_SELECT && status == IMPEL_ERR_REPLY) {
        status = IMPEL_ERR_INVALID;
    } else if (step == STEP_PING && status == IMPEL_ERR_REPLY) {
        return false; /* not allowed, or unknown: others will tell */
    }
    link_refuse(link, status, text);
    return true;
}

static void link_greeted(struct link *link)
{
    struct redis_store *store = link->store;

    link->state = LINK_READY;
    link->attempts = 0;
    store->greeted = true;
    if (link->said_down) {
        store_say(store, "reconnected", 1, "redis at %s is back", store->url.shown);
        link->said_down = false;
    }
    link->said_unreachable = false;
    resp_limits_default(&link->scan.limits);
    store_link_ready(link);
    for (struct op *op = op_pop(&link->waiting); op != NULL; op = op_pop(&link->waiting)) {
        link_send(link, op);
    }
}

static enum op_next greeting_take(struct op *op, const struct value *reply)
{
    struct link *link = op->link;
    enum step step = link->steps[op->taken];
    char run_id[RUN_ID_SIZE];

    if (greeting_refused(link, step, reply)) {
        return OP_DONE;
    }
    switch (step) {
    case STEP_TIME:
        if (reply->kind == VALUE_ARRAY) {
            link->store->clock_offset_ms =
                item_number(reply, 0) * 1000 + item_number(reply, 1) / 1000 - wall_ms();
        }
        return OP_MORE;
    case STEP_SERVER:
        if (!learn_server(link, reply, run_id)) {
            return OP_DONE;
        }
        if (run_id[0] == '\0' || strcmp(run_id, link->run_id) != 0) {
            link->client_id = 0; /* the old number means nothing to this server */
            memcpy(link->run_id, run_id, sizeof(run_id));
        }
        return OP_MORE;
    case STEP_MEMORY:
        learn_memory(link->store, reply);
        return OP_MORE;
    case STEP_ID:
        op->client_id = reply->kind == VALUE_INTEGER ? reply->integer : 0;
        if (link->client_id != 0 && op->client_id != 0) {
            op->stage = 1;
            return OP_AGAIN;
        }
        break;
    case STEP_KILL:
        break;
    default:
        return OP_MORE;
    }
    link->client_id = op->client_id;
    link_greeted(link);
    return OP_DONE;
}

static const struct op_kind op_greeting = {
    .name = "greeting", .send = greeting_send, .take = greeting_take};

static void link_opened(void *user)
{
    struct link *link = user;
    struct resp_limits limits;

    resp_limits_default(&limits);
    limits.total_max = GREETING_MAX;
    resp_scan_init(&link->scan, &limits);
    link->greeting =
        (struct op){.kind = &op_greeting, .store = link->store, .link = link, .user = NULL};
    net_expect(link->conn, link->store->url.connect_timeout_ms, "the greeting");
    link_send(link, &link->greeting);
    link_flush(link);
}

/* ---- replies ---- */

/* Hands a reply to the op that it belongs to. */
static void link_reply(struct link *link, const struct value *reply)
{
    struct op *op = link->sent.first;

    ASSERT(op != NULL);
    if (!op->by_text && reply->kind == VALUE_ERROR && reply->bytes.size > 8 &&
        memcmp(reply->bytes.data, "NOSCRIPT", 8) == 0 && op->replies == 1) {
        op->by_text = true;
        (void)op_pop(&link->sent);
        link_send(link, op);
        return;
    }
    enum op_next next = OP_MORE;
    bool last = op->taken + 1 == op->replies;
    if (last) {
        (void)op_pop(&link->sent); /* before it is told: it may be freed, or sent again */
    }
    next = op->kind->take(op, reply);
    if (next == OP_DONE) {
        ASSERT(last || op == &link->greeting);
    } else if (next == OP_AGAIN) {
        ASSERT(last);
        link_send(op->link, op);
    } else {
        ASSERT(!last);
        op->taken++;
    }
}

/* How long its reply may take; -1 = for ever. */
static int64_t patience_ms(const struct op *op)
{
    if (op == &op->link->greeting) {
        return op->store->url.connect_timeout_ms;
    }
    int64_t reply_ms = op->store->url.reply_timeout_ms;
    if (op->request != NULL && op->request->kind == REQUEST_READ && op->link == &op->store->read) {
        int64_t margin_ms = reply_ms < READ_MARGIN_MS ? reply_ms : READ_MARGIN_MS;
        return op->request->read.block_ms + margin_ms;
    }
    if (op->request == NULL || op->request->kind != REQUEST_CALL) {
        return reply_ms;
    }
    return -1; /* anybody's command: it may block as long as it likes */
}

/* What came is no reply. An alert (type 21, version 3.x) is what a server with TLS says to a command. */
static void
link_garbled(struct link *link, int status, struct impel_bytes input, const struct impel_error *why)
{
    bool is_alert = input.size >= 3 && memcmp(input.data, "\x15\x03", 2) == 0;
    struct impel_error err;

    (void)error_set(
        &err, status, "%s%s%s",
        status == IMPEL_ERR_PROTOCOL && !link->store->greeted ? "this is no Redis server: " : "",
        why->text, is_alert ? "; it speaks TLS: rediss:// in the URL" : "");
    link_refuse(link, status, err.text);
}

static size_t link_received(void *user, struct impel_bytes input)
{
    struct link *link = user;
    const struct net_conn *conn = link->conn;
    struct impel_error err;
    size_t taken = 0;

    while (link->conn == conn) {
        const struct impel_bytes arrived = {(const char *)input.data + taken, input.size - taken};
        struct impel_bytes rest = arrived;
        struct value reply;
        size_t size = 0;
        int rc = resp_scan_reply(&link->scan, rest, &size, &err);
        if (rc == 0) {
            break;
        }
        rest.size = size;
        rc = rc > 0 ? resp_read_reply(rest, &link->arena, &reply, &err) : rc;
        if (rc >= 0 && link->sent.first == NULL) {
            rc = error_set(&err, IMPEL_ERR_PROTOCOL, "a reply that nobody asked for");
        }
        if (rc < 0) {
            link_garbled(link, rc, arrived, &err);
            break;
        }
        link_reply(link, &reply);
        arena_reset(&link->arena, TREE_KEEP_MAX);
        taken += size;
    }
    if (link->conn == conn) {
        const struct op *op = link->sent.first;
        net_expect(link->conn, op != NULL ? patience_ms(op) : -1, op != NULL ? op->kind->name : "");
        link_flush(link);
    }
    return taken;
}

/* ---- outside ---- */

int link_tls(const struct redis_url *url, struct tls_context **out, struct impel_error *err)
{
    const struct tls_options options = {
        .cert_file = url->tls_cert, .key_file = url->tls_key, .ca_file = url->tls_ca};

    return tls_context_new(&options, out, err);
}

/* The files of TLS are read for each connection: certificates are renewed while workers run. */
static void link_connect(struct link *link)
{
    struct redis_store *store = link->store;
    struct net_address address = {.host = store->url.host,
                                  .port = store->url.port,
                                  .path = store->url.path,
                                  .tls_name = store->url.tls_name};
    struct net_limits limits = {store->url.connect_timeout_ms, IN_MAX, OUT_MAX};
    struct net_handler handler = {link_opened, link_received, link_lost, link};
    struct impel_error err;

    link->state = LINK_CONNECTING;
    if (store->url.tls && link_tls(&store->url, &address.tls, &err) < 0) {
        err.status = IMPEL_ERR_PROTOCOL; /* as what the server does not accept */
        link_lost(link, &err);
        return;
    }
    link->conn = net_connect(store->loop, &address, &limits, &handler);
    tls_context_free(address.tls);
    if (link->conn == NULL) {
        (void)error_set(&err, IMPEL_ERR_NOMEM, "no memory for a connection");
        link_lost(link, &err);
    }
}

void link_init(struct link *link, struct redis_store *store, const char *name)
{
    *link = (struct link){.store = store, .name = name};
    op_list_init(&link->sent);
    op_list_init(&link->waiting);
    uv_timer_init(store->loop, &link->timer);
    link->timer.data = link;
}

void link_start(struct link *link)
{
    if (link->state == LINK_IDLE) {
        uv_update_time(link->store->loop);
        link->down_since_ms = uv_now(link->store->loop);
        link->attempts = 0;
        link_connect(link);
    }
}

void link_send(struct link *link, struct op *op)
{
    op->link = link;
    op->taken = 0;
    op->sent = true;
    int rc = op->kind->send(op, net_out(link->conn));
    if (rc < 0) {
        struct impel_error err;
        if (rc == IMPEL_ERR_UNSUPPORTED) {
            (void)error_set(&err, rc, "redis at %s: %s takes a server of version 6.2 or later",
                            link->store->url.shown, op->kind->name);
        } else {
            (void)error_set(&err, rc, "the command could not be made: %s", status_text(rc));
        }
        op_fail(op, &err);
        return;
    }
    op->replies = (unsigned)rc;
    if (op != &link->greeting && link->sent.first == NULL) {
        net_expect(link->conn, patience_ms(op), op->kind->name);
    }
    op_push(&link->sent, op);
}

void link_flush(struct link *link)
{
    if (link->conn == NULL) {
        return;
    }
    net_flush(link->conn);
}

void link_close(struct link *link, struct op_list *ops)
{
    struct op *op;

    net_close(link->conn);
    link->conn = NULL;
    link->state = LINK_CLOSED;
    arena_release(&link->arena);
    while ((op = op_pop(&link->sent)) != NULL) {
        if (op != &link->greeting) {
            op_push(ops, op);
        }
    }
    while ((op = op_pop(&link->waiting)) != NULL) {
        op_push(ops, op);
    }
}
