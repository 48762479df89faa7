/* Depthwise convolution in 256 bits, four kernel rows a step; the including file defines DOT. */

#include <string.h>

#include "product.h"
#include "simd_avx2.h"

#define PIXELS 2

enum { BLOCK = 32, BLOCK_VECTORS = 4, GROUP = 4, X_BYTES = 1 };

/* Vector v, 128-bit lane i holds channels 16*i + 4*v ... + 3, four rows each. */
static inline __attribute__((always_inline)) void
interleave(VECTOR *taps, const unsigned char *const *x, int rows) {
    const VECTOR zero = _mm256_setzero_si256();
    const VECTOR a = load_vector(x[0]), b = rows > 1 ? load_vector(x[1]) : zero;
    const VECTOR low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
    VECTOR more_low = zero, more_high = zero;
    if (rows > 2) {
        const VECTOR c = load_vector(x[2]), d = rows > 3 ? load_vector(x[3]) : zero;
        more_low = _mm256_unpacklo_epi8(c, d);
        more_high = _mm256_unpackhi_epi8(c, d);
    }
    taps[0] = _mm256_unpacklo_epi16(low, more_low);
    taps[1] = _mm256_unpackhi_epi16(low, more_low);
    taps[2] = _mm256_unpacklo_epi16(high, more_high);
    taps[3] = _mm256_unpackhi_epi16(high, more_high);
}

static int32_t channel_of(int32_t vector, int32_t lane) {
    return lane / 4 * 16 + vector * 4 + lane % 4;
}

static inline void store_block(unsigned char *y, const VECTOR *codes, const unsigned char *bounds,
                               int32_t columns) {
    VECTOR bytes = _mm256_packus_epi16(_mm256_packs_epi32(codes[0], codes[1]),
                                       _mm256_packs_epi32(codes[2], codes[3]));
    bytes = _mm256_max_epu8(bytes, load_vector(bounds));
    bytes = _mm256_min_epu8(bytes, load_vector(bounds + 64));
    bytes = _mm256_xor_si256(bytes, load_vector(bounds + 128));
    if (columns == BLOCK) {
        store_vector(y, bytes);
    } else {
        unsigned char all[BLOCK];
        store_vector(all, bytes);
        memcpy(y, all, (size_t)columns);
    }
}

#include "depthwise.inc.h"
