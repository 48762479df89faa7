#include "memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct tw_pool_block {
    tw_pool_block *next;
};

void *tw_aligned_allocate(size_t bytes) {
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    size_t size = bytes == 0 ? TW_ALIGNMENT : tw_aligned(bytes);
    void *memory = aligned_alloc(TW_ALIGNMENT, size);
    if (memory != NULL) {
        memset(memory, 0, size);
    }
    return memory;
}

void tw_aligned_free(void *memory) { free(memory); }

void *tw_pool_allocate(tw_pool *pool, size_t bytes) {
    if (bytes > SIZE_MAX / 4) {
        return NULL;
    }
    unsigned char *memory = tw_aligned_allocate(bytes + TW_ALIGNMENT);
    if (memory == NULL) {
        return NULL;
    }
    tw_pool_block *block = (tw_pool_block *)(void *)memory;
    block->next = pool->blocks;
    pool->blocks = block;
    return memory + TW_ALIGNMENT;
}

void tw_pool_release(tw_pool *pool) {
    while (pool->blocks != NULL) {
        tw_pool_block *block = pool->blocks;
        pool->blocks = block->next;
        tw_aligned_free(block);
    }
}
