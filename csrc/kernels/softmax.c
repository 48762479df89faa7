/* Softmax over the last axis, in the fixed-point steps of the arithmetic's section 11. */

#include "exponential.h"
#include "kernel.h"

typedef struct tw_softmax_state {
    int64_t rows, count;
    const tw_rows *loops;
    int32_t x_type, y_type;
    int32_t exponent_multiplier, exponent_shift;
    tw_rescale_parameters output;
} tw_softmax_state;

/* rne(2**(23 - i/256)), i = 0 ... 256 */
static const int32_t exp2_table[257] = TW_EXP2_TABLE;

int64_t tw_exponential(int64_t t) {
    const int64_t n = t >> 16, f = t & 65535;
    const int64_t i = f >> 8, g = f & 255;
    if (n > 31) {
        return 0;
    }
    const int64_t p =
        exp2_table[i] - ((((int64_t)exp2_table[i] - exp2_table[i + 1]) * g + 128) >> 8);
    return (p + ((INT64_C(1) << n) >> 1)) >> n;
}

/* `q` holds the codes, and the results in the end; `e` is working memory. */
static void softmax_row(const tw_softmax_state *state, int32_t *q, int32_t *e, unsigned char *y) {
    const int64_t n = state->count;
    int32_t top = q[0];
    for (int64_t i = 1; i < n; ++i) {
        top = q[i] > top ? q[i] : top;
    }
    int64_t sum = 0;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t t =
            tw_r24((int64_t)top - q[i], state->exponent_multiplier, state->exponent_shift);
        e[i] = (int32_t)tw_exponential(t);
        sum += e[i];
    }
    const int64_t r = (INT64_C(1) << 53) / sum;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t p = (e[i] * r + (INT64_C(1) << 28)) >> 29;
        e[i] = (int32_t)p;
    }
    state->loops->rescale(q, e, &state->output, n);
    state->loops->narrow(y, state->y_type, q, n);
}

static void run_softmax(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_softmax_state *state = step->state;
    int32_t *q = (int32_t *)(void *)call->scratch, *e = q + state->count;
    const size_t x_row = (size_t)state->count * tw_dtype_bytes(state->x_type);
    const size_t y_row = (size_t)state->count * tw_dtype_bytes(state->y_type);
    for (int64_t row = begin; row < end; ++row) {
        state->loops->widen(q, tw_input_data(step, call, 0) + (size_t)row * x_row, state->x_type, 0,
                            state->count);
        softmax_row(state, q, e, tw_output_data(step, call) + (size_t)row * y_row);
    }
}

tw_status tw_prepare_softmax(tw_prepare *prepare) {
    const tw_softmax_fields *op = prepare->node->fields;
    tw_status status = tw_check_operands(prepare, 1);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *x = tw_input(prepare, 0), *y = tw_output(prepare);
    if (!tw_is_activation(x) || !tw_is_activation(y) || !tw_same_shape(x, y) || x->rank < 1) {
        return tw_refuse(prepare, "its operands are not activations of one shape");
    }
    const int64_t count = x->shape[x->rank - 1];
    if (count > 1 << 20 || !tw_is_rescale(op->multiplier, op->shift) ||
        !tw_is_rescale(op->exponent_multiplier, op->exponent_shift) ||
        op->exponent_multiplier < 0) {
        return tw_refuse(prepare, "its length or a rescale is out of range");
    }
    tw_softmax_state *state = tw_state(prepare, sizeof *state);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    *state = (tw_softmax_state){
        .rows = x->elements / count,
        .count = count,
        .loops = prepare->rows,
        .x_type = x->dtype,
        .y_type = y->dtype,
        .exponent_multiplier = (int32_t)op->exponent_multiplier,
        .exponent_shift = (int32_t)op->exponent_shift,
        .output = {(int32_t)op->multiplier, (int32_t)op->shift, y->zero_point,
                   (int32_t)tw_lowest(y->dtype), (int32_t)tw_highest(y->dtype)},
    };
    prepare->step->run = run_softmax;
    prepare->step->items = state->rows;
    prepare->step->grain = 1;
    prepare->step->scratch = 2 * (size_t)count * sizeof(int32_t);
    return TW_OK;
}
