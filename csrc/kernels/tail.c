/* Packs the epilogue's parameters for the vector kernels.
 *
 * Products of 32-bit lanes fill 64-bit lanes, every second channel at a time.  For s >= 32
 *     (acc*M + half) >> s  =  ((acc*M + half) >> 32) >> (s - 32)
 * and the first shift is only a choice of the upper half.  A smaller s is made 32 by a larger M.
 * The zero point, times 2**s, is part of `half`. */

#include <string.h>

#include "product.h"

/* biases; multipliers of even and odd channels; halves of even and odd channels; shifts */
enum { TAIL_VECTORS = 6, SMALLEST_SHIFT = 26, LARGEST_SHIFT = 50 };

size_t tw_tail_bytes(int32_t lanes, int32_t vectors) {
    const size_t vector = (size_t)lanes * sizeof(int32_t);
    return (size_t)vectors * TAIL_VECTORS * vector + 3 * TW_ALIGNMENT;
}

bool tw_fit_tail(tw_channel_record *channel, int64_t bound) {
    if (channel->multiplier < 0) {
        return false;
    }
    /* Below a half in magnitude, every result is zero; bound < 2**31. */
    if (bound * channel->multiplier < INT64_C(1) << (channel->shift - 1)) {
        channel->multiplier = 0;
        channel->shift = 32;
    }
    return channel->shift >= SMALLEST_SHIFT && channel->shift <= LARGEST_SHIFT;
}

void tw_pack_tail(unsigned char *tail, int32_t lanes, int32_t vectors, const tw_product *product,
                  const int64_t *channels, const int64_t *biases) {
    const size_t vector = (size_t)lanes * sizeof(int32_t);
    const size_t stride = (size_t)vectors * vector;
    const int32_t flip = product->y_type == TW_S8 ? 128 : 0;
    unsigned char *bounds = tail + TAIL_VECTORS * stride;
    for (int32_t i = 0; i < vectors * lanes; ++i) {
        tw_channel_record channel = {.shift = 32};
        if (channels[i] >= 0) {
            channel = product->channels[channels[i]];
            tw_fit_tail(&channel, product->bounds[channels[i]]);
        }
        const int32_t lane = i % lanes;
        const int32_t shift = channel.shift < 32 ? 32 : channel.shift;
        const int64_t zero = (int64_t)product->y_zero + flip;
        unsigned char *at = tail + (size_t)(i / lanes) * vector;
        const uint32_t bias = (uint32_t)biases[i];
        const int64_t words[2] = {
            (int64_t)channel.multiplier * (INT64_C(1) << (shift - channel.shift)),
            zero * (INT64_C(1) << shift) + (INT64_C(1) << (shift - 1)),
        };
        const uint32_t rest = (uint32_t)(shift - 32);
        memcpy(at + (size_t)lane * sizeof bias, &bias, sizeof bias);
        for (int32_t w = 0; w < 2; ++w) {
            unsigned char *half = at + (size_t)(1 + 2 * w + lane % 2) * stride;
            memcpy(half + (size_t)(lane / 2) * sizeof(int64_t), &words[w], sizeof(int64_t));
        }
        memcpy(at + 5 * stride + (size_t)lane * sizeof rest, &rest, sizeof rest);
        bounds[i] = (unsigned char)(channel.lo + flip);
        bounds[TW_ALIGNMENT + i] = (unsigned char)(channel.hi + flip);
    }
    memset(bounds + 2 * TW_ALIGNMENT, flip, TW_ALIGNMENT);
}
