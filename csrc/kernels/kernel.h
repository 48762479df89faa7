/* What a kernel file provides: a function that checks one node and turns it into a step. */

#ifndef TW_KERNEL_H
#define TW_KERNEL_H

#include "../src/arithmetic.h"
#include "../src/model.h"
#include "rows.h"

typedef struct tw_prepare {
    tw_model *model;
    const tw_node *node;
    tw_step *step;
    const tw_rows *rows; /* loops for this processor */
} tw_prepare;

/* Fill in `step`; everything that `run` relies on is checked here. */
typedef tw_status tw_prepare_function(tw_prepare *prepare);

tw_prepare_function tw_prepare_add, tw_prepare_add_constant, tw_prepare_attention,
    tw_prepare_average_pool, tw_prepare_concat, tw_prepare_constant, tw_prepare_conv,
    tw_prepare_conv_transpose, tw_prepare_dense, tw_prepare_depth_to_space, tw_prepare_group_norm,
    tw_prepare_l2_norm, tw_prepare_layer_norm, tw_prepare_mat_mul, tw_prepare_max_pool,
    tw_prepare_mul, tw_prepare_pad, tw_prepare_parametric_relu, tw_prepare_reduce,
    tw_prepare_rescale, tw_prepare_reshape, tw_prepare_resize, tw_prepare_rms_norm,
    tw_prepare_slice, tw_prepare_softmax, tw_prepare_space_to_depth, tw_prepare_table,
    tw_prepare_table16, tw_prepare_transpose;

/* The function of an operator; NULL if this runtime has none. */
tw_prepare_function *tw_find_prepare(uint32_t code);

static inline const tw_tensor *tw_input(const tw_prepare *prepare, int32_t i) {
    return &prepare->model->tensors[prepare->node->inputs[i]];
}

static inline const tw_tensor *tw_output(const tw_prepare *prepare) {
    return &prepare->model->tensors[prepare->node->outputs[0]];
}

static inline const unsigned char *tw_input_data(const tw_step *step, const tw_call *call,
                                                 int32_t i) {
    return call->tensors[step->node->inputs[i]];
}

static inline unsigned char *tw_output_data(const tw_step *step, const tw_call *call) {
    return call->tensors[step->node->outputs[0]];
}

/* Memory for a step's state; NULL when out of memory. */
void *tw_state(tw_prepare *prepare, size_t bytes);

/* Checks that kernels share; each returns false, or a status, after noting what is wrong. */
tw_status tw_refuse(tw_prepare *prepare, const char *what);
bool tw_is_activation(const tw_tensor *tensor);
bool tw_same_encoding(const tw_tensor *a, const tw_tensor *b);
bool tw_same_shape(const tw_tensor *a, const tw_tensor *b);
bool tw_is_rescale(int64_t multiplier, int64_t shift);
bool tw_is_clamp(const tw_tensor *output, int64_t lo, int64_t hi);
int64_t tw_reach(const tw_tensor *tensor);

/* Whether a sum of `terms` products of these tensors fits its accumulator and R24 (section 4). */
bool tw_is_product_bounded(const tw_tensor *a, const tw_tensor *b, int64_t terms,
                           int64_t pre_shift);

/* Smallest and largest result that the type takes; s16 results stay symmetric. */
int64_t tw_lowest(int32_t dtype);
int64_t tw_highest(int32_t dtype);

/* What the runtime can be sure of before it looks at the operator: number of operands. */
tw_status tw_check_operands(tw_prepare *prepare, int32_t inputs);

#endif
