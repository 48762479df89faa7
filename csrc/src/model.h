/* A loaded model: tensors, nodes and borders as the file describes them, and the steps that run it.
 */

#ifndef TW_MODEL_H
#define TW_MODEL_H

#include <stdarg.h>
#include <stdbool.h>

#include "generated/graphfile.h"
#include "memory.h"
#include "tilewright.h"

/* Instruction sets, each containing those before it. */
typedef enum tw_isa { TW_PORTABLE, TW_AVX2, TW_AVXVNNI, TW_AVX512VNNI } tw_isa;

/* The best that this processor has, or the one that TILEWRIGHT_ISA names; false if it has not that.
 */
bool tw_isa_detect(tw_isa *isa);
const char *tw_isa_name(tw_isa isa);

typedef struct tw_tensor {
    const char *name;
    int32_t dtype;
    int32_t rank;
    int64_t shape[TW_MAX_RANK];
    int64_t elements;
    size_t bytes;
    size_t offset; /* in the arena */
    float scale;
    int32_t zero_point;
} tw_tensor;

typedef struct tw_node {
    const char *name;
    const tw_operator_layout *layout;
    const void *fields; /* the operator's structure of generated/graphfile.h */
    const int32_t *inputs;
    const int32_t *outputs;
    int32_t input_count;
    int32_t output_count;
} tw_node;

typedef struct tw_border {
    const char *name;
    int32_t tensor;
    int32_t rank;
    int64_t shape[TW_MAX_RANK];
    int64_t permutation[TW_MAX_RANK];
    const void *pixel_table; /* [256, channels] codes, or NULL */
    const int64_t *pixel_sources;
    int32_t pixel_channels;
} tw_border;

typedef struct tw_step tw_step;

/* What a step works on: every tensor's address, and memory of its own for this thread. */
typedef struct tw_call {
    unsigned char *const *tensors;
    unsigned char *scratch;
} tw_call;

/* Do items [begin, end) of a step; items are independent of each other. */
typedef void tw_run_function(const tw_step *step, const tw_call *call, int64_t begin, int64_t end);

struct tw_step {
    tw_run_function *run; /* NULL: nothing to do */
    const void *state;
    const tw_node *node;
    int64_t items;
    int64_t grain;  /* items that one thread takes at a time */
    size_t scratch; /* bytes for each thread */
};

struct tw_model {
    tw_pool pool;
    tw_isa isa;
    const struct tw_rows *rows; /* loops for this processor */
    const char *name;
    const unsigned char *data; /* the file */
    size_t data_bytes;
    void *mapping; /* non-NULL when `data` is ours to unmap */
    size_t mapping_bytes;
    size_t arena_bytes;
    size_t scratch_bytes;
    tw_tensor *tensors;
    tw_node *nodes;
    tw_step *steps; /* one for each node */
    tw_border *inputs;
    tw_border *outputs;
    int32_t tensor_count;
    int32_t node_count;
    int32_t input_count;
    int32_t output_count;
    char *message;
    size_t message_bytes;
};

/* Note why loading failed; returns `status`. */
tw_status tw_model_fail(tw_model *model, tw_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Fill in everything but the steps from `data`. */
tw_status tw_model_read(tw_model *model);

static inline size_t tw_dtype_bytes(int32_t dtype) {
    static const unsigned char sizes[TW_DTYPES] = {1, 1, 2, 4, 8};
    return sizes[dtype];
}

#endif
