#define TW_ROWS_NAME tw_rows_avx2
#include "rows.inc.h"
