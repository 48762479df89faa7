#include "product.h"

tw_status tw_prepare_dense(tw_prepare *prepare) {
    const tw_dense_fields *op = prepare->node->fields;
    tw_status status = tw_check_operands(prepare, 1);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *x = tw_input(prepare, 0), *y = tw_output(prepare);
    if (x->rank < 1 || x->rank != y->rank) {
        return tw_refuse(prepare, "its operands differ in rank");
    }
    const int32_t last = x->rank - 1;
    const int64_t out = op->weight.shape[0], width = op->weight.shape[1];
    if (x->shape[last] != width || y->shape[last] != out ||
        x->elements / width != y->elements / out) {
        return tw_refuse(prepare, "its operands do not fit its weights");
    }
    if (op->weight_zero < INT16_MIN || op->weight_zero > INT16_MAX) {
        return tw_refuse(prepare, "the zero point of its weights is out of range");
    }
    const int64_t pixels = x->elements / width;
    tw_product product = {
        .images = 1,
        .in_rows = pixels,
        .in_columns = 1,
        .in_channels = width,
        .out_rows = pixels,
        .out_columns = 1,
        .out_channels = out,
        .groups = 1,
        .kernel = {1, 1},
        .stride = {1, 1},
        .dilation = {1, 1},
        .weight_zero = (int32_t)op->weight_zero,
        .pre_shift = (int32_t)tw_clamp(op->pre_shift, -1, 63),
        .table_multiplier = (int32_t)tw_clamp(op->table_multiplier, INT32_MIN, INT32_MAX),
        .table_shift = (int32_t)tw_clamp(op->table_shift, 0, 63),
    };
    status = tw_check_product(prepare, &product, &op->channels, &op->weight, &op->table,
                              op->weight_type);
    return status == TW_OK ? tw_plan_matrix(prepare, &product) : status;
}
