/* Damages graph files in memory, most of them with a checksum that fits again, and loads and runs
 * them: whatever the file says, nothing is read or written out of bounds (build with TW_SANITIZE).
 *
 *     fuzz_graph COUNT SEED FILE...
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../csrc/src/checksum.h"
#include "../../csrc/src/generated/graphfile.h"
#include "tilewright.h"

static uint64_t state;

/* xorshift64* */
static uint64_t next(void) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * UINT64_C(2685821657736338717);
}

static uint64_t below(uint64_t limit) { return next() % limit; }

static unsigned char *read_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return NULL;
    }
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = malloc(*bytes);
    if (data != NULL && fread(data, 1, *bytes, file) != *bytes) {
        free(data);
        data = NULL;
    }
    fclose(file);
    return data;
}

/* Overwrite one place with a value that is often near a limit. */
static void damage(unsigned char *data, size_t bytes) {
    static const int64_t values[] = {0,     1,         -1,        2,         3,        7,   8,
                                     63,    64,        127,       128,       255,      256, 4095,
                                     65535, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    const size_t count = sizeof values / sizeof values[0];
    /* Three of four hit the tables in front of the image, which is most of the file. */
    tw_section_record image;
    memcpy(&image, data + sizeof(tw_file_header) + TW_SECTION_IMAGE * sizeof image, sizeof image);
    size_t limit = bytes;
    if (below(4) != 0 && image.offset > 64 && image.offset < bytes) {
        limit = (size_t)image.offset;
    }
    const size_t widths[] = {1, 2, 4, 8};
    const size_t width = widths[below(4)];
    const size_t at = below(limit - width) / width * width;
    uint64_t value = below(2) ? (uint64_t)values[below(count)] : next();
    if (below(3) == 0) {
        memcpy(&value, data + at, width);
        value += below(5) - 2;
    }
    memcpy(data + at, &value, width);
}

static void seal(unsigned char *data, size_t bytes) {
    const size_t size = sizeof(tw_file_header);
    const uint32_t checksum = tw_crc32(data + size, bytes - size);
    const uint64_t length = bytes;
    memcpy(data + offsetof(tw_file_header, checksum), &checksum, sizeof checksum);
    memcpy(data + offsetof(tw_file_header, bytes), &length, sizeof length);
}

static int run(const unsigned char *data, size_t bytes, int32_t keep) {
    char message[256];
    tw_model *model;
    tw_context *context;
    const tw_options options = {.threads = 1, .keep_tensors = keep};
    if (tw_model_load_memory(data, bytes, &model, message, sizeof message) != TW_OK) {
        return 0;
    }
    if (tw_model_context_bytes(model, &options) < (size_t)1 << 26 &&
        tw_context_create(model, &options, &context) == TW_OK) {
        for (size_t i = 0; i < tw_model_inputs(model); ++i) {
            tw_description input;
            tw_model_input(model, i, &input);
            unsigned char *codes = malloc(input.bytes);
            for (size_t j = 0; codes != NULL && j < input.bytes; ++j) {
                codes[j] = (unsigned char)next();
            }
            tw_context_set_codes(context, i, codes, input.bytes);
            free(codes);
        }
        tw_context_run(context);
        tw_context_release(context);
    }
    tw_model_release(model);
    return 1;
}

int main(int count, char **arguments) {
    if (count < 4) {
        fprintf(stderr, "usage: fuzz_graph COUNT SEED FILE...\n");
        return 2;
    }
    const long rounds = strtol(arguments[1], NULL, 10);
    state = strtoull(arguments[2], NULL, 10) + 1;
    for (int i = 3; i < count; ++i) {
        size_t bytes;
        unsigned char *original = read_file(arguments[i], &bytes);
        int accepted = 0;
        if (original == NULL || !run(original, bytes, 1)) {
            fprintf(stderr, "fuzz_graph: %s does not load undamaged\n", arguments[i]);
            return 1;
        }
        for (long round = 0; round < rounds; ++round) {
            size_t length = below(20) == 0 ? below(bytes) : bytes;
            unsigned char *data = malloc(length + 1);
            memcpy(data, original, length);
            for (uint64_t hits = 1 + below(3); hits > 0 && length > 1024; --hits) {
                damage(data, length);
            }
            if (length >= sizeof(tw_file_header) && below(16) != 0) {
                seal(data, length);
            }
            accepted += run(data, length, (int32_t)below(2));
            free(data);
        }
        printf("%s: %d of %ld accepted\n", arguments[i], accepted, rounds);
        free(original);
    }
    return 0;
}
