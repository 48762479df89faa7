/* 256-bit vectors for the templates. */

#ifndef TW_SIMD_AVX2_H
#define TW_SIMD_AVX2_H

#include <immintrin.h>

#define VECTOR __m256i
#define LANES 8
#define VECTOR_BYTES 32

static inline VECTOR load_vector(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
static inline void store_vector(void *p, VECTOR v) { _mm256_storeu_si256((__m256i *)p, v); }
static inline VECTOR broadcast(const void *p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return _mm256_set1_epi32(word);
}

static inline VECTOR all32(int32_t v) { return _mm256_set1_epi32(v); }
static inline VECTOR all64(int64_t v) { return _mm256_set1_epi64x(v); }
static inline VECTOR load_words(const int16_t *p) {
    return _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline VECTOR add32(VECTOR a, VECTOR b) { return _mm256_add_epi32(a, b); }
static inline VECTOR subtract32(VECTOR a, VECTOR b) { return _mm256_sub_epi32(a, b); }
static inline VECTOR multiply32(VECTOR a, VECTOR b) { return _mm256_mullo_epi32(a, b); }
static inline VECTOR min32(VECTOR a, VECTOR b) { return _mm256_min_epi32(a, b); }
static inline VECTOR max32(VECTOR a, VECTOR b) { return _mm256_max_epi32(a, b); }
/* Sums of two neighbouring products of 16-bit elements. */
static inline VECTOR multiply_add16(VECTOR a, VECTOR b) { return _mm256_madd_epi16(a, b); }
static inline VECTOR and_bits(VECTOR a, VECTOR b) { return _mm256_and_si256(a, b); }
static inline VECTOR add64(VECTOR a, VECTOR b) { return _mm256_add_epi64(a, b); }
static inline VECTOR shift_right64(VECTOR a, int n) { return _mm256_srli_epi64(a, n); }
static inline VECTOR shift_right_each64(VECTOR a, VECTOR n) { return _mm256_srlv_epi64(a, n); }

/* 64-bit products of elements 0, 2, ... */
static inline VECTOR multiply_even(VECTOR a, VECTOR b) { return _mm256_mul_epi32(a, b); }
static inline VECTOR odd_to_even(VECTOR a) { return _mm256_shuffle_epi32(a, 0xF5); }
/* The low halves of both in turn. */
static inline VECTOR interleaved(VECTOR even, VECTOR odd) {
    return _mm256_blend_epi32(even, _mm256_shuffle_epi32(odd, 0xA0), 0xAA);
}

static inline VECTOR repeat_word(int32_t word) { return _mm256_set1_epi32(word); }
static inline VECTOR repeat_pair(int64_t pair) { return _mm256_set1_epi64x(pair); }
static inline VECTOR sum_of_words(VECTOR a, VECTOR b) { return _mm256_add_epi32(a, b); }

/* R24 of 32-bit lanes, all alike; see tw_scaling. */
static inline VECTOR scale_words(VECTOR x, VECTOR multiplier, VECTOR half, VECTOR rest) {
    const VECTOR even = _mm256_add_epi64(_mm256_mul_epi32(x, multiplier), half);
    const VECTOR odd =
        _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(x, 32), multiplier), half);
    return _mm256_srav_epi32(_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA), rest);
}

/* At most `count` lanes, saturated to [-32767, 32767]. */
static inline void store_scores(int16_t *y, VECTOR x, int64_t count) {
    const VECTOR packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(x, x), 0xD8);
    const __m128i words = _mm_max_epi16(_mm256_castsi256_si128(packed), _mm_set1_epi16(-32767));
    if (count >= LANES) {
        _mm_storeu_si128((__m128i *)(void *)y, words);
    } else {
        int16_t all[LANES];
        _mm_storeu_si128((__m128i *)(void *)all, words);
        memcpy(y, all, (size_t)count * sizeof *y);
    }
}

/* R24 of 32-bit lanes and the zero point; see tail.c. */
static inline VECTOR requantize(VECTOR acc, const unsigned char *tail, ptrdiff_t stride) {
    VECTOR even = _mm256_mul_epi32(acc, load_vector(tail + stride));
    VECTOR odd = _mm256_mul_epi32(_mm256_srli_epi64(acc, 32), load_vector(tail + 2 * stride));
    even = _mm256_add_epi64(even, load_vector(tail + 3 * stride));
    odd = _mm256_add_epi64(odd, load_vector(tail + 4 * stride));
    const VECTOR upper = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    return _mm256_srav_epi32(upper, load_vector(tail + 5 * stride));
}

/* The same for any shift. */
static inline VECTOR requantize_long(VECTOR acc, const unsigned char *tail, ptrdiff_t stride) {
    VECTOR even = _mm256_mul_epi32(acc, load_vector(tail + stride));
    VECTOR odd = _mm256_mul_epi32(_mm256_srli_epi64(acc, 32), load_vector(tail + 2 * stride));
    even = _mm256_add_epi64(even, load_vector(tail + 3 * stride));
    odd = _mm256_add_epi64(odd, load_vector(tail + 4 * stride));
    even = _mm256_srlv_epi64(even, load_vector(tail + 5 * stride));
    odd = _mm256_srlv_epi64(odd, load_vector(tail + 6 * stride));
    const VECTOR merged = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
    return _mm256_add_epi32(merged, load_vector(tail + 7 * stride));
}

static inline void store_some(unsigned char *y, __m128i bytes, int32_t columns) {
    if (columns == 16) {
        _mm_storeu_si128((__m128i *)(void *)y, bytes);
    } else if (columns == 8) {
        _mm_storel_epi64((__m128i *)(void *)y, bytes);
    } else {
        unsigned char all[16];
        _mm_storeu_si128((__m128i *)(void *)all, bytes);
        memcpy(y, all, (size_t)columns);
    }
}

static inline __m128i load_half(const void *p) { return _mm_loadu_si128((const __m128i *)p); }

/* Vectors of consecutive channels to bytes. */
static inline void store_columns(unsigned char *y, const VECTOR *r, int vectors,
                                 const unsigned char *bounds, int32_t columns) {
    const VECTOR mixed = _mm256_packs_epi32(r[0], r[vectors > 1 ? 1 : 0]);
    const VECTOR words = _mm256_permute4x64_epi64(mixed, 0xD8);
    __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    bytes = _mm_max_epu8(bytes, load_half(bounds));
    bytes = _mm_min_epu8(bytes, load_half(bounds + 64));
    bytes = _mm_xor_si128(bytes, load_half(bounds + 128));
    store_some(y, bytes, columns);
}

#endif
