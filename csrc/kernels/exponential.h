/* The exponential of Softmax and attention (section 11 of the arithmetic). */

#ifndef TW_EXPONENTIAL_H
#define TW_EXPONENTIAL_H

#include <stdint.h>

/* 2**-(t / 65536) in Q23. */
int64_t tw_exponential(int64_t t);

#endif
