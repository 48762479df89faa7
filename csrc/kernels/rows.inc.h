/* The loops of rows.h in plain C; included by one file for each instruction set, whose compiler
 * flags decide how they are vectorised.  TW_ROWS_NAME is the name of the table. */

#include <string.h>

#include "../src/arithmetic.h"
#include "rows.h"

static void widen(int32_t *restrict y, const void *x, int32_t dtype, int32_t zero, int64_t n) {
    if (dtype == TW_KIND_U8) {
        const uint8_t *restrict codes = x;
        for (int64_t i = 0; i < n; ++i) {
            y[i] = codes[i] - zero;
        }
    } else if (dtype == TW_KIND_S8) {
        const int8_t *restrict codes = x;
        for (int64_t i = 0; i < n; ++i) {
            y[i] = codes[i] - zero;
        }
    } else {
        const int16_t *restrict codes = x;
        for (int64_t i = 0; i < n; ++i) {
            y[i] = codes[i] - zero;
        }
    }
}

static void widen16(int16_t *restrict y, const void *x, int32_t dtype, int32_t zero, int64_t n) {
    if (dtype == TW_KIND_U8) {
        const uint8_t *restrict codes = x;
        for (int64_t i = 0; i < n; ++i) {
            y[i] = (int16_t)(codes[i] - zero);
        }
    } else if (dtype == TW_KIND_S8) {
        const int8_t *restrict codes = x;
        for (int64_t i = 0; i < n; ++i) {
            y[i] = (int16_t)(codes[i] - zero);
        }
    } else {
        memcpy(y, x, (size_t)n * sizeof(int16_t));
    }
}

/* Adding and subtracting 1.5 * 2**23 rounds to the nearest integer, halves to even. */
static void quantize(int32_t *restrict y, const float *restrict x, float scale, float lo, float hi,
                     int32_t zero, int64_t n) {
    const float magic = 12582912.0F;
    for (int64_t i = 0; i < n; ++i) {
        float q = x[i] / scale;
        q = q == q ? q : 0.0F;
        q = q < lo ? lo : q;
        q = q > hi ? hi : q;
        y[i] = (int32_t)((q + magic) - magic) + zero;
    }
}

static void flip(uint8_t *restrict y, const uint8_t *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        y[i] = x[i] ^ 0x80;
    }
}

static void narrow(void *y, int32_t dtype, const int32_t *restrict x, int64_t n) {
    if (dtype == TW_KIND_S16) {
        int16_t *restrict codes = y;
        for (int64_t i = 0; i < n; ++i) {
            codes[i] = (int16_t)x[i];
        }
    } else {
        uint8_t *restrict codes = y;
        for (int64_t i = 0; i < n; ++i) {
            codes[i] = (uint8_t)x[i];
        }
    }
}

static inline int32_t clamped(int64_t v, int32_t zero, int32_t lo, int32_t hi) {
    return (int32_t)tw_clamp(v + zero, lo, hi);
}

static void rescale(int32_t *restrict y, const int32_t *restrict x, const tw_rescale_parameters *p,
                    int64_t n) {
    const tw_rescale_parameters q = *p;
    for (int64_t i = 0; i < n; ++i) {
        y[i] = clamped(tw_r24(x[i], q.multiplier, q.shift), q.zero, q.lo, q.hi);
    }
}

static void add(int32_t *restrict y, const int32_t *restrict a, const int32_t *restrict b,
                const tw_add_parameters *p, bool narrow_sum, int64_t n) {
    const tw_add_parameters q = *p;
    if (narrow_sum) {
        const int32_t ma = (int32_t)q.ma, mb = (int32_t)q.mb;
        const int32_t half = INT32_C(1) << (q.shift - 1);
        for (int64_t i = 0; i < n; ++i) {
            const int32_t v = ((ma * a[i] + mb * b[i] + half) >> q.shift) + q.zero;
            y[i] = v < q.lo ? q.lo : v > q.hi ? q.hi : v;
        }
        return;
    }
    const int64_t half = INT64_C(1) << (q.shift - 1);
    for (int64_t i = 0; i < n; ++i) {
        y[i] = clamped((q.ma * a[i] + q.mb * b[i] + half) >> q.shift, q.zero, q.lo, q.hi);
    }
}

static void add_words(int32_t *restrict y, const int32_t *restrict a, const int64_t *restrict c,
                      const tw_add_parameters *p, int64_t n) {
    const tw_add_parameters q = *p;
    const int64_t half = INT64_C(1) << (q.shift - 1);
    for (int64_t i = 0; i < n; ++i) {
        y[i] = clamped((q.ma * a[i] + c[i] + half) >> q.shift, q.zero, q.lo, q.hi);
    }
}

static void multiply(int32_t *restrict y, const int32_t *restrict a, const int32_t *restrict b,
                     const tw_rescale_parameters *p, int64_t n) {
    const tw_rescale_parameters q = *p;
    for (int64_t i = 0; i < n; ++i) {
        y[i] = clamped(tw_r24((int64_t)a[i] * b[i], q.multiplier, q.shift), q.zero, q.lo, q.hi);
    }
}

static inline int64_t total_of(int32_t sum, int32_t more) {
    return (int32_t)((uint32_t)sum + (uint32_t)more);
}

static void score_words(int16_t *restrict y, const int32_t *restrict sums, int32_t more,
                        const tw_scaling *p, const int32_t *restrict addends, int64_t n) {
    const tw_rescale_parameters q = p->rescale;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t r = tw_r24(total_of(sums[i], more), q.multiplier, q.shift);
        y[i] = (int16_t)clamped(r + (addends == NULL ? 0 : addends[i]), 0, q.lo, q.hi);
    }
}

#ifdef VECTOR
static void score(int16_t *restrict y, const int32_t *restrict sums, int32_t more,
                  const tw_scaling *p, const int32_t *restrict addends, int64_t n) {
    if (!p->fits) {
        score_words(y, sums, more, p, addends, n);
        return;
    }
    const VECTOR multiplier = repeat_word(p->multiplier), half = repeat_pair(p->half);
    const VECTOR rest = repeat_word(p->rest), added = repeat_word(more);
    for (int64_t i = 0; i < n; i += LANES) {
        const VECTOR sum = sum_of_words(load_vector(sums + i), added);
        VECTOR r = scale_words(sum, multiplier, half, rest);
        if (addends != NULL) {
            r = sum_of_words(r, load_vector(addends + i));
        }
        store_scores(y + i, r, n - i);
    }
}
#endif

static void distance(int16_t *x, uint16_t last, int64_t n) {
    int16_t top = x[0];
    for (int64_t i = 1; i < n; ++i) {
        top = x[i] > top ? x[i] : top;
    }
    uint16_t *y = (uint16_t *)x;
    for (int64_t i = 0; i < n; ++i) {
        const uint16_t d = (uint16_t)((uint16_t)top - y[i]);
        y[i] = d < last ? d : last;
    }
}

static uint32_t sum_bytes(const uint8_t *x, int64_t n) {
    uint32_t sum = 0;
    for (int64_t i = 0; i < n; ++i) {
        sum += x[i];
    }
    return sum;
}

static void mean(int32_t *restrict y, const int32_t *restrict sums, int32_t more, int64_t share,
                 const tw_rescale_parameters *p, int64_t n) {
    const tw_rescale_parameters q = *p;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t w = (total_of(sums[i], more) * share + (INT64_C(1) << 22)) >> 23;
        y[i] = clamped(tw_r24(w, q.multiplier, q.shift), q.zero, q.lo, q.hi);
    }
}

static void maximum(int32_t *restrict y, const int32_t *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        y[i] = x[i] > y[i] ? x[i] : y[i];
    }
}

static void accumulate(int64_t *restrict y, const int32_t *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        y[i] += x[i];
    }
}

static inline int64_t finished(int64_t acc, const tw_tail *tail, const tw_channel_record *channel) {
    const int64_t r =
        tw_r24(tw_pre_shifted(acc, tail->pre_shift), channel->multiplier, channel->shift);
    if (tail->table == NULL) {
        return tw_clamp(r + tail->zero, channel->lo, channel->hi);
    }
    const int64_t v = tw_interpolate(tail->table, (int32_t)tw_clamp(r, -32767, 32767));
    const int64_t y = tw_r24(v, tail->table_multiplier, tail->table_shift) + tail->zero;
    switch (tail->dtype) {
    case TW_KIND_U8:
        return tw_clamp(y, 0, 255);
    case TW_KIND_S8:
        return tw_clamp(y, -128, 127);
    default:
        return tw_clamp(y, -32767, 32767);
    }
}

#define TW_FINISH(name, type)                                                                      \
    static void name(void *y, const type *acc, const tw_tail *tail, int64_t first, int64_t n) {    \
        if (tail->dtype == TW_KIND_S16) {                                                          \
            int16_t *codes = y;                                                                    \
            for (int64_t i = 0; i < n; ++i) {                                                      \
                codes[i] = (int16_t)finished(acc[i], tail, &tail->channels[first + i]);            \
            }                                                                                      \
        } else {                                                                                   \
            uint8_t *codes = y;                                                                    \
            for (int64_t i = 0; i < n; ++i) {                                                      \
                codes[i] = (uint8_t)finished(acc[i], tail, &tail->channels[first + i]);            \
            }                                                                                      \
        }                                                                                          \
    }
TW_FINISH(finish32, int32_t)
TW_FINISH(finish64, int64_t)

static void multiply_add32(int32_t *restrict acc, const int16_t *restrict x,
                           const int16_t *restrict w, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        acc[i] += x[i] * w[i];
    }
}

static void multiply_add64(int64_t *restrict acc, const int16_t *restrict x,
                           const int16_t *restrict w, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        acc[i] += x[i] * w[i];
    }
}

static void scale_add32(int32_t *restrict acc, int16_t x, const int16_t *restrict w, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        acc[i] += x * w[i];
    }
}

static void scale_add64(int64_t *restrict acc, int16_t x, const int16_t *restrict w, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        acc[i] += x * w[i];
    }
}

static void lane_moments(int32_t *restrict sums, uint32_t *restrict low, uint32_t *restrict high,
                         const int16_t *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t square = (uint32_t)(x[i] * x[i]);
        sums[i] += x[i];
        low[i] += square & 65535;
        high[i] += square >> 16;
    }
}

#ifdef VECTOR
#include "normalize.inc.h"
#else

static void moments(int64_t sums[2], const int16_t *restrict x, int64_t n) {
    int64_t sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) {
        sum += x[i];
        squares += x[i] * x[i];
    }
    sums[0] += sum;
    sums[1] += squares;
}

/* What a lift leaves is `back`. */
static inline int32_t lowered(int64_t lifted, int64_t shift, int32_t back) {
    return (int32_t)((uint32_t)((uint64_t)lifted >> shift) - (uint32_t)back);
}

static inline int32_t affine_end(int32_t n, const tw_affine *affine, int64_t offset, int64_t i) {
    const int32_t back = (int32_t)(uint32_t)(TW_LIFT >> affine->shift);
    const int32_t y =
        lowered((int64_t)n * affine->gain[i] + offset, affine->shift, back) + affine->zero;
    return y < affine->lo ? affine->lo : y > affine->hi ? affine->hi : y;
}

static void normalize(int32_t *restrict y, const int16_t *restrict x, const tw_quotient *group,
                      const tw_affine *affine, int64_t n) {
    const tw_affine a = *affine;
    const int32_t factor = (int32_t)group->factor, share = (int32_t)group->share;
    const int32_t fraction = group->fraction;
    const int64_t half = INT64_C(1) << (fraction - 1);
    const int64_t bias = TW_LIFT + half - group->total * group->share;
    const int32_t back = (int32_t)(uint32_t)(TW_LIFT >> fraction);
    for (int32_t odd = 0; odd < 2; ++odd) {
        for (int64_t i = odd; i < n; i += 2) {
            const int64_t d = factor * x[i];
            y[i] =
                affine_end(lowered(d * share + bias, fraction, back), &a, a.offset[odd][i / 2], i);
        }
    }
}

static void normalize_lanes(int32_t *restrict y, const int16_t *restrict x, const tw_lanes *lanes,
                            const tw_affine *affine, int64_t n) {
    const tw_affine a = *affine;
    const tw_lanes l = *lanes;
    for (int32_t odd = 0; odd < 2; ++odd) {
        for (int64_t i = odd; i < n; i += 2) {
            const int64_t d = l.factor * x[i], v = d * l.share[i] + l.bias[odd][i / 2];
            y[i] = affine_end(lowered(v, l.fraction[odd][i / 2], l.back[i]), &a,
                              a.offset[odd][i / 2], i);
        }
    }
}

#endif

const tw_rows TW_ROWS_NAME = {
    .widen = widen,
    .widen16 = widen16,
    .quantize = quantize,
    .flip = flip,
    .narrow = narrow,
    .rescale = rescale,
    .add = add,
    .add_words = add_words,
    .multiply = multiply,
#ifdef VECTOR
    .score = score,
#else
    .score = score_words,
#endif
    .distance = distance,
    .sum_bytes = sum_bytes,
    .mean = mean,
    .maximum = maximum,
    .accumulate = accumulate,
    .finish32 = finish32,
    .finish64 = finish64,
    .multiply_add32 = multiply_add32,
    .multiply_add64 = multiply_add64,
    .scale_add32 = scale_add32,
    .scale_add64 = scale_add64,
    .moments = moments,
    .lane_moments = lane_moments,
    .normalize = normalize,
    .normalize_lanes = normalize_lanes,
};
