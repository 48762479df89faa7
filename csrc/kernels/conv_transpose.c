/* Transposed convolution, gathered: an output pixel sums the taps whose input exists. */

#include <string.h>

#include "product.h"

typedef struct tw_transposed {
    tw_product product; /* `pad` and `stride` are those of the output */
    const tw_rows *rows;
    int16_t *weights;    /* [kernel rows, kernel columns, in_channels / groups, out_channels] */
    size_t pixel_offset; /* of one centred input pixel in scratch */
} tw_transposed;

/* The input index that tap `tap` of output `out` reads; -1 if there is none. */
static int64_t source(const tw_product *p, int axis, int64_t out, int64_t tap, int64_t extent) {
    const int64_t at = out + p->pad[axis] - tap * p->dilation[axis];
    return at >= 0 && at % p->stride[axis] == 0 && at / p->stride[axis] < extent
               ? at / p->stride[axis]
               : -1;
}

static void add_tap(const tw_transposed *state, const int16_t *x, const int16_t *weights,
                    void *accumulators) {
    const tw_product *p = &state->product;
    const int64_t width = p->in_channels / p->groups, out = p->out_channels / p->groups;
    for (int64_t g = 0; g < p->groups; ++g) {
        for (int64_t k = 0; k < width; ++k) {
            const int16_t *w = weights + k * p->out_channels + g * out;
            if (p->wide) {
                state->rows->scale_add64((int64_t *)accumulators + g * out, x[g * width + k], w,
                                         out);
            } else {
                state->rows->scale_add32((int32_t *)accumulators + g * out, x[g * width + k], w,
                                         out);
            }
        }
    }
}

static void run_pixel(const tw_transposed *state, const unsigned char *image, int64_t r, int64_t c,
                      unsigned char *scratch, unsigned char *y) {
    const tw_product *p = &state->product;
    const tw_tail tail = {p->channels,    p->table,  p->pre_shift, p->table_multiplier,
                          p->table_shift, p->y_zero, p->y_type};
    int64_t *acc64 = (int64_t *)(void *)scratch;
    int32_t *acc32 = (int32_t *)(void *)scratch;
    int16_t *pixel = (int16_t *)(void *)(scratch + state->pixel_offset);
    for (int64_t o = 0; o < p->out_channels; ++o) {
        if (p->wide) {
            acc64[o] = tw_bias(&p->channels[o]);
        } else {
            acc32[o] = (int32_t)tw_bias(&p->channels[o]);
        }
    }
    for (int64_t u = 0; u < p->kernel[0]; ++u) {
        const int64_t row = source(p, 0, r, u, p->in_rows);
        for (int64_t v = 0; row >= 0 && v < p->kernel[1]; ++v) {
            const int64_t column = source(p, 1, c, v, p->in_columns);
            if (column < 0) {
                continue;
            }
            const int64_t at = (row * p->in_columns + column) * p->in_channels;
            const int64_t tap = u * p->kernel[1] + v;
            state->rows->widen16(pixel, image + (size_t)at * tw_dtype_bytes(p->x_type), p->x_type,
                                 p->x_zero, p->in_channels);
            add_tap(state, pixel,
                    state->weights + tap * (p->in_channels / p->groups) * p->out_channels, scratch);
        }
    }
    if (p->wide) {
        state->rows->finish64(y, acc64, &tail, 0, p->out_channels);
    } else {
        state->rows->finish32(y, acc32, &tail, 0, p->out_channels);
    }
}

/* An item is one output row. */
static void run_conv_transpose(const tw_step *step, const tw_call *call, int64_t begin,
                               int64_t end) {
    const tw_transposed *state = step->state;
    const tw_product *p = &state->product;
    const size_t in_image =
        (size_t)(p->in_rows * p->in_columns * p->in_channels) * tw_dtype_bytes(p->x_type);
    const size_t pixel = (size_t)p->out_channels * tw_dtype_bytes(p->y_type);
    for (int64_t item = begin; item < end; ++item) {
        const unsigned char *image =
            tw_input_data(step, call, 0) + (size_t)(item / p->out_rows) * in_image;
        unsigned char *y = tw_output_data(step, call) + (size_t)(item * p->out_columns) * pixel;
        for (int64_t c = 0; c < p->out_columns; ++c, y += pixel) {
            run_pixel(state, image, item % p->out_rows, c, call->scratch, y);
        }
    }
}

static tw_status plan(tw_prepare *prepare, const tw_product *product) {
    const tw_product *p = product;
    const int64_t taps = p->kernel[0] * p->kernel[1], width = p->in_channels / p->groups;
    tw_transposed *state = tw_state(prepare, sizeof *state);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    state->product = *product;
    state->rows = prepare->rows;
    state->weights = tw_pool_allocate(&prepare->model->pool,
                                      (size_t)(taps * width * p->out_channels) * sizeof(int16_t));
    if (state->weights == NULL) {
        return TW_ERROR_MEMORY;
    }
    for (int64_t o = 0; o < p->out_channels; ++o) {
        for (int64_t k = 0; k < taps * width; ++k) {
            state->weights[k * p->out_channels + o] = (int16_t)tw_weight(p, o * taps * width + k);
        }
    }
    state->pixel_offset = tw_aligned((size_t)p->out_channels * sizeof(int64_t));
    prepare->step->scratch = state->pixel_offset + (size_t)p->in_channels * sizeof(int16_t);
    prepare->step->run = run_conv_transpose;
    prepare->step->items = p->images * p->out_rows;
    prepare->step->grain = 1;
    return TW_OK;
}

tw_status tw_prepare_conv_transpose(tw_prepare *prepare) {
    const tw_conv_transpose_fields *op = prepare->node->fields;
    const int64_t limit = INT64_C(1) << 24;
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
        const int64_t kernel = op->weight.shape[1 + i];
        if (op->stride[i] < 1 || op->dilation[i] < 1 || op->stride[i] > limit ||
            op->dilation[i] > limit || kernel > limit || op->pads[i] < 0 || op->pads[i + 2] < 0 ||
            op->pads[i] > limit || op->pads[i + 2] > limit || op->output_padding[i] < 0 ||
            op->output_padding[i] > limit) {
            return tw_refuse(prepare, "its window is out of range");
        }
        const int64_t full = (x->shape[1 + i] - 1) * op->stride[i] +
                             (kernel - 1) * op->dilation[i] + 1 + op->output_padding[i];
        if (y->shape[1 + i] != full - op->pads[i] - op->pads[i + 2]) {
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
    return status == TW_OK ? plan(prepare, &product) : status;
}
