/* Walks over strided boxes of elements, in rows. */

#ifndef TW_STRIDED_H
#define TW_STRIDED_H

#include "kernel.h"

enum { TW_STRIDED_OPERANDS = 5 };

/* A box in stored order of the output, with the step of each operand, in elements, along each axis.
 * Neighbouring axes are merged where every operand allows it; the last axis is cut into blocks. */
typedef struct tw_box {
    int32_t rank;
    int32_t operands;
    int64_t extent[TW_MAX_RANK];
    int64_t stride[TW_STRIDED_OPERANDS][TW_MAX_RANK];
    int64_t outer; /* product of all extents but the last */
    int64_t block; /* elements of the last axis that are done at once */
    int64_t blocks;
} tw_box;

/* Strides of a tensor of this shape over the axes of a result of the same rank: 0 where it repeats.
 */
void tw_broadcast_strides(const int64_t *shape, const int64_t *result, int32_t rank,
                          int64_t *strides);
void tw_contiguous_strides(const int64_t *shape, int32_t rank, int64_t *strides);

/* Merge axes and choose blocks of the last, along which operand 0 is contiguous afterwards. */
void tw_fold_box(tw_box *box, int64_t block);

static inline int64_t tw_box_items(const tw_box *box) { return box->outer * box->blocks; }

/* Where item `item` begins, in elements of each operand, and how many elements it has. */
int64_t tw_box_item(const tw_box *box, int64_t item, int64_t *offsets);

#endif
