/* Loops over contiguous elements, compiled once for each instruction set.  `rows.inc.h` says what
 * they do; kernels are written in terms of them, so that every type is handled once. */

#ifndef TW_ROWS_H
#define TW_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "../src/generated/graphfile.h"

enum { TW_ROW_BLOCK = 256 }; /* elements that a kernel handles at a time */
enum { TW_ROW_LANES = 16 };  /* the most elements of a vector; a block is a multiple of it */

/* Rescale, zero point, clamp. */
typedef struct tw_rescale_parameters {
    int32_t multiplier;
    int32_t shift;
    int32_t zero;
    int32_t lo;
    int32_t hi;
} tw_rescale_parameters;

/* A rescale of 32-bit lanes, prepared as tail.c prepares those of channels: for s >= 32
 *     (x*M + half) >> s  =  ((x*M + half) >> 32) >> (s - 32) */
typedef struct tw_scaling {
    tw_rescale_parameters rescale;
    bool fits; /* results and what is added to them stay below 2**31 */
    int32_t multiplier, rest;
    int64_t half;
} tw_scaling;

/* Add: y = clamp(((ma*a + mb*b + 2**(shift-1)) >> shift) + zero). */
typedef struct tw_add_parameters {
    int64_t ma;
    int64_t mb;
    int32_t shift;
    int32_t zero;
    int32_t lo;
    int32_t hi;
} tw_add_parameters;

/* The end of a product, scalar: bias is in the accumulator. */
typedef struct tw_tail {
    const tw_channel_record *channels;
    const int16_t *table;
    int32_t pre_shift;
    int32_t table_multiplier;
    int32_t table_shift;
    int32_t zero;
    int32_t dtype;
} tw_tail;

/* How a group is normalised: n = ((factor*x - total) * share + 2**(fraction-1)) >> fraction. */
typedef struct tw_quotient {
    int64_t factor;
    int64_t total;
    int64_t share;
    int32_t fraction;
} tw_quotient;

/* y = clamp(((n*gain + offset) >> shift) + zero); 2**(shift-1) and TW_LIFT are in the offset.
 * Vectors multiply their even and their odd elements, so what is added to products is stored apart:
 * offset[0] has that of elements 0, 2, ...  All arrays have TW_ROW_LANES elements to spare. */
typedef struct tw_affine {
    const int32_t *gain;
    const int64_t *offset[2];
    int32_t shift;
    int32_t zero;
    int32_t lo;
    int32_t hi;
} tw_affine;

/* Quotients of elements of different groups: n = ((factor*x*share + bias) >> fraction) - back,
 * where the bias has -total*share, 2**(fraction-1) and TW_LIFT. */
typedef struct tw_lanes {
    int32_t factor;
    const int32_t *share;
    const int32_t *back; /* TW_LIFT >> fraction */
    const int64_t *bias[2];
    const int64_t *fraction[2];
} tw_lanes;

/* Added to a number of less than 62 bits, so that it may be shifted right as an unsigned one: AVX2
 * shifts no other of 64 bits.  What it leaves is taken away again. */
#define TW_LIFT (INT64_C(1) << 62)

typedef struct tw_rows tw_rows;

struct tw_rows {
    /* code - zero, from codes of `dtype` */
    void (*widen)(int32_t *y, const void *x, int32_t dtype, int32_t zero, int64_t n);
    void (*widen16)(int16_t *y, const void *x, int32_t dtype, int32_t zero, int64_t n);
    /* rne(clamp(x / scale, lo, hi)) + zero, NaN giving zero; results of 16 bits */
    void (*quantize)(int32_t *y, const float *x, float scale, float lo, float hi, int32_t zero,
                     int64_t n);
    /* y = x ^ 0x80 */
    void (*flip)(uint8_t *y, const uint8_t *x, int64_t n);
    /* values in range to codes of `dtype` */
    void (*narrow)(void *y, int32_t dtype, const int32_t *x, int64_t n);
    void (*rescale)(int32_t *y, const int32_t *x, const tw_rescale_parameters *p, int64_t n);
    /* `narrow_sum`: everything fits 32 bits */
    void (*add)(int32_t *y, const int32_t *a, const int32_t *b, const tw_add_parameters *p,
                bool narrow_sum, int64_t n);
    void (*add_words)(int32_t *y, const int32_t *a, const int64_t *c, const tw_add_parameters *p,
                      int64_t n);
    void (*multiply)(int32_t *y, const int32_t *a, const int32_t *b, const tw_rescale_parameters *p,
                     int64_t n);
    void (*maximum)(int32_t *y, const int32_t *x, int64_t n);
    void (*accumulate)(int64_t *y, const int32_t *x, int64_t n);
    /* accumulators of channels first..first+n-1 to codes */
    void (*finish32)(void *y, const int32_t *acc, const tw_tail *tail, int64_t first, int64_t n);
    void (*finish64)(void *y, const int64_t *acc, const tw_tail *tail, int64_t first, int64_t n);
    /* attention: clamp(R24(sums[i] + more) + addends[i]) to s16; `addends` may be NULL */
    void (*score)(int16_t *y, const int32_t *sums, int32_t more, const tw_scaling *p,
                  const int32_t *addends, int64_t n);
    /* how far each is below the largest, as u16 in place; at most `last` */
    void (*distance)(int16_t *x, uint16_t last, int64_t n);
    uint32_t (*sum_bytes)(const uint8_t *x, int64_t n);
    /* clamp(R24(((sums[i] + more) * share + 2**22) >> 23) + zero) */
    void (*mean)(int32_t *y, const int32_t *sums, int32_t more, int64_t share,
                 const tw_rescale_parameters *p, int64_t n);
    /* acc[c] += x[c] * w[c] */
    void (*multiply_add32)(int32_t *acc, const int16_t *x, const int16_t *w, int64_t n);
    void (*multiply_add64)(int64_t *acc, const int16_t *x, const int16_t *w, int64_t n);
    /* acc[c] += x * w[c] */
    void (*scale_add32)(int32_t *acc, int16_t x, const int16_t *w, int64_t n);
    void (*scale_add64)(int64_t *acc, int16_t x, const int16_t *w, int64_t n);
    /* sums[0] += x[i], sums[1] += x[i]**2; n <= TW_ROW_BLOCK */
    void (*moments)(int64_t sums[2], const int16_t *x, int64_t n);
    /* the same for each i, squares in two halves: low += x[i]**2 % 2**16, high += x[i]**2 >> 16 */
    void (*lane_moments)(int32_t *sums, uint32_t *low, uint32_t *high, const int16_t *x, int64_t n);
    /* elements of one group; every step but a product and a sum fits 32 bits.  `x` and `y` have
     * room to a multiple of TW_ROW_LANES. */
    void (*normalize)(int32_t *y, const int16_t *x, const tw_quotient *group,
                      const tw_affine *affine, int64_t n);
    void (*normalize_lanes)(int32_t *y, const int16_t *x, const tw_lanes *lanes,
                            const tw_affine *affine, int64_t n);
};

extern const tw_rows tw_rows_portable;
extern const tw_rows tw_rows_avx2;
extern const tw_rows tw_rows_avx512;

#endif
