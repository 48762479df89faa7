/* Packs the epilogue's parameters for the vector kernels.
 *
 * Products of 32-bit lanes fill 64-bit lanes, every second channel at a time.  For s >= 32
 *     (acc*M + half) >> s  =  ((acc*M + half) >> 32) >> (s - 32)
 * and the first shift is only a choice of the upper half.  A smaller s is made 32 by a larger M.
 * The zero point, times 2**s, is part of `half`.
 *
 * Where a channel's s is too small or too large for this, its vectors take a longer way: a logical
 * 64-bit shift of acc*M + half + 2**62.  As 2**62 is a multiple of 2**s, the low 32 bits are those
 * of the result plus 2**(62-s), which `adjust` takes away while it adds the zero point. */

#include <string.h>

#include "product.h"

/* Vectors of a short tail: biases; multipliers of even and of odd channels; halves of even and of
 * odd channels; shifts.  Of a long one: the same with two vectors of shifts; adjust. */
enum { SMALLEST_SHIFT = 26, LARGEST_SHIFT = 50 };

size_t tw_tail_bytes(int32_t lanes, int32_t vectors) {
    const size_t vector = (size_t)lanes * sizeof(int32_t);
    return (size_t)vectors * TW_TAIL_VECTORS * vector + TW_BOUND_BYTES;
}

/* Below a half in magnitude, every result is zero. */
static void simplify(tw_channel_record *channel, int64_t bound) {
    if (bound * channel->multiplier < INT64_C(1) << (channel->shift - 1)) {
        channel->multiplier = 0;
        channel->shift = 32;
    }
}

bool tw_fits_tail(const tw_channel_record *channel, int64_t bound) {
    return channel->multiplier >= 0 &&
           tw_r24(bound, channel->multiplier, channel->shift) < (INT64_C(1) << 30);
}

static void put_word(unsigned char *vectors, size_t stride, int32_t lane, int64_t word) {
    unsigned char *half = vectors + (size_t)(lane % 2) * stride;
    memcpy(half + (size_t)(lane / 2) * sizeof word, &word, sizeof word);
}

static void put_short(unsigned char *at, size_t stride, int32_t lane,
                      const tw_channel_record *channel, int64_t zero) {
    const int32_t shift = channel->shift < 32 ? 32 : channel->shift;
    const int32_t rest = shift - 32;
    put_word(at + stride, stride, lane,
             (int64_t)channel->multiplier * (INT64_C(1) << (shift - channel->shift)));
    put_word(at + 3 * stride, stride, lane,
             zero * (INT64_C(1) << shift) + (INT64_C(1) << (shift - 1)));
    memcpy(at + 5 * stride + (size_t)lane * sizeof rest, &rest, sizeof rest);
}

static void put_long(unsigned char *at, size_t stride, int32_t lane,
                     const tw_channel_record *channel, int64_t zero) {
    const uint32_t adjust = (uint32_t)zero - (uint32_t)(UINT64_C(1) << (62 - channel->shift));
    put_word(at + stride, stride, lane, channel->multiplier);
    put_word(at + 3 * stride, stride, lane,
             (INT64_C(1) << 62) + (INT64_C(1) << (channel->shift - 1)));
    put_word(at + 5 * stride, stride, lane, channel->shift);
    memcpy(at + 7 * stride + (size_t)lane * sizeof adjust, &adjust, sizeof adjust);
}

void tw_pack_tail(unsigned char *tail, int32_t lanes, int32_t vectors, const tw_product *product,
                  const int64_t *channels, const int64_t *biases) {
    const size_t vector = (size_t)lanes * sizeof(int32_t);
    const size_t stride = (size_t)vectors * vector;
    const int32_t flip = product->y_type == TW_S8 ? 128 : 0;
    const int64_t zero = (int64_t)product->y_zero + flip;
    unsigned char *bounds = tail + TW_TAIL_VECTORS * stride;
    tw_channel_record records[TW_TILE_VECTORS * 16];
    int32_t is_long = 0;
    for (int32_t i = 0; i < vectors * lanes; ++i) {
        records[i] = (tw_channel_record){.shift = 32};
        if (channels[i] >= 0) {
            records[i] = product->channels[channels[i]];
            simplify(&records[i], product->bounds[channels[i]]);
        }
        if (records[i].shift < SMALLEST_SHIFT || records[i].shift > LARGEST_SHIFT) {
            is_long = 1;
        }
    }
    for (int32_t i = 0; i < vectors * lanes; ++i) {
        const int32_t lane = i % lanes;
        unsigned char *at = tail + (size_t)(i / lanes) * vector;
        const uint32_t bias = (uint32_t)biases[i];
        memcpy(at + (size_t)lane * sizeof bias, &bias, sizeof bias);
        (is_long ? put_long : put_short)(at, stride, lane, &records[i], zero);
        bounds[i] = (unsigned char)(records[i].lo + flip);
        bounds[TW_ALIGNMENT + i] = (unsigned char)(records[i].hi + flip);
    }
    memset(bounds + 2 * TW_ALIGNMENT, flip, TW_ALIGNMENT);
    memcpy(bounds + 3 * TW_ALIGNMENT, &is_long, sizeof is_long);
}
