/* Products of two run-time tensors. */

#include "operand.h"
#include "strided.h"

enum { ROWS = 48, ITEMS = 8 };

typedef struct tw_matmul_state {
    tw_box batch; /* operands: y, a, b */
    int64_t rows, terms, columns;
    int64_t row_stride[2]; /* of y and a, in elements */
    tw_operand b;          /* without data */
    int32_t a_type, a_zero, y_type;
    int32_t pre_shift;
    tw_rescale_parameters rescale;
    const tw_rows *loops;
    tw_packing packing;
    int64_t item_rows, pieces; /* rows of an item, items of a batch entry */
    size_t taken_at, sums_at, raw_at;
} tw_matmul_state;

typedef struct tw_matmul_rows {
    const tw_matmul_state *state;
    unsigned char *y; /* of the first row */
    const int32_t *terms_of_row;
} tw_matmul_rows;

static void finish_wide(const tw_matmul_state *state, const int64_t *sums, int64_t n, int32_t *y) {
    const tw_rescale_parameters *p = &state->rescale;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t r =
            tw_r24(tw_pre_shifted(sums[i], state->pre_shift), p->multiplier, p->shift);
        y[i] = (int32_t)tw_clamp(r + p->zero, p->lo, p->hi);
    }
}

static void finish(void *context, const tw_sums *sums) {
    const tw_matmul_rows *rows = context;
    const tw_matmul_state *state = rows->state;
    const int64_t y_bytes = (int64_t)tw_dtype_bytes(state->y_type);
    int32_t codes[TW_PANEL_COLUMNS], totals[TW_PANEL_COLUMNS];
    for (int64_t m = 0; m < sums->rows; ++m) {
        if (state->packing.set->accumulator_bytes == 8) {
            finish_wide(state, (const int64_t *)sums->raw + m * sums->width, sums->columns, codes);
        } else {
            const int32_t *raw = (const int32_t *)sums->raw + m * sums->width;
            const int32_t more = rows->terms_of_row[sums->row + m];
            for (int32_t i = 0; i < sums->columns; ++i) {
                totals[i] = (int32_t)((uint32_t)raw[i] + (uint32_t)more);
            }
            state->loops->rescale(codes, totals, &state->rescale, sums->columns);
        }
        unsigned char *y =
            rows->y + ((sums->row + m) * state->row_stride[0] + sums->column) * y_bytes;
        state->loops->narrow(y, state->y_type, codes, sums->columns);
    }
}

/* Rows [first, end) of one batch entry. */
static void run_entry(const tw_matmul_state *state, const tw_operand *a, const tw_operand *b,
                      unsigned char *y, int64_t first, int64_t end, unsigned char *scratch) {
    unsigned char *taken = scratch + state->taken_at;
    int32_t *terms_of_row = (int32_t *)(void *)(scratch + state->sums_at);
    const int64_t a_bytes = (int64_t)tw_dtype_bytes(a->dtype);
    const int64_t y_bytes = (int64_t)tw_dtype_bytes(state->y_type);
    for (int64_t row = first; row < end; row += ROWS) {
        const int64_t count = tw_min(ROWS, end - row);
        tw_operand part = *a;
        part.data += row * a->row_stride * a_bytes;
        tw_take_rows(&state->packing, state->loops, &part, b, count, taken, terms_of_row);
        tw_matmul_rows rows = {state, y + row * state->row_stride[0] * y_bytes, terms_of_row};
        tw_multiply(&state->packing, scratch, taken, count, scratch + state->raw_at, finish, &rows);
    }
}

static void run_matmul(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_matmul_state *state = step->state;
    int64_t packed = -1;
    for (int64_t item = begin; item < end; ++item) {
        const int64_t entry = item / state->pieces, piece = item % state->pieces;
        int64_t at[TW_STRIDED_OPERANDS];
        tw_box_item(&state->batch, entry, at);
        tw_operand a = {tw_input_data(step, call, 0) +
                            at[1] * (int64_t)tw_dtype_bytes(state->a_type),
                        state->a_type, state->a_zero, state->row_stride[1], 1};
        tw_operand b = state->b;
        b.data = tw_input_data(step, call, 1) + at[2] * (int64_t)tw_dtype_bytes(b.dtype);
        if (at[2] != packed) {
            tw_pack_operand(&state->packing, &b, a.dtype, a.zero, call->scratch,
                            call->scratch + state->taken_at);
            packed = at[2];
        }
        unsigned char *y =
            tw_output_data(step, call) + at[0] * (int64_t)tw_dtype_bytes(state->y_type);
        const int64_t first = piece * state->item_rows;
        run_entry(state, &a, &b, y, first, tw_min(first + state->item_rows, state->rows),
                  call->scratch);
    }
}

/* The second operand's extents and strides in the order of the output's axes. */
static bool order_axes(const tw_mat_mul_fields *op, const tw_tensor *b, int64_t *extents,
                       int64_t *strides) {
    int64_t own[TW_MAX_RANK];
    bool seen[TW_MAX_RANK] = {false};
    tw_contiguous_strides(b->shape, b->rank, own);
    for (int32_t i = 0; i < b->rank; ++i) {
        const int64_t axis = op->b_axes.values[i];
        if (axis < 0 || axis >= b->rank || seen[axis]) {
            return false;
        }
        seen[axis] = true;
        extents[axis] = b->shape[i];
        strides[axis] = own[i];
    }
    return true;
}

static bool broadcasts(int64_t extent, int64_t result) { return extent == result || extent == 1; }

/* Batch axes and matrices; false where the shapes do not fit. */
static bool plan_axes(const tw_mat_mul_fields *op, const tw_tensor *a, const tw_tensor *b,
                      const tw_tensor *y, tw_matmul_state *state) {
    int64_t b_extents[TW_MAX_RANK], b_strides[TW_MAX_RANK];
    int64_t a_strides[TW_MAX_RANK], y_strides[TW_MAX_RANK];
    const int32_t last = a->rank - 1;
    if (a->rank < 2 || b->rank != a->rank || y->rank != a->rank || op->b_axes.count != a->rank ||
        op->row_axis < 0 || op->row_axis >= last || !order_axes(op, b, b_extents, b_strides)) {
        return false;
    }
    const int32_t row_axis = (int32_t)op->row_axis;
    tw_contiguous_strides(a->shape, a->rank, a_strides);
    tw_contiguous_strides(y->shape, y->rank, y_strides);
    tw_box *batch = &state->batch;
    batch->operands = 3;
    for (int32_t axis = 0; axis < last; ++axis) {
        if (axis == row_axis) {
            continue;
        }
        const int64_t extent = tw_max(a->shape[axis], b_extents[axis]);
        if (y->shape[axis] != extent || !broadcasts(a->shape[axis], extent) ||
            !broadcasts(b_extents[axis], extent)) {
            return false;
        }
        const int32_t i = batch->rank++;
        batch->extent[i] = extent;
        batch->stride[0][i] = y_strides[axis];
        batch->stride[1][i] = a->shape[axis] == 1 ? 0 : a_strides[axis];
        batch->stride[2][i] = b_extents[axis] == 1 ? 0 : b_strides[axis];
    }
    state->rows = a->shape[row_axis];
    state->terms = a->shape[last];
    state->columns = y->shape[last];
    state->row_stride[0] = y_strides[row_axis];
    state->row_stride[1] = a_strides[row_axis];
    state->b.row_stride = b_strides[row_axis];
    state->b.column_stride = b_strides[last];
    return b_extents[row_axis] == state->terms && b_extents[last] == state->columns &&
           y->shape[row_axis] == state->rows;
}

tw_status tw_prepare_mat_mul(tw_prepare *prepare) {
    const tw_mat_mul_fields *op = prepare->node->fields;
    tw_status status = tw_check_operands(prepare, 2);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *a = tw_input(prepare, 0), *b = tw_input(prepare, 1), *y = tw_output(prepare);
    if (!tw_is_activation(a) || !tw_is_activation(b) || !tw_is_activation(y)) {
        return tw_refuse(prepare, "its operands are not activations");
    }
    tw_matmul_state *state = tw_state(prepare, sizeof *state);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    if (!plan_axes(op, a, b, y, state)) {
        return tw_refuse(prepare, "its operands differ in shape");
    }
    if (!tw_is_rescale(op->multiplier, op->shift) || !tw_is_clamp(y, op->lo, op->hi) ||
        op->pre_shift < 0 || op->pre_shift > 16) {
        return tw_refuse(prepare, "a rescale or clamp is out of range");
    }
    const bool wide = a->dtype == TW_S16 || b->dtype == TW_S16;
    if (!tw_is_product_bounded(a, b, state->terms, op->pre_shift)) {
        return tw_refuse(prepare, "an accumulator may overflow");
    }
    state->b.dtype = b->dtype;
    state->b.zero = b->zero_point;
    state->a_type = a->dtype;
    state->a_zero = a->zero_point;
    state->y_type = y->dtype;
    state->pre_shift = (int32_t)op->pre_shift;
    state->rescale = (tw_rescale_parameters){(int32_t)op->multiplier, (int32_t)op->shift,
                                             y->zero_point, (int32_t)op->lo, (int32_t)op->hi};
    state->loops = prepare->rows;
    state->packing = tw_plan_packing(tw_operand_set(prepare->model->isa, wide || op->pre_shift > 0),
                                     state->terms, state->columns);
    tw_fold_box(&state->batch, 1);
    const int64_t entries = tw_box_items(&state->batch);
    state->pieces = tw_clamp((ITEMS + entries - 1) / entries, 1, (state->rows + ROWS - 1) / ROWS);
    state->item_rows = (state->rows + state->pieces - 1) / state->pieces;
    state->taken_at = tw_aligned(state->packing.bytes);
    state->sums_at =
        state->taken_at + (size_t)(ROWS * tw_row_bytes(state->packing.set, state->terms));
    state->raw_at = tw_aligned(state->sums_at + ROWS * sizeof(int32_t));
    prepare->step->scratch = state->raw_at + tw_raw_bytes();
    prepare->step->run = run_matmul;
    prepare->step->items = entries * state->pieces;
    prepare->step->grain = 1;
    return TW_OK;
}
