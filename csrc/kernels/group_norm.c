/* GroupNorm: [images, places, channels], groups of neighbouring channels over all places. */

#include <string.h>

#include "normalize.h"

enum { LEAST_LANES = 32 }; /* channels that an item has, if there are as many */

typedef struct tw_group_norm {
    tw_norm norm;
    int64_t places, channels;
    int64_t width, groups; /* channels of a group, groups of an item */
    int64_t items;         /* of an image */
} tw_group_norm;

/* A thread's working memory, one element for each channel of an item. */
typedef struct tw_lanes {
    tw_quotient *groups;
    int64_t *sums, *squares;
} tw_lanes;

static tw_lanes lanes_of(const tw_group_norm *state, unsigned char *scratch) {
    const int64_t n = state->groups * state->width;
    tw_quotient *groups = (tw_quotient *)(void *)scratch;
    int64_t *sums = (int64_t *)(void *)(groups + n);
    return (tw_lanes){groups, sums, sums + n};
}

/* Sums of every channel, then what its group makes of them. */
static void measure(const tw_group_norm *state, const tw_lanes *lanes, const unsigned char *x,
                    int64_t channels) {
    const tw_norm *norm = &state->norm;
    const size_t size = tw_dtype_bytes(norm->x_type);
    int16_t values[TW_ROW_BLOCK];
    memset(lanes->sums, 0, (size_t)channels * sizeof(int64_t));
    memset(lanes->squares, 0, (size_t)channels * sizeof(int64_t));
    for (int64_t place = 0; place < state->places; ++place) {
        const unsigned char *row = x + (size_t)(place * state->channels) * size;
        for (int64_t at = 0; at < channels; at += TW_ROW_BLOCK) {
            const int64_t n = tw_min(TW_ROW_BLOCK, channels - at);
            norm->rows->widen16(values, row + (size_t)at * size, norm->x_type, norm->x_zero, n);
            norm->rows->lane_moments(lanes->sums + at, lanes->squares + at, values, n);
        }
    }
    for (int64_t first = 0; first < channels; first += state->width) {
        int64_t sum = 0, squares = 0;
        for (int64_t c = first; c < first + state->width; ++c) {
            sum += lanes->sums[c];
            squares += lanes->squares[c];
        }
        const tw_quotient group = tw_norm_quotient(norm, sum, squares);
        for (int64_t c = first; c < first + state->width; ++c) {
            lanes->groups[c] = group;
        }
    }
}

static void apply(const tw_group_norm *state, const tw_lanes *lanes, const unsigned char *x,
                  unsigned char *y, int64_t first, int64_t channels) {
    const tw_norm *norm = &state->norm;
    const size_t x_size = tw_dtype_bytes(norm->x_type), y_size = tw_dtype_bytes(norm->y_type);
    int16_t values[TW_ROW_BLOCK];
    for (int64_t at = 0; at < channels; at += TW_ROW_BLOCK) {
        const int64_t n = tw_min(TW_ROW_BLOCK, channels - at);
        const tw_affine affine = tw_affine_from(&norm->affine, first + at);
        for (int64_t place = 0; place < state->places; ++place) {
            const size_t offset = (size_t)(place * state->channels + at);
            norm->rows->widen16(values, x + offset * x_size, norm->x_type, norm->x_zero, n);
            tw_norm_lanes(norm, y + offset * y_size, values, lanes->groups + at, &affine, n);
        }
    }
}

static void run_groups(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_group_norm *state = step->state;
    const size_t x_size = tw_dtype_bytes(state->norm.x_type);
    const size_t y_size = tw_dtype_bytes(state->norm.y_type);
    const tw_lanes lanes = lanes_of(state, call->scratch);
    for (int64_t item = begin; item < end; ++item) {
        const int64_t first = item % state->items * state->groups * state->width;
        const int64_t channels = tw_min(state->groups * state->width, state->channels - first);
        const size_t offset =
            (size_t)(item / state->items * state->places * state->channels + first);
        const unsigned char *x = tw_input_data(step, call, 0) + offset * x_size;
        measure(state, &lanes, x, channels);
        apply(state, &lanes, x, tw_output_data(step, call) + offset * y_size, first, channels);
    }
}

tw_status tw_prepare_group_norm(tw_prepare *prepare) {
    const tw_group_norm_fields *op = prepare->node->fields;
    tw_status status = tw_check_operands(prepare, 1);
    if (status != TW_OK) {
        return status;
    }
    const tw_tensor *x = tw_input(prepare, 0);
    const int64_t channels = x->rank < 2 ? 0 : x->shape[x->rank - 1];
    if (channels == 0 || op->groups < 1 || channels % op->groups != 0) {
        return tw_refuse(prepare, "its groups do not divide its channels");
    }
    tw_group_norm *state = tw_state(prepare, sizeof *state);
    if (state == NULL) {
        return TW_ERROR_MEMORY;
    }
    const int64_t width = channels / op->groups;
    const int64_t groups = tw_min((LEAST_LANES + width - 1) / width, op->groups);
    *state = (tw_group_norm){
        .places = x->elements / x->shape[0] / channels,
        .channels = channels,
        .width = width,
        .groups = groups,
        .items = (op->groups + groups - 1) / groups,
    };
    state->norm.factor = state->places * width;
    state->norm.top = 45;
    state->norm.centred = true;
    const tw_norm_fields fields = {op->epsilon, op->shift, op->clamp, &op->gains};
    status = tw_prepare_norm(prepare, &state->norm, &fields, state->norm.factor, channels);
    prepare->step->run = run_groups;
    prepare->step->items = x->shape[0] * state->items;
    prepare->step->grain = 1;
    prepare->step->scratch = (size_t)(groups * width) * (sizeof(tw_quotient) + 2 * sizeof(int64_t));
    return status;
}
