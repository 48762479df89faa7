#include "strided.h"

void tw_contiguous_strides(const int64_t *shape, int32_t rank, int64_t *strides) {
    int64_t stride = 1;
    for (int32_t axis = rank - 1; axis >= 0; --axis) {
        strides[axis] = stride;
        stride *= shape[axis];
    }
}

void tw_broadcast_strides(const int64_t *shape, const int64_t *result, int32_t rank,
                          int64_t *strides) {
    tw_contiguous_strides(shape, rank, strides);
    for (int32_t axis = 0; axis < rank; ++axis) {
        if (shape[axis] != result[axis] || shape[axis] == 1) {
            strides[axis] = 0;
        }
    }
}

static bool merges(const tw_box *box, int32_t outer, int32_t inner) {
    for (int32_t i = 0; i < box->operands; ++i) {
        if (box->stride[i][outer] != box->stride[i][inner] * box->extent[inner]) {
            return false;
        }
    }
    return true;
}

static void copy_axis(tw_box *box, int32_t to, int32_t from) {
    box->extent[to] = box->extent[from];
    for (int32_t i = 0; i < box->operands; ++i) {
        box->stride[i][to] = box->stride[i][from];
    }
}

void tw_fold_box(tw_box *box, int64_t block) {
    int32_t kept = 0;
    for (int32_t axis = 0; axis < box->rank; ++axis) {
        if (box->extent[axis] == 1) {
            continue;
        }
        if (kept > 0 && merges(box, kept - 1, axis)) {
            const int64_t extent = box->extent[kept - 1] * box->extent[axis];
            copy_axis(box, kept - 1, axis);
            box->extent[kept - 1] = extent;
        } else {
            copy_axis(box, kept++, axis);
        }
    }
    /* Rows are contiguous in the output: where they are not, a row is one element. */
    if (kept == 0 || box->stride[0][kept - 1] != 1) {
        box->extent[kept] = 1;
        for (int32_t i = 0; i < box->operands; ++i) {
            box->stride[i][kept] = 1;
        }
        ++kept;
    }
    box->rank = kept;
    box->outer = 1;
    for (int32_t axis = 0; axis < kept - 1; ++axis) {
        box->outer *= box->extent[axis];
    }
    const int64_t last = box->extent[kept - 1];
    box->block = tw_min(block, last);
    box->blocks = (last + box->block - 1) / box->block;
}

int64_t tw_box_item(const tw_box *box, int64_t item, int64_t *offsets) {
    const int32_t last = box->rank - 1;
    const int64_t start = item % box->blocks * box->block;
    int64_t rest = item / box->blocks;
    for (int32_t i = 0; i < box->operands; ++i) {
        offsets[i] = start * box->stride[i][last];
    }
    for (int32_t axis = last - 1; axis >= 0; --axis) {
        const int64_t at = rest % box->extent[axis];
        rest /= box->extent[axis];
        for (int32_t i = 0; i < box->operands; ++i) {
            offsets[i] += at * box->stride[i][axis];
        }
    }
    return tw_min(box->block, box->extent[last] - start);
}
