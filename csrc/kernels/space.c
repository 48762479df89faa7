/* DepthToSpace and SpaceToDepth: one transposition of six axes. */

#include <string.h>

#include "move.h"

static void run_space(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    tw_run_move(step->state, tw_input_data(step, call, 0), tw_output_data(step, call), begin, end);
}

/* The walk goes over `extents`; `x_strides` says where the input is along each of them. */
static tw_status plan(tw_prepare *prepare, const int64_t *extents, const int64_t *x_strides,
                      int64_t multiplier, int64_t shift) {
    tw_move *move = tw_state(prepare, sizeof *move);
    if (move == NULL) {
        return TW_ERROR_MEMORY;
    }
    move->box.rank = 6;
    move->box.operands = 2;
    memcpy(move->box.extent, extents, 6 * sizeof *extents);
    memcpy(move->box.stride[1], x_strides, 6 * sizeof *x_strides);
    tw_contiguous_strides(extents, 6, move->box.stride[0]);
    tw_fold_box(&move->box, 4096);
    prepare->step->run = run_space;
    prepare->step->items = tw_box_items(&move->box);
    prepare->step->grain = 64;
    return tw_plan_move(prepare, move, tw_input(prepare, 0), tw_output(prepare), multiplier, shift);
}

static tw_status check(tw_prepare *prepare, int64_t block) {
    tw_status status = tw_check_operands(prepare, 1);
    if (status != TW_OK) {
        return status;
    }
    if (tw_input(prepare, 0)->rank != 4 || tw_output(prepare)->rank != 4) {
        return tw_refuse(prepare, "its operands are not images");
    }
    if (block < 1 || block > 1 << 12) {
        return tw_refuse(prepare, "its block is out of range");
    }
    return TW_OK;
}

static bool blocks_fit(const tw_tensor *coarse, const tw_tensor *fine, int64_t block) {
    return coarse->shape[0] == fine->shape[0] && coarse->shape[1] * block == fine->shape[1] &&
           coarse->shape[2] * block == fine->shape[2] &&
           coarse->shape[3] == fine->shape[3] * block * block;
}

tw_status tw_prepare_depth_to_space(tw_prepare *prepare) {
    const tw_depth_to_space_fields *op = prepare->node->fields;
    tw_status status = check(prepare, op->block);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *x = tw_input(prepare, 0), *y = tw_output(prepare);
    const int64_t b = op->block, depth = y->shape[3], c = x->shape[3], w = x->shape[2];
    if (!blocks_fit(x, y, b)) {
        return tw_refuse(prepare, "its blocks do not fit its operands");
    }
    const bool first = op->column_first != 0;
    const int64_t row = first ? b : b * depth, column = first ? 1 : depth;
    const int64_t channel = first ? b * b : 1;
    const int64_t extents[6] = {x->shape[0], x->shape[1], b, w, b, depth};
    const int64_t strides[6] = {x->shape[1] * w * c, w * c, row, c, column, channel};
    return plan(prepare, extents, strides, op->multiplier, op->shift);
}

tw_status tw_prepare_space_to_depth(tw_prepare *prepare) {
    const tw_space_to_depth_fields *op = prepare->node->fields;
    tw_status status = check(prepare, op->block);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *x = tw_input(prepare, 0), *y = tw_output(prepare);
    const int64_t b = op->block, c = x->shape[3], w = x->shape[2];
    if (!blocks_fit(y, x, b)) {
        return tw_refuse(prepare, "its blocks do not fit its operands");
    }
    const int64_t extents[6] = {y->shape[0], y->shape[1], y->shape[2], b, b, c};
    const int64_t strides[6] = {x->shape[1] * w * c, b * w * c, b * c, w * c, c, 1};
    return plan(prepare, extents, strides, op->multiplier, op->shift);
}
