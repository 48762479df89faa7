/* Between float values or pictures and codes (section 3 of the arithmetic). */

#ifndef TW_BORDER_H
#define TW_BORDER_H

#include "../kernels/rows.h"
#include "model.h"

/* `values` in ONNX order, `codes` in stored order. */
void tw_quantize(const tw_rows *rows, const tw_border *border, const tw_tensor *tensor,
                 const float *values, unsigned char *codes);
void tw_dequantize(const tw_border *border, const tw_tensor *tensor, const unsigned char *codes,
                   float *values);

size_t tw_picture_bytes(const tw_border *border, const tw_tensor *tensor);
void tw_look_up_pixels(const tw_border *border, const tw_tensor *tensor, const uint8_t *pixels,
                       unsigned char *codes);

#endif
