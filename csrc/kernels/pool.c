/* MaxPool and AveragePool: a row of output pixels at a time, channels in blocks. */

#include <string.h>

#include "kernel.h"

enum { CHANNEL_BLOCK = 64 };

typedef struct tw_pool_state {
    int64_t rows, columns; /* of the input */
    int64_t out_rows, out_columns;
    int64_t channels;
    int64_t kernel[2], stride[2], dilation[2], pad[2];
    int64_t counted[4];
    const tw_rows *loops;
    int32_t x_type, x_zero, y_type;
    bool same;                       /* MaxPool: codes move as they are */
    tw_rescale_parameters output;    /* MaxPool */
    const tw_count_record **records; /* AveragePool: by number of elements */
} tw_pool_state;

/* Taps of a window along one axis that fall on [first, end): the first such, and one past the last.
 */
typedef struct tw_tap_range {
    int64_t begin;
    int64_t end;
} tw_tap_range;

static tw_tap_range taps_on(const tw_pool_state *state, int axis, int64_t out, int64_t first,
                            int64_t end) {
    const int64_t origin = out * state->stride[axis] - state->pad[axis];
    const int64_t step = state->dilation[axis];
    const int64_t before = first - origin, until = end - origin;
    tw_tap_range range;
    range.begin = before <= 0 ? 0 : (before + step - 1) / step;
    range.end = until <= 0 ? 0 : (until + step - 1) / step;
    range.begin = tw_min(range.begin, state->kernel[axis]);
    range.end = tw_clamp(range.end, range.begin, state->kernel[axis]);
    return range;
}

static const unsigned char *tap_address(const tw_pool_state *state, const unsigned char *image,
                                        int64_t r, int64_t c, int64_t u, int64_t v,
                                        int64_t channel) {
    const int64_t row = r * state->stride[0] - state->pad[0] + u * state->dilation[0];
    const int64_t column = c * state->stride[1] - state->pad[1] + v * state->dilation[1];
    return image + (size_t)((row * state->columns + column) * state->channels + channel) *
                       tw_dtype_bytes(state->x_type);
}

static void max_pixel(const tw_pool_state *state, const unsigned char *image, unsigned char *y,
                      int64_t r, int64_t c) {
    const tw_tap_range rows = taps_on(state, 0, r, 0, state->rows);
    const tw_tap_range columns = taps_on(state, 1, c, 0, state->columns);
    for (int64_t first = 0; first < state->channels; first += CHANNEL_BLOCK) {
        const int64_t n = tw_min(CHANNEL_BLOCK, state->channels - first);
        int32_t best[CHANNEL_BLOCK], values[CHANNEL_BLOCK];
        bool started = false;
        for (int64_t u = rows.begin; u < rows.end; ++u) {
            for (int64_t v = columns.begin; v < columns.end; ++v) {
                const unsigned char *x = tap_address(state, image, r, c, u, v, first);
                state->loops->widen(started ? values : best, x, state->x_type, state->x_zero, n);
                if (started) {
                    state->loops->maximum(best, values, n);
                }
                started = true;
            }
        }
        const int32_t *codes = best;
        if (state->same) {
            for (int64_t i = 0; i < n; ++i) {
                values[i] = best[i] + state->x_zero;
            }
            codes = values;
        } else {
            state->loops->rescale(values, best, &state->output, n);
            codes = values;
        }
        state->loops->narrow(y + (size_t)first * tw_dtype_bytes(state->y_type), state->y_type,
                             codes, n);
    }
}

static void average_pixel(const tw_pool_state *state, const unsigned char *image, unsigned char *y,
                          int64_t r, int64_t c) {
    const tw_tap_range rows = taps_on(state, 0, r, 0, state->rows);
    const tw_tap_range columns = taps_on(state, 1, c, 0, state->columns);
    const tw_tap_range counted_rows = taps_on(state, 0, r, state->counted[0], state->counted[2]);
    const tw_tap_range counted_columns = taps_on(state, 1, c, state->counted[1], state->counted[3]);
    const int64_t count =
        (counted_rows.end - counted_rows.begin) * (counted_columns.end - counted_columns.begin);
    const tw_count_record *record = state->records[count];
    const tw_rescale_parameters *p = &state->output;
    for (int64_t first = 0; first < state->channels; first += CHANNEL_BLOCK) {
        const int64_t n = tw_min(CHANNEL_BLOCK, state->channels - first);
        int64_t sums[CHANNEL_BLOCK] = {0};
        int32_t values[CHANNEL_BLOCK];
        for (int64_t u = rows.begin; u < rows.end; ++u) {
            for (int64_t v = columns.begin; v < columns.end; ++v) {
                state->loops->widen(values, tap_address(state, image, r, c, u, v, first),
                                    state->x_type, state->x_zero, n);
                state->loops->accumulate(sums, values, n);
            }
        }
        for (int64_t i = 0; i < n; ++i) {
            const int64_t v = tw_r24(sums[i], record->multiplier, record->shift);
            values[i] = (int32_t)tw_clamp(v + p->zero, p->lo, p->hi);
        }
        state->loops->narrow(y + (size_t)first * tw_dtype_bytes(state->y_type), state->y_type,
                             values, n);
    }
}

/* An item is one output row. */
static void run_pool(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_pool_state *state = step->state;
    const size_t image =
        (size_t)(state->rows * state->columns * state->channels) * tw_dtype_bytes(state->x_type);
    const size_t pixel = (size_t)state->channels * tw_dtype_bytes(state->y_type);
    for (int64_t item = begin; item < end; ++item) {
        const unsigned char *x =
            tw_input_data(step, call, 0) + (size_t)(item / state->out_rows) * image;
        const int64_t r = item % state->out_rows;
        for (int64_t c = 0; c < state->out_columns; ++c) {
            unsigned char *y =
                tw_output_data(step, call) + (size_t)(item * state->out_columns + c) * pixel;
            if (state->records != NULL) {
                average_pixel(state, x, y, r, c);
            } else {
                max_pixel(state, x, y, r, c);
            }
        }
    }
}

static tw_status plan(tw_prepare *prepare, tw_pool_state **result, const int64_t *kernel,
                      const int64_t *stride, const int64_t *dilation, const int64_t *pads) {
    const int64_t limit = INT64_C(1) << 24;
    tw_status status = tw_check_operands(prepare, 1);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *x = tw_input(prepare, 0), *y = tw_output(prepare);
    if (!tw_is_activation(x) || !tw_is_activation(y) || x->rank != 4 || y->rank != 4 ||
        x->shape[0] != y->shape[0] || x->shape[3] != y->shape[3]) {
        return tw_refuse(prepare, "its operands are not images of the same channels");
    }
    for (int i = 0; i < 2; ++i) {
        const int64_t values[] = {kernel[i], stride[i], dilation[i], pads[i] + 1, pads[i + 2] + 1};
        for (size_t j = 0; j < sizeof values / sizeof values[0]; ++j) {
            if (values[j] < 1 || values[j] > limit) {
                return tw_refuse(prepare, "its window is out of range");
            }
        }
        const int64_t room =
            x->shape[1 + i] + pads[i] + pads[i + 2] - (kernel[i] - 1) * dilation[i] - 1;
        if (room < 0 || y->shape[1 + i] != room / stride[i] + 1) {
            return tw_refuse(prepare, "its windows do not fit its operands");
        }
    }
    tw_pool_state *state = tw_state(prepare, sizeof *state);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    *state = (tw_pool_state){
        .rows = x->shape[1],
        .columns = x->shape[2],
        .out_rows = y->shape[1],
        .out_columns = y->shape[2],
        .channels = x->shape[3],
        .kernel = {kernel[0], kernel[1]},
        .stride = {stride[0], stride[1]},
        .dilation = {dilation[0], dilation[1]},
        .pad = {pads[0], pads[1]},
        .loops = prepare->rows,
        .x_type = x->dtype,
        .x_zero = x->zero_point,
        .y_type = y->dtype,
    };
    prepare->step->run = run_pool;
    prepare->step->items = x->shape[0] * y->shape[1];
    prepare->step->grain = 1;
    *result = state;
    return TW_OK;
}

/* No window lies wholly in the padding. */
static bool windows_touch(const tw_pool_state *state) {
    for (int64_t r = 0; r < state->out_rows; ++r) {
        const tw_tap_range taps = taps_on(state, 0, r, 0, state->rows);
        if (taps.begin == taps.end) {
            return false;
        }
    }
    for (int64_t c = 0; c < state->out_columns; ++c) {
        const tw_tap_range taps = taps_on(state, 1, c, 0, state->columns);
        if (taps.begin == taps.end) {
            return false;
        }
    }
    return true;
}

tw_status tw_prepare_max_pool(tw_prepare *prepare) {
    const tw_max_pool_fields *op = prepare->node->fields;
    tw_pool_state *state;
    tw_status status = plan(prepare, &state, op->kernel, op->stride, op->dilation, op->pads);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *y = tw_output(prepare);
    state->same = tw_same_encoding(tw_input(prepare, 0), y);
    if (!state->same && !tw_is_rescale(op->multiplier, op->shift)) {
        return tw_refuse(prepare, "its rescale is out of range");
    }
    if (!windows_touch(state)) {
        return tw_refuse(prepare, "a window lies outside its input");
    }
    state->output =
        (tw_rescale_parameters){(int32_t)tw_clamp(op->multiplier, INT32_MIN, INT32_MAX),
                                (int32_t)tw_clamp(op->shift, 0, 62), y->zero_point,
                                (int32_t)tw_lowest(y->dtype), (int32_t)tw_highest(y->dtype)};
    return TW_OK;
}

/* Every number of elements that a window counts has its record. */
static tw_status find_records(tw_prepare *prepare, tw_pool_state *state,
                              const tw_constant *counts) {
    const int64_t most = state->kernel[0] * state->kernel[1];
    const tw_count_record *records = counts->data;
    if (most > INT64_C(1) << 24) {
        return tw_refuse(prepare, "its window is too large");
    }
    state->records =
        tw_pool_allocate(&prepare->model->pool, (size_t)(most + 1) * sizeof *state->records);
    if (state->records == NULL) {
        return TW_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < counts->elements; ++i) {
        if (!tw_is_rescale(records[i].multiplier, records[i].shift)) {
            return tw_refuse(prepare, "the rescale of a count is out of range");
        }
        if (records[i].count >= 0 && records[i].count <= most) {
            state->records[records[i].count] = &records[i];
        }
    }
    for (int64_t r = 0; r < state->out_rows; ++r) {
        const tw_tap_range rows = taps_on(state, 0, r, state->counted[0], state->counted[2]);
        for (int64_t c = 0; c < state->out_columns; ++c) {
            const tw_tap_range columns = taps_on(state, 1, c, state->counted[1], state->counted[3]);
            if (state->records[(rows.end - rows.begin) * (columns.end - columns.begin)] == NULL) {
                return tw_refuse(prepare, "a count has no record");
            }
        }
    }
    return TW_OK;
}

tw_status tw_prepare_average_pool(tw_prepare *prepare) {
    const tw_average_pool_fields *op = prepare->node->fields;
    tw_pool_state *state;
    tw_status status = plan(prepare, &state, op->kernel, op->stride, op->dilation, op->pads);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *y = tw_output(prepare);
    const int64_t limit = INT64_C(1) << 40;
    for (int i = 0; i < 4; ++i) {
        if (op->counted[i] < -limit || op->counted[i] > limit) {
            return tw_refuse(prepare, "its counted area is out of range");
        }
        state->counted[i] = op->counted[i];
    }
    if (op->counts.kind != TW_KIND_COUNT || !tw_is_clamp(y, op->clamp[0], op->clamp[1])) {
        return tw_refuse(prepare, "its counts or clamp are malformed");
    }
    state->output =
        (tw_rescale_parameters){0, 0, y->zero_point, (int32_t)op->clamp[0], (int32_t)op->clamp[1]};
    return find_records(prepare, state, &op->counts);
}
