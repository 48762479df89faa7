#define TW_ROWS_NAME tw_rows_portable
#include "rows.inc.h"
