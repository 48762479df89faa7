/* LayerNorm, RmsNorm, L2Norm: the group is a run of contiguous elements. */

#include "normalize.h"

typedef struct tw_row_norm {
    tw_norm norm;
    int64_t count;
} tw_row_norm;

static void normalize_row(const tw_row_norm *state, const unsigned char *x, unsigned char *y) {
    const tw_norm *norm = &state->norm;
    const size_t x_size = tw_dtype_bytes(norm->x_type), y_size = tw_dtype_bytes(norm->y_type);
    int16_t values[TW_ROW_BLOCK];
    int64_t sums[2] = {0, 0};
    for (int64_t at = 0; at < state->count; at += TW_ROW_BLOCK) {
        const int64_t n = tw_min(TW_ROW_BLOCK, state->count - at);
        norm->rows->widen16(values, x + (size_t)at * x_size, norm->x_type, norm->x_zero, n);
        norm->rows->moments(sums, values, n);
    }
    const tw_quotient group = tw_norm_quotient(norm, sums[0], sums[1]);
    for (int64_t at = 0; at < state->count; at += TW_ROW_BLOCK) {
        const int64_t n = tw_min(TW_ROW_BLOCK, state->count - at);
        const tw_affine affine = tw_affine_from(&norm->affine, at);
        norm->rows->widen16(values, x + (size_t)at * x_size, norm->x_type, norm->x_zero, n);
        tw_norm_run(norm, y + (size_t)at * y_size, values, &group, &affine, n);
    }
}

static void run_rows(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_row_norm *state = step->state;
    const size_t x_row = (size_t)state->count * tw_dtype_bytes(state->norm.x_type);
    const size_t y_row = (size_t)state->count * tw_dtype_bytes(state->norm.y_type);
    for (int64_t row = begin; row < end; ++row) {
        normalize_row(state, tw_input_data(step, call, 0) + (size_t)row * x_row,
                      tw_output_data(step, call) + (size_t)row * y_row);
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
    tw_row_norm *state = tw_state(prepare, sizeof *state);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    state->norm = kind;
    state->count = 1;
    for (int32_t i = (int32_t)axis; i < x->rank; ++i) {
        state->count *= x->shape[i];
    }
    if (kind.factor == 0) {
        state->norm.factor = state->count;
    }
    status = tw_prepare_norm(prepare, &state->norm, fields, state->count, state->count);
    prepare->step->run = run_rows;
    prepare->step->items = x->elements / state->count;
    prepare->step->grain = 1 + 1024 / state->count;
    return status;
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
