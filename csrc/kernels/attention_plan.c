/* Checks an attention and plans its memory. */

#include "attention.h"
#include "exponential.h"

enum { Y = TW_ATTENTION_Y, Q = TW_ATTENTION_Q, K = TW_ATTENTION_K };
enum { V = TW_ATTENTION_V, MASK = TW_ATTENTION_MASK, OPERANDS = TW_ATTENTION_OPERANDS };
enum { ITEMS = 8, LONGEST = 1 << 15, DISTANCES = 2 * 32767 + 1 };

static bool broadcasts(int64_t extent, int64_t result) { return extent == result || extent == 1; }

/* Extents and strides of all operands; false where the shapes do not fit. */
static bool plan_axes(const tw_prepare *prepare, int64_t row_axis, tw_attention_state *state) {
    const int32_t operands = state->masked ? OPERANDS : MASK;
    const tw_tensor *tensors[OPERANDS] = {tw_output(prepare)};
    int64_t strides[OPERANDS][TW_MAX_RANK];
    for (int32_t i = Q; i < operands; ++i) {
        tensors[i] = tw_input(prepare, i - Q);
    }
    const tw_tensor *y = tensors[Y];
    const int32_t last = y->rank - 1;
    if (row_axis < 0 || row_axis >= last) {
        return false;
    }
    for (int32_t i = Y; i < operands; ++i) {
        if (tensors[i]->rank != y->rank || !tw_is_activation(tensors[i])) {
            return false;
        }
        tw_contiguous_strides(tensors[i]->shape, y->rank, strides[i]);
        state->row_stride[i] = strides[i][row_axis];
        state->type[i] = tensors[i]->dtype;
        state->zero[i] = tensors[i]->zero_point;
    }
    tw_box *batch = &state->batch;
    batch->operands = OPERANDS;
    for (int32_t axis = 0; axis < last; ++axis) {
        if (axis == row_axis) {
            continue;
        }
        const int64_t extent = y->shape[axis];
        const int32_t to = batch->rank++;
        batch->extent[to] = extent;
        batch->stride[MASK][to] = 0;
        for (int32_t i = Y; i < operands; ++i) {
            if (!broadcasts(tensors[i]->shape[axis], extent)) {
                return false;
            }
            batch->stride[i][to] = tensors[i]->shape[axis] == 1 ? 0 : strides[i][axis];
        }
    }
    state->queries = y->shape[row_axis];
    state->keys = tensors[K]->shape[row_axis];
    state->depth = tensors[Q]->shape[last];
    state->values = y->shape[last];
    if (tensors[Q]->shape[row_axis] != state->queries || tensors[K]->shape[last] != state->depth ||
        tensors[V]->shape[row_axis] != state->keys || tensors[V]->shape[last] != state->values) {
        return false;
    }
    if (state->masked) {
        const tw_tensor *mask = tensors[MASK];
        if (!broadcasts(mask->shape[row_axis], state->queries) ||
            !broadcasts(mask->shape[last], state->keys)) {
            return false;
        }
        state->row_stride[MASK] = mask->shape[row_axis] == 1 ? 0 : strides[MASK][row_axis];
        state->mask_step = mask->shape[last] == 1 ? 0 : 1;
    }
    return true;
}

/* The constants of the scores: rows of as many keys, and a first row for each batch entry. */
static bool plan_bias(const tw_attention_fields *op, int64_t entries, tw_attention_state *state) {
    state->bias = op->bias;
    if (op->bias.data == NULL) {
        return true;
    }
    if (op->bias_first.count != entries || op->bias_step < 0 || op->bias_step > 1 ||
        (op->bias.kind != TW_KIND_S16 && op->bias.kind != TW_KIND_S32) ||
        op->bias.shape[1] != state->keys) {
        return false;
    }
    state->bias_first = op->bias_first.values;
    state->bias_step = op->bias_step;
    const int64_t more = op->bias_step * (state->queries - 1);
    for (int64_t i = 0; i < entries; ++i) {
        const int64_t first = state->bias_first[i];
        if (first < 0 || first >= op->bias.shape[0] - more) {
            return false;
        }
    }
    if (op->bias.kind == TW_KIND_S32) {
        const int32_t *values = op->bias.data;
        for (int64_t i = 0; i < op->bias.elements; ++i) {
            if (values[i] < -131071 || values[i] > 131071) {
                return false;
            }
        }
    }
    return true;
}

/* A weight depends on nothing but the distance to the row's largest score, which is an integer:
 * they are tabulated, up to the first distance from which on they are 0. */
static tw_status plan_weights(tw_prepare *prepare, const tw_attention_fields *op,
                              tw_attention_state *state) {
    uint8_t *weights = tw_pool_allocate(&prepare->model->pool, DISTANCES + 1);
    if (weights == NULL) {
        return TW_ERROR_MEMORY;
    }
    for (int64_t d = 0; d < DISTANCES; ++d) {
        const int64_t t = tw_r24(d, (int32_t)op->exponent_multiplier, (int32_t)op->exponent_shift);
        weights[d] = (uint8_t)((255 * tw_exponential(t) + (INT64_C(1) << 22)) >> 23);
        state->last_distance = weights[d] != 0 ? d + 1 : state->last_distance;
    }
    state->weights = weights;
    return TW_OK;
}

static void plan_scratch(tw_prepare *prepare, tw_attention_state *state) {
    const int64_t entries = tw_box_items(&state->batch), keys = state->keys;
    state->block = keys <= 1024 ? 48 : keys <= 4096 ? 24 : 12;
    state->pieces = tw_clamp((ITEMS + entries - 1) / entries, 1,
                             (state->queries + state->block - 1) / state->block);
    state->item_rows = (state->queries + state->pieces - 1) / state->pieces;
    const size_t block = (size_t)state->block, row = (size_t)keys;
    state->means_at = tw_aligned(state->scores.bytes);
    state->taken_at = tw_aligned(state->means_at + state->means.bytes);
    state->held_at =
        state->taken_at + block * (size_t)tw_row_bytes(state->scores.set, state->depth);
    state->weights_at = tw_aligned(state->held_at + block * row * sizeof(int16_t));
    state->addends_at =
        state->weights_at + block * (size_t)tw_row_bytes(state->means.set, state->keys);
    state->rows_at = tw_aligned(state->addends_at + block * row * sizeof(int32_t));
    state->raw_at = tw_aligned(state->rows_at + block * sizeof(int32_t));
    prepare->step->scratch = state->raw_at + tw_raw_bytes();
    prepare->step->run = tw_run_attention;
    prepare->step->items = entries * state->pieces;
    prepare->step->grain = 1;
}

enum { SMALLEST_SHIFT = 26 };

/* Addends stay below 2**30 + 2**17. */
static tw_scaling plan_scaling(const tw_attention_fields *op, int64_t bound) {
    const int32_t multiplier = (int32_t)op->score_multiplier, shift = (int32_t)op->score_shift;
    const int32_t upper = shift < 32 ? 32 : shift;
    tw_scaling scaling = {.rescale = {multiplier, shift, 0, -32767, 32767}};
    if (multiplier >= 0 && shift >= SMALLEST_SHIFT && bound < INT64_C(1) << 31 &&
        tw_r24(bound, multiplier, shift) < INT64_C(1) << 29) {
        scaling.fits = true;
        scaling.multiplier = (int32_t)((int64_t)multiplier << (upper - shift));
        scaling.half = INT64_C(1) << (upper - 1);
        scaling.rest = upper - 32;
    }
    return scaling;
}

static bool fits_r24(const tw_attention_fields *op) {
    return tw_is_rescale(op->score_multiplier, op->score_shift) &&
           tw_is_rescale(op->mask_multiplier, op->mask_shift) &&
           tw_is_rescale(op->exponent_multiplier, op->exponent_shift) &&
           tw_is_rescale(op->multiplier, op->shift) && op->exponent_multiplier >= 0 &&
           op->pre_shift >= 0 && op->pre_shift <= 16;
}

/* With the bias, the mask fits 32 bits. */
static bool is_mask_bounded(const tw_prepare *prepare, const tw_attention_fields *op) {
    const int64_t reach = prepare->node->input_count == 4 ? tw_reach(tw_input(prepare, 3)) : 0;
    const int64_t most = tw_r24(reach, (int32_t)op->mask_multiplier, (int32_t)op->mask_shift);
    return most < INT64_C(1) << 30 && most > -(INT64_C(1) << 30);
}

tw_status tw_prepare_attention(tw_prepare *prepare) {
    const tw_attention_fields *op = prepare->node->fields;
    const bool masked = prepare->node->input_count == 4;
    tw_status status = tw_check_operands(prepare, masked ? 4 : 3);
    if (status != TW_OK) {
        return status;
    }
    tw_attention_state *state = tw_state(prepare, sizeof *state);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    state->masked = masked;
    if (!plan_axes(prepare, op->row_axis, state)) {
        return tw_refuse(prepare, "its operands do not fit each other");
    }
    tw_fold_box(&state->batch, 1);
    if (!plan_bias(op, tw_box_items(&state->batch), state)) {
        return tw_refuse(prepare, "its constants do not fit its scores");
    }
    if (!fits_r24(op) || state->keys > LONGEST) {
        return tw_refuse(prepare, "its length or a rescale is out of range");
    }
    const tw_tensor *q = tw_input(prepare, 0), *k = tw_input(prepare, 1), *v = tw_input(prepare, 2);
    if (!tw_is_product_bounded(q, k, state->depth, op->pre_shift) ||
        !is_mask_bounded(prepare, op)) {
        return tw_refuse(prepare, "an accumulator may overflow");
    }
    const tw_tensor *y = tw_output(prepare);
    const tw_isa isa = prepare->model->isa;
    const bool wide = q->dtype == TW_S16 || k->dtype == TW_S16 || op->pre_shift > 0;
    state->pre_shift = (int32_t)op->pre_shift;
    state->score = plan_scaling(op, state->depth * tw_reach(q) * tw_reach(k));
    state->mask = (tw_rescale_parameters){(int32_t)op->mask_multiplier, (int32_t)op->mask_shift, 0,
                                          INT32_MIN, INT32_MAX};
    state->output =
        (tw_rescale_parameters){(int32_t)op->multiplier, (int32_t)op->shift, y->zero_point,
                                (int32_t)tw_lowest(y->dtype), (int32_t)tw_highest(y->dtype)};
    state->loops = prepare->rows;
    state->scores = tw_plan_packing(tw_operand_set(isa, wide), state->depth, state->keys);
    state->means =
        tw_plan_packing(tw_operand_set(isa, v->dtype == TW_S16), state->keys, state->values);
    status = plan_weights(prepare, op, state);
    if (status == TW_OK) {
        plan_scratch(prepare, state);
    }
    return status;
}
