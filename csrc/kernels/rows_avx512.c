#define TW_ROWS_NAME tw_rows_avx512
#include "rows.inc.h"
