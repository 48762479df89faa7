#include "border.h"

#include <math.h>
#include <string.h>

/* Calls for runs of the last stored axis; `value` is the ONNX position of the run's first element.
 */
typedef struct tw_walk {
    int32_t rank;
    int64_t extent[TW_MAX_RANK];
    int64_t step[TW_MAX_RANK]; /* in ONNX elements, along each stored axis */
    int64_t runs;
    int64_t run;
} tw_walk;

static tw_walk walk_of(const tw_border *border, const tw_tensor *tensor) {
    tw_walk walk = {.rank = border->rank, .runs = 1, .run = 1};
    int64_t strides[TW_MAX_RANK];
    int64_t stride = 1;
    for (int32_t axis = border->rank - 1; axis >= 0; --axis) {
        strides[axis] = stride;
        stride *= border->shape[axis];
    }
    for (int32_t i = 0; i < border->rank; ++i) {
        walk.extent[i] = tensor->shape[i];
        walk.step[i] = strides[border->permutation[i]];
    }
    if (walk.rank > 0) {
        walk.run = walk.extent[walk.rank - 1];
        walk.runs = tensor->elements / walk.run;
    }
    return walk;
}

static int64_t run_start(const tw_walk *walk, int64_t run) {
    int64_t at = 0;
    for (int32_t axis = walk->rank - 2; axis >= 0; --axis) {
        at += run % walk->extent[axis] * walk->step[axis];
        run /= walk->extent[axis];
    }
    return at;
}

static int64_t get_code(const unsigned char *codes, int32_t dtype, int64_t i) {
    switch (dtype) {
    case TW_U8:
        return codes[i];
    case TW_S8:
        return ((const int8_t *)codes)[i];
    case TW_S16:
        return ((const int16_t *)(const void *)codes)[i];
    case TW_S32:
        return ((const int32_t *)(const void *)codes)[i];
    default:
        return ((const int64_t *)(const void *)codes)[i];
    }
}

static void put_code(unsigned char *codes, int32_t dtype, int64_t i, int64_t code) {
    switch (dtype) {
    case TW_U8:
    case TW_S8:
        codes[i] = (unsigned char)code;
        break;
    case TW_S16:
        ((int16_t *)(void *)codes)[i] = (int16_t)code;
        break;
    case TW_S32:
        ((int32_t *)(void *)codes)[i] = (int32_t)code;
        break;
    default:
        ((int64_t *)(void *)codes)[i] = code;
        break;
    }
}

static float lowest_of(int32_t dtype) {
    static const float lowest[TW_DTYPES] = {0, -128, -32767, -2147483648.0F,
                                            -9223372036854775808.0F};
    return lowest[dtype];
}

static float highest_of(int32_t dtype) {
    /* The largest floats below 2**31 and 2**63. */
    static const float highest[TW_DTYPES] = {255, 127, 32767, 2147483520.0F,
                                             9223371487098961920.0F};
    return highest[dtype];
}

void tw_quantize(const tw_border *border, const tw_tensor *tensor, const float *values,
                 unsigned char *codes) {
    const tw_walk walk = walk_of(border, tensor);
    const float zero = (float)tensor->zero_point;
    const float lo = lowest_of(tensor->dtype) - zero, hi = highest_of(tensor->dtype) - zero;
    const int64_t step = walk.rank > 0 ? walk.step[walk.rank - 1] : 1;
    for (int64_t r = 0; r < walk.runs; ++r) {
        const float *from = values + run_start(&walk, r);
        for (int64_t i = 0; i < walk.run; ++i) {
            float q = from[i * step] / tensor->scale;
            q = isnan(q) ? 0 : q < lo ? lo : q > hi ? hi : q;
            put_code(codes, tensor->dtype, r * walk.run + i,
                     (int64_t)nearbyintf(q) + tensor->zero_point);
        }
    }
}

void tw_dequantize(const tw_border *border, const tw_tensor *tensor, const unsigned char *codes,
                   float *values) {
    const tw_walk walk = walk_of(border, tensor);
    const int64_t step = walk.rank > 0 ? walk.step[walk.rank - 1] : 1;
    for (int64_t r = 0; r < walk.runs; ++r) {
        float *to = values + run_start(&walk, r);
        for (int64_t i = 0; i < walk.run; ++i) {
            const int64_t code = get_code(codes, tensor->dtype, r * walk.run + i);
            to[i * step] = (float)(code - tensor->zero_point) * tensor->scale;
        }
    }
}

size_t tw_picture_bytes(const tw_border *border, const tw_tensor *tensor) {
    return (size_t)(tensor->shape[0] * tensor->shape[1] * tensor->shape[2]) *
           (size_t)border->pixel_channels;
}

void tw_look_up_pixels(const tw_border *border, const tw_tensor *tensor, const uint8_t *pixels,
                       unsigned char *codes) {
    const int64_t channels = tensor->shape[3];
    const int64_t count = tensor->elements / channels;
    const size_t size = tw_dtype_bytes(tensor->dtype);
    const unsigned char *table = border->pixel_table;
    for (int64_t i = 0; i < count; ++i) {
        const uint8_t *pixel = pixels + i * border->pixel_channels;
        for (int64_t c = 0; c < channels; ++c) {
            const int64_t entry = pixel[border->pixel_sources[c]] * channels + c;
            memcpy(codes + (size_t)(i * channels + c) * size, table + (size_t)entry * size, size);
        }
    }
}
