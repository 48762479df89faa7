/* Add, AddConstant, Mul, Rescale, ParametricRelu: a block of elements at a time. */

#include <string.h>

#include "strided.h"

typedef struct tw_elementwise {
    tw_box box; /* operands: output, a, b */
    const tw_rows *rows;
    tw_add_parameters add;
    tw_rescale_parameters rescale;
    bool narrow_sum;
    const int64_t *words; /* AddConstant */
    const tw_channel_record *channels;
    int64_t channel_count;
    int32_t types[3]; /* output, a, b */
    int32_t zeros[3];
} tw_elementwise;

static tw_elementwise *new_state(tw_prepare *prepare) {
    tw_elementwise *state = tw_state(prepare, sizeof *state);
    if (state != NULL) {
        const tw_tensor *y = tw_output(prepare);
        state->rows = prepare->rows;
        state->types[0] = y->dtype;
        state->zeros[0] = y->zero_point;
        for (int32_t i = 0; i < prepare->node->input_count && i < 2; ++i) {
            state->types[i + 1] = tw_input(prepare, i)->dtype;
            state->zeros[i + 1] = tw_input(prepare, i)->zero_point;
        }
    }
    return state;
}

static void set_step(tw_prepare *prepare, tw_run_function *run, int64_t items) {
    prepare->step->run = run;
    prepare->step->items = items;
    prepare->step->grain = 16;
}

/* One operand's extent is the result's, or 1. */
static bool broadcasts(const int64_t *shape, const tw_tensor *y) {
    for (int32_t axis = 0; axis < y->rank; ++axis) {
        if (shape[axis] != y->shape[axis] && shape[axis] != 1) {
            return false;
        }
    }
    return true;
}

static tw_status plan_box(tw_prepare *prepare, tw_elementwise *state, const int64_t *b_shape,
                          int32_t b_rank) {
    const tw_tensor *y = tw_output(prepare), *a = tw_input(prepare, 0);
    tw_box *box = &state->box;
    if (a->rank != y->rank || b_rank != y->rank || !broadcasts(a->shape, y) ||
        !broadcasts(b_shape, y)) {
        return tw_refuse(prepare, "its operands do not broadcast");
    }
    box->rank = y->rank;
    box->operands = 3;
    memcpy(box->extent, y->shape, sizeof box->extent);
    tw_contiguous_strides(y->shape, y->rank, box->stride[0]);
    tw_broadcast_strides(a->shape, y->shape, y->rank, box->stride[1]);
    tw_broadcast_strides(b_shape, y->shape, y->rank, box->stride[2]);
    tw_fold_box(box, TW_ROW_BLOCK);
    return TW_OK;
}

/* Up to a block of codes, repeated where the operand does not vary along the row. */
static void load(const tw_elementwise *state, int32_t operand, const unsigned char *data,
                 int64_t offset, int64_t n, int32_t *out) {
    const int32_t dtype = state->types[operand], zero = state->zeros[operand];
    const unsigned char *at = data + (size_t)offset * tw_dtype_bytes(dtype);
    if (state->box.stride[operand][state->box.rank - 1] != 0) {
        state->rows->widen(out, at, dtype, zero, n);
        return;
    }
    state->rows->widen(out, at, dtype, zero, 1);
    for (int64_t i = 1; i < n; ++i) {
        out[i] = out[0];
    }
}

static void store(const tw_elementwise *state, unsigned char *data, int64_t offset, int64_t n,
                  const int32_t *values) {
    const size_t at = (size_t)offset * tw_dtype_bytes(state->types[0]);
    state->rows->narrow(data + at, state->types[0], values, n);
}

static void run_add(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_elementwise *state = step->state;
    int32_t a[TW_ROW_BLOCK], b[TW_ROW_BLOCK], y[TW_ROW_BLOCK];
    int64_t at[3];
    for (int64_t item = begin; item < end; ++item) {
        const int64_t n = tw_box_item(&state->box, item, at);
        load(state, 1, tw_input_data(step, call, 0), at[1], n, a);
        load(state, 2, tw_input_data(step, call, 1), at[2], n, b);
        state->rows->add(y, a, b, &state->add, state->narrow_sum, n);
        store(state, tw_output_data(step, call), at[0], n, y);
    }
}

static void run_add_constant(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_elementwise *state = step->state;
    int32_t a[TW_ROW_BLOCK], y[TW_ROW_BLOCK];
    int64_t repeated[TW_ROW_BLOCK];
    int64_t at[3];
    for (int64_t item = begin; item < end; ++item) {
        const int64_t n = tw_box_item(&state->box, item, at);
        const int64_t *words = state->words + at[2];
        if (state->box.stride[2][state->box.rank - 1] == 0) {
            for (int64_t i = 0; i < n; ++i) {
                repeated[i] = words[0];
            }
            words = repeated;
        }
        load(state, 1, tw_input_data(step, call, 0), at[1], n, a);
        state->rows->add_words(y, a, words, &state->add, n);
        store(state, tw_output_data(step, call), at[0], n, y);
    }
}

static void run_mul(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_elementwise *state = step->state;
    int32_t a[TW_ROW_BLOCK], b[TW_ROW_BLOCK], y[TW_ROW_BLOCK];
    int64_t at[3];
    for (int64_t item = begin; item < end; ++item) {
        const int64_t n = tw_box_item(&state->box, item, at);
        load(state, 1, tw_input_data(step, call, 0), at[1], n, a);
        load(state, 2, tw_input_data(step, call, 1), at[2], n, b);
        state->rows->multiply(y, a, b, &state->rescale, n);
        store(state, tw_output_data(step, call), at[0], n, y);
    }
}

static void run_rescale(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_elementwise *state = step->state;
    int32_t a[TW_ROW_BLOCK], y[TW_ROW_BLOCK];
    int64_t at[3];
    for (int64_t item = begin; item < end; ++item) {
        const int64_t n = tw_box_item(&state->box, item, at);
        load(state, 1, tw_input_data(step, call, 0), at[1], n, a);
        state->rows->rescale(y, a, &state->rescale, n);
        store(state, tw_output_data(step, call), at[0], n, y);
    }
}

static void run_parametric_relu(const tw_step *step, const tw_call *call, int64_t begin,
                                int64_t end) {
    const tw_elementwise *state = step->state;
    const tw_rescale_parameters *p = &state->rescale;
    int32_t d[TW_ROW_BLOCK], y[TW_ROW_BLOCK];
    int64_t at[3];
    for (int64_t item = begin; item < end; ++item) {
        const int64_t n = tw_box_item(&state->box, item, at);
        int64_t channel = at[0] % state->channel_count;
        load(state, 1, tw_input_data(step, call, 0), at[1], n, d);
        for (int64_t i = 0; i < n; ++i) {
            const tw_channel_record *slope = &state->channels[channel];
            const int64_t r = d[i] >= 0 ? tw_r24(d[i], p->multiplier, p->shift)
                                        : tw_r24(d[i], slope->multiplier, slope->shift);
            y[i] = (int32_t)tw_clamp(r + p->zero, p->lo, p->hi);
            channel = channel + 1 == state->channel_count ? 0 : channel + 1;
        }
        store(state, tw_output_data(step, call), at[0], n, y);
    }
}

static tw_status check(tw_prepare *prepare, int32_t inputs, int64_t lo, int64_t hi) {
    tw_status status = tw_check_operands(prepare, inputs);
    if (status != TW_OK) {
        return status;
    }
    bool types = tw_is_activation(tw_output(prepare));
    for (int32_t i = 0; i < inputs; ++i) {
        types = types && tw_is_activation(tw_input(prepare, i));
    }
    if (!types) {
        return tw_refuse(prepare, "its operands are not activations");
    }
    return tw_is_clamp(tw_output(prepare), lo, hi)
               ? TW_OK
               : tw_refuse(prepare, "its clamp is out of range");
}

static int64_t magnitude(int64_t value) { return value < 0 ? -value : value; }

/* Everything of a sum stays below 2**62; `narrow_sum` where it stays below 2**31. */
static tw_status check_sum(tw_prepare *prepare, tw_elementwise *state, int64_t shift,
                           int64_t b_reach) {
    const int64_t limit = INT64_C(1) << 44;
    if (shift < 1 || shift > 60 || magnitude(state->add.ma) > limit ||
        magnitude(state->add.mb) > limit) {
        return tw_refuse(prepare, "its multipliers are out of range");
    }
    const int64_t sum = magnitude(state->add.ma) * (tw_reach(tw_input(prepare, 0)) + 1) + b_reach +
                        (INT64_C(1) << (shift - 1));
    if (sum >= INT64_C(1) << 62) {
        return tw_refuse(prepare, "its sum may overflow");
    }
    state->add.shift = (int32_t)shift;
    state->add.zero = tw_output(prepare)->zero_point;
    state->narrow_sum = sum < (INT64_C(1) << 31) - 1 && shift <= 31;
    return TW_OK;
}

tw_status tw_prepare_add(tw_prepare *prepare) {
    const tw_add_fields *op = prepare->node->fields;
    tw_status status = check(prepare, 2, op->lo, op->hi);
    if (status != TW_OK) {
        return status;
    }
    tw_elementwise *state = new_state(prepare);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    const tw_tensor *b = tw_input(prepare, 1);
    const int64_t limit = INT64_C(1) << 44;
    state->add = (tw_add_parameters){
        .ma = tw_clamp(op->ma, -2 * limit, 2 * limit),
        .mb = tw_clamp(op->mb, -2 * limit, 2 * limit),
        .lo = (int32_t)op->lo,
        .hi = (int32_t)op->hi,
    };
    status = check_sum(prepare, state, op->shift, magnitude(state->add.mb) * (tw_reach(b) + 1));
    if (status == TW_OK) {
        status = plan_box(prepare, state, b->shape, b->rank);
    }
    set_step(prepare, run_add, tw_box_items(&state->box));
    return status;
}

tw_status tw_prepare_add_constant(tw_prepare *prepare) {
    const tw_add_constant_fields *op = prepare->node->fields;
    tw_status status = check(prepare, 1, op->lo, op->hi);
    if (status != TW_OK) {
        return status;
    }
    tw_elementwise *state = new_state(prepare);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    if (op->c.kind != TW_KIND_S64) {
        return tw_refuse(prepare, "its constants are not s64");
    }
    const int64_t limit = INT64_C(1) << 44, *words = op->c.data;
    int64_t reach = 0;
    for (int64_t i = 0; i < op->c.elements; ++i) {
        if (words[i] < -(INT64_C(1) << 61) || words[i] > (INT64_C(1) << 61)) {
            return tw_refuse(prepare, "its constants are out of range");
        }
        reach = tw_max(reach, magnitude(words[i]));
    }
    state->words = words;
    state->add = (tw_add_parameters){
        .ma = tw_clamp(op->ma, -2 * limit, 2 * limit),
        .lo = (int32_t)op->lo,
        .hi = (int32_t)op->hi,
    };
    status = check_sum(prepare, state, op->shift, reach);
    if (status == TW_OK) {
        status = plan_box(prepare, state, op->c.shape, op->c.rank);
    }
    set_step(prepare, run_add_constant, tw_box_items(&state->box));
    return status;
}

tw_status tw_prepare_mul(tw_prepare *prepare) {
    const tw_mul_fields *op = prepare->node->fields;
    tw_status status = check(prepare, 2, op->lo, op->hi);
    if (status != TW_OK) {
        return status;
    }
    tw_elementwise *state = new_state(prepare);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    if (!tw_is_rescale(op->multiplier, op->shift)) {
        return tw_refuse(prepare, "its rescale is out of range");
    }
    state->rescale = (tw_rescale_parameters){(int32_t)op->multiplier, (int32_t)op->shift,
                                             state->zeros[0], (int32_t)op->lo, (int32_t)op->hi};
    const tw_tensor *b = tw_input(prepare, 1);
    status = plan_box(prepare, state, b->shape, b->rank);
    set_step(prepare, run_mul, tw_box_items(&state->box));
    return status;
}

/* An operator of one input whose output has the same shape. */
static tw_status plan_unary(tw_prepare *prepare, tw_elementwise *state, int64_t multiplier,
                            int64_t shift, int64_t lo, int64_t hi) {
    const tw_tensor *x = tw_input(prepare, 0);
    if (!tw_same_shape(x, tw_output(prepare))) {
        return tw_refuse(prepare, "its operands differ in shape");
    }
    if (!tw_is_rescale(multiplier, shift)) {
        return tw_refuse(prepare, "its rescale is out of range");
    }
    state->rescale = (tw_rescale_parameters){(int32_t)multiplier, (int32_t)shift, state->zeros[0],
                                             (int32_t)lo, (int32_t)hi};
    return plan_box(prepare, state, x->shape, x->rank);
}

tw_status tw_prepare_rescale(tw_prepare *prepare) {
    const tw_rescale_fields *op = prepare->node->fields;
    tw_status status = check(prepare, 1, op->lo, op->hi);
    if (status != TW_OK) {
        return status;
    }
    tw_elementwise *state = new_state(prepare);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    status = plan_unary(prepare, state, op->multiplier, op->shift, op->lo, op->hi);
    set_step(prepare, run_rescale, tw_box_items(&state->box));
    return status;
}

tw_status tw_prepare_parametric_relu(tw_prepare *prepare) {
    const tw_parametric_relu_fields *op = prepare->node->fields;
    tw_status status = check(prepare, 1, op->lo, op->hi);
    if (status != TW_OK) {
        return status;
    }
    tw_elementwise *state = new_state(prepare);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    const tw_tensor *x = tw_input(prepare, 0);
    if (x->rank < 1 || op->channels.kind != TW_KIND_CHANNEL ||
        op->channels.shape[0] != x->shape[x->rank - 1]) {
        return tw_refuse(prepare, "its slopes do not fit its channels");
    }
    state->channels = op->channels.data;
    state->channel_count = op->channels.shape[0];
    for (int64_t c = 0; c < state->channel_count; ++c) {
        if (!tw_is_rescale(state->channels[c].multiplier, state->channels[c].shift)) {
            return tw_refuse(prepare, "the rescale of a channel is out of range");
        }
    }
    status = plan_unary(prepare, state, op->multiplier, op->shift, op->lo, op->hi);
    set_step(prepare, run_parametric_relu, tw_box_items(&state->box));
    return status;
}
