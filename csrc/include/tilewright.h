/* Tilewright runtime: runs a graph file (`model.twg`) on a CPU.
 *
 *     tw_model *model;
 *     tw_context *context;
 *     char message[256];
 *     if (tw_model_load_file("model.twg", &model, message, sizeof message) != TW_OK) ...
 *     tw_options options = {.threads = 2};
 *     tw_context_create(model, &options, &context);
 *     tw_context_set_float(context, 0, pixels, pixel_count);
 *     tw_context_run(context);
 *     tw_context_get_float(context, 0, scores, score_count);
 *     tw_context_release(context);
 *     tw_model_release(model);
 *
 * A model is read-only after loading: any number of contexts, each used by one thread at a time,
 * may share it.  After tw_context_create nothing is allocated.  Results are the same bits on every
 * processor, for every instruction set and every number of threads.
 */

#ifndef TILEWRIGHT_H
#define TILEWRIGHT_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define TW_API
#else
#define TW_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tw_model tw_model;
typedef struct tw_context tw_context;

typedef enum tw_status {
    TW_OK = 0,
    TW_ERROR_FILE = 1,        /* the file cannot be opened or read */
    TW_ERROR_FORMAT = 2,      /* it is no graph file, or it is damaged */
    TW_ERROR_VERSION = 3,     /* it is of a format version that this runtime does not know */
    TW_ERROR_UNSUPPORTED = 4, /* an operator or a combination of types without a kernel */
    TW_ERROR_MEMORY = 5,      /* out of memory */
    TW_ERROR_ARGUMENT = 6,    /* an argument is wrong: an index, a size, a missing picture border */
    TW_ERROR_THREAD = 7,      /* a thread cannot be started */
} tw_status;

/* Types of stored tensors. */
typedef enum tw_dtype { TW_U8 = 0, TW_S8 = 1, TW_S16 = 2, TW_S32 = 3, TW_S64 = 4 } tw_dtype;

enum { TW_RANK_LIMIT = 8, TW_THREAD_LIMIT = 64 };

/* A graph input, a graph output or any stored tensor.
 *
 * `real = scale * (code - zero_point)`.  Codes are stored in the order of `stored_shape`, float
 * values in that of `shape`, the ONNX shape: stored axis i holds ONNX axis permutation[i].  For a
 * tensor that is no border the two are the same.
 */
typedef struct tw_description {
    const char *name;
    int32_t rank;
    int32_t dtype; /* tw_dtype */
    float scale;
    int32_t zero_point;
    int32_t
        picture_channels; /* channels of the u8 picture that the input takes; 0: it takes none */
    int32_t reserved;
    size_t elements;
    size_t bytes; /* of the codes */
    int64_t shape[TW_RANK_LIMIT];
    int64_t stored_shape[TW_RANK_LIMIT];
    int64_t permutation[TW_RANK_LIMIT];
} tw_description;

/* How a context runs; zero is a good value for every member. */
typedef struct tw_options {
    int32_t threads;      /* 1 to TW_THREAD_LIMIT; 0 means 1 */
    int32_t keep_tensors; /* nonzero: no memory is reused, tw_context_read_tensor works for all */
    int32_t measure;      /* nonzero: tw_context_node_nanoseconds works */
    int32_t reserved;
} tw_options;

/* "MAJOR.MINOR.PATCH". */
TW_API const char *tw_version(void);
TW_API const char *tw_status_text(tw_status status);

/* Load a model; everything in it is checked.  `message` (may be NULL) receives one sentence on
 * failure.  The memory of tw_model_load_memory stays the caller's and must outlive the model. */
TW_API tw_status tw_model_load_file(const char *path, tw_model **model, char *message,
                                    size_t message_bytes);
TW_API tw_status tw_model_load_memory(const void *data, size_t bytes, tw_model **model,
                                      char *message, size_t message_bytes);
TW_API void tw_model_release(tw_model *model);

TW_API const char *tw_model_name(const tw_model *model);

/* The instruction set of its kernels: "portable", "avx2", "avxvnni" or "avx512vnni".  The
 * environment variable TILEWRIGHT_ISA, read while a model is loaded, chooses one below the
 * processor's. */
TW_API const char *tw_model_isa(const tw_model *model);

TW_API size_t tw_model_inputs(const tw_model *model);
TW_API size_t tw_model_outputs(const tw_model *model);
TW_API tw_status tw_model_input(const tw_model *model, size_t index, tw_description *description);
TW_API tw_status tw_model_output(const tw_model *model, size_t index, tw_description *description);

/* Bytes of working memory that a context with these options allocates. */
TW_API size_t tw_model_context_bytes(const tw_model *model, const tw_options *options);

/* `options` may be NULL. */
TW_API tw_status tw_context_create(const tw_model *model, const tw_options *options,
                                   tw_context **context);
TW_API void tw_context_release(tw_context *context);

/* Set an input, in one of three forms: float values in ONNX order; codes in stored order; for a
 * border with `picture_channels`, a u8 picture of rows, columns, channels.  Inputs stay set over
 * any number of runs. */
TW_API tw_status tw_context_set_float(tw_context *context, size_t input, const float *values,
                                      size_t count);
TW_API tw_status tw_context_set_codes(tw_context *context, size_t input, const void *codes,
                                      size_t bytes);
TW_API tw_status tw_context_set_picture(tw_context *context, size_t input, const uint8_t *pixels,
                                        size_t bytes);

TW_API tw_status tw_context_run(tw_context *context);

TW_API tw_status tw_context_get_float(const tw_context *context, size_t output, float *values,
                                      size_t count);
TW_API tw_status tw_context_get_codes(const tw_context *context, size_t output, void *codes,
                                      size_t bytes);

/* One sentence about the last call on this context that failed; "" if none did. */
TW_API const char *tw_context_error(const tw_context *context);

/* For comparing executions: every stored tensor, and every node's time in the last run. */
TW_API size_t tw_model_tensors(const tw_model *model);
TW_API tw_status tw_model_tensor(const tw_model *model, size_t index, tw_description *description);
TW_API tw_status tw_context_read_tensor(tw_context *context, size_t index, void *codes,
                                        size_t bytes);
TW_API size_t tw_model_nodes(const tw_model *model);
TW_API const char *tw_model_node_name(const tw_model *model, size_t index);
TW_API const char *tw_model_node_operator(const tw_model *model, size_t index);
TW_API int64_t tw_context_node_nanoseconds(const tw_context *context, size_t index);

#ifdef __cplusplus
}
#endif

#endif
