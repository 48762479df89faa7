/* Copies of strided boxes, with a change of encoding where the two sides differ. */

#ifndef TW_MOVE_H
#define TW_MOVE_H

#include "strided.h"

typedef struct tw_move {
    tw_box box; /* operands: output, input */
    int64_t y_first, x_first;
    const tw_rows *rows;
    bool same;
    int32_t x_type, x_zero, y_type;
    tw_rescale_parameters rescale;
} tw_move;

/* How codes of `x` become codes of `y`; refuses types and ratios that are out of range. */
tw_status tw_plan_move(tw_prepare *prepare, tw_move *move, const tw_tensor *x, const tw_tensor *y,
                       int64_t multiplier, int64_t shift);

/* Items [begin, end) of the box. */
void tw_run_move(const tw_move *move, const unsigned char *x, unsigned char *y, int64_t begin,
                 int64_t end);

/* n neighbouring elements, x_step elements apart in the source. */
void tw_move_row(const tw_move *move, const unsigned char *x, int64_t x_at, int64_t x_step,
                 unsigned char *y, int64_t y_at, int64_t n);

#endif
