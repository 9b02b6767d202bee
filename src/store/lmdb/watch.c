/* watch.c -- one small thread a process and file: sleeps on the wake word for all handles that have
 * blocked reads.
 *
 * It exists only after the first blocked read of a handle that wants to be woken, and while none is
 * blocked it sleeps without end. A writer may be killed between its commit and its wake-up, so a
 * sleep lasts a second at most and then the transaction number is compared. */
#include "store/lmdb/env.h"

#include <signal.h>

enum {
    WATCH_SLEEP_MS = 1000,
};

static bool any_armed(const struct lmdb_env *env)
{
    for (const struct env_watch *watch = env->watches; watch != NULL; watch = watch->next) {
        if (watch->armed) {
            return true;
        }
    }
    return false;
}

/* Wakes whose view is outdated. Under env->lock, so that no handle goes away meanwhile. */
static void wake_outdated(struct lmdb_env *env, uint32_t word, uint64_t commit)
{
    for (struct env_watch *watch = env->watches; watch != NULL; watch = watch->next) {
        if (watch->armed && (watch->word != word || watch->commit != commit)) {
            watch->armed = false;
            watch->wake(watch->user);
        }
    }
}

static void *watch_run(void *argument)
{
    struct lmdb_env *env = argument;

    pthread_mutex_lock(&env->lock);
    while (!env->stop) {
        if (!any_armed(env)) {
            pthread_cond_wait(&env->change, &env->lock);
            continue;
        }
        uint32_t word = side_word(&env->side);
        wake_outdated(env, word, env_commit_number(env));
        pthread_mutex_unlock(&env->lock);
        side_sleep(&env->side, word, WATCH_SLEEP_MS);
        pthread_mutex_lock(&env->lock);
    }
    pthread_mutex_unlock(&env->lock);
    return NULL;
}

void env_watch_add(struct lmdb_env *env, struct env_watch *watch)
{
    pthread_mutex_lock(&env->lock);
    watch->next = env->watches;
    env->watches = watch;
    pthread_mutex_unlock(&env->lock);
}

void env_watch_remove(struct lmdb_env *env, struct env_watch *watch)
{
    pthread_mutex_lock(&env->lock);
    for (struct env_watch **at = &env->watches; *at != NULL; at = &(*at)->next) {
        if (*at == watch) {
            *at = watch->next;
            break;
        }
    }
    pthread_mutex_unlock(&env->lock);
}

bool env_watch_arm(struct lmdb_env *env, struct env_watch *watch, uint32_t word, uint64_t commit)
{
    bool fresh = false;

    pthread_mutex_lock(&env->lock);
    if (!env->thread_started) {
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        /* Signals are the program's own threads' business. */
        pthread_sigmask(SIG_SETMASK, &all, &before);
        env->thread_started = pthread_create(&env->thread, NULL, watch_run, env) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    /* The watcher may be asleep on a newer word than the one looked at: compare here as well. */
    fresh = side_word(&env->side) == word;
    if (fresh && !watch->armed) {
        watch->armed = true;
        pthread_cond_signal(&env->change);
    }
    watch->word = word;
    watch->commit = commit;
    pthread_mutex_unlock(&env->lock);
    return fresh;
}

void env_watch_disarm(struct lmdb_env *env, struct env_watch *watch)
{
    pthread_mutex_lock(&env->lock);
    watch->armed = false;
    pthread_mutex_unlock(&env->lock);
}

void env_watch_stop(struct lmdb_env *env)
{
    pthread_mutex_lock(&env->lock);
    env->stop = true;
    pthread_cond_signal(&env->change);
    pthread_mutex_unlock(&env->lock);
    if (env->thread_started) {
        side_wake(&env->side); /* it may be asleep on the word */
        pthread_join(env->thread, NULL);
    }
}
