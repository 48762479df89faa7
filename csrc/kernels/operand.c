#include "operand.h"

#include <string.h>

const tw_matrix_set *tw_operand_set(tw_isa isa, bool wide) {
    if (wide) {
        return &tw_matrix_portable64;
    }
#if defined(TW_X86_64)
    switch (isa) {
    case TW_AVX512VNNI:
        return &tw_matrix_avx512vnni;
    case TW_AVXVNNI:
        return &tw_matrix_avxvnni;
    case TW_AVX2:
        return &tw_matrix_avx2;
    case TW_PORTABLE:
        break;
    }
#else
    (void)isa;
#endif
    return &tw_matrix_portable32;
}

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static size_t weight_bytes(const tw_packing *packing, int64_t vectors) {
    const tw_matrix_set *set = packing->set;
    return (size_t)(packing->steps * vectors * set->lanes * set->depth * set->x_bytes);
}

/* Biases are as wide as vectors of sums, or 64 bits where the set finishes nothing itself. */
static size_t bias_bytes(const tw_matrix_set *set, int64_t vectors) {
    return (size_t)(vectors * set->lanes) * (set->finishes ? sizeof(int32_t) : sizeof(int64_t));
}

static int64_t panel_vectors(const tw_packing *packing, int64_t panel) {
    return packing->vectors / packing->panels + (panel < packing->vectors % packing->panels);
}

tw_packing tw_plan_packing(const tw_matrix_set *set, int64_t terms, int64_t columns) {
    tw_packing packing = {
        .set = set,
        .terms = terms,
        .columns = columns,
        .steps = divide_up(terms, set->depth),
        .vectors = divide_up(columns, set->lanes),
    };
    packing.panels = divide_up(packing.vectors, set->vectors);
    packing.bytes = weight_bytes(&packing, packing.vectors) + bias_bytes(set, packing.vectors);
    return packing;
}

/* Codes as tiles read them: s8 bytes (u8 with the top bit flipped), or centred 16-bit words. */
static int32_t byte_flip(const tw_operand *b) { return b->dtype == TW_U8 ? 0x80 : 0; }

int32_t tw_packed_zero(const tw_packing *packing, int32_t dtype, int32_t zero) {
    if (packing->set->x_bytes != 1) {
        return 0;
    }
    return zero - (dtype == TW_U8 ? 128 : 0);
}

/* A step of one panel: [columns, depth] bytes. */
static void pack_bytes(const tw_operand *b, int64_t at, int64_t terms, int64_t columns,
                       unsigned char *y) {
    const unsigned char flip = (unsigned char)byte_flip(b);
    if (terms == 4 && b->row_stride == 1) {
        const uint32_t flips = flip * UINT32_C(0x01010101);
        for (int64_t c = 0; c < columns; ++c) {
            uint32_t word;
            memcpy(&word, b->data + at + c * b->column_stride, sizeof word);
            word ^= flips;
            memcpy(y + 4 * c, &word, sizeof word);
        }
    } else if (terms == 4 && b->column_stride == 1) {
        const unsigned char *r0 = b->data + at, *r1 = r0 + b->row_stride;
        const unsigned char *r2 = r1 + b->row_stride, *r3 = r2 + b->row_stride;
        for (int64_t c = 0; c < columns; ++c) {
            y[4 * c] = r0[c] ^ flip;
            y[4 * c + 1] = r1[c] ^ flip;
            y[4 * c + 2] = r2[c] ^ flip;
            y[4 * c + 3] = r3[c] ^ flip;
        }
    } else {
        for (int64_t c = 0; c < columns; ++c) {
            for (int64_t k = 0; k < terms; ++k) {
                y[4 * c + k] = b->data[at + c * b->column_stride + k * b->row_stride] ^ flip;
            }
        }
    }
}

/* The same as centred words. */
static void pack_words(const tw_operand *b, int64_t at, int64_t terms, int64_t columns,
                       int64_t depth, unsigned char *y) {
    int16_t *words = (int16_t *)(void *)y;
    for (int64_t c = 0; c < columns; ++c) {
        for (int64_t k = 0; k < terms; ++k) {
            words[depth * c + k] =
                (int16_t)(tw_code(b->data, b->dtype,
                                  at + c * b->column_stride + k * b->row_stride) -
                          b->zero);
        }
    }
}

/* What the first operand's zero point adds to each column of a panel, -zx * sum (b - zb): the sums
 * are those of a row of ones. */
static void pack_biases(const tw_packing *packing, const tw_operand *b,
                        const unsigned char *weights, int64_t vectors, int64_t x_zero,
                        unsigned char *ones, int32_t *biases) {
    static const int64_t taps[1] = {0};
    if (x_zero == 0) {
        return;
    }
    memset(ones, 1, (size_t)packing->terms);
    int32_t sums[TW_PANEL_COLUMNS];
    const tw_tile tile = {
        .x = {ones},
        .taps = taps,
        .tap_count = 1,
        .steps = packing->steps,
        .weights = weights,
        .tail = (const unsigned char *)biases,
        .rows = 1,
        .vectors = (int32_t)vectors,
        .raw = sums,
    };
    packing->set->tile(&tile);
    const uint32_t zeros = (uint32_t)(packing->terms * tw_packed_zero(packing, b->dtype, b->zero));
    for (int64_t c = 0; c < vectors * packing->set->lanes; ++c) {
        biases[c] = (int32_t)(-(uint32_t)x_zero * ((uint32_t)sums[c] - zeros));
    }
}

void tw_pack_operand(const tw_packing *packing, const tw_operand *b, int32_t x_dtype,
                     int32_t x_zero, unsigned char *memory, unsigned char *row) {
    const tw_matrix_set *set = packing->set;
    const int64_t byte_zero_of_x = x_zero + (x_dtype == TW_S8 ? 128 : 0);
    int64_t first = 0;
    for (int64_t i = 0; i < packing->panels; ++i) {
        const int64_t vectors = panel_vectors(packing, i), width = vectors * set->lanes;
        const int64_t columns = tw_min(width, packing->columns - first);
        const int64_t step_bytes = width * set->depth * set->x_bytes;
        for (int64_t s = 0; s < packing->steps; ++s) {
            unsigned char *y = memory + s * step_bytes;
            const int64_t terms = tw_min(set->depth, packing->terms - s * set->depth);
            const int64_t at = s * set->depth * b->row_stride + first * b->column_stride;
            if (columns < width || terms < set->depth) {
                memset(y, 0, (size_t)step_bytes);
            }
            if (set->x_bytes == 1) {
                pack_bytes(b, at, terms, columns, y);
            } else {
                pack_words(b, at, terms, columns, set->depth, y);
            }
        }
        unsigned char *biases = memory + weight_bytes(packing, vectors);
        memset(biases, 0, bias_bytes(set, vectors));
        if (set->x_bytes == 1) {
            pack_biases(packing, b, memory, vectors, byte_zero_of_x, row,
                        (int32_t *)(void *)biases);
        }
        memory = biases + bias_bytes(set, vectors);
        first += columns;
    }
}

int64_t tw_row_bytes(const tw_matrix_set *set, int64_t terms) {
    return (int64_t)tw_aligned((size_t)(terms * set->x_bytes));
}

void tw_take_rows(const tw_packing *packing, const tw_rows *loops, const tw_operand *a,
                  const tw_operand *b, int64_t rows, unsigned char *taken, int32_t *terms_of_row) {
    const tw_matrix_set *set = packing->set;
    const int64_t stride = tw_row_bytes(set, packing->terms), terms = packing->terms;
    const int64_t bytes = (int64_t)tw_dtype_bytes(a->dtype);
    const int32_t zero = tw_packed_zero(packing, b->dtype, b->zero);
    for (int64_t m = 0; m < rows; ++m) {
        const unsigned char *x = a->data + m * a->row_stride * bytes;
        unsigned char *y = taken + m * stride;
        if (set->x_bytes == 2) {
            loops->widen16((int16_t *)(void *)y, x, a->dtype, a->zero, terms);
            terms_of_row[m] = 0;
            continue;
        }
        if (a->dtype == TW_S8) {
            loops->flip(y, x, terms);
        } else {
            memcpy(y, x, (size_t)terms);
        }
        uint32_t sum = 0;
        for (int64_t k = 0; zero != 0 && k < terms; ++k) {
            sum += y[k];
        }
        terms_of_row[m] = (int32_t)(-(uint32_t)zero * sum);
    }
}

void tw_multiply(const tw_packing *packing, const unsigned char *packed, const unsigned char *x,
                 int64_t rows, void *raw, tw_sums_function *function, void *context) {
    static const int64_t taps[1] = {0};
    const tw_matrix_set *set = packing->set;
    const int64_t stride = tw_row_bytes(set, packing->terms);
    int64_t first = 0;
    for (int64_t i = 0; i < packing->panels; ++i) {
        const int32_t vectors = (int32_t)panel_vectors(packing, i);
        const int64_t width = (int64_t)vectors * set->lanes;
        tw_tile tile = {
            .taps = taps,
            .tap_count = 1,
            .steps = packing->steps,
            .weights = packed,
            .tail = packed + weight_bytes(packing, vectors),
            .vectors = vectors,
            .columns = (int32_t)tw_min(width, packing->columns - first),
            .raw = raw,
        };
        for (int64_t row = 0; row < rows; row += tile.rows) {
            tile.rows = (int32_t)tw_min(set->rows[vectors], rows - row);
            for (int32_t m = 0; m < tile.rows; ++m) {
                tile.x[m] = x + (row + m) * stride;
            }
            set->tile(&tile);
            const tw_sums sums = {raw, width, row, first, tile.rows, tile.columns};
            function(context, &sums);
        }
        packed = tile.tail + bias_bytes(set, vectors);
        first += tile.columns;
    }
}
