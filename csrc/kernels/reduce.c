/* Scaled sum over neighbouring axes: [outer, reduced, inner] to [outer, inner]. */

#include <string.h>

#include "kernel.h"

enum { INNER_BLOCK = 64 };

typedef struct tw_reduce_state {
    int64_t outer, reduced, inner, blocks;
    const tw_rows *rows;
    int32_t x_type, x_zero, y_type;
    int32_t pre_shift;
    tw_rescale_parameters output;
} tw_reduce_state;

static int32_t finish(const tw_reduce_state *state, int64_t sum) {
    const tw_rescale_parameters *p = &state->output;
    const int64_t r = tw_r24(tw_pre_shifted(sum, state->pre_shift), p->multiplier, p->shift);
    return (int32_t)tw_clamp(r + p->zero, p->lo, p->hi);
}

/* Sum of contiguous elements. */
static int64_t sum_run(const tw_reduce_state *state, const unsigned char *x) {
    int64_t sum = 0;
    for (int64_t at = 0; at < state->reduced; at += TW_ROW_BLOCK) {
        int32_t values[TW_ROW_BLOCK];
        const int64_t n = tw_min(TW_ROW_BLOCK, state->reduced - at);
        state->rows->widen(values, x + (size_t)at * tw_dtype_bytes(state->x_type), state->x_type,
                           state->x_zero, n);
        for (int64_t i = 0; i < n; ++i) {
            sum += values[i];
        }
    }
    return sum;
}

static void run_reduce(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_reduce_state *state = step->state;
    const size_t size = tw_dtype_bytes(state->x_type);
    for (int64_t item = begin; item < end; ++item) {
        const int64_t outer = item / state->blocks;
        const int64_t first = item % state->blocks * INNER_BLOCK;
        const int64_t n = tw_min(INNER_BLOCK, state->inner - first);
        const unsigned char *x = tw_input_data(step, call, 0) +
                                 (size_t)(outer * state->reduced * state->inner + first) * size;
        unsigned char *y = tw_output_data(step, call) +
                           (size_t)(outer * state->inner + first) * tw_dtype_bytes(state->y_type);
        int64_t sums[INNER_BLOCK] = {0};
        int32_t values[INNER_BLOCK];
        if (state->inner == 1) {
            sums[0] = sum_run(state, x);
        }
        for (int64_t k = 0; state->inner > 1 && k < state->reduced; ++k) {
            state->rows->widen(values, x + (size_t)(k * state->inner) * size, state->x_type,
                               state->x_zero, n);
            state->rows->accumulate(sums, values, n);
        }
        for (int64_t i = 0; i < n; ++i) {
            values[i] = finish(state, sums[i]);
        }
        state->rows->narrow(y, state->y_type, values, n);
    }
}

tw_status tw_prepare_reduce(tw_prepare *prepare) {
    const tw_reduce_fields *op = prepare->node->fields;
    tw_status status = tw_check_operands(prepare, 1);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *x = tw_input(prepare, 0), *y = tw_output(prepare);
    if (!tw_is_activation(x) || !tw_is_activation(y) || x->rank != y->rank) {
        return tw_refuse(prepare, "its operands are not activations of one rank");
    }
    if (op->axes[0] < 0 || op->axes[0] > op->axes[1] || op->axes[1] > x->rank) {
        return tw_refuse(prepare, "its axes do not exist");
    }
    tw_reduce_state *state = tw_state(prepare, sizeof *state);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    state->outer = state->reduced = state->inner = 1;
    for (int32_t i = 0; i < x->rank; ++i) {
        const bool reduced = i >= op->axes[0] && i < op->axes[1];
        if (y->shape[i] != (reduced ? 1 : x->shape[i])) {
            return tw_refuse(prepare, "its output has the wrong shape");
        }
        int64_t *extent = reduced           ? &state->reduced
                          : i < op->axes[0] ? &state->outer
                                            : &state->inner;
        *extent *= x->shape[i];
    }
    if (!tw_is_rescale(op->multiplier, op->shift) || !tw_is_clamp(y, op->clamp[0], op->clamp[1]) ||
        op->pre_shift < 0 || op->pre_shift > 24 ||
        (state->reduced * tw_reach(x) >> op->pre_shift) >= INT64_C(1) << 38) {
        return tw_refuse(prepare, "its rescale, clamp or length is out of range");
    }
    state->blocks = (state->inner + INNER_BLOCK - 1) / INNER_BLOCK;
    state->rows = prepare->rows;
    state->x_type = x->dtype;
    state->x_zero = x->zero_point;
    state->y_type = y->dtype;
    state->pre_shift = (int32_t)op->pre_shift;
    state->output =
        (tw_rescale_parameters){(int32_t)op->multiplier, (int32_t)op->shift, y->zero_point,
                                (int32_t)op->clamp[0], (int32_t)op->clamp[1]};
    prepare->step->run = run_reduce;
    prepare->step->items = state->outer * state->blocks;
    prepare->step->grain = 4;
    return TW_OK;
}
