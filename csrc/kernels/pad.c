/* Pad: rows along the last axis, each filled at its ends or altogether. */

#include <string.h>

#include "move.h"

typedef struct tw_pad_state {
    tw_move move; /* `box` unused */
    int32_t rank;
    int64_t x_shape[TW_MAX_RANK], y_shape[TW_MAX_RANK], x_strides[TW_MAX_RANK];
    int64_t before[TW_MAX_RANK];
    int64_t value;
} tw_pad_state;

static void fill(const tw_pad_state *state, unsigned char *y, int64_t at, int64_t n) {
    const size_t size = tw_dtype_bytes(state->move.y_type);
    unsigned char *to = y + (size_t)at * size;
    if (size == 1) {
        memset(to, (int)(state->value & 255), (size_t)tw_max(n, 0));
        return;
    }
    for (int64_t i = 0; i < n; ++i) { /* little-endian: the low bytes come first */
        memcpy(to + (size_t)i * size, &state->value, size);
    }
}

/* Input position of the first element that row `row` could read; -1 if the row lies outside. */
static int64_t source_row(const tw_pad_state *state, int64_t row) {
    int64_t at = 0;
    for (int32_t axis = state->rank - 2; axis >= 0; --axis) {
        const int64_t i = row % state->y_shape[axis] - state->before[axis];
        row /= state->y_shape[axis];
        if (i < 0 || i >= state->x_shape[axis]) {
            return -1;
        }
        at += i * state->x_strides[axis];
    }
    return at;
}

static void run_pad(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_pad_state *state = step->state;
    const int32_t last = state->rank - 1;
    const int64_t width = state->y_shape[last];
    const int64_t first = tw_clamp(state->before[last], 0, width);
    const int64_t stop = tw_clamp(state->before[last] + state->x_shape[last], first, width);
    unsigned char *y = tw_output_data(step, call);
    for (int64_t row = begin; row < end; ++row) {
        const int64_t source = source_row(state, row), at = row * width;
        if (source < 0 || first == stop) {
            fill(state, y, at, width);
            continue;
        }
        fill(state, y, at, first);
        tw_move_row(&state->move, tw_input_data(step, call, 0),
                    source + first - state->before[last], 1, y, at + first, stop - first);
        fill(state, y, at + stop, width - stop);
    }
}

tw_status tw_prepare_pad(tw_prepare *prepare) {
    const tw_pad_fields *op = prepare->node->fields;
    tw_status status = tw_check_operands(prepare, 1);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *x = tw_input(prepare, 0), *y = tw_output(prepare);
    if (x->rank < 1 || x->rank != y->rank || op->before.count != x->rank ||
        op->after.count != x->rank) {
        return tw_refuse(prepare, "its operands differ in rank");
    }
    tw_pad_state *state = tw_state(prepare, sizeof *state);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    state->rank = x->rank;
    tw_contiguous_strides(x->shape, x->rank, state->x_strides);
    for (int32_t i = 0; i < x->rank; ++i) {
        const int64_t before = op->before.values[i], after = op->after.values[i];
        if (before < -INT32_MAX || before > INT32_MAX || after < -INT32_MAX || after > INT32_MAX ||
            y->shape[i] != x->shape[i] + before + after) {
            return tw_refuse(prepare, "its pads do not fit its operands");
        }
        state->before[i] = before;
        state->x_shape[i] = x->shape[i];
        state->y_shape[i] = y->shape[i];
    }
    if (op->value < tw_lowest(y->dtype) - (y->dtype == TW_S16) ||
        op->value > tw_highest(y->dtype)) {
        return tw_refuse(prepare, "its value is outside its type");
    }
    state->value = op->value;
    prepare->step->run = run_pad;
    prepare->step->items = y->elements / y->shape[y->rank - 1];
    prepare->step->grain = 16;
    return tw_plan_move(prepare, &state->move, x, y, op->multiplier, op->shift);
}
