/* Running: one arena, one scratch area for each thread, the steps in order. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "border.h"
#include "threads.h"

/* Kernels read up to two vectors beyond a tensor's end. */
enum { ARENA_SLACK = 256, MESSAGE_BYTES = 256 };

struct tw_context {
    const tw_model *model;
    tw_options options;
    tw_threads *threads;
    unsigned char *memory;
    unsigned char **tensors; /* address of each tensor */
    unsigned char *scratch;
    size_t scratch_bytes; /* of each thread */
    int64_t *nanoseconds; /* of each node, when measured */
    char message[MESSAGE_BYTES];
};

/* What one step's threads need. */
typedef struct tw_job {
    const tw_context *context;
    const tw_step *step;
} tw_job;

static tw_options checked(const tw_options *options) {
    tw_options result = {0};
    if (options != NULL) {
        result = *options;
    }
    if (result.threads == 0) {
        result.threads = 1;
    }
    return result;
}

static size_t tensor_bytes(const tw_model *model, const tw_options *options) {
    size_t bytes = model->arena_bytes;
    if (options->keep_tensors) {
        bytes = 0;
        for (int32_t i = 0; i < model->tensor_count; ++i) {
            bytes += tw_aligned(model->tensors[i].bytes);
        }
    }
    return bytes + ARENA_SLACK;
}

static size_t scratch_bytes(const tw_model *model) {
    return tw_aligned(model->scratch_bytes + ARENA_SLACK);
}

size_t tw_model_context_bytes(const tw_model *model, const tw_options *options) {
    const tw_options used = checked(options);
    return tw_aligned(tensor_bytes(model, &used)) + (size_t)used.threads * scratch_bytes(model);
}

static void place_tensors(tw_context *context) {
    const tw_model *model = context->model;
    size_t end = 0;
    for (int32_t i = 0; i < model->tensor_count; ++i) {
        const tw_tensor *tensor = &model->tensors[i];
        context->tensors[i] =
            context->memory + (context->options.keep_tensors ? end : tensor->offset);
        end += tw_aligned(tensor->bytes);
    }
}

tw_status tw_context_create(const tw_model *model, const tw_options *options, tw_context **result) {
    if (model == NULL || result == NULL) {
        return TW_ERROR_ARGUMENT;
    }
    *result = NULL;
    const tw_options used = checked(options);
    if (used.threads < 1 || used.threads > TW_THREAD_LIMIT) {
        return TW_ERROR_ARGUMENT;
    }
    tw_context *context = calloc(1, sizeof *context);
    if (context == NULL) {
        return TW_ERROR_MEMORY;
    }
    context->model = model;
    context->options = used;
    context->scratch_bytes = scratch_bytes(model);
    context->memory = tw_aligned_allocate(tw_model_context_bytes(model, &used));
    context->tensors = calloc((size_t)model->tensor_count + 1, sizeof *context->tensors);
    context->nanoseconds = calloc((size_t)model->node_count + 1, sizeof *context->nanoseconds);
    tw_status status = TW_ERROR_MEMORY;
    if (context->memory != NULL && context->tensors != NULL && context->nanoseconds != NULL) {
        context->scratch = context->memory + tw_aligned(tensor_bytes(model, &used));
        place_tensors(context);
        status = tw_threads_create(used.threads, &context->threads);
    }
    if (status != TW_OK) {
        tw_context_release(context);
        return status;
    }
    *result = context;
    return TW_OK;
}

void tw_context_release(tw_context *context) {
    if (context == NULL) {
        return;
    }
    tw_threads_release(context->threads);
    tw_aligned_free(context->memory);
    free(context->tensors);
    free(context->nanoseconds);
    free(context);
}

static tw_status __attribute__((format(printf, 2, 3))) fail(tw_context *context, const char *format,
                                                            ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context->message, sizeof context->message, format, arguments);
    va_end(arguments);
    return TW_ERROR_ARGUMENT;
}

const char *tw_context_error(const tw_context *context) { return context->message; }

static void run_items(void *job, int32_t thread, int64_t begin, int64_t end) {
    const tw_job *work = job;
    const tw_context *context = work->context;
    const tw_call call = {
        .tensors = context->tensors,
        .scratch = context->scratch + (size_t)thread * context->scratch_bytes,
    };
    work->step->run(work->step, &call, begin, end);
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

tw_status tw_context_run(tw_context *context) {
    const tw_model *model = context->model;
    context->message[0] = '\0';
    for (int32_t i = 0; i < model->node_count; ++i) {
        tw_job job = {context, &model->steps[i]};
        const int64_t start = context->options.measure ? now() : 0;
        tw_threads_run(context->threads, run_items, &job, job.step->items, job.step->grain);
        if (context->options.measure) {
            context->nanoseconds[i] = now() - start;
        }
    }
    return TW_OK;
}

int64_t tw_context_node_nanoseconds(const tw_context *context, size_t index) {
    return index < (size_t)context->model->node_count ? context->nanoseconds[index] : 0;
}

static const tw_border *find_input(tw_context *context, size_t index) {
    context->message[0] = '\0';
    return index < (size_t)context->model->input_count ? &context->model->inputs[index] : NULL;
}

tw_status tw_context_set_float(tw_context *context, size_t input, const float *values,
                               size_t count) {
    const tw_border *border = find_input(context, input);
    if (border == NULL || values == NULL) {
        return fail(context, "input %zu does not exist; there are %zu", input,
                    (size_t)context->model->input_count);
    }
    const tw_tensor *tensor = &context->model->tensors[border->tensor];
    if (count != (size_t)tensor->elements) {
        return fail(context, "%zu values were given, the input takes %zu", count,
                    (size_t)tensor->elements);
    }
    tw_quantize(context->model->rows, border, tensor, values, context->tensors[border->tensor]);
    return TW_OK;
}

tw_status tw_context_set_codes(tw_context *context, size_t input, const void *codes, size_t bytes) {
    const tw_border *border = find_input(context, input);
    if (border == NULL || codes == NULL) {
        return fail(context, "input %zu does not exist; there are %zu", input,
                    (size_t)context->model->input_count);
    }
    const tw_tensor *tensor = &context->model->tensors[border->tensor];
    if (bytes != tensor->bytes) {
        return fail(context, "%zu bytes were given, the input takes %zu", bytes, tensor->bytes);
    }
    memcpy(context->tensors[border->tensor], codes, bytes);
    return TW_OK;
}

tw_status tw_context_set_picture(tw_context *context, size_t input, const uint8_t *pixels,
                                 size_t bytes) {
    const tw_border *border = find_input(context, input);
    if (border == NULL || pixels == NULL) {
        return fail(context, "input %zu does not exist; there are %zu", input,
                    (size_t)context->model->input_count);
    }
    if (border->pixel_table == NULL) {
        return fail(context, "input %zu takes no picture", input);
    }
    const tw_tensor *tensor = &context->model->tensors[border->tensor];
    const size_t wanted = tw_picture_bytes(border, tensor);
    if (bytes != wanted) {
        return fail(context, "%zu bytes were given, the picture has %zu", bytes, wanted);
    }
    tw_look_up_pixels(border, tensor, pixels, context->tensors[border->tensor]);
    return TW_OK;
}

static const tw_border *find_output(const tw_context *context, size_t index) {
    return index < (size_t)context->model->output_count ? &context->model->outputs[index] : NULL;
}

tw_status tw_context_get_float(const tw_context *context, size_t output, float *values,
                               size_t count) {
    const tw_border *border = find_output(context, output);
    if (border == NULL || values == NULL ||
        count != (size_t)context->model->tensors[border->tensor].elements) {
        return TW_ERROR_ARGUMENT;
    }
    tw_dequantize(border, &context->model->tensors[border->tensor],
                  context->tensors[border->tensor], values);
    return TW_OK;
}

tw_status tw_context_get_codes(const tw_context *context, size_t output, void *codes,
                               size_t bytes) {
    const tw_border *border = find_output(context, output);
    if (border == NULL || codes == NULL || bytes != context->model->tensors[border->tensor].bytes) {
        return TW_ERROR_ARGUMENT;
    }
    memcpy(codes, context->tensors[border->tensor], bytes);
    return TW_OK;
}

tw_status tw_context_read_tensor(tw_context *context, size_t index, void *codes, size_t bytes) {
    const tw_model *model = context->model;
    if (!context->options.keep_tensors) {
        return fail(context, "tensors are kept only with keep_tensors");
    }
    if (index >= (size_t)model->tensor_count || codes == NULL ||
        bytes != model->tensors[index].bytes) {
        return fail(context, "tensor %zu does not exist or has another size than %zu", index,
                    bytes);
    }
    memcpy(codes, context->tensors[index], bytes);
    return TW_OK;
}
