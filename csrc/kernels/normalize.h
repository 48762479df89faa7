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
    tw_affine affine;
} tw_norm;

/* Fields that all normalisations have. */
typedef struct tw_norm_fields {
    int64_t epsilon;
    int64_t shift;
    const int64_t *clamp;
    const tw_constant *gains;
} tw_norm_fields;

/* Check operands and fields, and fill in all but `factor`, `top` and `centred`, which are read.
 * `count`: elements of a group; `lanes`: gains that the kernel reads, all the same where the file
 * has one. */
tw_status tw_prepare_norm(tw_prepare *prepare, tw_norm *norm, const tw_norm_fields *fields,
                          int64_t count, int64_t lanes);

/* From the sum and the sum of squares of a group. */
tw_quotient tw_norm_quotient(const tw_norm *norm, int64_t sum, int64_t squares);

/* n elements at `affine`, of one group and of a group each. */
void tw_norm_run(const tw_norm *norm, unsigned char *y, const int16_t *x, const tw_quotient *group,
                 const tw_affine *affine, int64_t n);
void tw_norm_lanes(const tw_norm *norm, unsigned char *y, const int16_t *x,
                   const tw_quotient *groups, const tw_affine *affine, int64_t n);

/* The part of the gains from `first` on. */
static inline tw_affine tw_affine_from(const tw_affine *affine, int64_t first) {
    tw_affine part = *affine;
    part.gain += first;
    part.offset += first;
    return part;
}

#endif
