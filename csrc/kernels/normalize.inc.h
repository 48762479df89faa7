/* The normalising loops of rows.h with vectors of 32-bit elements. */

static void moments(int64_t sums[2], const int16_t *x, int64_t n) {
    const VECTOR ones = all32(0x00010001), low = all64(UINT32_MAX);
    VECTOR sum = all32(0), even = all32(0), odd = all32(0);
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        const VECTOR words = load_vector(x + i);
        /* Two squares fit 32 bits, unsigned. */
        const VECTOR squares = multiply_add16(words, words);
        sum = add32(sum, multiply_add16(words, ones));
        even = add64(even, and_bits(squares, low));
        odd = add64(odd, shift_right64(squares, 32));
    }
    int32_t parts[LANES];
    int64_t wide[LANES / 2];
    store_vector(parts, sum);
    store_vector(wide, add64(even, odd));
    for (int32_t lane = 0; lane < LANES; ++lane) {
        sums[0] += parts[lane];
        sums[1] += lane % 2 == 0 ? wide[lane / 2] : 0;
    }
    for (; i < n; ++i) {
        sums[0] += x[i];
        sums[1] += x[i] * x[i];
    }
}

/* What ends every element: zero point (less what a lift leaves), bounds, shift. */
typedef struct affine_vectors {
    VECTOR zero, lo, hi, shift;
} affine_vectors;

static inline affine_vectors vectors_of(const tw_affine *affine) {
    const uint32_t back = (uint32_t)(TW_LIFT >> affine->shift);
    return (affine_vectors){
        all32((int32_t)((uint32_t)affine->zero - back)),
        all32(affine->lo),
        all32(affine->hi),
        all64(affine->shift),
    };
}

/* n*gain + offset, shifted and clamped, of the elements from i on. */
static inline VECTOR affine_end(VECTOR n, const tw_affine *affine, const affine_vectors *v,
                                int64_t i) {
    VECTOR even = multiply_even(n, load_vector(affine->gain + i));
    VECTOR odd = multiply_even(odd_to_even(n), load_vector(affine->gain + i + 1));
    even = add64(even, load_vector(affine->offset[0] + i / 2));
    odd = add64(odd, load_vector(affine->offset[1] + i / 2));
    const VECTOR y =
        interleaved(shift_right_each64(even, v->shift), shift_right_each64(odd, v->shift));
    return min32(max32(add32(y, v->zero), v->lo), v->hi);
}

static void normalize(int32_t *y, const int16_t *x, const tw_quotient *group,
                      const tw_affine *affine, int64_t n) {
    const affine_vectors v = vectors_of(affine);
    const int64_t half = INT64_C(1) << (group->fraction - 1);
    const VECTOR factor = all32((int32_t)group->factor), share = all32((int32_t)group->share);
    const VECTOR bias = all64(TW_LIFT + half - group->total * group->share);
    const VECTOR fraction = all64(group->fraction);
    const VECTOR back = all32((int32_t)(uint32_t)(TW_LIFT >> group->fraction));
    for (int64_t i = 0; i < n; i += LANES) {
        const VECTOR d = multiply32(load_words(x + i), factor);
        const VECTOR even = add64(multiply_even(d, share), bias);
        const VECTOR odd = add64(multiply_even(odd_to_even(d), share), bias);
        const VECTOR q =
            interleaved(shift_right_each64(even, fraction), shift_right_each64(odd, fraction));
        store_vector(y + i, affine_end(subtract32(q, back), affine, &v, i));
    }
}

static void normalize_lanes(int32_t *y, const int16_t *x, const tw_lanes *lanes,
                            const tw_affine *affine, int64_t n) {
    const affine_vectors v = vectors_of(affine);
    const VECTOR factor = all32(lanes->factor);
    for (int64_t i = 0; i < n; i += LANES) {
        const VECTOR d = multiply32(load_words(x + i), factor);
        VECTOR even = multiply_even(d, load_vector(lanes->share + i));
        VECTOR odd = multiply_even(odd_to_even(d), load_vector(lanes->share + i + 1));
        even = add64(even, load_vector(lanes->bias[0] + i / 2));
        odd = add64(odd, load_vector(lanes->bias[1] + i / 2));
        even = shift_right_each64(even, load_vector(lanes->fraction[0] + i / 2));
        odd = shift_right_each64(odd, load_vector(lanes->fraction[1] + i / 2));
        const VECTOR q = subtract32(interleaved(even, odd), load_vector(lanes->back + i));
        store_vector(y + i, affine_end(q, affine, &v, i));
    }
}
