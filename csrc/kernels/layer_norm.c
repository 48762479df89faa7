/* LayerNorm, RmsNorm, L2Norm: the group is a run of contiguous elements. */

#include "normalize.h"

typedef struct tw_row_norm {
    tw_norm norm;
    tw_affine affine;
    int64_t count;
} tw_row_norm;

static tw_quotient measure(const tw_row_norm *state, const unsigned char *x) {
    const tw_norm *norm = &state->norm;
    int16_t values[TW_ROW_BLOCK];
    int64_t sums[2] = {0, 0};
    for (int64_t at = 0; at < state->count; at += TW_ROW_BLOCK) {
        const int64_t n = tw_min(TW_ROW_BLOCK, state->count - at);
        norm->rows->widen16(values, x + (size_t)at * tw_dtype_bytes(norm->x_type), norm->x_type,
                            norm->x_zero, n);
        norm->rows->moments(sums, values, n);
    }
    return tw_norm_quotient(norm, sums[0], sums[1]);
}

static void apply(const tw_row_norm *state, const tw_quotient *group, const unsigned char *x,
                  unsigned char *y) {
    const tw_norm *norm = &state->norm;
    int16_t values[TW_ROW_BLOCK];
    int32_t codes[TW_ROW_BLOCK];
    for (int64_t at = 0; at < state->count; at += TW_ROW_BLOCK) {
        const int64_t n = tw_min(TW_ROW_BLOCK, state->count - at);
        const tw_affine affine = tw_affine_from(&state->affine, at);
        norm->rows->widen16(values, x + (size_t)at * tw_dtype_bytes(norm->x_type), norm->x_type,
                            norm->x_zero, n);
        if (norm->fast) {
            norm->rows->normalize(codes, values, group, &affine, n);
        } else {
            for (int64_t i = 0; i < n; ++i) {
                codes[i] = tw_norm_element(values[i], group, &affine, i);
            }
        }
        norm->rows->narrow(y + (size_t)at * tw_dtype_bytes(norm->y_type), norm->y_type, codes, n);
    }
}

static void run_rows(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_row_norm *state = step->state;
    const size_t x_row = (size_t)state->count * tw_dtype_bytes(state->norm.x_type);
    const size_t y_row = (size_t)state->count * tw_dtype_bytes(state->norm.y_type);
    for (int64_t row = begin; row < end; ++row) {
        const unsigned char *x = tw_input_data(step, call, 0) + (size_t)row * x_row;
        const tw_quotient group = measure(state, x);
        apply(state, &group, x, tw_output_data(step, call) + (size_t)row * y_row);
    }
}

/* `kind` has the fields in which the three operators differ; its factor is 0 for C. */
static tw_status prepare_rows(tw_prepare *prepare, tw_norm kind, const tw_norm_fields *fields,
                              int64_t axis) {
    tw_status status = tw_check_operands(prepare, 1);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *x = tw_input(prepare, 0);
    if (axis < 0 || axis >= x->rank) {
        return tw_refuse(prepare, "its axis does not exist");
    }
    int64_t count = 1;
    for (int32_t i = (int32_t)axis; i < x->rank; ++i) {
        count *= x->shape[i];
    }
    if (kind.factor == 0) {
        kind.factor = count;
    }
    status = tw_prepare_norm(prepare, &kind, fields, count, count);
    if (status != TW_OK) {
        return status;
    }
    tw_row_norm *state = tw_state(prepare, sizeof *state);
    tw_pool *pool = &prepare->model->pool;
    const size_t room = tw_norm_room(count);
    tw_gains memory = {tw_pool_allocate(pool, room * sizeof(int32_t)),
                       {tw_pool_allocate(pool, room / 2 * sizeof(int64_t)),
                        tw_pool_allocate(pool, room / 2 * sizeof(int64_t))}};
    if (state == NULL || memory.gain == NULL || memory.offset[0] == NULL ||
        memory.offset[1] == NULL) {
        return TW_ERROR_MEMORY;
    }
    *state = (tw_row_norm){kind, tw_norm_affine(&kind, &memory, 0, count, 1), count};
    prepare->step->run = run_rows;
    prepare->step->items = x->elements / count;
    prepare->step->grain = 1 + 1024 / count;
    return TW_OK;
}

tw_status tw_prepare_layer_norm(tw_prepare *prepare) {
    const tw_layer_norm_fields *op = prepare->node->fields;
    const tw_norm_fields fields = {op->epsilon, op->shift, op->clamp, &op->gains};
    return prepare_rows(prepare, (tw_norm){.top = 45, .centred = true}, &fields, op->axis);
}

tw_status tw_prepare_rms_norm(tw_prepare *prepare) {
    const tw_rms_norm_fields *op = prepare->node->fields;
    const tw_norm_fields fields = {op->epsilon, op->shift, op->clamp, &op->gains};
    return prepare_rows(prepare, (tw_norm){.top = 45}, &fields, op->axis);
}

tw_status tw_prepare_l2_norm(tw_prepare *prepare) {
    const tw_l2_norm_fields *op = prepare->node->fields;
    const tw_norm_fields fields = {op->epsilon, op->shift, op->clamp, &op->gains};
    return prepare_rows(prepare, (tw_norm){.top = 37, .factor = 1}, &fields, op->axis);
}
