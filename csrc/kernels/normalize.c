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

static int64_t offset_of(const tw_affine_record *record) {
    return (int64_t)(((uint64_t)(uint32_t)record->offset_high << 32) | record->offset_low);
}

tw_affine tw_norm_affine(const tw_norm *norm, const tw_gains *memory, int64_t first, int64_t n,
                         int64_t repeat) {
    const int64_t half = INT64_C(1) << (norm->affine.shift - 1);
    const int64_t more = half + (norm->fast ? TW_LIFT : 0);
    for (int64_t i = 0; i < n * repeat; ++i) {
        const tw_affine_record *record = &norm->gains[norm->one_gain ? 0 : first + i % n];
        memory->gain[i] = record->gain;
        memory->offset[i % 2][i / 2] = offset_of(record) + more;
    }
    tw_affine affine = norm->affine;
    affine.gain = memory->gain;
    affine.offset[0] = memory->offset[0];
    affine.offset[1] = memory->offset[1];
    return affine;
}

/* Unsigned, since codes outside their type's range may wrap. */
int32_t tw_norm_element(int16_t x, const tw_quotient *group, const tw_affine *affine, int64_t i) {
    const uint64_t half = UINT64_C(1) << (group->fraction - 1);
    const int64_t d = group->factor * x - group->total;
    const int64_t n = (int64_t)((uint64_t)d * (uint64_t)group->share + half) >> group->fraction;
    const uint64_t product = (uint64_t)n * (uint64_t)(int64_t)affine->gain[i];
    const int64_t v = (int64_t)(product + (uint64_t)affine->offset[i % 2][i / 2]) >> affine->shift;
    return (int32_t)tw_clamp(v + affine->zero, affine->lo, affine->hi);
}

/* The largest |n*gain + offset|; -1 where a gain or an offset is out of range. */
static int64_t largest_sum(const tw_constant *gains, int64_t largest_n) {
    const tw_affine_record *records = gains->data;
    int64_t top = 0;
    for (int64_t i = 0; i < gains->elements; ++i) {
        const int64_t g = records[i].gain, b = offset_of(&records[i]);
        if (g > 1 << 24 || g < -(1 << 24) || b >= INT64_C(1) << 52 || b <= -(INT64_C(1) << 52)) {
            return -1;
        }
        top = tw_max(top, (g < 0 ? -g : g) * largest_n + (b < 0 ? -b : b));
    }
    return top;
}

/* The largest |n|: the root of the number of elements in Q16, or 1 in Q24, and a rounding. */
static int64_t largest_quotient(const tw_norm *norm, int64_t count) {
    return norm->factor == 1 ? (INT64_C(1) << 24) + 1
                             : (int64_t)(sqrt((double)count) * 65536.0) + 2;
}

tw_status tw_prepare_norm(tw_prepare *prepare, tw_norm *norm, const tw_norm_fields *fields,
                          int64_t count, int64_t gains) {
    const tw_tensor *x = tw_input(prepare, 0), *y = tw_output(prepare);
    if (!tw_is_activation(x) || !tw_is_activation(y) || !tw_same_shape(x, y)) {
        return tw_refuse(prepare, "its operands are not activations of one shape");
    }
    if (fields->gains->kind != TW_KIND_AFFINE ||
        (fields->gains->elements != 1 && fields->gains->elements != gains)) {
        return tw_refuse(prepare, "its gains do not fit its operand");
    }
    const int64_t reach = tw_reach(x), factor = norm->factor;
    if (fields->shift < 1 || fields->shift > 62 || fields->epsilon < 0 ||
        fields->epsilon > INT64_C(1) << 60 || !tw_is_clamp(y, fields->clamp[0], fields->clamp[1]) ||
        (factor > 1 && count * reach >= INT64_C(1) << 31) ||
        factor * count >= INT64_MAX / (reach * reach + 1) ||
        factor * count * reach * reach + fields->epsilon >= INT64_C(1) << 62) {
        return tw_refuse(prepare, "its shift, epsilon, clamp or length is out of range");
    }
    const int64_t sum = largest_sum(fields->gains, largest_quotient(norm, count));
    if (sum < 0) {
        return tw_refuse(prepare, "a gain or an offset is out of range");
    }
    norm->rows = prepare->rows;
    norm->epsilon = fields->epsilon;
    norm->x_type = x->dtype;
    norm->x_zero = x->zero_point;
    norm->y_type = y->dtype;
    norm->gains = fields->gains->data;
    norm->one_gain = fields->gains->elements == 1;
    /* Half of 2**shift is added; the result and its zero point fit 32 bits. */
    norm->fast = factor * reach < INT64_C(1) << 29 && sum >> fields->shift < INT64_C(1) << 29;
    norm->affine.shift = (int32_t)fields->shift;
    norm->affine.zero = y->zero_point;
    norm->affine.lo = (int32_t)fields->clamp[0];
    norm->affine.hi = (int32_t)fields->clamp[1];
    return TW_OK;
}
