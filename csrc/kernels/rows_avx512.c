#include <stdint.h>
#include <string.h>

#include "simd_avx512.h"

#define TW_ROWS_NAME tw_rows_avx512
#include "rows.inc.h"
