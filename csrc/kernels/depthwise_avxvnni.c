/* Depthwise convolution in 256 bits: vpdpbusd of AVX-VNNI. */

#define DOT _mm256_dpbusd_avx_epi32

#include "depthwise_half.inc.h"

const tw_depthwise_set tw_depthwise_avxvnni = {
    .block = BLOCK,
    .lanes = LANES,
    .group = GROUP,
    .x_bytes = X_BYTES,
    .channel = channel_of,
    .row = depthwise_row,
};
