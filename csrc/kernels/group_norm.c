/* GroupNorm: [images, places, channels], groups of neighbouring channels over all places.  An item
 * is some groups of an image; where it is all of them, several places stand side by side and are
 * handled as one row. */

#include <string.h>

#include "normalize.h"

enum {
    LEAST_CHANNELS = 64,   /* of an item, if there are as many */
    PLACES_AT_ONCE = 32768 /* sums of 16-bit values over these fit 32 bits */
};

typedef struct tw_group_norm {
    tw_norm norm;
    int64_t places, channels;
    int64_t width;         /* channels of a group */
    int64_t item_channels; /* whole groups */
    int64_t items;         /* of an image */
    int64_t repeat;        /* places of a row */
} tw_group_norm;

/* A thread's working memory: for each channel of a row its sums, its group's quotient, that
 * quotient as vectors take it, and its gain. */
typedef struct tw_group_memory {
    tw_quotient *quotients;
    int64_t *sums, *squares;
    int64_t *bias[2], *fraction[2];
    int32_t *share, *back;
    int32_t *part;        /* of `sums` */
    uint32_t *low, *high; /* of `squares` */
    tw_gains gains;
} tw_group_memory;

static size_t memory_bytes(int64_t lanes) {
    return tw_norm_room(lanes) * (sizeof(tw_quotient) + 5 * sizeof(int64_t) + 6 * sizeof(int32_t));
}

static tw_group_memory memory_of(unsigned char *scratch, int64_t lanes) {
    const size_t n = tw_norm_room(lanes);
    tw_group_memory m = {.quotients = (tw_quotient *)(void *)scratch};
    m.sums = (int64_t *)(void *)(m.quotients + n);
    m.squares = m.sums + n;
    for (size_t odd = 0; odd < 2; ++odd) {
        m.bias[odd] = m.squares + n + odd * n / 2;
        m.fraction[odd] = m.squares + 2 * n + odd * n / 2;
        m.gains.offset[odd] = m.squares + 3 * n + odd * n / 2;
    }
    m.share = (int32_t *)(void *)(m.squares + 4 * n);
    m.back = m.share + n;
    m.part = m.back + n;
    m.gains.gain = m.part + n;
    m.low = (uint32_t *)(void *)(m.gains.gain + n);
    m.high = m.low + n;
    return m;
}

/* Sums of every lane over up to PLACES_AT_ONCE places. */
static void add_places(const tw_group_norm *state, const tw_group_memory *m, const unsigned char *x,
                       int64_t places, int64_t channels) {
    const tw_norm *norm = &state->norm;
    const size_t size = tw_dtype_bytes(norm->x_type);
    const int64_t lanes = channels * state->repeat;
    int16_t values[TW_ROW_BLOCK];
    memset(m->part, 0, (size_t)lanes * sizeof(int32_t));
    memset(m->low, 0, (size_t)lanes * sizeof(int32_t));
    memset(m->high, 0, (size_t)lanes * sizeof(int32_t));
    for (int64_t place = 0; place < places; place += state->repeat) {
        const unsigned char *row = x + (size_t)(place * state->channels) * size;
        const int64_t count = channels * tw_min(state->repeat, places - place);
        for (int64_t at = 0; at < count; at += TW_ROW_BLOCK) {
            const int64_t n = tw_min(TW_ROW_BLOCK, count - at);
            norm->rows->widen16(values, row + (size_t)at * size, norm->x_type, norm->x_zero, n);
            norm->rows->lane_moments(m->part + at, m->low + at, m->high + at, values, n);
        }
    }
    for (int64_t lane = 0; lane < lanes; ++lane) {
        m->sums[lane % channels] += m->part[lane];
        m->squares[lane % channels] += ((int64_t)m->high[lane] << 16) + m->low[lane];
    }
}

/* The quotient of every lane's group. */
static void measure(const tw_group_norm *state, const tw_group_memory *m, const unsigned char *x,
                    int64_t channels) {
    const size_t row = (size_t)state->channels * tw_dtype_bytes(state->norm.x_type);
    memset(m->sums, 0, (size_t)channels * sizeof(int64_t));
    memset(m->squares, 0, (size_t)channels * sizeof(int64_t));
    for (int64_t place = 0; place < state->places; place += PLACES_AT_ONCE) {
        const int64_t places = tw_min(PLACES_AT_ONCE, state->places - place);
        add_places(state, m, x + (size_t)place * row, places, channels);
    }
    for (int64_t first = 0; first < channels; first += state->width) {
        int64_t sum = 0, squares = 0;
        for (int64_t c = first; c < first + state->width; ++c) {
            sum += m->sums[c];
            squares += m->squares[c];
        }
        m->quotients[first] = tw_norm_quotient(&state->norm, sum, squares);
    }
    for (int64_t lane = 0; lane < channels * state->repeat; ++lane) {
        m->quotients[lane] = m->quotients[lane % channels / state->width * state->width];
    }
}

/* Quotients as vectors take them; only where the norm is fast. */
static void spread(const tw_group_memory *m, int64_t lanes) {
    for (int64_t i = 0; i < lanes; ++i) {
        const tw_quotient *q = &m->quotients[i];
        const int64_t half = INT64_C(1) << (q->fraction - 1);
        m->share[i] = (int32_t)q->share;
        m->back[i] = (int32_t)(uint32_t)(TW_LIFT >> q->fraction);
        m->bias[i % 2][i / 2] = TW_LIFT + half - q->total * q->share;
        m->fraction[i % 2][i / 2] = q->fraction;
    }
}

static tw_lanes lanes_from(const tw_group_norm *state, const tw_group_memory *m, int64_t at) {
    return (tw_lanes){
        .factor = (int32_t)state->norm.factor,
        .share = m->share + at,
        .back = m->back + at,
        .bias = {m->bias[0] + at / 2, m->bias[1] + at / 2},
        .fraction = {m->fraction[0] + at / 2, m->fraction[1] + at / 2},
    };
}

/* A block of every row. */
static void apply(const tw_group_norm *state, const tw_lanes *lanes, const tw_quotient *quotients,
                  const tw_affine *affine, const unsigned char *x, unsigned char *y,
                  int64_t channels) {
    const tw_norm *norm = &state->norm;
    const size_t x_row = (size_t)state->channels * tw_dtype_bytes(norm->x_type);
    const size_t y_row = (size_t)state->channels * tw_dtype_bytes(norm->y_type);
    int16_t values[TW_ROW_BLOCK];
    int32_t codes[TW_ROW_BLOCK];
    for (int64_t place = 0; place < state->places; place += state->repeat) {
        const int64_t n = channels * tw_min(state->repeat, state->places - place);
        norm->rows->widen16(values, x + (size_t)place * x_row, norm->x_type, norm->x_zero, n);
        if (norm->fast) {
            norm->rows->normalize_lanes(codes, values, lanes, affine, n);
        } else {
            for (int64_t i = 0; i < n; ++i) {
                codes[i] = tw_norm_element(values[i], &quotients[i], affine, i);
            }
        }
        norm->rows->narrow(y + (size_t)place * y_row, norm->y_type, codes, n);
    }
}

static void run_groups(const tw_step *step, const tw_call *call, int64_t begin, int64_t end) {
    const tw_group_norm *state = step->state;
    const tw_norm *norm = &state->norm;
    const size_t x_size = tw_dtype_bytes(norm->x_type), y_size = tw_dtype_bytes(norm->y_type);
    const tw_group_memory m = memory_of(call->scratch, state->item_channels * state->repeat);
    for (int64_t item = begin; item < end; ++item) {
        const int64_t first = item % state->items * state->item_channels;
        const int64_t channels = tw_min(state->item_channels, state->channels - first);
        const size_t image = (size_t)(item / state->items * state->places * state->channels);
        const unsigned char *x = tw_input_data(step, call, 0) + (image + (size_t)first) * x_size;
        unsigned char *y = tw_output_data(step, call) + (image + (size_t)first) * y_size;
        measure(state, &m, x, channels);
        if (norm->fast) {
            spread(&m, channels * state->repeat);
        }
        const tw_affine all = tw_norm_affine(norm, &m.gains, first, channels, state->repeat);
        for (int64_t at = 0; at < channels; at += TW_ROW_BLOCK) {
            const tw_affine affine = tw_affine_from(&all, at);
            const tw_lanes lanes = lanes_from(state, &m, at);
            apply(state, &lanes, m.quotients + at, &affine, x + (size_t)at * x_size,
                  y + (size_t)at * y_size, tw_min(TW_ROW_BLOCK, channels - at));
        }
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
    const int64_t width = channels / op->groups, places = x->elements / x->shape[0] / channels;
    const int64_t groups = tw_min((LEAST_CHANNELS + width - 1) / width, op->groups);
    *state = (tw_group_norm){
        .norm = {.factor = places * width, .top = 45, .centred = true},
        .places = places,
        .channels = channels,
        .width = width,
        .item_channels = groups * width,
        .items = (op->groups + groups - 1) / groups,
        .repeat = groups < op->groups ? 1 : tw_max(1, TW_ROW_BLOCK / channels),
    };
    const tw_norm_fields fields = {op->epsilon, op->shift, op->clamp, &op->gains};
    prepare->step->run = run_groups;
    prepare->step->items = x->shape[0] * state->items;
    prepare->step->grain = 1;
    prepare->step->scratch = memory_bytes(state->item_channels * state->repeat);
    return tw_prepare_norm(prepare, &state->norm, &fields, places * width, channels);
}
