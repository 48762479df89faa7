#include <string.h>

#include "move.h"

typedef struct tw_join {
    int32_t count;
    tw_move *moves;  /* one for each input */
    int64_t *starts; /* first item of each, and their number at the end */
} tw_join;

static void run_concat(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_join *join = step->state;
    for (int32_t i = 0; i < join->count; ++i) {
        const int64_t first = tw_max(begin, join->starts[i]);
        const int64_t last = tw_min(end, join->starts[i + 1]);
        if (first < last) {
            tw_run_move(&join->moves[i], tw_input_data(step, call, i), tw_output_data(step, call),
                        first - join->starts[i], last - join->starts[i]);
        }
    }
}

static tw_status plan_input(tw_prepare *prepare, tw_move *move, int32_t i, int64_t axis,
                            int64_t before) {
    const tw_concat_fields *op = prepare->node->fields;
    const tw_tensor *x = tw_input(prepare, i), *y = tw_output(prepare);
    if (x->rank != y->rank) {
        return tw_refuse(prepare, "its operands differ in rank");
    }
    for (int32_t a = 0; a < y->rank; ++a) {
        if (a == axis ? before + x->shape[a] > y->shape[a] : x->shape[a] != y->shape[a]) {
            return tw_refuse(prepare, "its operands differ in shape");
        }
    }
    move->box.rank = x->rank;
    move->box.operands = 2;
    memcpy(move->box.extent, x->shape, sizeof move->box.extent);
    tw_contiguous_strides(y->shape, y->rank, move->box.stride[0]);
    tw_contiguous_strides(x->shape, x->rank, move->box.stride[1]);
    move->y_first = before * move->box.stride[0][axis];
    tw_fold_box(&move->box, 4096);
    return tw_plan_move(prepare, move, x, y, op->multipliers.values[i], op->shifts.values[i]);
}

tw_status tw_prepare_concat(tw_prepare *prepare) {
    const tw_concat_fields *op = prepare->node->fields;
    const int32_t count = prepare->node->input_count;
    tw_status status = tw_check_operands(prepare, count);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *y = tw_output(prepare);
    if (count < 1 || op->multipliers.count != count || op->shifts.count != count || op->axis < 0 ||
        op->axis >= y->rank) {
        return tw_refuse(prepare, "its attributes do not fit its operands");
    }
    tw_join *join = tw_state(prepare, sizeof *join);
    tw_pool *pool = &prepare->model->pool;
    tw_move *moves = tw_pool_allocate(pool, (size_t)count * sizeof *moves);
    int64_t *starts = tw_pool_allocate(pool, ((size_t)count + 1) * sizeof *starts);
    if (join == NULL || moves == NULL || starts == NULL) {
        return TW_ERROR_MEMORY;
    }
    *join = (tw_join){count, moves, starts};
    int64_t before = 0;
    for (int32_t i = 0; i < count; ++i) {
        status = plan_input(prepare, &moves[i], i, op->axis, before);
        if (status != TW_OK) {
            return status;
        }
        before += tw_input(prepare, i)->shape[op->axis];
        starts[i + 1] = starts[i] + tw_box_items(&moves[i].box);
    }
    if (before != y->shape[op->axis]) {
        return tw_refuse(prepare, "its inputs do not fill its output");
    }
    prepare->step->run = run_concat;
    prepare->step->items = starts[count];
    prepare->step->grain = 16;
    return TW_OK;
}
