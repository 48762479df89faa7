/* Products of centred 8-bit codes as 16-bit pairs: vpmaddwd, whose sums fit 32 bits. */

#include <string.h>

#include "product.h"
#include "simd_avx2.h"

#define DOT(acc, x, w) _mm256_add_epi32(acc, _mm256_madd_epi16(x, w))
#define TILES(X) ROWS_8(X, 1) ROWS_6(X, 2)

#include "matrix.inc.h"

const tw_matrix_set tw_matrix_avx2 = {
    .lanes = LANES,
    .vectors = 2,
    .rows = {0, 8, 6},
    .depth = 2,
    .x_bytes = 2,
    .accumulator_bytes = 4,
    .finishes = true,
    .tile = run_tile,
};
