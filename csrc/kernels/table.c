/* Table and Table16: functions of one variable. */

#include "kernel.h"

enum { TABLE_BLOCK = 4096 };

typedef struct tw_table_state {
    int64_t elements;
    int32_t x_type, y_type;
    const void *table;
    tw_rescale_parameters rescale;
} tw_table_state;

static void run_table(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_table_state *state = step->state;
    const int64_t first = begin * TABLE_BLOCK;
    const int64_t last = tw_min(end * TABLE_BLOCK, state->elements);
    const uint8_t *x = tw_input_data(step, call, 0);
    const uint8_t flip = state->x_type == TW_S8 ? 0x80 : 0;
    unsigned char *y = tw_output_data(step, call);
    if (state->y_type == TW_S16) {
        const uint16_t *table = state->table;
        uint16_t *codes = (uint16_t *)(void *)y;
        for (int64_t i = first; i < last; ++i) {
            codes[i] = table[x[i] ^ flip];
        }
        return;
    }
    const uint8_t *table = state->table;
    for (int64_t i = first; i < last; ++i) {
        y[i] = table[x[i] ^ flip];
    }
}

static void run_table16(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_table_state *state = step->state;
    const tw_rescale_parameters *p = &state->rescale;
    const int64_t last = tw_min(end * TABLE_BLOCK, state->elements);
    const int16_t *x = (const int16_t *)(const void *)tw_input_data(step, call, 0);
    unsigned char *y = tw_output_data(step, call);
    for (int64_t i = begin * TABLE_BLOCK; i < last; ++i) {
        const int64_t v = tw_interpolate(state->table, x[i]);
        const int64_t code = tw_clamp(tw_r24(v, p->multiplier, p->shift) + p->zero, p->lo, p->hi);
        if (state->y_type == TW_S16) {
            ((int16_t *)(void *)y)[i] = (int16_t)code;
        } else {
            y[i] = (uint8_t)code;
        }
    }
}

static tw_status plan(tw_prepare *prepare, tw_table_state **state, tw_run_function *run,
                      const tw_constant *table, int64_t entries) {
    tw_status status = tw_check_operands(prepare, 1);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *x = tw_input(prepare, 0), *y = tw_output(prepare);
    if (!tw_is_activation(x) || !tw_is_activation(y) || !tw_same_shape(x, y)) {
        return tw_refuse(prepare, "its operands are not activations of one shape");
    }
    if (table->shape[0] != entries) {
        return tw_refuse(prepare, "its table has the wrong size");
    }
    *state = tw_state(prepare, sizeof **state);
    if (*state == NULL) {
        return TW_ERROR_MEMORY;
    }
    **state = (tw_table_state){
        .elements = y->elements, .x_type = x->dtype, .y_type = y->dtype, .table = table->data};
    prepare->step->run = run;
    prepare->step->items = (y->elements + TABLE_BLOCK - 1) / TABLE_BLOCK;
    prepare->step->grain = 1;
    return TW_OK;
}

tw_status tw_prepare_table(tw_prepare *prepare) {
    const tw_table_fields *op = prepare->node->fields;
    tw_table_state *state;
    tw_status status = plan(prepare, &state, run_table, &op->table, 256);
    if (status != TW_OK) {
        return status;
    }
    if (state->x_type == TW_S16 || op->table.kind != state->y_type) {
        return tw_refuse(prepare, "its table does not fit its types");
    }
    return TW_OK;
}

tw_status tw_prepare_table16(tw_prepare *prepare) {
    const tw_table16_fields *op = prepare->node->fields;
    tw_table_state *state;
    tw_status status = plan(prepare, &state, run_table16, &op->table, 513);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *y = tw_output(prepare);
    if (state->x_type != TW_S16 || op->table.kind != TW_KIND_S16) {
        return tw_refuse(prepare, "its table does not fit its types");
    }
    if (!tw_is_rescale(op->multiplier, op->shift) || !tw_is_clamp(y, op->lo, op->hi)) {
        return tw_refuse(prepare, "its rescale or clamp is out of range");
    }
    state->rescale = (tw_rescale_parameters){(int32_t)op->multiplier, (int32_t)op->shift,
                                             y->zero_point, (int32_t)op->lo, (int32_t)op->hi};
    return TW_OK;
}
