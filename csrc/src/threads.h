/* A few threads that do items of one job after the other.  The caller is the first of them. */

#ifndef TW_THREADS_H
#define TW_THREADS_H

#include <stdint.h>

#include "tilewright.h"

typedef struct tw_threads tw_threads;

/* Items [begin, end) on thread `thread`. */
typedef void tw_job_function(void *job, int32_t thread, int64_t begin, int64_t end);

tw_status tw_threads_create(int32_t count, tw_threads **threads);
void tw_threads_release(tw_threads *threads);

/* Do all items, `grain` of them at a time; returns when they are done. */
void tw_threads_run(tw_threads *threads, tw_job_function *function, void *job, int64_t items,
                    int64_t grain);

#endif
