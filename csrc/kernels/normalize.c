#include "normalize.h"

#include <math.h>

/* The integer root of 2**60 <= w < 2**62; a double's root is off by one at most. */
static int64_t root(int64_t w) {
    int64_t g = (int64_t)sqrt((double)w);
    if (g * g > w) {
        --g;
    } else if ((g + 1) * (g + 1) <= w) {
        ++g;
    }
    return g;
}

tw_quotient tw_norm_quotient(const tw_norm *norm, int64_t sum, int64_t squares) {
    tw_quotient q = {.factor = norm->factor, .total = norm->centred ? sum : 0, .fraction = 1};
    int64_t w = norm->factor * squares - q.total * q.total + norm->epsilon;
    if (w <= 0) {
        return q;
    }
    int32_t halvings = 0;
    for (int32_t bits = 32; bits >= 2; bits /= 2) {
        if (w < INT64_C(1) << (62 - bits)) {
            w <<= bits;
            halvings += bits / 2;
        }
    }
    q.share = (INT64_C(1) << 61) / root(w);
    q.fraction = norm->top - halvings;
    /* 2**31 is the largest share, and even; half of it fits 32 bits. */
    if (q.share == INT64_C(1) << 31) {
        q.share >>= 1;
        q.fraction -= 1;
    }
    return q;
}

/* As tw_rows.normalize, in 64 bits; unsigned, since codes outside their type's range may wrap. */
static int32_t normalized(int16_t x, const tw_quotient *group, const tw_affine *affine, int64_t i) {
    const uint64_t half = UINT64_C(1) << (group->fraction - 1);
    const int64_t d = group->factor * x - group->total;
    const int64_t n = (int64_t)((uint64_t)d * (uint64_t)group->share + half) >> group->fraction;
    const uint64_t sum = (uint64_t)n * (uint64_t)(int64_t)affine->gain[i];
    const int64_t v = (int64_t)(sum + (uint64_t)affine->offset[i]) >> affine->shift;
    return (int32_t)tw_clamp(v + affine->zero, affine->lo, affine->hi);
}

void tw_norm_run(const tw_norm *norm, unsigned char *y, const int16_t *x, const tw_quotient *group,
                 const tw_affine *affine, int64_t n) {
    int32_t values[TW_ROW_BLOCK];
    if (norm->fast) {
        norm->rows->normalize(values, x, group, affine, n);
    } else {
        for (int64_t i = 0; i < n; ++i) {
            values[i] = normalized(x[i], group, affine, i);
        }
    }
    norm->rows->narrow(y, norm->y_type, values, n);
}

void tw_norm_lanes(const tw_norm *norm, unsigned char *y, const int16_t *x,
                   const tw_quotient *groups, const tw_affine *affine, int64_t n) {
    int32_t values[TW_ROW_BLOCK];
    if (norm->fast) {
        norm->rows->normalize_lanes(values, x, groups, affine, n);
    } else {
        for (int64_t i = 0; i < n; ++i) {
            values[i] = normalized(x[i], &groups[i], affine, i);
        }
    }
    norm->rows->narrow(y, norm->y_type, values, n);
}

static int64_t offset_of(const tw_affine_record *record) {
    return (int64_t)(((uint64_t)(uint32_t)record->offset_high << 32) | record->offset_low);
}

/* Copy the gains apart; false where one is out of range.  `top`: the largest |n*gain + offset|. */
static bool read_gains(const tw_constant *gains, int32_t *gain, int64_t *offset, int64_t lanes,
                       int64_t half, int64_t largest_n, int64_t *top) {
    const tw_affine_record *records = gains->data;
    *top = 0;
    for (int64_t i = 0; i < lanes; ++i) {
        const tw_affine_record *record = &records[gains->elements == 1 ? 0 : i];
        const int64_t g = record->gain, b = offset_of(record);
        if (g > 1 << 24 || g < -(1 << 24) || b >= INT64_C(1) << 52 || b <= -(INT64_C(1) << 52)) {
            return false;
        }
        gain[i] = (int32_t)g;
        offset[i] = b + half;
        *top = tw_max(*top, (g < 0 ? -g : g) * largest_n + (b < 0 ? -b : b) + half);
    }
    return true;
}

/* The largest |n|: the root of the number of elements in Q16, or 1 in Q24, and a rounding. */
static int64_t largest_quotient(const tw_norm *norm, int64_t count) {
    return norm->factor == 1 ? (INT64_C(1) << 24) + 1
                             : (int64_t)(sqrt((double)count) * 65536.0) + 2;
}

tw_status tw_prepare_norm(tw_prepare *prepare, tw_norm *norm, const tw_norm_fields *fields,
                          int64_t count, int64_t lanes) {
    const tw_tensor *x = tw_input(prepare, 0), *y = tw_output(prepare);
    const int64_t reach = tw_reach(x), limit = INT64_C(1) << 31;
    if (!tw_is_activation(x) || !tw_is_activation(y) || !tw_same_shape(x, y)) {
        return tw_refuse(prepare, "its operands are not activations of one shape");
    }
    if (fields->gains->kind != TW_KIND_AFFINE ||
        (fields->gains->elements != 1 && fields->gains->elements != lanes)) {
        return tw_refuse(prepare, "its gains do not fit its operand");
    }
    if (fields->shift < 1 || fields->shift > 62 || fields->epsilon < 0 ||
        fields->epsilon > INT64_C(1) << 60 || !tw_is_clamp(y, fields->clamp[0], fields->clamp[1]) ||
        (norm->factor > 1 && count * reach >= limit) ||
        norm->factor * count >= INT64_MAX / (reach * reach + 1) ||
        norm->factor * count * reach * reach + fields->epsilon >= INT64_C(1) << 62) {
        return tw_refuse(prepare, "its shift, epsilon, clamp or length is out of range");
    }
    int32_t *gain = tw_pool_allocate(&prepare->model->pool, (size_t)lanes * sizeof *gain);
    int64_t *offset = tw_pool_allocate(&prepare->model->pool, (size_t)lanes * sizeof *offset);
    if (gain == NULL || offset == NULL) {
        return TW_ERROR_MEMORY;
    }
    const int64_t half = INT64_C(1) << (fields->shift - 1);
    int64_t top;
    if (!read_gains(fields->gains, gain, offset, lanes, half, largest_quotient(norm, count),
                    &top)) {
        return tw_refuse(prepare, "a gain or an offset is out of range");
    }
    norm->rows = prepare->rows;
    norm->epsilon = fields->epsilon;
    norm->x_type = x->dtype;
    norm->x_zero = x->zero_point;
    norm->y_type = y->dtype;
    norm->fast = norm->factor * reach < INT64_C(1) << 29 && top >> fields->shift < INT64_C(1) << 30;
    norm->affine = (tw_affine){
        gain,
        offset,
        (int32_t)fields->shift,
        y->zero_point,
        (int32_t)fields->clamp[0],
        (int32_t)fields->clamp[1],
    };
    return TW_OK;
}
