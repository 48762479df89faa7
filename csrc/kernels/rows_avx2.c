#include <stdint.h>
#include <string.h>

#include "simd_avx2.h"

#define TW_ROWS_NAME tw_rows_avx2
#include "rows.inc.h"
