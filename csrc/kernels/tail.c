/* Packs the epilogue's parameters for `epilogue.inc.h`.
 *
 * A 64-bit lane holds every second channel: y = ((acc*M + half + 2**62) >> s), a logical shift.
 * 2**62 is a multiple of 2**s, so the low 32 bits of y are those of the wanted result plus
 * 2**(62-s), which `adjust` takes away together with adding the zero point. */

#include <string.h>

#include "product.h"

/* bias, multipliers, halves, shifts of even and odd channels, adjust */
enum { TAIL_VECTORS = 8 };

size_t tw_tail_bytes(int32_t lanes, int32_t vectors) {
    const size_t vector = (size_t)lanes * sizeof(int32_t);
    return (size_t)vectors * TAIL_VECTORS * vector + 3 * TW_ALIGNMENT;
}

void tw_pack_tail(unsigned char *tail, int32_t lanes, int32_t vectors, const tw_product *product,
                  const int64_t *channels, const int64_t *biases) {
    const size_t vector = (size_t)lanes * sizeof(int32_t);
    const uint32_t flip = product->y_type == TW_S8 ? 128 : 0;
    unsigned char *bounds = tail + (size_t)vectors * TAIL_VECTORS * vector;
    for (int32_t i = 0; i < vectors * lanes; ++i) {
        tw_channel_record channel = {.shift = 62};
        if (channels[i] >= 0) {
            channel = product->channels[channels[i]];
        }
        const int32_t lane = i % lanes;
        unsigned char *at = tail + (size_t)(i / lanes) * vector;
        const size_t stride = (size_t)vectors * vector;
        const uint32_t bias = (uint32_t)biases[i];
        memcpy(at + (size_t)lane * sizeof bias, &bias, sizeof bias);
        const uint64_t words[3] = {
            (uint64_t)channel.multiplier,
            (UINT64_C(1) << 62) + (UINT64_C(1) << (channel.shift - 1)),
            channel.shift,
        };
        for (int32_t w = 0; w < 3; ++w) {
            unsigned char *half = at + (size_t)(1 + 2 * w + lane % 2) * stride;
            memcpy(half + (size_t)(lane / 2) * sizeof(uint64_t), &words[w], sizeof(uint64_t));
        }
        const uint32_t adjust =
            (uint32_t)product->y_zero + flip - (uint32_t)(UINT64_C(1) << (62 - channel.shift));
        memcpy(at + 7 * stride + (size_t)lane * sizeof adjust, &adjust, sizeof adjust);
        bounds[i] = (unsigned char)((uint32_t)channel.lo + flip);
        bounds[TW_ALIGNMENT + i] = (unsigned char)((uint32_t)channel.hi + flip);
    }
    memset(bounds + 2 * TW_ALIGNMENT, (int)flip, TW_ALIGNMENT);
}
