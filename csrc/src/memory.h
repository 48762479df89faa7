/* Aligned memory, and pools that are released as a whole. */

#ifndef TW_MEMORY_H
#define TW_MEMORY_H

#include <stddef.h>

enum { TW_ALIGNMENT = 64 };

/* Zeroed, 64-byte aligned; NULL when there is none or `bytes` is absurd. */
void *tw_aligned_allocate(size_t bytes);
void tw_aligned_free(void *memory);

typedef struct tw_pool_block tw_pool_block;

typedef struct tw_pool {
    tw_pool_block *blocks;
} tw_pool;

/* Zeroed, 64-byte aligned; NULL when out of memory. */
void *tw_pool_allocate(tw_pool *pool, size_t bytes);
void tw_pool_release(tw_pool *pool);

/* Rounded up to the alignment. */
static inline size_t tw_aligned(size_t bytes) {
    return (bytes + TW_ALIGNMENT - 1) / TW_ALIGNMENT * TW_ALIGNMENT;
}

#endif
