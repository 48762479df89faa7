/* Checks of products, packing, and the walk over items and tiles. */

#include "product.h"

#include <string.h>

int64_t tw_bias(const tw_channel_record *channel) {
    return (int64_t)channel->bias_high * (INT64_C(1) << 32) + channel->bias_low;
}

static int32_t weight_code(const tw_product *product, int64_t index) {
    switch (product->weight_kind) {
    case TW_KIND_U8:
        return ((const uint8_t *)product->weight)[index];
    case TW_KIND_S8:
        return ((const int8_t *)product->weight)[index];
    default:
        return ((const int16_t *)product->weight)[index];
    }
}

int32_t tw_weight(const tw_product *product, int64_t index) {
    return weight_code(product, index) - product->weight_zero;
}

/* The accumulator's bound of each channel, from the actual weights (section 4 of the arithmetic).
 */
static tw_status prove_bound(tw_prepare *prepare, tw_product *product) {
    const int64_t limit = product->wide ? INT64_C(1) << 47 : INT64_C(1) << 31;
    const int64_t patch =
        product->kernel[0] * product->kernel[1] * product->in_channels / product->groups;
    const int64_t reach = tw_reach(tw_input(prepare, 0));
    int64_t *bounds =
        tw_pool_allocate(&prepare->model->pool, (size_t)product->out_channels * sizeof *bounds);
    if (bounds == NULL) {
        return TW_ERROR_MEMORY;
    }
    product->bounds = bounds;
    product->plain_tail = !product->wide && product->table == NULL && product->y_type != TW_S16 &&
                          product->pre_shift == 0;
    for (int64_t o = 0; o < product->out_channels; ++o) {
        const tw_channel_record *channel = &product->channels[o];
        int64_t sum = 0;
        for (int64_t k = 0; k < patch; ++k) {
            const int64_t w = tw_weight(product, o * patch + k);
            product->weight_low = tw_min(product->weight_low, w);
            product->weight_high = tw_max(product->weight_high, w);
            sum += w < 0 ? -w : w;
        }
        const int64_t bias = tw_bias(channel);
        /* Sums stay below 2**45 * 2**16: no overflow before the comparison. */
        const int64_t bound = sum * reach + (bias < 0 ? -bias : bias);
        if (bound >= limit || (bound >> product->pre_shift) >= (INT64_C(1) << 38)) {
            return tw_refuse(prepare, "an accumulator may overflow");
        }
        bounds[o] = bound;
        product->plain_tail = product->plain_tail && tw_fits_tail(channel, bound);
    }
    return TW_OK;
}

tw_status tw_check_product(tw_prepare *prepare, tw_product *product, const tw_constant *channels,
                           const tw_constant *weight, const tw_constant *table,
                           int64_t weight_type) {
    const tw_tensor *x = tw_input(prepare, 0), *y = tw_output(prepare);
    if (!tw_is_activation(x) || !tw_is_activation(y)) {
        return tw_refuse(prepare, "its operands are not activations");
    }
    if (weight->kind > TW_KIND_S16 || weight->kind != weight_type) {
        return tw_refuse(prepare, "its weights have a type that no product takes");
    }
    if (product->weight_zero < tw_lowest(weight->kind) ||
        product->weight_zero > tw_highest(weight->kind) ||
        (weight->kind == TW_KIND_S16 && product->weight_zero != 0)) {
        return tw_refuse(prepare, "the zero point of its weights is outside their type");
    }
    if (channels->kind != TW_KIND_CHANNEL || channels->shape[0] != product->out_channels) {
        return tw_refuse(prepare, "its channel records do not fit its weights");
    }
    if (product->pre_shift < 0 || product->pre_shift > 16) {
        return tw_refuse(prepare, "its pre-shift is out of range");
    }
    if (table->data != NULL && (table->kind != TW_KIND_S16 || table->shape[0] != 513 ||
                                !tw_is_rescale(product->table_multiplier, product->table_shift))) {
        return tw_refuse(prepare, "its table is malformed");
    }
    product->x_type = x->dtype;
    product->x_zero = x->zero_point;
    product->y_type = y->dtype;
    product->y_zero = y->zero_point;
    product->weight_kind = weight->kind;
    product->weight = weight->data;
    product->channels = channels->data;
    product->table = table->data;
    product->wide = x->dtype == TW_S16 || weight->kind == TW_KIND_S16;
    for (int64_t o = 0; o < product->out_channels; ++o) {
        const tw_channel_record *channel = &product->channels[o];
        if (!tw_is_rescale(channel->multiplier, channel->shift)) {
            return tw_refuse(prepare, "the rescale of a channel is out of range");
        }
        if (table->data == NULL && !tw_is_clamp(y, channel->lo, channel->hi)) {
            return tw_refuse(prepare, "the clamp of a channel is out of range");
        }
    }
    return prove_bound(prepare, product);
}

/* One panel of output channels, all of one group. */
typedef struct tw_panel {
    int64_t group;
    int64_t first; /* output channel */
    int32_t columns;
    int32_t vectors;
    const unsigned char *weights;
    const unsigned char *tail;
} tw_panel;

typedef struct tw_matrix_state {
    tw_product product;
    const tw_matrix_set *set;
    const tw_rows *rows;
    bool direct; /* input rows are read in place */
    bool raw;    /* accumulators are finished by `rows` */
    int64_t item_rows, items_of_image, splits;
    int64_t band_rows, band_columns;
    int64_t pixel_bytes, row_bytes;
    int64_t *taps;
    int64_t tap_count, run, steps; /* input channels and steps of a run */
    tw_panel *panels;
    int64_t panel_count;
    size_t raw_offset; /* of the accumulators in scratch */
} tw_matrix_state;

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* A patch as runs of contiguous input channels: a kernel row where columns touch, else a pixel. */
static tw_status plan_taps(tw_prepare *prepare, tw_matrix_state *state) {
    const tw_product *p = &state->product;
    const bool whole_rows = p->groups == 1 && p->dilation[1] == 1;
    const int64_t columns = whole_rows ? 1 : p->kernel[1];
    state->run = whole_rows ? p->kernel[1] * p->in_channels : p->in_channels / p->groups;
    state->steps = divide_up(state->run, state->set->depth);
    state->tap_count = p->kernel[0] * columns;
    state->taps =
        tw_pool_allocate(&prepare->model->pool, (size_t)state->tap_count * sizeof(int64_t));
    if (state->taps == NULL) {
        return TW_ERROR_MEMORY;
    }
    for (int64_t u = 0; u < p->kernel[0]; ++u) {
        for (int64_t v = 0; v < columns; ++v) {
            state->taps[u * columns + v] =
                u * p->dilation[0] * state->row_bytes + v * p->dilation[1] * state->pixel_bytes;
        }
    }
    return TW_OK;
}

/* Weights of a panel: [tap, step, vector, lane, depth], each as wide as the activations. */
static void pack_weights(const tw_matrix_state *state, const tw_panel *panel, unsigned char *y) {
    const tw_matrix_set *set = state->set;
    const int64_t patch = state->tap_count * state->run;
    for (int64_t t = 0; t < state->tap_count; ++t) {
        for (int64_t s = 0; s < state->steps; ++s) {
            for (int64_t c = 0; c < (int64_t)panel->vectors * set->lanes; ++c) {
                for (int64_t d = 0; d < set->depth; ++d) {
                    const int64_t k = s * set->depth + d;
                    int32_t w = 0;
                    if (k < state->run && c < panel->columns) {
                        w = tw_weight(&state->product,
                                      (panel->first + c) * patch + t * state->run + k);
                    }
                    if (set->x_bytes == 2) {
                        const int16_t value = (int16_t)w;
                        memcpy(y, &value, sizeof value);
                        y += sizeof value;
                    } else {
                        *y++ = (unsigned char)w;
                    }
                }
            }
        }
    }
}

/* The bias of a channel, with what the input's zero point adds where codes are not centred. */
static int64_t folded_bias(const tw_product *product, int64_t channel, int32_t x_bytes) {
    int64_t bias = tw_bias(&product->channels[channel]);
    if (x_bytes == 1) {
        const int64_t patch =
            product->kernel[0] * product->kernel[1] * product->in_channels / product->groups;
        const int64_t zero = product->x_zero + (product->x_type == TW_S8 ? 128 : 0);
        for (int64_t k = 0; k < patch; ++k) {
            bias -= zero * tw_weight(product, channel * patch + k);
        }
    }
    return bias;
}

static tw_status pack_panel(tw_prepare *prepare, const tw_matrix_state *state, tw_panel *panel) {
    const tw_matrix_set *set = state->set;
    const int32_t width = panel->vectors * set->lanes;
    const size_t weights =
        tw_aligned((size_t)(state->tap_count * state->steps * width * set->depth * set->x_bytes));
    const size_t tail =
        set->finishes ? tw_tail_bytes(set->lanes, panel->vectors) : (size_t)width * sizeof(int64_t);
    unsigned char *memory = tw_pool_allocate(&prepare->model->pool, weights + tail);
    if (memory == NULL) {
        return TW_ERROR_MEMORY;
    }
    pack_weights(state, panel, memory);
    panel->weights = memory;
    panel->tail = memory + weights;
    int64_t channels[TW_TILE_VECTORS * 16], biases[TW_TILE_VECTORS * 16];
    for (int32_t c = 0; c < width; ++c) {
        const bool stored = c < panel->columns;
        channels[c] = stored ? panel->first + c : -1;
        biases[c] = stored ? folded_bias(&state->product, panel->first + c, set->x_bytes) : 0;
    }
    if (set->finishes) {
        tw_pack_tail(memory + weights, set->lanes, panel->vectors, &state->product, channels,
                     biases);
    } else {
        memcpy(memory + weights, biases, (size_t)width * sizeof(int64_t));
    }
    return TW_OK;
}

/* Panels of nearly equal width, so that none has few pixels' worth of work a vector. */
static tw_status plan_panels(tw_prepare *prepare, tw_matrix_state *state) {
    const tw_product *p = &state->product;
    const tw_matrix_set *set = state->set;
    const int64_t group_channels = p->out_channels / p->groups;
    const int64_t vectors = divide_up(group_channels, set->lanes);
    const int64_t panels = divide_up(vectors, set->vectors);
    state->panel_count = p->groups * panels;
    state->panels =
        tw_pool_allocate(&prepare->model->pool, (size_t)state->panel_count * sizeof(tw_panel));
    if (state->panels == NULL) {
        return TW_ERROR_MEMORY;
    }
    for (int64_t g = 0; g < p->groups; ++g) {
        int64_t at = 0;
        for (int64_t i = 0; i < panels; ++i) {
            tw_panel *panel = &state->panels[g * panels + i];
            panel->vectors = (int32_t)(vectors / panels + (i < vectors % panels ? 1 : 0));
            panel->group = g;
            panel->first = g * group_channels + at;
            panel->columns =
                (int32_t)tw_min((int64_t)panel->vectors * set->lanes, group_channels - at);
            at += panel->columns;
            tw_status status = pack_panel(prepare, state, panel);
            if (status != TW_OK) {
                return status;
            }
        }
    }
    return TW_OK;
}

static const tw_matrix_set *choose_set(const tw_prepare *prepare, const tw_product *product) {
    if (product->wide) {
        return &tw_matrix_portable64;
    }
#if defined(TW_X86_64)
    const bool bytes = product->weight_low >= -128 && product->weight_high <= 127;
    if (prepare->model->isa == TW_AVX512VNNI && bytes) {
        return &tw_matrix_avx512vnni;
    }
    if (prepare->model->isa == TW_AVXVNNI && bytes) {
        return &tw_matrix_avxvnni;
    }
    if (prepare->model->isa >= TW_AVX2) {
        return &tw_matrix_avx2;
    }
#else
    (void)prepare;
#endif
    return &tw_matrix_portable32;
}

/* A 1x1 product without stride and padding is one long column of pixels. */
static void flatten(tw_product *p) {
    if (p->kernel[0] == 1 && p->kernel[1] == 1 && p->stride[0] == 1 && p->stride[1] == 1 &&
        p->out_rows == p->in_rows && p->out_columns == p->in_columns) {
        p->in_rows = p->out_rows = p->images * p->in_rows * p->in_columns;
        p->images = p->in_columns = p->out_columns = 1;
        p->pad[0] = p->pad[1] = 0;
    }
}

/* Rows of an item: its input stays in the first-level cache where it is one row of pixels, in the
 * second where it is an image. */
static void plan_items(tw_matrix_state *state) {
    const tw_product *p = &state->product;
    const int64_t target = p->out_columns == 1 ? 24 << 10 : 64 << 10;
    const int64_t row = p->stride[0] * p->in_columns * p->in_channels * state->set->x_bytes;
    const int64_t wanted = tw_clamp(target / row, p->out_columns == 1 ? 16 : 1, p->out_rows);
    const int64_t items = tw_max(1, (p->out_rows + wanted / 2) / wanted);
    state->item_rows = divide_up(p->out_rows, items);
    state->items_of_image = divide_up(p->out_rows, state->item_rows);
    const int64_t pieces = state->items_of_image * p->images;
    state->splits = tw_clamp(divide_up(8, pieces), 1, state->panel_count);
    state->band_rows =
        (state->item_rows - 1) * p->stride[0] + (p->kernel[0] - 1) * p->dilation[0] + 1;
}

static void finish(const tw_matrix_state *state, const tw_tile *tile, const tw_panel *panel) {
    const tw_product *p = &state->product;
    const tw_tail tail = {p->channels,    p->table,  p->pre_shift, p->table_multiplier,
                          p->table_shift, p->y_zero, p->y_type};
    const int64_t width = (int64_t)tile->vectors * state->set->lanes;
    for (int32_t m = 0; m < tile->rows; ++m) {
        unsigned char *y = tile->y + m * tile->y_stride;
        if (state->set->accumulator_bytes == 8) {
            state->rows->finish64(y, (const int64_t *)tile->raw + m * width, &tail, panel->first,
                                  panel->columns);
        } else {
            state->rows->finish32(y, (const int32_t *)tile->raw + m * width, &tail, panel->first,
                                  panel->columns);
        }
    }
}

/* All tiles of one panel over output rows [first, first + rows) of an image. */
static void run_panel(const tw_matrix_state *state, const tw_panel *panel,
                      const unsigned char *source, unsigned char *y, int64_t rows, void *raw) {
    const tw_product *p = &state->product;
    const int64_t y_bytes = (int64_t)tw_dtype_bytes(p->y_type);
    const int64_t pixels = rows * p->out_columns;
    const int64_t step = p->stride[1] * state->pixel_bytes;
    const int64_t next_row = p->stride[0] * state->row_bytes;
    const unsigned char *group =
        source + panel->group * (p->in_channels / p->groups) * state->set->x_bytes;
    const int32_t limit = state->set->rows[panel->vectors];
    tw_tile tile = {
        .taps = state->taps,
        .tap_count = state->tap_count,
        .steps = state->steps,
        .weights = panel->weights,
        .tail = panel->tail,
        .vectors = panel->vectors,
        .columns = panel->columns,
        .y_stride = p->out_channels * y_bytes,
        .raw = raw,
    };
    int64_t row = 0, column = 0;
    for (int64_t at = 0; at < pixels; at += tile.rows) {
        tile.rows = (int32_t)tw_min(limit, pixels - at);
        for (int32_t m = 0; m < tile.rows; ++m) {
            tile.x[m] = group + row * next_row + column * step;
            if (++column == p->out_columns) {
                column = 0;
                ++row;
            }
        }
        tile.y = y + (at * p->out_channels + panel->first) * y_bytes;
        state->set->tile(&tile);
        if (raw != NULL) {
            finish(state, &tile, panel);
        }
    }
}

static void run_matrix(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_matrix_state *state = step->state;
    const tw_product *p = &state->product;
    const size_t x_bytes = tw_dtype_bytes(p->x_type), y_bytes = tw_dtype_bytes(p->y_type);
    const size_t in_image = (size_t)(p->in_rows * p->in_columns * p->in_channels) * x_bytes;
    const size_t out_row = (size_t)(p->out_columns * p->out_channels) * y_bytes;
    for (int64_t item = begin; item < end; ++item) {
        const int64_t split = item % state->splits, piece = item / state->splits;
        const int64_t image = piece / state->items_of_image;
        const int64_t first = piece % state->items_of_image * state->item_rows;
        const int64_t rows = tw_min(state->item_rows, p->out_rows - first);
        const unsigned char *source = tw_input_data(step, call, 0) + (size_t)image * in_image;
        if (state->direct) {
            source += first * p->stride[0] * state->row_bytes;
        } else {
            const tw_band band = {
                .loops = state->rows,
                .image = source,
                .in_rows = p->in_rows,
                .in_columns = p->in_columns,
                .in_channels = p->in_channels,
                .first_row = first * p->stride[0] - p->pad[0],
                .first_column = -p->pad[1],
                .rows = state->band_rows - (state->item_rows - rows) * p->stride[0],
                .columns = state->band_columns,
                .x_type = p->x_type,
                .x_zero = p->x_zero,
                .x_bytes = state->set->x_bytes,
                .band = call->scratch,
            };
            tw_fill_band(&band);
            source = call->scratch;
        }
        unsigned char *y =
            tw_output_data(step, call) + (size_t)(image * p->out_rows + first) * out_row;
        void *raw = state->raw ? call->scratch + state->raw_offset : NULL;
        const int64_t from = state->panel_count * split / state->splits;
        const int64_t to = state->panel_count * (split + 1) / state->splits;
        for (int64_t i = from; i < to; ++i) {
            run_panel(state, &state->panels[i], source, y, rows, raw);
        }
    }
}

tw_status tw_plan_matrix(tw_prepare *prepare, const tw_product *product) {
    tw_matrix_state *state = tw_state(prepare, sizeof *state);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    state->product = *product;
    flatten(&state->product);
    const tw_product *p = &state->product;
    state->set = choose_set(prepare, p);
    state->rows = prepare->rows;
    state->raw = !(state->set->finishes && p->plain_tail);
    /* Rows and columns that windows reach beyond the image make a band necessary. */
    const int64_t reach_rows =
        (p->out_rows - 1) * p->stride[0] + (p->kernel[0] - 1) * p->dilation[0] + 1 - p->pad[0];
    const int64_t reach_columns =
        (p->out_columns - 1) * p->stride[1] + (p->kernel[1] - 1) * p->dilation[1] + 1 - p->pad[1];
    const bool padded =
        p->pad[0] > 0 || p->pad[1] > 0 || reach_rows > p->in_rows || reach_columns > p->in_columns;
    state->direct = !padded && ((state->set->x_bytes == 1 && p->x_type == TW_U8) ||
                                (state->set->x_bytes == 2 && p->x_type == TW_S16));
    state->band_columns =
        (p->out_columns - 1) * p->stride[1] + (p->kernel[1] - 1) * p->dilation[1] + 1;
    state->pixel_bytes = p->in_channels * state->set->x_bytes;
    state->row_bytes = (state->direct ? p->in_columns : state->band_columns) * state->pixel_bytes;
    tw_status status = plan_taps(prepare, state);
    if (status == TW_OK) {
        status = plan_panels(prepare, state);
    }
    if (status != TW_OK) {
        return status;
    }
    plan_items(state);
    size_t scratch = 0;
    if (!state->direct) {
        scratch = (size_t)(state->band_rows * state->row_bytes) + 2 * TW_ALIGNMENT;
    }
    state->raw_offset = tw_aligned(scratch);
    const size_t raw = (size_t)(TW_TILE_ROWS * TW_TILE_VECTORS * 16) * sizeof(int64_t);
    prepare->step->scratch = state->raw_offset + raw;
    prepare->step->run = run_matrix;
    prepare->step->items = p->images * state->items_of_image * state->splits;
    prepare->step->grain = 1;
    return TW_OK;
}
