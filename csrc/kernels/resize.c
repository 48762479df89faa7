/* Resize: a row of output pixels at a time; nearest neighbours of one encoding are copied. */

#include <string.h>

#include "kernel.h"

enum { CHANNEL_BLOCK = 64, ONE = 2048 };

typedef struct tw_resize_state {
    int64_t rows, columns, out_rows, out_columns, channels;
    int64_t taps;
    const tw_tap_record *row_taps, *column_taps;
    const tw_rows *loops;
    bool copies;
    int32_t x_type, x_zero, y_type;
    tw_rescale_parameters output;
} tw_resize_state;

static void blend_pixel(const tw_resize_state *state, const unsigned char *image, int64_t r,
                        int64_t c, unsigned char *y) {
    const tw_rescale_parameters *p = &state->output;
    const size_t size = tw_dtype_bytes(state->x_type);
    for (int64_t first = 0; first < state->channels; first += CHANNEL_BLOCK) {
        const int64_t n = tw_min(CHANNEL_BLOCK, state->channels - first);
        int64_t sums[CHANNEL_BLOCK] = {0};
        int32_t values[CHANNEL_BLOCK];
        for (int64_t u = 0; u < state->taps; ++u) {
            const tw_tap_record *row = &state->row_taps[r * state->taps + u];
            for (int64_t v = 0; v < state->taps; ++v) {
                const tw_tap_record *column = &state->column_taps[c * state->taps + v];
                const int64_t weight = (int64_t)row->coefficient * column->coefficient;
                const int64_t at = row->index * state->columns + column->index;
                state->loops->widen(values, image + (size_t)(at * state->channels + first) * size,
                                    state->x_type, state->x_zero, n);
                for (int64_t i = 0; i < n; ++i) {
                    sums[i] += weight * values[i];
                }
            }
        }
        for (int64_t i = 0; i < n; ++i) {
            const int64_t value = tw_r24(sums[i], p->multiplier, p->shift);
            values[i] = (int32_t)tw_clamp(value + p->zero, p->lo, p->hi);
        }
        state->loops->narrow(y + (size_t)first * tw_dtype_bytes(state->y_type), state->y_type,
                             values, n);
    }
}

/* An item is one output row. */
static void run_resize(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_resize_state *state = step->state;
    const size_t x_pixel = (size_t)state->channels * tw_dtype_bytes(state->x_type);
    const size_t y_pixel = (size_t)state->channels * tw_dtype_bytes(state->y_type);
    for (int64_t item = begin; item < end; ++item) {
        const int64_t r = item % state->out_rows;
        const unsigned char *image =
            tw_input_data(step, call, 0) +
            (size_t)(item / state->out_rows * state->rows * state->columns) * x_pixel;
        unsigned char *y =
            tw_output_data(step, call) + (size_t)(item * state->out_columns) * y_pixel;
        for (int64_t c = 0; c < state->out_columns; ++c, y += y_pixel) {
            if (state->copies) {
                const int64_t at =
                    state->row_taps[r].index * state->columns + state->column_taps[c].index;
                memcpy(y, image + (size_t)at * x_pixel, x_pixel);
            } else {
                blend_pixel(state, image, r, c, y);
            }
        }
    }
}

/* Indices stay in the image; `gain` is the largest sum of magnitudes of one output's taps. */
static bool taps_fit(const tw_constant *taps, int64_t count, int64_t out, int64_t size,
                     int64_t *gain, bool *copies) {
    const tw_tap_record *records = taps->data;
    if (taps->kind != TW_KIND_TAP || taps->shape[0] != out || taps->shape[1] != count) {
        return false;
    }
    *gain = 0;
    for (int64_t i = 0; i < out; ++i) {
        int64_t sum = 0;
        for (int64_t t = 0; t < count; ++t) {
            const tw_tap_record *tap = &records[i * count + t];
            if (tap->index < 0 || tap->index >= size) {
                return false;
            }
            sum += tap->coefficient < 0 ? -(int64_t)tap->coefficient : tap->coefficient;
            *copies = *copies && tap->coefficient == ONE;
        }
        *gain = tw_max(*gain, sum);
    }
    return *gain < 1 << 20;
}

tw_status tw_prepare_resize(tw_prepare *prepare) {
    const tw_resize_fields *op = prepare->node->fields;
    tw_status status = tw_check_operands(prepare, 1);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *x = tw_input(prepare, 0), *y = tw_output(prepare);
    if (!tw_is_activation(x) || !tw_is_activation(y) || x->rank != 4 || y->rank != 4 ||
        x->shape[0] != y->shape[0] || x->shape[3] != y->shape[3]) {
        return tw_refuse(prepare, "its operands are not images of the same channels");
    }
    int64_t row_gain = 0, column_gain = 0;
    bool copies = op->taps == 1;
    if (op->taps < 1 || op->taps > 16 ||
        !taps_fit(&op->rows, op->taps, y->shape[1], x->shape[1], &row_gain, &copies) ||
        !taps_fit(&op->columns, op->taps, y->shape[2], x->shape[2], &column_gain, &copies)) {
        return tw_refuse(prepare, "its taps do not fit its operands");
    }
    if (!tw_is_rescale(op->multiplier, op->shift) ||
        row_gain * column_gain * tw_reach(x) >= INT64_C(1) << 38) {
        return tw_refuse(prepare, "its rescale or its taps are out of range");
    }
    tw_resize_state *state = tw_state(prepare, sizeof *state);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    /* R24 by 2**-22 gives the code back; an s16 code of -32768 would be saturated. */
    const bool exact = op->multiplier == 1 << 23 && op->shift == 45;
    *state = (tw_resize_state){
        .rows = x->shape[1],
        .columns = x->shape[2],
        .out_rows = y->shape[1],
        .out_columns = y->shape[2],
        .channels = x->shape[3],
        .taps = op->taps,
        .row_taps = op->rows.data,
        .column_taps = op->columns.data,
        .loops = prepare->rows,
        .copies = copies && exact && tw_same_encoding(x, y) && x->dtype != TW_S16,
        .x_type = x->dtype,
        .x_zero = x->zero_point,
        .y_type = y->dtype,
        .output = {(int32_t)op->multiplier, (int32_t)op->shift, y->zero_point,
                   (int32_t)tw_lowest(y->dtype), (int32_t)tw_highest(y->dtype)},
    };
    prepare->step->run = run_resize;
    prepare->step->items = x->shape[0] * y->shape[1];
    prepare->step->grain = 1;
    return TW_OK;
}
