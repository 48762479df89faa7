/* 512-bit vectors for the templates. */

#ifndef TW_SIMD_AVX512_H
#define TW_SIMD_AVX512_H

#include <immintrin.h>

#define VECTOR __m512i
#define LANES 16
#define VECTOR_BYTES 64

static inline VECTOR load_vector(const void *p) { return _mm512_loadu_si512(p); }
static inline void store_vector(void *p, VECTOR v) { _mm512_storeu_si512(p, v); }
static inline VECTOR broadcast(const void *p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return _mm512_set1_epi32(word);
}

static inline VECTOR all32(int32_t v) { return _mm512_set1_epi32(v); }
static inline VECTOR all64(int64_t v) { return _mm512_set1_epi64(v); }
static inline VECTOR load_words(const int16_t *p) {
    return _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline VECTOR add32(VECTOR a, VECTOR b) { return _mm512_add_epi32(a, b); }
static inline VECTOR subtract32(VECTOR a, VECTOR b) { return _mm512_sub_epi32(a, b); }
static inline VECTOR multiply32(VECTOR a, VECTOR b) { return _mm512_mullo_epi32(a, b); }
static inline VECTOR min32(VECTOR a, VECTOR b) { return _mm512_min_epi32(a, b); }
static inline VECTOR max32(VECTOR a, VECTOR b) { return _mm512_max_epi32(a, b); }
/* Sums of two neighbouring products of 16-bit elements. */
static inline VECTOR multiply_add16(VECTOR a, VECTOR b) { return _mm512_madd_epi16(a, b); }
static inline VECTOR and_bits(VECTOR a, VECTOR b) { return _mm512_and_si512(a, b); }
static inline VECTOR add64(VECTOR a, VECTOR b) { return _mm512_add_epi64(a, b); }
static inline VECTOR shift_right64(VECTOR a, int n) { return _mm512_srli_epi64(a, (unsigned)n); }
static inline VECTOR shift_right_each64(VECTOR a, VECTOR n) { return _mm512_srlv_epi64(a, n); }

/* 64-bit products of elements 0, 2, ... */
static inline VECTOR multiply_even(VECTOR a, VECTOR b) { return _mm512_mul_epi32(a, b); }
static inline VECTOR odd_to_even(VECTOR a) { return _mm512_shuffle_epi32(a, _MM_PERM_DDBB); }
/* The low halves of both in turn. */
static inline VECTOR interleaved(VECTOR even, VECTOR odd) {
    return _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CCAA);
}

static inline VECTOR repeat_word(int32_t word) { return _mm512_set1_epi32(word); }
static inline VECTOR repeat_pair(int64_t pair) { return _mm512_set1_epi64(pair); }
static inline VECTOR sum_of_words(VECTOR a, VECTOR b) { return _mm512_add_epi32(a, b); }

/* R24 of 32-bit lanes, all alike; see tw_scaling. */
static inline VECTOR scale_words(VECTOR x, VECTOR multiplier, VECTOR half, VECTOR rest) {
    const VECTOR even = _mm512_add_epi64(_mm512_mul_epi32(x, multiplier), half);
    const VECTOR odd =
        _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(x, 32), multiplier), half);
    const VECTOR upper = _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB);
    return _mm512_srav_epi32(upper, rest);
}

/* At most `count` lanes, saturated to [-32767, 32767]. */
static inline void store_scores(int16_t *y, VECTOR x, int64_t count) {
    const VECTOR raised = _mm512_max_epi32(x, _mm512_set1_epi32(-32767));
    const __mmask16 stored = (__mmask16)(0xFFFF >> (count < LANES ? LANES - count : 0));
    _mm512_mask_cvtsepi32_storeu_epi16(y, stored, raised);
}

/* R24 of 32-bit lanes and the zero point; see tail.c. */
static inline VECTOR requantize(VECTOR acc, const unsigned char *tail, ptrdiff_t stride) {
    VECTOR even = _mm512_mul_epi32(acc, load_vector(tail + stride));
    VECTOR odd = _mm512_mul_epi32(_mm512_srli_epi64(acc, 32), load_vector(tail + 2 * stride));
    even = _mm512_add_epi64(even, load_vector(tail + 3 * stride));
    odd = _mm512_add_epi64(odd, load_vector(tail + 4 * stride));
    const VECTOR upper = _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB);
    return _mm512_srav_epi32(upper, load_vector(tail + 5 * stride));
}

/* The same for any shift. */
static inline VECTOR requantize_long(VECTOR acc, const unsigned char *tail, ptrdiff_t stride) {
    VECTOR even = _mm512_mul_epi32(acc, load_vector(tail + stride));
    VECTOR odd = _mm512_mul_epi32(_mm512_srli_epi64(acc, 32), load_vector(tail + 2 * stride));
    even = _mm512_add_epi64(even, load_vector(tail + 3 * stride));
    odd = _mm512_add_epi64(odd, load_vector(tail + 4 * stride));
    even = _mm512_srlv_epi64(even, load_vector(tail + 5 * stride));
    odd = _mm512_srlv_epi64(odd, load_vector(tail + 6 * stride));
    const VECTOR merged = _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CCAA);
    return _mm512_add_epi32(merged, load_vector(tail + 7 * stride));
}

static inline VECTOR clamp_bytes(VECTOR bytes, const unsigned char *bounds) {
    bytes = _mm512_max_epu8(bytes, load_vector(bounds));
    bytes = _mm512_min_epu8(bytes, load_vector(bounds + 64));
    return _mm512_xor_si512(bytes, load_vector(bounds + 128));
}

static inline void store_some(unsigned char *y, VECTOR bytes, int32_t columns) {
    _mm512_mask_storeu_epi8(y, (__mmask64)(UINT64_MAX >> (64 - columns)), bytes);
}

/* Vectors of consecutive channels to bytes. */
static inline void store_columns(unsigned char *y, const VECTOR *r, int vectors,
                                 const unsigned char *bounds, int32_t columns) {
    const VECTOR zero = _mm512_setzero_si512();
    const VECTOR low = _mm512_packs_epi32(r[0], vectors > 1 ? r[1] : zero);
    const VECTOR high = vectors > 2 ? _mm512_packs_epi32(r[2], vectors > 3 ? r[3] : zero) : zero;
    const VECTOR order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    const VECTOR bytes = _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high));
    store_some(y, clamp_bytes(bytes, bounds), columns);
}

#endif
