/* Runs attention: scores, their weights and their means, a few rows at a time. */

#include "attention.h"

#include <string.h>

enum { Y = TW_ATTENTION_Y, Q = TW_ATTENTION_Q, K = TW_ATTENTION_K };
enum { V = TW_ATTENTION_V, MASK = TW_ATTENTION_MASK, OPERANDS = TW_ATTENTION_OPERANDS };

/* What one item works on. */
typedef struct tw_attention_item {
    const tw_attention_state *state;
    const unsigned char *q, *mask;
    unsigned char *y;
    int64_t bias_row; /* of the entry's first query */
    unsigned char *scratch;
    int64_t first, rows; /* the block at hand */
    const int32_t *addends;
    int64_t addend_stride; /* from row to row */
} tw_attention_item;

static int16_t *held_row(const tw_attention_item *item, int64_t row) {
    const tw_attention_state *state = item->state;
    return (int16_t *)(void *)(item->scratch + state->held_at) + row * state->keys;
}

static int32_t *row_numbers(const tw_attention_item *item) {
    return (int32_t *)(void *)(item->scratch + item->state->rows_at);
}

static void score_wide(const tw_attention_state *state, const int64_t *sums, const int32_t *addend,
                       int64_t n, int16_t *y) {
    const tw_rescale_parameters *p = &state->score.rescale;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t r =
            tw_r24(tw_pre_shifted(sums[i], state->pre_shift), p->multiplier, p->shift);
        y[i] = (int16_t)tw_clamp(r + (addend == NULL ? 0 : addend[i]), -32767, 32767);
    }
}

static void take_scores(void *context, const tw_sums *sums) {
    const tw_attention_item *item = context;
    const tw_attention_state *state = item->state;
    for (int64_t m = 0; m < sums->rows; ++m) {
        const int64_t row = sums->row + m;
        const int32_t *addend = item->addends;
        if (addend != NULL) {
            addend += row * item->addend_stride + sums->column;
        }
        int16_t *y = held_row(item, row) + sums->column;
        if (state->scores.set->accumulator_bytes == 8) {
            const int64_t *raw = (const int64_t *)sums->raw + m * sums->width;
            score_wide(state, raw, addend, sums->columns, y);
        } else {
            const int32_t *raw = (const int32_t *)sums->raw + m * sums->width;
            state->loops->score(y, raw, row_numbers(item)[row], &state->score, addend,
                                sums->columns);
        }
    }
}

/* Weights of one row in the form that tiles read; their sum.  The scores are overwritten. */
static int64_t weigh(const tw_attention_state *state, int16_t *scores, unsigned char *y) {
    const uint16_t *distances = (const uint16_t *)scores;
    const uint8_t *weights = state->weights;
    const int64_t n = state->keys;
    state->loops->distance(scores, (uint16_t)state->last_distance, n);
    if (state->means.set->x_bytes == 2) {
        int16_t *words = (int16_t *)(void *)y;
        uint32_t sum = 0;
        for (int64_t i = 0; i < n; ++i) {
            const uint8_t weight = weights[distances[i]];
            words[i] = weight;
            sum += weight;
        }
        return sum;
    }
#pragma GCC unroll 8
    for (int64_t i = 0; i < n; ++i) {
        y[i] = weights[distances[i]];
    }
    return state->loops->sum_bytes(y, n);
}

static void mean_wide(const tw_attention_state *state, const int64_t *sums, int64_t share,
                      int64_t n, int32_t *y) {
    const tw_rescale_parameters *p = &state->output;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t mean = (sums[i] * share + (INT64_C(1) << 22)) >> 23;
        y[i] = (int32_t)tw_clamp(tw_r24(mean, p->multiplier, p->shift) + p->zero, p->lo, p->hi);
    }
}

static void take_means(void *context, const tw_sums *sums) {
    const tw_attention_item *item = context;
    const tw_attention_state *state = item->state;
    const int64_t y_bytes = (int64_t)tw_dtype_bytes(state->type[Y]);
    const int32_t zero = tw_packed_zero(&state->means, state->type[V], state->zero[V]);
    int32_t codes[TW_PANEL_COLUMNS];
    for (int64_t m = 0; m < sums->rows; ++m) {
        const int64_t row = sums->row + m, total = row_numbers(item)[row];
        const int64_t share = (INT64_C(1) << 39) / total;
        if (state->means.set->accumulator_bytes == 8) {
            const int64_t *raw = (const int64_t *)sums->raw + m * sums->width;
            mean_wide(state, raw, share, sums->columns, codes);
        } else {
            const int32_t *raw = (const int32_t *)sums->raw + m * sums->width;
            state->loops->mean(codes, raw, (int32_t)(-zero * total), share, &state->output,
                               sums->columns);
        }
        unsigned char *y =
            item->y + ((item->first + row) * state->row_stride[Y] + sums->column) * y_bytes;
        state->loops->narrow(y, state->type[Y], codes, sums->columns);
    }
}

/* The mask of one query in steps of the scores. */
static void take_mask(const tw_attention_item *item, int64_t query, int32_t *y) {
    const tw_attention_state *state = item->state;
    const int64_t bytes = (int64_t)tw_dtype_bytes(state->type[MASK]);
    const unsigned char *x = item->mask + query * state->row_stride[MASK] * bytes;
    const tw_rescale_parameters *p = &state->mask;
    for (int64_t i = 0; i < state->keys; ++i) {
        const int64_t d = tw_code(x, state->type[MASK], i * state->mask_step) - state->zero[MASK];
        y[i] = (int32_t)tw_r24(d, p->multiplier, p->shift);
    }
}

static void take_bias(const tw_attention_item *item, int64_t query, int32_t *y) {
    const tw_attention_state *state = item->state;
    const int64_t n = state->keys, at = (item->bias_row + query * state->bias_step) * n;
    if (state->bias.kind == TW_KIND_S16) {
        state->loops->widen(y, (const int16_t *)state->bias.data + at, TW_S16, 0, n);
    } else {
        memcpy(y, (const int32_t *)state->bias.data + at, (size_t)n * sizeof *y);
    }
}

static void add_bias(const tw_attention_item *item, int64_t query, int32_t *y) {
    const tw_attention_state *state = item->state;
    const int64_t n = state->keys, at = (item->bias_row + query * state->bias_step) * n;
    if (state->bias.kind == TW_KIND_S16) {
        const int16_t *bias = (const int16_t *)state->bias.data + at;
        for (int64_t i = 0; i < n; ++i) {
            y[i] += bias[i];
        }
    } else {
        const int32_t *bias = (const int32_t *)state->bias.data + at;
        for (int64_t i = 0; i < n; ++i) {
            y[i] += bias[i];
        }
    }
}

/* What is added to the scores of the block: rows of their own only where they differ. */
static void take_addends(tw_attention_item *item) {
    const tw_attention_state *state = item->state;
    const bool biased = state->bias.data != NULL;
    if (!biased && !state->masked) {
        return;
    }
    const bool differ =
        (biased && state->bias_step != 0) || (state->masked && state->row_stride[MASK] != 0);
    int32_t *rows = (int32_t *)(void *)(item->scratch + state->addends_at);
    item->addends = rows;
    item->addend_stride = differ ? state->keys : 0;
    for (int64_t m = 0; m < (differ ? item->rows : 1); ++m) {
        int32_t *row = rows + m * state->keys;
        if (!state->masked) {
            take_bias(item, item->first + m, row);
            continue;
        }
        take_mask(item, item->first + m, row);
        if (biased) {
            add_bias(item, item->first + m, row);
        }
    }
}

static void run_block(tw_attention_item *item, const tw_operand *k) {
    const tw_attention_state *state = item->state;
    unsigned char *scratch = item->scratch, *taken = scratch + state->taken_at;
    unsigned char *weights = scratch + state->weights_at, *raw = scratch + state->raw_at;
    const int64_t q_bytes = (int64_t)tw_dtype_bytes(state->type[Q]);
    const tw_operand q = {item->q + item->first * state->row_stride[Q] * q_bytes, state->type[Q],
                          state->zero[Q], state->row_stride[Q], 1};
    tw_take_rows(&state->scores, state->loops, &q, k, item->rows, taken, row_numbers(item));
    take_addends(item);
    tw_multiply(&state->scores, scratch, taken, item->rows, raw, take_scores, item);
    const int64_t stride = tw_row_bytes(state->means.set, state->keys);
    for (int64_t m = 0; m < item->rows; ++m) {
        row_numbers(item)[m] = (int32_t)weigh(state, held_row(item, m), weights + m * stride);
    }
    tw_multiply(&state->means, scratch + state->means_at, weights, item->rows, raw, take_means,
                item);
}

static const unsigned char *operand_at(const tw_step *step, const tw_call *call,
                                       const int64_t *offsets, int32_t operand) {
    const tw_attention_state *state = step->state;
    const int64_t bytes = (int64_t)tw_dtype_bytes(state->type[operand]);
    return tw_input_data(step, call, operand - Q) + offsets[operand] * bytes;
}

void tw_run_attention(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_attention_state *state = step->state;
    int64_t packed[2] = {-1, -1};
    for (int64_t i = begin; i < end; ++i) {
        const int64_t entry = i / state->pieces, piece = i % state->pieces;
        int64_t at[OPERANDS];
        tw_box_item(&state->batch, entry, at);
        const tw_operand k = {operand_at(step, call, at, K), state->type[K], state->zero[K], 1,
                              state->row_stride[K]};
        const tw_operand v = {operand_at(step, call, at, V), state->type[V], state->zero[V],
                              state->row_stride[V], 1};
        if (packed[0] != at[K]) {
            tw_pack_operand(&state->scores, &k, state->type[Q], state->zero[Q], call->scratch,
                            call->scratch + state->taken_at);
        }
        if (packed[1] != at[V]) {
            tw_pack_operand(&state->means, &v, TW_U8, 0, call->scratch + state->means_at,
                            call->scratch + state->weights_at);
        }
        packed[0] = at[K];
        packed[1] = at[V];
        tw_attention_item item = {
            .state = state,
            .q = operand_at(step, call, at, Q),
            .mask = state->masked ? operand_at(step, call, at, MASK) : NULL,
            .y = tw_output_data(step, call) + at[Y] * (int64_t)tw_dtype_bytes(state->type[Y]),
            .bias_row = state->bias.data == NULL ? 0 : state->bias_first[entry],
            .scratch = call->scratch,
        };
        const int64_t last = tw_min((piece + 1) * state->item_rows, state->queries);
        for (item.first = piece * state->item_rows; item.first < last; item.first += state->block) {
            item.rows = tw_min(state->block, last - item.first);
            run_block(&item, &k);
        }
    }
}
