/* Depthwise convolution of a last, half-empty block: vpdpbusd of AVX512-VNNI in 256 bits. */

#define DOT _mm256_dpbusd_epi32

#include "depthwise_half.inc.h"

const tw_depthwise_set tw_depthwise_half_avx512vnni = {
    .block = BLOCK,
    .lanes = LANES,
    .group = GROUP,
    .x_bytes = X_BYTES,
    .channel = channel_of,
    .row = depthwise_row,
};
