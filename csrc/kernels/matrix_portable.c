/* Products of centred codes in plain C, with 32-bit or 64-bit accumulators. */

#include "product.h"

enum { WIDTH = 16 };

#define TILE_FUNCTION(name, type)                                                                  \
    static void name(const tw_tile *tile) {                                                        \
        const int64_t *biases = (const int64_t *)(const void *)tile->tail;                         \
        for (int32_t m = 0; m < tile->rows; ++m) {                                                 \
            type acc[WIDTH];                                                                       \
            const int16_t *w = (const int16_t *)(const void *)tile->weights;                       \
            for (int32_t c = 0; c < WIDTH; ++c) {                                                  \
                acc[c] = (type)biases[c];                                                          \
            }                                                                                      \
            for (int64_t t = 0; t < tile->tap_count; ++t) {                                        \
                const int16_t *x = (const int16_t *)(const void *)(tile->x[m] + tile->taps[t]);    \
                for (int64_t s = 0; s < tile->steps; ++s, w += WIDTH) {                            \
                    for (int32_t c = 0; c < WIDTH; ++c) {                                          \
                        acc[c] += (type)x[s] * w[c];                                               \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
            type *raw = (type *)tile->raw + m * WIDTH;                                             \
            for (int32_t c = 0; c < WIDTH; ++c) {                                                  \
                raw[c] = acc[c];                                                                   \
            }                                                                                      \
        }                                                                                          \
    }
TILE_FUNCTION(tile32, int32_t)
TILE_FUNCTION(tile64, int64_t)

const tw_matrix_set tw_matrix_portable32 = {
    .lanes = WIDTH,
    .vectors = 1,
    .rows = {0, TW_TILE_ROWS},
    .depth = 1,
    .x_bytes = 2,
    .accumulator_bytes = 4,
    .tile = tile32,
};

const tw_matrix_set tw_matrix_portable64 = {
    .lanes = WIDTH,
    .vectors = 1,
    .rows = {0, TW_TILE_ROWS},
    .depth = 1,
    .x_bytes = 2,
    .accumulator_bytes = 8,
    .tile = tile64,
};
