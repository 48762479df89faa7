/* Products of u8 and s8: vpdpbusd, which does not saturate. */

#include <string.h>

#include "product.h"
#include "simd_avx512.h"

#define DOT _mm512_dpbusd_epi32
#define TILES(X) ROWS_8(X, 1) ROWS_8(X, 2) ROWS_8(X, 3) ROWS_6(X, 4)

#include "matrix.inc.h"

const tw_matrix_set tw_matrix_avx512vnni = {
    .lanes = LANES,
    .vectors = 4,
    .rows = {0, 8, 8, 8, 6},
    .depth = 4,
    .x_bytes = 1,
    .accumulator_bytes = 4,
    .finishes = true,
    .tile = run_tile,
};
