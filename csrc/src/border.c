#include "border.h"

#include <math.h>
#include <string.h>

/* Runs along the last ONNX axis; float values are contiguous there. */
typedef struct tw_walk {
    int32_t rank;
    int64_t extent[TW_MAX_RANK]; /* ONNX axes */
    int64_t step[TW_MAX_RANK];   /* in stored elements, along each of them */
    int64_t runs;
    int64_t run;
    int64_t run_step;
} tw_walk;

static tw_walk walk_of(const tw_border *border, const tw_tensor *tensor) {
    tw_walk walk = {.rank = border->rank, .runs = 1, .run = 1, .run_step = 1};
    int64_t stride = 1;
    for (int32_t i = border->rank - 1; i >= 0; --i) {
        const int64_t axis = border->permutation[i];
        walk.extent[axis] = border->shape[axis];
        walk.step[axis] = stride;
        stride *= border->shape[axis];
    }
    if (walk.rank > 0) {
        walk.run = walk.extent[walk.rank - 1];
        walk.run_step = walk.step[walk.rank - 1];
        walk.runs = tensor->elements / walk.run;
    }
    return walk;
}

/* Stored position of the first element of a run. */
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

static void put_word(unsigned char *codes, int32_t dtype, int64_t i, int64_t code) {
    if (dtype == TW_S32) {
        ((int32_t *)(void *)codes)[i] = (int32_t)code;
    } else {
        ((int64_t *)(void *)codes)[i] = code;
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

/* 8-bit and 16-bit codes, by the vector loop. */
static void quantize_run(const tw_rows *rows, const tw_tensor *tensor, const float *x, int64_t n,
                         unsigned char *codes, int64_t at, int64_t step) {
    const float zero = (float)tensor->zero_point;
    const float lo = lowest_of(tensor->dtype) - zero, hi = highest_of(tensor->dtype) - zero;
    while (n > 0) {
        int32_t values[TW_ROW_BLOCK];
        const int64_t count = n < TW_ROW_BLOCK ? n : TW_ROW_BLOCK;
        rows->quantize(values, x, tensor->scale, lo, hi, tensor->zero_point, count);
        if (tensor->dtype == TW_S16) {
            int16_t *to = (int16_t *)(void *)codes + at;
            for (int64_t i = 0; i < count; ++i) {
                to[i * step] = (int16_t)values[i];
            }
        } else {
            unsigned char *to = codes + at;
            for (int64_t i = 0; i < count; ++i) {
                to[i * step] = (unsigned char)values[i];
            }
        }
        x += count;
        at += count * step;
        n -= count;
    }
}

static void quantize_words(const tw_tensor *tensor, const float *x, int64_t n, unsigned char *codes,
                           int64_t at, int64_t step) {
    const float lo = lowest_of(tensor->dtype), hi = highest_of(tensor->dtype);
    for (int64_t i = 0; i < n; ++i) {
        float q = x[i] / tensor->scale;
        q = isnan(q) ? 0 : q < lo ? lo : q > hi ? hi : q;
        put_word(codes, tensor->dtype, at + i * step, (int64_t)nearbyintf(q));
    }
}

void tw_quantize(const tw_rows *rows, const tw_border *border, const tw_tensor *tensor,
                 const float *values, unsigned char *codes) {
    const tw_walk walk = walk_of(border, tensor);
    for (int64_t r = 0; r < walk.runs; ++r) {
        const float *x = values + r * walk.run;
        const int64_t at = run_start(&walk, r);
        if (tensor->dtype <= TW_S16) {
            quantize_run(rows, tensor, x, walk.run, codes, at, walk.run_step);
        } else {
            quantize_words(tensor, x, walk.run, codes, at, walk.run_step);
        }
    }
}

void tw_dequantize(const tw_border *border, const tw_tensor *tensor, const unsigned char *codes,
                   float *values) {
    const tw_walk walk = walk_of(border, tensor);
    for (int64_t r = 0; r < walk.runs; ++r) {
        float *to = values + r * walk.run;
        const int64_t at = run_start(&walk, r);
        for (int64_t i = 0; i < walk.run; ++i) {
            const int64_t code = get_code(codes, tensor->dtype, at + i * walk.run_step);
            to[i] = (float)(code - tensor->zero_point) * tensor->scale;
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
