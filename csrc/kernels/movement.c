/* Reshape, Transpose, Slice, Constant. */

#include <string.h>

#include "move.h"

enum { MOVE_BLOCK = 4096, MOVE_GRAIN = 8 };

static void run_copy(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const unsigned char *x = tw_input_data(step, call, 0);
    unsigned char *y = tw_output_data(step, call);
    if (x != y) {
        tw_run_move(step->state, x, y, begin, end);
    }
}

static tw_move *new_move(tw_prepare *prepare) {
    tw_move *move = tw_state(prepare, sizeof *move);
    if (move != NULL) {
        const tw_tensor *y = tw_output(prepare);
        move->box.rank = y->rank;
        move->box.operands = 2;
        memcpy(move->box.extent, y->shape, sizeof move->box.extent);
        tw_contiguous_strides(y->shape, y->rank, move->box.stride[0]);
    }
    return move;
}

static void set_step(tw_prepare *prepare, tw_move *move) {
    tw_fold_box(&move->box, MOVE_BLOCK);
    prepare->step->run = run_copy;
    prepare->step->items = tw_box_items(&move->box);
    prepare->step->grain = move->box.block >= MOVE_BLOCK / 4 ? 1 : MOVE_GRAIN;
}

tw_status tw_prepare_reshape(tw_prepare *prepare) {
    const tw_reshape_fields *op = prepare->node->fields;
    tw_status status = tw_check_operands(prepare, 1);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *x = tw_input(prepare, 0), *y = tw_output(prepare);
    bool fits = x->elements == y->elements && x->dtype == y->dtype && op->shape.count == y->rank;
    for (int32_t i = 0; fits && i < y->rank; ++i) {
        fits = op->shape.values[i] == y->shape[i];
    }
    if (!fits) {
        return tw_refuse(prepare, "its operands differ in size or type");
    }
    tw_move *move = new_move(prepare);
    if (move == NULL) {
        return TW_ERROR_MEMORY;
    }
    /* The codes stay what they are, whatever the tensors say of their scales. */
    status = tw_plan_move(prepare, move, x, x, 0, 0);
    memcpy(move->box.stride[1], move->box.stride[0], sizeof move->box.stride[1]);
    set_step(prepare, move);
    return status;
}

tw_status tw_prepare_transpose(tw_prepare *prepare) {
    const tw_transpose_fields *op = prepare->node->fields;
    tw_status status = tw_check_operands(prepare, 1);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *x = tw_input(prepare, 0), *y = tw_output(prepare);
    if (x->rank != y->rank || op->axes.count != x->rank || x->dtype != y->dtype) {
        return tw_refuse(prepare, "its operands differ in rank or type");
    }
    tw_move *move = new_move(prepare);
    if (move == NULL) {
        return TW_ERROR_MEMORY;
    }
    int64_t strides[TW_MAX_RANK];
    bool seen[TW_MAX_RANK] = {false};
    tw_contiguous_strides(x->shape, x->rank, strides);
    for (int32_t i = 0; i < y->rank; ++i) {
        const int64_t axis = op->axes.values[i];
        if (axis < 0 || axis >= x->rank || seen[axis] || x->shape[axis] != y->shape[i]) {
            return tw_refuse(prepare, "its axes are no permutation of its input");
        }
        seen[axis] = true;
        move->box.stride[1][i] = strides[axis];
    }
    status = tw_plan_move(prepare, move, x, x, 0, 0);
    set_step(prepare, move);
    return status;
}

tw_status tw_prepare_slice(tw_prepare *prepare) {
    const tw_slice_fields *op = prepare->node->fields;
    tw_status status = tw_check_operands(prepare, 1);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *x = tw_input(prepare, 0), *y = tw_output(prepare);
    if (x->rank != y->rank || op->starts.count != x->rank || op->steps.count != x->rank ||
        op->sizes.count != x->rank) {
        return tw_refuse(prepare, "its operands differ in rank");
    }
    tw_move *move = new_move(prepare);
    if (move == NULL) {
        return TW_ERROR_MEMORY;
    }
    int64_t strides[TW_MAX_RANK];
    tw_contiguous_strides(x->shape, x->rank, strides);
    for (int32_t i = 0; i < y->rank; ++i) {
        const int64_t start = op->starts.values[i];
        const int64_t step = tw_clamp(op->steps.values[i], -INT32_MAX, INT32_MAX);
        const int64_t last = tw_clamp(start, -1, INT32_MAX) + step * (y->shape[i] - 1);
        if (op->sizes.values[i] != y->shape[i] || start < 0 || start >= x->shape[i] || last < 0 ||
            last >= x->shape[i]) {
            return tw_refuse(prepare, "it reads outside its input");
        }
        move->x_first += start * strides[i];
        move->box.stride[1][i] = step * strides[i];
    }
    status = tw_plan_move(prepare, move, x, y, op->multiplier, op->shift);
    set_step(prepare, move);
    return status;
}

static void run_constant(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_constant *data = step->state;
    (void)begin;
    (void)end;
    memcpy(tw_output_data(step, call), data->data,
           (size_t)data->elements * tw_dtype_bytes(data->kind));
}

tw_status tw_prepare_constant(tw_prepare *prepare) {
    const tw_constant_fields *op = prepare->node->fields;
    tw_status status = tw_check_operands(prepare, 0);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *y = tw_output(prepare);
    if (op->data.kind != y->dtype || op->data.elements != y->elements) {
        return tw_refuse(prepare, "its codes do not fit its output");
    }
    tw_constant *state = tw_state(prepare, sizeof *state);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    *state = op->data;
    prepare->step->run = run_constant;
    prepare->step->items = 1;
    prepare->step->grain = 1;
    return TW_OK;
}
