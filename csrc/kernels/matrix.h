/* The state of a product that is neither depthwise nor transposed. */

#ifndef TW_MATRIX_H
#define TW_MATRIX_H

#include "product.h"

/* One panel of output channels, all of one group. */
typedef struct tw_panel {
    int64_t group;
    int64_t first; /* output channel */
    int32_t columns;
    int32_t vectors;
    const unsigned char *weights;
    const unsigned char *tail;
} tw_panel;

typedef struct tw_matrix_state {
    tw_product product;
    const tw_matrix_set *set;
    const tw_rows *rows;
    bool direct; /* input rows are read in place */
    bool raw;    /* accumulators are finished by `rows` */
    int64_t item_rows, items_of_image, splits;
    int64_t band_rows, band_columns;
    int64_t pixel_bytes, row_bytes;
    int64_t *taps;
    int64_t tap_count, run, steps; /* input channels and steps of a run */
    tw_panel *panels;
    int64_t panel_count;
    size_t raw_offset; /* of the accumulators in scratch */
} tw_matrix_state;

/* Cut the output channels into panels and pack their weights and epilogues. */
tw_status tw_pack_panels(tw_prepare *prepare, tw_matrix_state *state);

static inline int64_t tw_divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

#endif
