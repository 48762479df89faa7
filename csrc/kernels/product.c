/* Checks that all products share, and access to their weights and biases. */

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

/* The bias of a channel, with what the input's zero point adds where codes are not centred. */
int64_t tw_folded_bias(const tw_product *product, int64_t channel, int32_t x_bytes) {
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
