/* Panels of output channels: weights in the order in which tiles read them. */

#include "matrix.h"

#include <string.h>

/* The weight that step `step` of tap `tap` has for column `column` and input channel `d` of the
 * step; zero beyond the run and beyond the panel. */
static int32_t step_weight(const tw_matrix_state *state, const tw_panel *panel, int64_t tap,
                           int64_t step, int64_t column, int64_t d) {
    const int64_t patch = state->tap_count * state->run;
    const int64_t k = step * state->set->depth + d;
    if (k >= state->run || column >= panel->columns) {
        return 0;
    }
    return tw_weight(&state->product, (panel->first + column) * patch + tap * state->run + k);
}

static unsigned char *put_weight(unsigned char *y, int32_t w, int32_t bytes) {
    const int16_t value = (int16_t)w;
    memcpy(y, &value, (size_t)bytes); /* little-endian: the low byte comes first */
    return y + bytes;
}

/* Weights of a step: [column, depth], each as wide as the activations. */
static unsigned char *pack_step(const tw_matrix_state *state, const tw_panel *panel, int64_t tap,
                                int64_t step, unsigned char *y) {
    const tw_matrix_set *set = state->set;
    for (int64_t c = 0; c < (int64_t)panel->vectors * set->lanes; ++c) {
        for (int64_t d = 0; d < set->depth; ++d) {
            y = put_weight(y, step_weight(state, panel, tap, step, c, d), set->x_bytes);
        }
    }
    return y;
}

static void pack_weights(const tw_matrix_state *state, const tw_panel *panel, unsigned char *y) {
    for (int64_t t = 0; t < state->tap_count; ++t) {
        for (int64_t s = 0; s < state->steps; ++s) {
            y = pack_step(state, panel, t, s, y);
        }
    }
}

static tw_status pack_panel(tw_prepare *prepare, const tw_matrix_state *state, tw_panel *panel) {
    const tw_matrix_set *set = state->set;
    const int32_t width = panel->vectors * set->lanes;
    const int64_t steps = state->tap_count * state->steps;
    const size_t weights = tw_aligned((size_t)(steps * width * set->depth * set->x_bytes));
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
        biases[c] = stored ? tw_folded_bias(&state->product, panel->first + c, set->x_bytes) : 0;
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
tw_status tw_pack_panels(tw_prepare *prepare, tw_matrix_state *state) {
    const tw_product *p = &state->product;
    const tw_matrix_set *set = state->set;
    const int64_t group_channels = p->out_channels / p->groups;
    const int64_t vectors = tw_divide_up(group_channels, set->lanes);
    const int64_t panels = tw_divide_up(vectors, set->vectors);
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
