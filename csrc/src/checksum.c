#include "checksum.h"

/* Eight tables: eight bytes a step. */
typedef struct tw_crc_tables {
    uint32_t entry[8][256];
} tw_crc_tables;

static void make_tables(tw_crc_tables *tables) {
    for (uint32_t i = 0; i < 256; ++i) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc >> 1) ^ ((crc & 1) ? UINT32_C(0xEDB88320) : 0);
        }
        tables->entry[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; ++i) {
        for (int t = 1; t < 8; ++t) {
            const uint32_t previous = tables->entry[t - 1][i];
            tables->entry[t][i] = (previous >> 8) ^ tables->entry[0][previous & 255];
        }
    }
}

uint32_t tw_crc32(const unsigned char *data, size_t bytes) {
    tw_crc_tables tables;
    uint32_t crc = UINT32_MAX;
    size_t at = 0;
    make_tables(&tables);
    for (; bytes - at >= 8; at += 8) {
        const unsigned char *p = data + at;
        crc = tables.entry[7][(crc ^ p[0]) & 255] ^ tables.entry[6][((crc >> 8) ^ p[1]) & 255] ^
              tables.entry[5][((crc >> 16) ^ p[2]) & 255] ^ tables.entry[4][(crc >> 24) ^ p[3]] ^
              tables.entry[3][p[4]] ^ tables.entry[2][p[5]] ^ tables.entry[1][p[6]] ^
              tables.entry[0][p[7]];
    }
    for (; at < bytes; ++at) {
        crc = (crc >> 8) ^ tables.entry[0][(crc ^ data[at]) & 255];
    }
    return ~crc;
}
