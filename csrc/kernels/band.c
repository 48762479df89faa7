#include <string.h>

#include "product.h"

static void fill(const tw_band *band, unsigned char *y, int64_t pixels) {
    const size_t count = (size_t)(pixels * band->in_channels);
    if (band->x_bytes == 2) {
        memset(y, 0, 2 * count);
    } else {
        memset(y, band->x_type == TW_S8 ? band->x_zero + 128 : band->x_zero, count);
    }
}

static void convert(const tw_band *band, unsigned char *y, const unsigned char *x, int64_t pixels) {
    const int64_t count = pixels * band->in_channels;
    if (band->x_bytes == 2) {
        band->loops->widen16((int16_t *)(void *)y, x, band->x_type, band->x_zero, count);
    } else if (band->x_type == TW_S8) {
        band->loops->flip(y, x, count);
    } else {
        memcpy(y, x, (size_t)count);
    }
}

/* Whole rows of the image are one run of pixels. */
static void fill_whole_rows(const tw_band *band, int64_t pixel, int64_t stored) {
    const int64_t before = tw_clamp(-band->first_row, 0, band->rows);
    const int64_t end = tw_clamp(band->in_rows - band->first_row, before, band->rows);
    const int64_t first = (band->first_row + before) * band->in_columns;
    fill(band, band->band, before * band->columns);
    if (end > before) {
        convert(band, band->band + before * band->columns * pixel, band->image + first * stored,
                (end - before) * band->columns);
    }
    fill(band, band->band + end * band->columns * pixel, (band->rows - end) * band->columns);
}

void tw_fill_band(const tw_band *band) {
    const int64_t pixel = band->in_channels * band->x_bytes;
    const int64_t stored = band->in_channels * (int64_t)tw_dtype_bytes(band->x_type);
    if (band->first_column == 0 && band->columns == band->in_columns) {
        fill_whole_rows(band, pixel, stored);
        return;
    }
    const int64_t left = tw_clamp(-band->first_column, 0, band->columns);
    const int64_t end = tw_clamp(band->in_columns - band->first_column, left, band->columns);
    for (int64_t r = 0; r < band->rows; ++r) {
        unsigned char *y = band->band + r * band->columns * pixel;
        const int64_t row = band->first_row + r;
        if (row < 0 || row >= band->in_rows) {
            fill(band, y, band->columns);
            continue;
        }
        const int64_t at = row * band->in_columns + band->first_column + left;
        fill(band, y, left);
        if (end > left) {
            convert(band, y + left * pixel, band->image + at * stored, end - left);
        }
        fill(band, y + end * pixel, band->columns - end);
    }
}
