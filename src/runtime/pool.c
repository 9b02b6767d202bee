/* pool.c -- callbacks on a pool of threads.
 *
 *   loop thread:   start ──► queue ──► a thread of the pool: the callback ──► finished list
 *                                                                    │ uv_async
 *                  finished(result) ◄────────────────────────────────┘
 *
 * One lock guards both lists; a callback runs outside of it. Threads are made when work finds none
 * free, up to the concurrency, and stay. They block all signals that come from outside, so that the
 * program's own threads get them. A callback cannot be ended from outside: cancelling sets a flag
 * that it may look at, and the pool waits for it. */
#include "runtime/handler.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct pool_task {
    struct impel_delivery view;
    struct delivery *delivery;
    struct pool_task *next;     /* in the list of free, queued or finished tasks */
    enum impel_outcome outcome; /* of the callback; valid once finished */
    bool stopped;               /* cancelled because the worker stops */
};

struct pool {
    struct handler base;
    const struct handler_env *env;
    struct runtime_handler options;
    uv_async_t wake;
    struct pool_task *tasks; /* `concurrency` of them */
    struct pool_task *free;  /* the loop thread's own */
    pthread_t *threads;
    uint32_t thread_count; /* the loop thread's own */
    pthread_mutex_t lock;
    /* Under the lock: */
    pthread_cond_t queued;
    struct pool_task *queue, **queue_tail;
    struct pool_task *finished, **finished_tail;
    uint32_t queue_size;
    uint32_t idle; /* threads that wait; some may have been woken already, for what is queued */
    bool ending;
};

/* ---- a thread ---- */

static void put_finished(struct pool *pool, struct pool_task *task)
{
    bool first = pool->finished == NULL;
    task->next = NULL;
    *pool->finished_tail = task;
    pool->finished_tail = &task->next;
    if (first) {
        (void)uv_async_send(&pool->wake);
    }
}

static void *pool_thread(void *user)
{
    struct pool *pool = user;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->queue == NULL && !pool->ending) {
            pool->idle++;
            pthread_cond_wait(&pool->queued, &pool->lock);
            pool->idle--;
        }
        struct pool_task *task = pool->queue;
        if (task == NULL) {
            break;
        }
        pool->queue = task->next;
        pool->queue_size--;
        if (pool->queue == NULL) {
            pool->queue_tail = &pool->queue;
        }
        pthread_mutex_unlock(&pool->lock);
        /* Cancelled before it began: not run at all. */
        task->outcome = atomic_load(&task->view.cancelled)
                            ? IMPEL_RETRY
                            : pool->options.call(&task->view, pool->options.user);
        pthread_mutex_lock(&pool->lock);
        put_finished(pool, task);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* False if the system refuses another thread. */
static bool add_thread(struct pool *pool)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&pool->threads[pool->thread_count], NULL, pool_thread, pool);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) {
        pool->thread_count++;
    }
    return rc == 0;
}

/* ---- the loop's side ---- */

static void on_finished(uv_async_t *handle)
{
    struct pool *pool = handle->data;
    pthread_mutex_lock(&pool->lock);
    struct pool_task *list = pool->finished;
    pool->finished = NULL;
    pool->finished_tail = &pool->finished;
    pthread_mutex_unlock(&pool->lock);
    while (list != NULL) {
        struct pool_task *task = list;
        list = task->next;
        struct handler_result result = handler_result_of(&task->view, task->outcome, task->stopped);
        struct delivery *delivery = task->delivery;
        char *why = task->view.why;
        task->next = pool->free;
        pool->free = task;
        pool->env->finished(pool->env->user, delivery, &result);
        free(why);
    }
}

static void pool_start(struct handler *base, struct delivery *delivery)
{
    struct pool *pool = (struct pool *)base;
    struct pool_task *task = pool->free;
    ASSERT(task != NULL);
    pool->free = task->next;
    *task = (struct pool_task){
        .view = {.env = pool->env, .delivery = delivery, .delay_ms = -1},
        .delivery = delivery,
    };
    delivery->driver = task;
    pthread_mutex_lock(&pool->lock);
    *pool->queue_tail = task;
    pool->queue_tail = &task->next;
    pool->queue_size++;
    bool none_free = pool->queue_size > pool->idle;
    pthread_cond_signal(&pool->queued);
    pthread_mutex_unlock(&pool->lock);
    if (none_free && pool->thread_count < pool->env->concurrency) {
        (void)add_thread(pool); /* if refused, those there are will get to it */
    }
}

static void pool_cancel(struct handler *base, struct delivery *delivery, enum cancel_reason reason)
{
    (void)base;
    struct pool_task *task = delivery->driver;
    task->stopped = task->stopped || reason == CANCEL_STOP;
    atomic_store(&task->view.cancelled, true);
}

static void end_threads(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->ending = true;
    pthread_cond_broadcast(&pool->queued);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->thread_count; i++) {
        pthread_join(pool->threads[i], NULL);
    }
    pool->thread_count = 0;
}

static void pool_close(struct handler *base)
{
    struct pool *pool = (struct pool *)base;
    end_threads(pool);
    uv_close((uv_handle_t *)&pool->wake, NULL);
}

static void pool_free(struct handler *base)
{
    struct pool *pool = (struct pool *)base;
    pthread_cond_destroy(&pool->queued);
    pthread_mutex_destroy(&pool->lock);
    free(pool->tasks);
    free(pool->threads);
    free(pool);
}

static int pool_open(const struct handler_env *env,
                     const struct runtime_handler *options,
                     struct handler **out,
                     struct impel_error *err)
{
    if (options->call == NULL) {
        return error_set(err, IMPEL_ERR_INVALID, "the worker has no handler");
    }
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for a pool of threads");
    }
    *pool = (struct pool){.base.ops = &handler_pool, .env = env, .options = *options};
    pool->wake.data = pool;
    pool->queue_tail = &pool->queue;
    pool->finished_tail = &pool->finished;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->queued, NULL);
    pool->tasks = calloc(env->concurrency, sizeof *pool->tasks);
    pool->threads = calloc(env->concurrency, sizeof *pool->threads);
    if (pool->tasks == NULL || pool->threads == NULL || !add_thread(pool) ||
        uv_async_init(env->loop, &pool->wake, on_finished) != 0) {
        end_threads(pool);
        pool_free(&pool->base);
        return error_set(err, IMPEL_ERR_NOMEM, "the system refuses a pool of threads");
    }
    for (uint32_t i = env->concurrency; i > 0; i--) {
        pool->tasks[i - 1].next = pool->free;
        pool->free = &pool->tasks[i - 1];
    }
    *out = &pool->base;
    return IMPEL_OK;
}

const struct handler_ops handler_pool = {
    .open = pool_open,
    .start = pool_start,
    .cancel = pool_cancel,
    .close = pool_close,
    .free = pool_free,
};
