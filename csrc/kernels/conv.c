#include "product.h"

/* The extents that attributes give are what tensors have. */
static bool window_fits(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t dilation,
                        int64_t before, int64_t after) {
    const int64_t limit = INT64_C(1) << 24;
    if (stride < 1 || dilation < 1 || before < 0 || after < 0 || stride > limit ||
        dilation > limit || before > limit || after > limit || kernel > limit) {
        return false;
    }
    const int64_t room = in + before + after - (kernel - 1) * dilation - 1;
    return room >= 0 && out == room / stride + 1;
}

tw_status tw_prepare_conv(tw_prepare *prepare) {
    const tw_conv_fields *op = prepare->node->fields;
    tw_status status = tw_check_operands(prepare, 1);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *x = tw_input(prepare, 0), *y = tw_output(prepare);
    if (x->rank != 4 || y->rank != 4) {
        return tw_refuse(prepare, "its operands are not images");
    }
    const int64_t out = op->weight.shape[0], width = op->weight.shape[3];
    if (op->groups < 1 || op->groups > x->shape[3] || x->shape[3] != width * op->groups ||
        out % op->groups != 0 || y->shape[3] != out || y->shape[0] != x->shape[0]) {
        return tw_refuse(prepare, "its channels do not fit its weights");
    }
    for (int i = 0; i < 2; ++i) {
        if (!window_fits(x->shape[1 + i], y->shape[1 + i], op->weight.shape[1 + i], op->stride[i],
                         op->dilation[i], op->pads[i], op->pads[i + 2])) {
            return tw_refuse(prepare, "its windows do not fit its operands");
        }
    }
    if (op->weight_zero < INT16_MIN || op->weight_zero > INT16_MAX) {
        return tw_refuse(prepare, "the zero point of its weights is out of range");
    }
    tw_product product = {
        .images = x->shape[0],
        .in_rows = x->shape[1],
        .in_columns = x->shape[2],
        .in_channels = x->shape[3],
        .out_rows = y->shape[1],
        .out_columns = y->shape[2],
        .out_channels = out,
        .groups = op->groups,
        .kernel = {op->weight.shape[1], op->weight.shape[2]},
        .stride = {op->stride[0], op->stride[1]},
        .dilation = {op->dilation[0], op->dilation[1]},
        .pad = {op->pads[0], op->pads[1]},
        .weight_zero = (int32_t)op->weight_zero,
        .pre_shift = (int32_t)tw_clamp(op->pre_shift, -1, 63),
        .table_multiplier = (int32_t)tw_clamp(op->table_multiplier, INT32_MIN, INT32_MAX),
        .table_shift = (int32_t)tw_clamp(op->table_shift, 0, 63),
    };
    status = tw_check_product(prepare, &product, &op->channels, &op->weight, &op->table,
                              op->weight_type);
    if (status != TW_OK) {
        return status;
    }
    const bool depthwise = op->groups == x->shape[3] && width == 1 && out == op->groups;
    return depthwise ? tw_plan_depthwise(prepare, &product) : tw_plan_matrix(prepare, &product);
}
