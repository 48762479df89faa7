/* A tile of a product.  The including file defines VECTOR and its functions, DOT(acc, x, w), which
 * adds the products of a step (four bytes of x) to each lane, and TILES, the list of tile sizes. */

#define ROWS_3(X, vectors) X(1, vectors) X(2, vectors) X(3, vectors)
#define ROWS_6(X, vectors) ROWS_3(X, vectors) X(4, vectors) X(5, vectors) X(6, vectors)
#define ROWS_8(X, vectors) ROWS_6(X, vectors) X(7, vectors) X(8, vectors)

/* `rows` and `vectors` are constants where this is inlined, so that the accumulators are registers.
 */
static inline __attribute__((always_inline)) void
accumulate(const tw_tile *tile, const int rows, const int vectors, VECTOR acc[][TW_TILE_VECTORS]) {
    const ptrdiff_t stride = (ptrdiff_t)vectors * VECTOR_BYTES;
    const unsigned char *w = tile->weights;
    for (int64_t t = 0; t < tile->tap_count; ++t) {
        const unsigned char *x[TW_TILE_ROWS];
        const int64_t tap = tile->taps[t];
#pragma GCC unroll 8
        for (int m = 0; m < rows; ++m) {
            x[m] = tile->x[m] + tap;
        }
        for (int64_t s = 0; s < tile->steps; ++s) {
            VECTOR panel[TW_TILE_VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) {
                panel[v] = load_vector(w + v * VECTOR_BYTES);
            }
            w += stride;
#pragma GCC unroll 8
            for (int m = 0; m < rows; ++m) {
                const VECTOR pixel = broadcast(x[m] + 4 * s);
#pragma GCC unroll 4
                for (int v = 0; v < vectors; ++v) {
                    acc[m][v] = DOT(acc[m][v], pixel, panel[v]);
                }
            }
        }
    }
}

static inline __attribute__((always_inline)) void product_tile(const tw_tile *tile, const int rows,
                                                               const int vectors) {
    const ptrdiff_t stride = (ptrdiff_t)vectors * VECTOR_BYTES;
    VECTOR acc[TW_TILE_ROWS][TW_TILE_VECTORS];
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
            acc[m][v] = load_vector(tile->tail + v * VECTOR_BYTES);
        }
    }
    accumulate(tile, rows, vectors, acc);
    if (tile->raw != NULL) {
        int32_t *raw = tile->raw;
#pragma GCC unroll 8
        for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) {
                store_vector(raw + (m * vectors + v) * LANES, acc[m][v]);
            }
        }
        return;
    }
    const unsigned char *bounds = tile->tail + TW_TAIL_VECTORS * stride;
    const bool is_long = bounds[3 * TW_ALIGNMENT] != 0;
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m) {
        VECTOR codes[TW_TILE_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
            const unsigned char *tail = tile->tail + v * VECTOR_BYTES;
            codes[v] = is_long ? requantize_long(acc[m][v], tail, stride)
                               : requantize(acc[m][v], tail, stride);
        }
        store_columns(tile->y + m * tile->y_stride, codes, vectors, bounds, tile->columns);
    }
}

#define TILE_FUNCTION(rows, vectors)                                                               \
    static void tile_##rows##_##vectors(const tw_tile *tile) { product_tile(tile, rows, vectors); }
TILES(TILE_FUNCTION)

#define TILE_ENTRY(rows, vectors) [vectors][rows] = tile_##rows##_##vectors,

static void run_tile(const tw_tile *tile) {
    static void (*const functions[TW_TILE_VECTORS + 1][TW_TILE_ROWS + 1])(const tw_tile *) = {
        TILES(TILE_ENTRY)};
    functions[tile->vectors][tile->rows](tile);
}
