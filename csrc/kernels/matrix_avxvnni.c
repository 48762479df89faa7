/* Products of u8 and s8 in 256 bits: vpdpbusd, which does not saturate. */

#include <string.h>

#include "product.h"
#include "simd_avx2.h"

#define DOT _mm256_dpbusd_avx_epi32
#define TILES(X) ROWS_8(X, 1) ROWS_6(X, 2)

#include "matrix.inc.h"

const tw_matrix_set tw_matrix_avxvnni = {
    .lanes = LANES,
    .vectors = 2,
    .rows = {0, 8, 6},
    .depth = 4,
    .x_bytes = 1,
    .accumulator_bytes = 4,
    .finishes = true,
    .tile = run_tile,
};
