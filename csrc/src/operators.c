/* Which function prepares which operator. */

#include "../kernels/kernel.h"

typedef struct tw_operator_entry {
    uint32_t code;
    tw_prepare_function *prepare;
} tw_operator_entry;

static const tw_operator_entry entries[] = {
    {TW_OP_CONV, tw_prepare_conv},
    {TW_OP_RESHAPE, tw_prepare_reshape},
    {TW_OP_TRANSPOSE, tw_prepare_transpose},
    {TW_OP_DENSE, tw_prepare_dense},
    {TW_OP_MAT_MUL, tw_prepare_mat_mul},
    {TW_OP_ATTENTION, tw_prepare_attention},
    {TW_OP_CONV_TRANSPOSE, tw_prepare_conv_transpose},
    {TW_OP_ADD, tw_prepare_add},
    {TW_OP_ADD_CONSTANT, tw_prepare_add_constant},
    {TW_OP_MUL, tw_prepare_mul},
    {TW_OP_TABLE, tw_prepare_table},
    {TW_OP_TABLE16, tw_prepare_table16},
    {TW_OP_PARAMETRIC_RELU, tw_prepare_parametric_relu},
    {TW_OP_RESCALE, tw_prepare_rescale},
    {TW_OP_SOFTMAX, tw_prepare_softmax},
    {TW_OP_CONSTANT, tw_prepare_constant},
    {TW_OP_MAX_POOL, tw_prepare_max_pool},
    {TW_OP_AVERAGE_POOL, tw_prepare_average_pool},
    {TW_OP_REDUCE, tw_prepare_reduce},
    {TW_OP_CONCAT, tw_prepare_concat},
    {TW_OP_SLICE, tw_prepare_slice},
    {TW_OP_PAD, tw_prepare_pad},
    {TW_OP_RESIZE, tw_prepare_resize},
    {TW_OP_DEPTH_TO_SPACE, tw_prepare_depth_to_space},
    {TW_OP_SPACE_TO_DEPTH, tw_prepare_space_to_depth},
    {TW_OP_LAYER_NORM, tw_prepare_layer_norm},
    {TW_OP_RMS_NORM, tw_prepare_rms_norm},
    {TW_OP_GROUP_NORM, tw_prepare_group_norm},
    {TW_OP_L2_NORM, tw_prepare_l2_norm},
};

tw_prepare_function *tw_find_prepare(uint32_t code) {
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; ++i) {
        if (entries[i].code == code) {
            return entries[i].prepare;
        }
    }
    return NULL;
}
