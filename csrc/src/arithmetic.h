/* R24 and saturation.  Right shifts of negative numbers are arithmetic on every compiler that this
 * runtime supports. */

#ifndef TW_ARITHMETIC_H
#define TW_ARITHMETIC_H

#include <stdint.h>

/* (x*|m| + 2**(shift-1)) >> shift, negated where m is negative; |x| < 2**38, 1 <= shift <= 62. */
static inline int64_t tw_r24(int64_t x, int32_t m, int32_t shift) {
    const int64_t magnitude = m < 0 ? -(int64_t)m : m;
    const int64_t y = (x * magnitude + (INT64_C(1) << (shift - 1))) >> shift;
    return m < 0 ? -y : y;
}

static inline int64_t tw_pre_shifted(int64_t x, int32_t pre_shift) {
    return pre_shift == 0 ? x : (x + (INT64_C(1) << (pre_shift - 1))) >> pre_shift;
}

static inline int64_t tw_clamp(int64_t x, int64_t lo, int64_t hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

static inline int64_t tw_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t tw_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* The table value at s16 code q, times 128. */
static inline int64_t tw_interpolate(const int16_t *table, int32_t q) {
    const int32_t i = (q >> 7) + 256;
    return 128 * (int64_t)table[i] + (int64_t)(table[i + 1] - table[i]) * (q & 127);
}

#endif
