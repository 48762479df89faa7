/* Plans and runs a product: the walk over items and tiles. */

#include "matrix.h"

/* A patch as runs of contiguous input channels: a kernel row where columns touch, else a pixel. */
static tw_status plan_taps(tw_prepare *prepare, tw_matrix_state *state) {
    const tw_product *p = &state->product;
    const bool whole_rows = p->groups == 1 && p->dilation[1] == 1;
    const int64_t columns = whole_rows ? 1 : p->kernel[1];
    state->run = whole_rows ? p->kernel[1] * p->in_channels : p->in_channels / p->groups;
    state->steps = tw_divide_up(state->run, state->set->depth);
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
    state->item_rows = tw_divide_up(p->out_rows, items);
    state->items_of_image = tw_divide_up(p->out_rows, state->item_rows);
    const int64_t pieces = state->items_of_image * p->images;
    state->splits = tw_clamp(tw_divide_up(8, pieces), 1, state->panel_count);
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
        status = tw_pack_panels(prepare, state);
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
