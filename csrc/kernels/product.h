/* Products with constant weights: what Conv and Dense share.
 *
 * A product is a convolution; a dense layer is one of 1x1 pixels.  It is cut into items, each a few
 * output rows times a few panels of output channels.  An item's input rows are used in place where
 * the instruction set reads codes as they are and nothing is padded, else copied to a padded band.
 * A tile, the product of a few pixels and one panel, is the instruction set's own. */

#ifndef TW_PRODUCT_H
#define TW_PRODUCT_H

#include "kernel.h"

enum {
    TW_TILE_ROWS = 8,
    TW_TILE_VECTORS = 4,
    TW_TAIL_VECTORS = 8,               /* of a panel's epilogue, for each vector of channels */
    TW_BOUND_BYTES = 4 * TW_ALIGNMENT, /* lower and upper clamps, sign flips, whether it is long */
};

typedef struct tw_product {
    int64_t images, in_rows, in_columns, in_channels;
    int64_t out_rows, out_columns, out_channels;
    int64_t groups;
    int64_t kernel[2], stride[2], dilation[2], pad[2];
    int32_t x_type, x_zero, y_type, y_zero;
    int32_t weight_kind, weight_zero;
    const void *weight; /* [out_channels, kernel rows, kernel columns, in_channels / groups] */
    const tw_channel_record *channels;
    const int16_t *table;
    int32_t pre_shift, table_multiplier, table_shift;
    bool wide;          /* an operand has 16 bits: accumulators have 64 */
    int64_t weight_low; /* smallest and largest weight less its zero point */
    int64_t weight_high;
    bool plain_tail; /* the vector epilogue is exact: 8-bit output, no table, results fit 32 bits */
    const int64_t *bounds; /* of each channel's accumulator */
} tw_product;

/* A few pixels times one panel of output channels. */
typedef struct tw_tile {
    const unsigned char *x[TW_TILE_ROWS]; /* first byte of each pixel's patch */
    const int64_t *taps;                  /* byte offsets of the runs of a patch */
    int64_t tap_count;
    int64_t steps; /* of a run */
    const unsigned char *weights;
    const unsigned char *tail; /* biases, then the epilogue's vectors */
    int32_t rows;
    int32_t vectors;
    int32_t columns; /* output channels that are stored */
    unsigned char *y;
    int64_t y_stride; /* bytes from one pixel to the next */
    void *raw;        /* accumulators [rows, vectors * lanes], or NULL to finish them in place */
} tw_tile;

typedef struct tw_matrix_set {
    int32_t lanes;                     /* output channels in a vector */
    int32_t vectors;                   /* of the widest panel */
    int32_t rows[TW_TILE_VECTORS + 1]; /* pixels of a tile, by the panel's vectors */
    int32_t depth;                     /* input channels of a step */
    int32_t x_bytes;                   /* 1: codes as u8; 2: s16 less the zero point */
    int32_t accumulator_bytes;
    bool finishes; /* has an epilogue of its own */
    void (*tile)(const tw_tile *tile);
} tw_matrix_set;

/* Depthwise: rows of one output row are `kernel rows` band rows. */
typedef struct tw_depthwise_row {
    const unsigned char *const *x; /* band rows, one for each kernel row */
    unsigned char *y;
    int64_t pixel_bytes; /* of the band */
    int64_t y_stride;    /* bytes from one output pixel to the next */
    int64_t columns;
    int64_t channels; /* from those that `x` and `y` point to on */
    int32_t kernel[2];
    int32_t stride; /* columns, in pixels */
    int32_t dilation;
    const unsigned char *weights; /* blocks of channels: weights, biases, epilogue */
} tw_depthwise_row;

typedef struct tw_depthwise_set {
    int32_t block; /* output channels in a block */
    int32_t lanes;
    int32_t group; /* kernel rows that one step sums */
    int32_t x_bytes;
    /* channel, within a block, of lane `lane` of vector `vector` */
    int32_t (*channel)(int32_t vector, int32_t lane);
    void (*row)(const tw_depthwise_row *row);
} tw_depthwise_set;

extern const tw_matrix_set tw_matrix_portable32, tw_matrix_portable64;
extern const tw_matrix_set tw_matrix_avx2, tw_matrix_avxvnni, tw_matrix_avx512vnni;
extern const tw_depthwise_set tw_depthwise_avx2, tw_depthwise_avxvnni, tw_depthwise_avx512vnni,
    tw_depthwise_half_avx512vnni;

/* Check types, weights and epilogue of `product`, and prove its accumulator. */
tw_status tw_check_product(tw_prepare *prepare, tw_product *product, const tw_constant *channels,
                           const tw_constant *weight, const tw_constant *table,
                           int64_t weight_type);

/* Turn a checked product into a step. */
tw_status tw_plan_matrix(tw_prepare *prepare, const tw_product *product);
tw_status tw_plan_depthwise(tw_prepare *prepare, const tw_product *product);

/* Weight `index` less its zero point. */
int32_t tw_weight(const tw_product *product, int64_t index);
int64_t tw_bias(const tw_channel_record *channel);

/* The bias of a channel with, for codes that are not centred (x_bytes 1), what the zero point adds.
 */
int64_t tw_folded_bias(const tw_product *product, int64_t channel, int32_t x_bytes);

/* The epilogue of vectors of channels, as `requantize` of the vector kernels reads it. */
size_t tw_tail_bytes(int32_t lanes, int32_t vectors);
void tw_pack_tail(unsigned char *tail, int32_t lanes, int32_t vectors, const tw_product *product,
                  const int64_t *channels, const int64_t *biases);

/* Whether the vector epilogue is exact for a channel whose accumulator stays within `bound`. */
bool tw_fits_tail(const tw_channel_record *channel, int64_t bound);

/* Copies input rows [first, first + rows) and columns [first_column, ...) of one image into a band,
 * padded with the code that counts as nothing. */
typedef struct tw_band {
    const tw_rows *loops;
    const unsigned char *image;
    int64_t in_rows, in_columns, in_channels;
    int64_t first_row, first_column;
    int64_t rows, columns;
    int32_t x_type, x_zero;
    int32_t x_bytes; /* as in tw_matrix_set */
    unsigned char *band;
} tw_band;

void tw_fill_band(const tw_band *band);

#endif
