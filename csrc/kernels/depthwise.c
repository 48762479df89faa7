/* Depthwise convolution: packing, bands of input rows, and a plain fallback. */

#include <string.h>

#include "product.h"

/* Channels [first, first + count) by one set of kernels. */
typedef struct tw_depthwise_part {
    const tw_depthwise_set *set;
    int64_t first;
    int64_t count;
    unsigned char *weights;
} tw_depthwise_part;

typedef struct tw_depthwise_state {
    tw_product product;
    tw_depthwise_part parts[2];
    int32_t part_count; /* 0: the plain loops of `rows` */
    int32_t x_bytes;
    const tw_rows *rows;
    int64_t item_rows, items_of_image;
    int64_t band_rows, band_columns;
    int64_t pixel_bytes;
    int16_t *weights;                            /* of the plain loops: [tap, channel] */
    size_t pointers_offset, accumulators_offset; /* in scratch */
} tw_depthwise_state;

static void choose_parts(const tw_prepare *prepare, tw_depthwise_state *state) {
#if defined(TW_X86_64)
    const tw_product *p = &state->product;
    const tw_isa isa = prepare->model->isa;
    const bool bytes = p->weight_low >= -128 && p->weight_high <= 127;
    const int64_t channels = p->out_channels;
    if (!p->plain_tail || isa < TW_AVX2) {
        return;
    }
    state->part_count = 1;
    if (isa == TW_AVX512VNNI && bytes) {
        /* A last block that is half empty is left to half vectors. */
        const int64_t rest = channels % tw_depthwise_avx512vnni.block;
        const int64_t whole =
            rest <= tw_depthwise_half_avx512vnni.block ? channels - rest : channels;
        state->parts[0] = (tw_depthwise_part){&tw_depthwise_avx512vnni, 0, whole, NULL};
        state->parts[1] =
            (tw_depthwise_part){&tw_depthwise_half_avx512vnni, whole, channels - whole, NULL};
        state->part_count = 2;
    } else if (isa == TW_AVXVNNI && bytes) {
        state->parts[0] = (tw_depthwise_part){&tw_depthwise_avxvnni, 0, channels, NULL};
    } else {
        state->parts[0] = (tw_depthwise_part){&tw_depthwise_avx2, 0, channels, NULL};
    }
#else
    (void)prepare;
    (void)state;
#endif
}

/* A weight that kernel row `row` contributes; rows and channels beyond the last count as zero. */
static void put_weight(unsigned char *y, const tw_product *p, int64_t channel, int64_t row,
                       int64_t column, int32_t x_bytes) {
    int32_t w = 0;
    if (channel < p->out_channels && row < p->kernel[0]) {
        w = tw_weight(p, (channel * p->kernel[0] + row) * p->kernel[1] + column);
    }
    if (x_bytes == 2) {
        const int16_t value = (int16_t)w;
        memcpy(y, &value, sizeof value);
    } else {
        *y = (unsigned char)w;
    }
}

/* One block: weights [kernel column, row group, vector, lane, row of the group], then the tail. */
static size_t pack_block(const tw_product *p, const tw_depthwise_set *set, int64_t first,
                         unsigned char *memory) {
    const int32_t vectors = set->block / set->lanes;
    const int64_t groups = (p->kernel[0] + set->group - 1) / set->group;
    int64_t channels[64], biases[64];
    unsigned char *y = memory;
    for (int64_t v = 0; v < p->kernel[1]; ++v) {
        for (int64_t g = 0; g < groups; ++g) {
            for (int32_t i = 0; i < set->block; ++i) {
                const int64_t channel = first + set->channel(i / set->lanes, i % set->lanes);
                for (int64_t r = 0; r < set->group; ++r) {
                    put_weight(y, p, channel, g * set->group + r, v, set->x_bytes);
                    y += set->x_bytes;
                }
            }
        }
    }
    for (int32_t i = 0; i < set->block; ++i) {
        const int64_t channel = first + set->channel(i / set->lanes, i % set->lanes);
        const bool stored = channel < p->out_channels;
        channels[i] = stored ? channel : -1;
        biases[i] = stored ? tw_folded_bias(p, channel, set->x_bytes) : 0;
    }
    tw_pack_tail(y, set->lanes, vectors, p, channels, biases);
    unsigned char *bounds = y + tw_tail_bytes(set->lanes, vectors) - TW_BOUND_BYTES;
    /* The bytes are stored in channel order, whatever the order of the lanes. */
    for (int32_t i = 0; i < set->block; ++i) {
        const tw_channel_record *channel = &p->channels[tw_min(first + i, p->out_channels - 1)];
        const int32_t flip = p->y_type == TW_S8 ? 128 : 0;
        bounds[i] = (unsigned char)(channel->lo + flip);
        bounds[TW_ALIGNMENT + i] = (unsigned char)(channel->hi + flip);
    }
    return (size_t)(y - memory) + tw_tail_bytes(set->lanes, vectors);
}

static tw_status pack_part(tw_prepare *prepare, const tw_product *p, tw_depthwise_part *part) {
    const tw_depthwise_set *set = part->set;
    const int64_t groups = (p->kernel[0] + set->group - 1) / set->group;
    const size_t block = (size_t)(p->kernel[1] * groups * set->block * set->group * set->x_bytes) +
                         tw_tail_bytes(set->lanes, set->block / set->lanes);
    const int64_t blocks = (part->count + set->block - 1) / set->block;
    part->weights = tw_pool_allocate(&prepare->model->pool, (size_t)blocks * block);
    if (part->weights == NULL) {
        return TW_ERROR_MEMORY;
    }
    unsigned char *at = part->weights;
    for (int64_t b = 0; b < blocks; ++b) {
        at += pack_block(p, set, part->first + b * set->block, at);
    }
    return TW_OK;
}

static tw_status pack(tw_prepare *prepare, tw_depthwise_state *state) {
    const tw_product *p = &state->product;
    const int64_t taps = p->kernel[0] * p->kernel[1];
    for (int32_t i = 0; i < state->part_count; ++i) {
        tw_status status = pack_part(prepare, p, &state->parts[i]);
        if (status != TW_OK) {
            return status;
        }
    }
    if (state->part_count > 0) {
        return TW_OK;
    }
    state->weights =
        tw_pool_allocate(&prepare->model->pool, (size_t)(taps * p->out_channels) * sizeof(int16_t));
    if (state->weights == NULL) {
        return TW_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < taps * p->out_channels; ++i) {
        state->weights[i % taps * p->out_channels + i / taps] = (int16_t)tw_weight(p, i);
    }
    return TW_OK;
}

/* Every pixel of one output row by the plain loops. */
static void plain_row(const tw_depthwise_state *state, const unsigned char *const *x,
                      unsigned char *y, void *accumulators) {
    const tw_product *p = &state->product;
    const tw_tail tail = {p->channels,    p->table,  p->pre_shift, p->table_multiplier,
                          p->table_shift, p->y_zero, p->y_type};
    const int16_t *weights = state->weights;
    const int64_t n = p->out_channels;
    int64_t *acc64 = accumulators;
    int32_t *acc32 = accumulators;
    for (int64_t c = 0; c < p->out_columns; ++c) {
        for (int64_t i = 0; i < n; ++i) {
            const int64_t bias = tw_bias(&p->channels[i]);
            if (p->wide) {
                acc64[i] = bias;
            } else {
                acc32[i] = (int32_t)bias;
            }
        }
        for (int64_t u = 0; u < p->kernel[0]; ++u) {
            for (int64_t v = 0; v < p->kernel[1]; ++v) {
                const int64_t at = (c * p->stride[1] + v * p->dilation[1]) * state->pixel_bytes;
                const int16_t *pixel = (const int16_t *)(const void *)(x[u] + at);
                const int16_t *w = weights + (u * p->kernel[1] + v) * n;
                if (p->wide) {
                    state->rows->multiply_add64(acc64, pixel, w, n);
                } else {
                    state->rows->multiply_add32(acc32, pixel, w, n);
                }
            }
        }
        unsigned char *codes = y + (size_t)(c * n) * tw_dtype_bytes(p->y_type);
        if (p->wide) {
            state->rows->finish64(codes, acc64, &tail, 0, n);
        } else {
            state->rows->finish32(codes, acc32, &tail, 0, n);
        }
    }
}

static void run_part(const tw_depthwise_state *state, const tw_depthwise_part *part,
                     const unsigned char **x, const unsigned char *band, int64_t r,
                     unsigned char *y) {
    const tw_product *p = &state->product;
    const int64_t row_bytes = state->band_columns * state->pixel_bytes;
    for (int64_t u = 0; u < p->kernel[0]; ++u) {
        x[u] = band + (r * p->stride[0] + u * p->dilation[0]) * row_bytes +
               part->first * state->x_bytes;
    }
    const tw_depthwise_row row = {
        .x = x,
        .y = y + part->first,
        .pixel_bytes = state->pixel_bytes,
        .y_stride = p->out_channels,
        .columns = p->out_columns,
        .channels = part->count,
        .kernel = {(int32_t)p->kernel[0], (int32_t)p->kernel[1]},
        .stride = (int32_t)p->stride[1],
        .dilation = (int32_t)p->dilation[1],
        .weights = part->weights,
    };
    part->set->row(&row);
}

static void run_rows(const tw_depthwise_state *state, unsigned char *scratch, unsigned char *y,
                     int64_t rows) {
    const tw_product *p = &state->product;
    const unsigned char **x = (const unsigned char **)(void *)(scratch + state->pointers_offset);
    const int64_t row_bytes = state->band_columns * state->pixel_bytes;
    const size_t y_row = (size_t)(p->out_columns * p->out_channels) * tw_dtype_bytes(p->y_type);
    for (int64_t r = 0; r < rows; ++r, y += y_row) {
        for (int32_t i = 0; i < state->part_count; ++i) {
            run_part(state, &state->parts[i], x, scratch, r, y);
        }
        if (state->part_count == 0) {
            for (int64_t u = 0; u < p->kernel[0]; ++u) {
                x[u] = scratch + (r * p->stride[0] + u * p->dilation[0]) * row_bytes;
            }
            plain_row(state, x, y, scratch + state->accumulators_offset);
        }
    }
}

static void run_depthwise(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_depthwise_state *state = step->state;
    const tw_product *p = &state->product;
    const size_t in_image =
        (size_t)(p->in_rows * p->in_columns * p->in_channels) * tw_dtype_bytes(p->x_type);
    const size_t out_row = (size_t)(p->out_columns * p->out_channels) * tw_dtype_bytes(p->y_type);
    for (int64_t item = begin; item < end; ++item) {
        const int64_t image = item / state->items_of_image;
        const int64_t first = item % state->items_of_image * state->item_rows;
        const int64_t rows = tw_min(state->item_rows, p->out_rows - first);
        const tw_band band = {
            .loops = state->rows,
            .image = tw_input_data(step, call, 0) + (size_t)image * in_image,
            .in_rows = p->in_rows,
            .in_columns = p->in_columns,
            .in_channels = p->in_channels,
            .first_row = first * p->stride[0] - p->pad[0],
            .first_column = -p->pad[1],
            .rows = state->band_rows - (state->item_rows - rows) * p->stride[0],
            .columns = state->band_columns,
            .x_type = p->x_type,
            .x_zero = p->x_zero,
            .x_bytes = state->x_bytes,
            .band = call->scratch,
        };
        tw_fill_band(&band);
        run_rows(state, call->scratch,
                 tw_output_data(step, call) + (size_t)(image * p->out_rows + first) * out_row,
                 rows);
    }
}

/* Rows of an item: enough that the rows two items share do not matter, few enough for the cache. */
static void plan_items(tw_depthwise_state *state) {
    const tw_product *p = &state->product;
    const int64_t row = p->stride[0] * state->band_columns * state->pixel_bytes;
    const int64_t wanted = tw_clamp((128 << 10) / row, 1, p->out_rows);
    const int64_t halves = tw_max(1, (p->out_rows + 1) / 2);
    state->item_rows = tw_min(wanted, halves);
    state->items_of_image = (p->out_rows + state->item_rows - 1) / state->item_rows;
    state->band_rows =
        (state->item_rows - 1) * p->stride[0] + (p->kernel[0] - 1) * p->dilation[0] + 1;
}

tw_status tw_plan_depthwise(tw_prepare *prepare, const tw_product *product) {
    tw_depthwise_state *state = tw_state(prepare, sizeof *state);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    const tw_product *p = product;
    state->product = *product;
    choose_parts(prepare, state);
    state->x_bytes = state->part_count == 0 ? 2 : state->parts[0].set->x_bytes;
    state->rows = prepare->rows;
    state->pixel_bytes = p->in_channels * state->x_bytes;
    state->band_columns =
        (p->out_columns - 1) * p->stride[1] + (p->kernel[1] - 1) * p->dilation[1] + 1;
    tw_status status = pack(prepare, state);
    if (status != TW_OK) {
        return status;
    }
    plan_items(state);
    const size_t band = (size_t)(state->band_rows * state->band_columns * state->pixel_bytes);
    state->pointers_offset = tw_aligned(band + 2 * TW_ALIGNMENT);
    state->accumulators_offset =
        tw_aligned(state->pointers_offset + (size_t)p->kernel[0] * sizeof(void *));
    prepare->step->scratch = state->accumulators_offset + (size_t)p->out_channels * sizeof(int64_t);
    prepare->step->run = run_depthwise;
    prepare->step->items = p->images * state->items_of_image;
    prepare->step->grain = 1;
    return TW_OK;
}
