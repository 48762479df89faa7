/* The state of an attention. */

#ifndef TW_ATTENTION_H
#define TW_ATTENTION_H

#include "operand.h"
#include "strided.h"

enum {
    TW_ATTENTION_Y,
    TW_ATTENTION_Q,
    TW_ATTENTION_K,
    TW_ATTENTION_V,
    TW_ATTENTION_MASK,
    TW_ATTENTION_OPERANDS
};

typedef struct tw_attention_state {
    tw_box batch; /* of TW_ATTENTION_OPERANDS operands */
    int64_t queries, keys, depth, values;
    int64_t row_stride[TW_ATTENTION_OPERANDS]; /* along queries or keys, in elements */
    int64_t mask_step;                         /* from key to key */
    int32_t type[TW_ATTENTION_OPERANDS], zero[TW_ATTENTION_OPERANDS];
    bool masked;
    tw_constant bias;
    const int64_t *bias_first;
    int64_t bias_step;
    int32_t pre_shift;
    tw_scaling score;
    tw_rescale_parameters mask, output;
    const uint8_t *weights; /* of distances to the largest score, the last one 0 */
    int64_t last_distance;
    const tw_rows *loops;
    tw_packing scores, means;
    int64_t block; /* rows that are done together */
    int64_t item_rows, pieces;
    size_t means_at, taken_at, held_at, weights_at, addends_at, rows_at, raw_at;
} tw_attention_state;

tw_run_function tw_run_attention;

#endif
