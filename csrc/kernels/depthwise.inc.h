/* One output row of a depthwise convolution, a block of channels at a time.
 *
 * The including file defines VECTOR and its functions, BLOCK (channels), BLOCK_VECTORS, GROUP
 * (kernel rows that a step sums), X_BYTES, DOT, and interleave(out, x, rows)  BLOCK channels of
 * `rows` <= GROUP kernel rows, lane by lane store_block(y, codes, bounds, columns)  the inverse
 * order, as bytes
 */

enum { AT_ONCE = 4 }; /* output pixels that share a loaded column */

/* `kernel` and `stride` are constants where this is inlined. */
static inline __attribute__((always_inline)) void
depthwise_pixels(const tw_depthwise_row *row, const unsigned char *weights, int64_t channel,
                 int64_t first, const int pixels, const int kernel_rows, const int kernel_columns,
                 const int stride, const int64_t dilation, int32_t columns) {
    const int groups = (kernel_rows + GROUP - 1) / GROUP;
    const ptrdiff_t tap = (ptrdiff_t)BLOCK_VECTORS * VECTOR_BYTES;
    const unsigned char *tail = weights + kernel_columns * groups * tap;
    const unsigned char *bounds = tail + TW_TAIL_VECTORS * tap;
    const bool is_long = bounds[3 * TW_ALIGNMENT] != 0;
    VECTOR acc[AT_ONCE][BLOCK_VECTORS];
#pragma GCC unroll 4
    for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 4
        for (int v = 0; v < BLOCK_VECTORS; ++v) {
            acc[p][v] = load_vector(tail + v * VECTOR_BYTES);
        }
    }
    /* With dilation 1, column c serves every pixel p with 0 <= c - p*stride < kernel_columns. */
    const int reach = (pixels - 1) * stride + kernel_columns;
#pragma GCC unroll 16
    for (int c = 0; c < reach; ++c) {
        const int64_t at = (first * stride + c * dilation) * row->pixel_bytes + channel * X_BYTES;
#pragma GCC unroll 4
        for (int g = 0; g < groups; ++g) {
            const unsigned char *x[GROUP] = {NULL};
            const int rows = kernel_rows - g * GROUP < GROUP ? kernel_rows - g * GROUP : GROUP;
            VECTOR taps[BLOCK_VECTORS];
#pragma GCC unroll 4
            for (int r = 0; r < rows; ++r) {
                x[r] = row->x[g * GROUP + r] + at;
            }
            interleave(taps, x, rows);
#pragma GCC unroll 4
            for (int p = 0; p < pixels; ++p) {
                const int k = c - p * stride;
                if (k < 0 || k >= kernel_columns) {
                    continue;
                }
                const unsigned char *w = weights + (k * groups + g) * tap;
#pragma GCC unroll 4
                for (int v = 0; v < BLOCK_VECTORS; ++v) {
                    acc[p][v] = DOT(acc[p][v], taps[v], load_vector(w + v * VECTOR_BYTES));
                }
            }
        }
    }
#pragma GCC unroll 4
    for (int p = 0; p < pixels; ++p) {
        VECTOR codes[BLOCK_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < BLOCK_VECTORS; ++v) {
            codes[v] = is_long ? requantize_long(acc[p][v], tail + v * VECTOR_BYTES, tap)
                               : requantize(acc[p][v], tail + v * VECTOR_BYTES, tap);
        }
        store_block(row->y + (first + p) * row->y_stride + channel, codes, bounds, columns);
    }
}

static inline __attribute__((always_inline)) void
depthwise_columns(const tw_depthwise_row *row, const int kernel_rows, const int kernel_columns,
                  const int stride, const int64_t dilation, const int at_once) {
    const int groups = (kernel_rows + GROUP - 1) / GROUP;
    const size_t block = (size_t)(kernel_columns * groups * BLOCK_VECTORS) * VECTOR_BYTES +
                         tw_tail_bytes(LANES, BLOCK_VECTORS);
    const unsigned char *weights = row->weights;
    for (int64_t channel = 0; channel < row->channels; channel += BLOCK, weights += block) {
        const int32_t columns = (int32_t)tw_min(BLOCK, row->channels - channel);
        int64_t at = 0;
        for (; at + at_once <= row->columns; at += at_once) {
            depthwise_pixels(row, weights, channel, at, at_once, kernel_rows, kernel_columns,
                             stride, dilation, columns);
        }
        for (; at < row->columns; ++at) {
            depthwise_pixels(row, weights, channel, at, 1, kernel_rows, kernel_columns, stride,
                             dilation, columns);
        }
    }
}

static void depthwise_3_1(const tw_depthwise_row *row) {
    depthwise_columns(row, 3, 3, 1, 1, PIXELS);
}
static void depthwise_3_2(const tw_depthwise_row *row) {
    depthwise_columns(row, 3, 3, 2, 1, PIXELS);
}
static void depthwise_5_1(const tw_depthwise_row *row) {
    depthwise_columns(row, 5, 5, 1, 1, PIXELS);
}
static void depthwise_5_2(const tw_depthwise_row *row) {
    depthwise_columns(row, 5, 5, 2, 1, PIXELS);
}
static void depthwise_any(const tw_depthwise_row *row) {
    depthwise_columns(row, row->kernel[0], row->kernel[1], row->stride, row->dilation, 1);
}

static void depthwise_row(const tw_depthwise_row *row) {
    const bool square = row->kernel[0] == row->kernel[1] && row->dilation == 1;
    const bool common = row->stride == 1 || row->stride == 2;
    if (square && common && row->kernel[0] == 3) {
        (row->stride == 1 ? depthwise_3_1 : depthwise_3_2)(row);
    } else if (square && common && row->kernel[0] == 5) {
        (row->stride == 1 ? depthwise_5_1 : depthwise_5_2)(row);
    } else {
        depthwise_any(row);
    }
}
