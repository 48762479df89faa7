#include "kernel.h"

void *tw_state(tw_prepare *prepare, size_t bytes) {
    void *state = tw_pool_allocate(&prepare->model->pool, bytes);
    prepare->step->state = state;
    return state;
}

tw_status tw_refuse(tw_prepare *prepare, const char *what) {
    return tw_model_fail(prepare->model, TW_ERROR_UNSUPPORTED, "%s (%s): %s", prepare->node->name,
                         prepare->node->layout->name, what);
}

bool tw_is_activation(const tw_tensor *tensor) { return tensor->dtype <= TW_S16; }

bool tw_same_encoding(const tw_tensor *a, const tw_tensor *b) {
    return a->dtype == b->dtype && a->zero_point == b->zero_point && a->scale == b->scale;
}

bool tw_same_shape(const tw_tensor *a, const tw_tensor *b) {
    bool same = a->rank == b->rank;
    for (int32_t i = 0; same && i < a->rank; ++i) {
        same = a->shape[i] == b->shape[i];
    }
    return same;
}

bool tw_is_rescale(int64_t multiplier, int64_t shift) {
    const int64_t limit = INT64_C(1) << 24;
    return multiplier >= -limit && multiplier <= limit && shift >= 1 && shift <= 62;
}

int64_t tw_lowest(int32_t dtype) {
    switch (dtype) {
    case TW_U8:
        return 0;
    case TW_S8:
        return -128;
    case TW_S16:
        return -32767;
    case TW_S32:
        return INT32_MIN;
    default:
        return INT64_MIN;
    }
}

int64_t tw_highest(int32_t dtype) {
    switch (dtype) {
    case TW_U8:
        return 255;
    case TW_S8:
        return 127;
    case TW_S16:
        return 32767;
    case TW_S32:
        return INT32_MAX;
    default:
        return INT64_MAX;
    }
}

bool tw_is_clamp(const tw_tensor *output, int64_t lo, int64_t hi) {
    return lo >= tw_lowest(output->dtype) && lo <= hi && hi <= tw_highest(output->dtype);
}

int64_t tw_reach(const tw_tensor *tensor) {
    return tw_max(tensor->zero_point - tw_lowest(tensor->dtype),
                  tw_highest(tensor->dtype) - tensor->zero_point);
}

bool tw_is_product_bounded(const tw_tensor *a, const tw_tensor *b, int64_t terms,
                           int64_t pre_shift) {
    const bool wide = a->dtype == TW_S16 || b->dtype == TW_S16;
    const int64_t bound = terms * tw_reach(a) * tw_reach(b);
    return bound < INT64_C(1) << (wide ? 47 : 31) && bound >> pre_shift < INT64_C(1) << 38;
}

tw_status tw_check_operands(tw_prepare *prepare, int32_t inputs) {
    if (prepare->node->input_count != inputs || prepare->node->output_count != 1) {
        return tw_refuse(prepare, "the number of its operands is wrong");
    }
    return TW_OK;
}
