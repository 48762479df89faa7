#include "move.h"

#include <string.h>

tw_status tw_plan_move(tw_prepare *prepare, tw_move *move, const tw_tensor *x, const tw_tensor *y,
                       int64_t multiplier, int64_t shift) {
    move->rows = prepare->rows;
    move->same = tw_same_encoding(x, y);
    move->x_type = x->dtype;
    move->x_zero = x->zero_point;
    move->y_type = y->dtype;
    if (move->same) {
        return TW_OK;
    }
    if (!tw_is_activation(x) || !tw_is_activation(y)) {
        return tw_refuse(prepare, "it cannot change the encoding of these types");
    }
    if (!tw_is_rescale(multiplier, shift)) {
        return tw_refuse(prepare, "its rescale is out of range");
    }
    move->rescale =
        (tw_rescale_parameters){(int32_t)multiplier, (int32_t)shift, y->zero_point,
                                (int32_t)tw_lowest(y->dtype), (int32_t)tw_highest(y->dtype)};
    return TW_OK;
}

#define GATHER(type)                                                                               \
    do {                                                                                           \
        const type *restrict from = (const type *)(const void *)x;                                 \
        type *restrict to = (type *)y;                                                             \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            to[i] = from[i * step];                                                                \
        }                                                                                          \
    } while (0)

static void gather(void *y, const unsigned char *x, int64_t step, size_t size, int64_t n) {
    switch (size) {
    case 1:
        GATHER(uint8_t);
        break;
    case 2:
        GATHER(uint16_t);
        break;
    case 4:
        GATHER(uint32_t);
        break;
    default:
        GATHER(uint64_t);
        break;
    }
}

void tw_move_row(const tw_move *move, const unsigned char *x, int64_t x_at, int64_t x_step,
                 unsigned char *y, int64_t y_at, int64_t n) {
    const size_t size = tw_dtype_bytes(move->x_type);
    const unsigned char *from = x + x_at * (int64_t)size;
    unsigned char *to = y + y_at * (int64_t)tw_dtype_bytes(move->y_type);
    if (move->same && x_step == 1) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    if (move->same) {
        gather(to, from, x_step, size, n);
        return;
    }
    while (n > 0) {
        uint16_t codes[TW_ROW_BLOCK];
        int32_t values[TW_ROW_BLOCK], results[TW_ROW_BLOCK];
        const int64_t count = tw_min(n, TW_ROW_BLOCK);
        const void *source = from;
        if (x_step != 1) {
            gather(codes, from, x_step, size, count);
            source = codes;
        }
        move->rows->widen(values, source, move->x_type, move->x_zero, count);
        move->rows->rescale(results, values, &move->rescale, count);
        move->rows->narrow(to, move->y_type, results, count);
        from += count * x_step * (int64_t)size;
        to += count * (int64_t)tw_dtype_bytes(move->y_type);
        n -= count;
    }
}

void tw_run_move(const tw_move *move, const unsigned char *x, unsigned char *y, int64_t begin,
                 int64_t end) {
    const int64_t step = move->box.stride[1][move->box.rank - 1];
    int64_t at[TW_STRIDED_OPERANDS];
    for (int64_t item = begin; item < end; ++item) {
        const int64_t n = tw_box_item(&move->box, item, at);
        tw_move_row(move, x, move->x_first + at[1], step, y, move->y_first + at[0], n);
    }
}
