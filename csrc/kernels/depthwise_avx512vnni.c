/* Depthwise convolution: four kernel rows a step with vpdpbusd. */

#include <string.h>

#include "product.h"
#include "simd_avx512.h"

#define DOT _mm512_dpbusd_epi32
#define PIXELS 4

enum { BLOCK = 64, BLOCK_VECTORS = 4, GROUP = 4, X_BYTES = 1 };

/* Vector v, 128-bit lane i holds channels 16*i + 4*v ... + 3, four rows each. */
static inline __attribute__((always_inline)) void
interleave(VECTOR *taps, const unsigned char *const *x, int rows) {
    const VECTOR zero = _mm512_setzero_si512();
    const VECTOR a = load_vector(x[0]), b = rows > 1 ? load_vector(x[1]) : zero;
    const VECTOR low = _mm512_unpacklo_epi8(a, b), high = _mm512_unpackhi_epi8(a, b);
    VECTOR more_low = zero, more_high = zero;
    if (rows > 2) {
        const VECTOR c = load_vector(x[2]), d = rows > 3 ? load_vector(x[3]) : zero;
        more_low = _mm512_unpacklo_epi8(c, d);
        more_high = _mm512_unpackhi_epi8(c, d);
    }
    taps[0] = _mm512_unpacklo_epi16(low, more_low);
    taps[1] = _mm512_unpackhi_epi16(low, more_low);
    taps[2] = _mm512_unpacklo_epi16(high, more_high);
    taps[3] = _mm512_unpackhi_epi16(high, more_high);
}

static int32_t channel_of(int32_t vector, int32_t lane) {
    return lane / 4 * 16 + vector * 4 + lane % 4;
}

static inline void store_block(unsigned char *y, const VECTOR *codes, const unsigned char *bounds,
                               int32_t columns) {
    const VECTOR bytes = _mm512_packus_epi16(_mm512_packs_epi32(codes[0], codes[1]),
                                             _mm512_packs_epi32(codes[2], codes[3]));
    store_some(y, clamp_bytes(bytes, bounds), columns);
}

#include "depthwise.inc.h"

const tw_depthwise_set tw_depthwise_avx512vnni = {
    .block = BLOCK,
    .lanes = LANES,
    .group = GROUP,
    .x_bytes = X_BYTES,
    .channel = channel_of,
    .row = depthwise_row,
};
