/* Depthwise convolution of centred 16-bit codes: two kernel rows a step with vpmaddwd. */

#include <string.h>

#include "product.h"
#include "simd_avx2.h"

#define DOT(acc, x, w) _mm256_add_epi32(acc, _mm256_madd_epi16(x, w))
#define PIXELS 4

enum { BLOCK = 16, BLOCK_VECTORS = 2, GROUP = 2, X_BYTES = 2 };

/* Vector v, 128-bit lane i holds channels 8*i + 4*v ... + 3, two rows each. */
static inline __attribute__((always_inline)) void
interleave(VECTOR *taps, const unsigned char *const *x, int rows) {
    const VECTOR a = load_vector(x[0]);
    const VECTOR b = rows > 1 ? load_vector(x[1]) : _mm256_setzero_si256();
    taps[0] = _mm256_unpacklo_epi16(a, b);
    taps[1] = _mm256_unpackhi_epi16(a, b);
}

static int32_t channel_of(int32_t vector, int32_t lane) {
    return lane / 4 * 8 + vector * 4 + lane % 4;
}

static inline void store_block(unsigned char *y, const VECTOR *codes, const unsigned char *bounds,
                               int32_t columns) {
    const VECTOR words = _mm256_packs_epi32(codes[0], codes[1]);
    __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    bytes = _mm_max_epu8(bytes, load_half(bounds));
    bytes = _mm_min_epu8(bytes, load_half(bounds + 64));
    bytes = _mm_xor_si128(bytes, load_half(bounds + 128));
    store_some(y, bytes, columns);
}

#include "depthwise.inc.h"

const tw_depthwise_set tw_depthwise_avx2 = {
    .block = BLOCK,
    .lanes = LANES,
    .group = GROUP,
    .x_bytes = X_BYTES,
    .channel = channel_of,
    .row = depthwise_row,
};
