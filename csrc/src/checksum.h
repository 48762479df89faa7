#ifndef TW_CHECKSUM_H
#define TW_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32 as in zlib. */
uint32_t tw_crc32(const unsigned char *data, size_t bytes);

#endif
