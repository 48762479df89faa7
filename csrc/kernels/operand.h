/* Products of two run-time matrices: the second one is packed into panels, as weights are, by the
 * thread that needs it; the tiles are those of constant weights. */

#ifndef TW_OPERAND_H
#define TW_OPERAND_H

#include "product.h"

enum { TW_PANEL_COLUMNS = TW_TILE_VECTORS * 16 }; /* of the widest panel of any instruction set */

/* A matrix [rows, columns] somewhere in memory; strides in elements. */
typedef struct tw_operand {
    const unsigned char *data;
    int32_t dtype, zero;
    int64_t row_stride, column_stride;
} tw_operand;

/* How a matrix [terms, columns] is packed. */
typedef struct tw_packing {
    const tw_matrix_set *set;
    int64_t terms, columns;
    int64_t steps;   /* of all terms */
    int64_t vectors; /* of all columns */
    int64_t panels;
    size_t bytes;
} tw_packing;

/* A tile's accumulators, for whoever makes results of them. */
typedef struct tw_sums {
    const void *raw; /* [rows, width], of the set's accumulator type */
    int64_t width;
    int64_t row, column; /* the first of each */
    int32_t rows, columns;
} tw_sums;

typedef void tw_sums_function(void *context, const tw_sums *sums);

/* The tiles for operands of 8 bits, or of 16 where `wide`. */
const tw_matrix_set *tw_operand_set(tw_isa isa, bool wide);

tw_packing tw_plan_packing(const tw_matrix_set *set, int64_t terms, int64_t columns);

/* Pack `b` [terms, columns] into `packing->bytes` of memory.  Where the set reads codes as they are
 * (x_bytes 1), what the zero point of the first operand adds is part of the packed biases; `row`,
 * of `tw_row_bytes`, is used for that. */
void tw_pack_operand(const tw_packing *packing, const tw_operand *b, int32_t x_dtype,
                     int32_t x_zero, unsigned char *memory, unsigned char *row);

/* The second operand's zero point in the form that tiles read. */
int32_t tw_packed_zero(const tw_packing *packing, int32_t dtype, int32_t zero);

/* Bytes from one row of the first operand to the next in the form that tiles read. */
int64_t tw_row_bytes(const tw_matrix_set *set, int64_t terms);

/* Rows [0, rows) of the first operand, terms side by side, in that form.  `terms_of_row`: where the
 * zero point of the second operand makes one necessary, what each row adds to its sums. */
void tw_take_rows(const tw_packing *packing, const tw_rows *loops, const tw_operand *a,
                  const tw_operand *b, int64_t rows, unsigned char *taken, int32_t *terms_of_row);

/* Sums of `rows` rows and all columns, tile by tile; `raw` holds one tile. */
void tw_multiply(const tw_packing *packing, const unsigned char *packed, const unsigned char *x,
                 int64_t rows, void *raw, tw_sums_function *function, void *context);

/* Code `index` of a tensor of activations. */
static inline int32_t tw_code(const unsigned char *data, int32_t dtype, int64_t index) {
    switch (dtype) {
    case TW_U8:
        return data[index];
    case TW_S8:
        return ((const int8_t *)data)[index];
    default:
        return ((const int16_t *)(const void *)data)[index];
    }
}

static inline size_t tw_raw_bytes(void) {
    return (size_t)(TW_TILE_ROWS * TW_PANEL_COLUMNS) * sizeof(int64_t);
}

#endif
