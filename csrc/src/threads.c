#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/* Steps follow each other within microseconds: a thread first spins, then sleeps. */
enum { SPINS = 2000 };

struct tw_threads {
    int32_t count; /* with the caller */
    int32_t started;
    pthread_t handles[TW_THREAD_LIMIT];
    pthread_mutex_t mutex;
    pthread_cond_t wake; /* a new job, or the end */
    /* The job; written before `generation` is. */
    tw_job_function *function;
    void *job;
    int64_t items;
    int64_t grain;
    atomic_llong next;
    atomic_uint generation;
    atomic_bool open;  /* the job may be joined */
    atomic_int active; /* threads that have joined, or are about to see that they may not */
    atomic_bool stop;
    atomic_int sleepers;
};

typedef struct tw_thread_start {
    tw_threads *threads;
    int32_t index;
} tw_thread_start;

static inline void pause_spin(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void work(tw_threads *threads, int32_t index) {
    for (;;) {
        const int64_t begin = atomic_fetch_add(&threads->next, threads->grain);
        if (begin >= threads->items) {
            return;
        }
        const int64_t end = begin + threads->grain;
        threads->function(threads->job, index, begin, end < threads->items ? end : threads->items);
    }
}

/* Until a generation after `seen` begins; false at the end. */
static bool wait_for_job(tw_threads *threads, unsigned seen) {
    for (int i = 0; i < SPINS; ++i) {
        if (atomic_load(&threads->generation) != seen) {
            return !atomic_load(&threads->stop);
        }
        pause_spin();
    }
    pthread_mutex_lock(&threads->mutex);
    atomic_fetch_add(&threads->sleepers, 1);
    while (atomic_load(&threads->generation) == seen) {
        pthread_cond_wait(&threads->wake, &threads->mutex);
    }
    atomic_fetch_sub(&threads->sleepers, 1);
    pthread_mutex_unlock(&threads->mutex);
    return !atomic_load(&threads->stop);
}

/* A thread that comes late, because the processor had other things to do, finds the job closed: the
 * caller waits only for those that have begun. */
static void join(tw_threads *threads, int32_t index) {
    atomic_fetch_add(&threads->active, 1);
    if (atomic_load(&threads->open)) {
        work(threads, index);
    }
    atomic_fetch_sub(&threads->active, 1);
}

static void *thread_main(void *argument) {
    const tw_thread_start start = *(tw_thread_start *)argument;
    free(argument);
    unsigned seen = 0;
    while (wait_for_job(start.threads, seen)) {
        seen = atomic_load(&start.threads->generation);
        join(start.threads, start.index);
    }
    return NULL;
}

/* Begin the next generation and wake who sleeps. */
static void announce(tw_threads *threads) {
    atomic_fetch_add(&threads->generation, 1);
    if (atomic_load(&threads->sleepers) > 0) {
        pthread_mutex_lock(&threads->mutex);
        pthread_cond_broadcast(&threads->wake);
        pthread_mutex_unlock(&threads->mutex);
    }
}

tw_status tw_threads_create(int32_t count, tw_threads **result) {
    tw_threads *threads = calloc(1, sizeof *threads);
    *result = NULL;
    if (threads == NULL) {
        return TW_ERROR_MEMORY;
    }
    threads->count = count;
    pthread_mutex_init(&threads->mutex, NULL);
    pthread_cond_init(&threads->wake, NULL);
    for (int32_t i = 1; i < count; ++i) {
        tw_thread_start *start = malloc(sizeof *start);
        if (start == NULL) {
            tw_threads_release(threads);
            return TW_ERROR_MEMORY;
        }
        *start = (tw_thread_start){threads, i};
        if (pthread_create(&threads->handles[i], NULL, thread_main, start) != 0) {
            free(start);
            tw_threads_release(threads);
            return TW_ERROR_THREAD;
        }
        threads->started = i;
    }
    *result = threads;
    return TW_OK;
}

void tw_threads_release(tw_threads *threads) {
    if (threads == NULL) {
        return;
    }
    atomic_store(&threads->stop, true);
    announce(threads);
    for (int32_t i = 1; i <= threads->started; ++i) {
        pthread_join(threads->handles[i], NULL);
    }
    pthread_cond_destroy(&threads->wake);
    pthread_mutex_destroy(&threads->mutex);
    free(threads);
}

void tw_threads_run(tw_threads *threads, tw_job_function *function, void *job, int64_t items,
                    int64_t grain) {
    if (threads->count == 1 || items <= grain) {
        function(job, 0, 0, items);
        return;
    }
    threads->function = function;
    threads->job = job;
    threads->items = items;
    threads->grain = grain;
    atomic_store(&threads->next, 0);
    atomic_store(&threads->open, true);
    announce(threads);
    work(threads, 0);
    atomic_store(&threads->open, false);
    for (int spins = 0; atomic_load(&threads->active) > 0; ++spins) {
        if (spins < SPINS) {
            pause_spin();
        } else {
            sched_yield();
        }
    }
}
