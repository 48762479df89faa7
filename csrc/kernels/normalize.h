/* What the normalisations share: the root of a group's squares and the affine end. */

#ifndef TW_NORMALIZE_H
#define TW_NORMALIZE_H

#include "kernel.h"

typedef struct tw_norm {
    const tw_rows *rows;
    int64_t factor; /* elements of a group; 1 for L2 */
    int64_t epsilon;
    int32_t top; /* fraction where the squares add up to 1 */
    bool centred;
    bool fast; /* tw_rows.normalize takes every group */
    int32_t x_type, x_zero, y_type;
    const tw_affine_record *gains;
    bool one_gain;    /* for all elements */
    tw_affine affine; /* without its arrays */
} tw_norm;

/* Fields that all normalisations have. */
typedef struct tw_norm_fields {
    int64_t epsilon;
    int64_t shift;
    const int64_t *clamp;
    const tw_constant *gains;
} tw_norm_fields;

/* Memory for the arrays of a tw_affine. */
typedef struct tw_gains {
    int32_t *gain;
    int64_t *offset[2];
} tw_gains;

/* Check operands and fields, and fill in all but `factor`, `top` and `centred`, which are read.
 * `count`: elements of a group; `gains`: those with a record, unless there is one for all. */
tw_status tw_prepare_norm(tw_prepare *prepare, tw_norm *norm, const tw_norm_fields *fields,
                          int64_t count, int64_t gains);

/* From the sum and the sum of squares of a group. */
tw_quotient tw_norm_quotient(const tw_norm *norm, int64_t sum, int64_t squares);

/* The affine end of `n` elements from `first` on, `repeat` times, in `memory`. */
tw_affine tw_norm_affine(const tw_norm *norm, const tw_gains *memory, int64_t first, int64_t n,
                         int64_t repeat);

/* The part of an affine end from an even element on. */
static inline tw_affine tw_affine_from(const tw_affine *affine, int64_t first) {
    tw_affine part = *affine;
    part.gain += first;
    part.offset[0] += first / 2;
    part.offset[1] += first / 2;
    return part;
}

/* Element i at `affine`, whatever its size: what tw_rows.normalize does where `fast` is set. */
int32_t tw_norm_element(int16_t x, const tw_quotient *group, const tw_affine *affine, int64_t i);

/* Elements of an array that vectors may read. */
static inline size_t tw_norm_room(int64_t n) {
    return (size_t)(n + 2 * TW_ROW_LANES - 1) / TW_ROW_LANES * TW_ROW_LANES;
}

#endif
