/* Loading: map or take the file, read it, prepare a step for every node. */

#include "model.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../kernels/kernel.h"

#ifndef TW_VERSION
#define TW_VERSION "0.0.0"
#endif

const char *tw_version(void) { return TW_VERSION; }

const char *tw_status_text(tw_status status) {
    switch (status) {
    case TW_OK:
        return "success";
    case TW_ERROR_FILE:
        return "the file cannot be read";
    case TW_ERROR_FORMAT:
        return "the file is not a graph file, or is damaged";
    case TW_ERROR_VERSION:
        return "the graph file is of another version";
    case TW_ERROR_UNSUPPORTED:
        return "the graph holds something that this runtime cannot run";
    case TW_ERROR_MEMORY:
        return "out of memory";
    case TW_ERROR_ARGUMENT:
        return "an argument is wrong";
    case TW_ERROR_THREAD:
        return "a thread cannot be started";
    }
    return "unknown status";
}

tw_status tw_model_fail(tw_model *model, tw_status status, const char *format, ...) {
    if (model->message != NULL && model->message_bytes > 0) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(model->message, model->message_bytes, format, arguments);
        va_end(arguments);
    }
    return status;
}

static const tw_rows *choose_rows(tw_isa isa) {
#if defined(TW_X86_64)
    if (isa == TW_AVX512VNNI) {
        return &tw_rows_avx512;
    }
    if (isa >= TW_AVX2) {
        return &tw_rows_avx2;
    }
#else
    (void)isa;
#endif
    return &tw_rows_portable;
}

static tw_status prepare_steps(tw_model *model) {
    model->steps = tw_pool_allocate(&model->pool, (size_t)model->node_count * sizeof(tw_step));
    if (model->steps == NULL) {
        return TW_ERROR_MEMORY;
    }
    for (int32_t i = 0; i < model->node_count; ++i) {
        const tw_node *node = &model->nodes[i];
        tw_prepare_function *function = tw_find_prepare(node->layout->code);
        tw_prepare prepare = {model, node, &model->steps[i], model->rows};
        if (function == NULL) {
            return tw_model_fail(model, TW_ERROR_UNSUPPORTED,
                                 "%s (%s): no kernel for this operator", node->name,
                                 node->layout->name);
        }
        prepare.step->node = node;
        tw_status status = function(&prepare);
        if (status != TW_OK) {
            return status;
        }
        if (model->steps[i].scratch > model->scratch_bytes) {
            model->scratch_bytes = model->steps[i].scratch;
        }
    }
    return TW_OK;
}

static tw_status load(tw_model *model) {
    tw_status status = tw_isa_detect(&model->isa) ? TW_OK : TW_ERROR_ARGUMENT;
    if (status != TW_OK) {
        return tw_model_fail(model, status,
                             "TILEWRIGHT_ISA names no instruction set of this processor");
    }
    model->rows = choose_rows(model->isa);
    status = tw_model_read(model);
    return status == TW_OK ? prepare_steps(model) : status;
}

/* On failure everything is released and `message` says why. */
static tw_status load_or_release(tw_model *model, tw_model **result) {
    tw_status status = load(model);
    if (status == TW_ERROR_MEMORY) {
        tw_model_fail(model, status, "%s", tw_status_text(status));
    }
    if (status != TW_OK) {
        tw_model_release(model);
        return status;
    }
    model->message = NULL;
    *result = model;
    return TW_OK;
}

static tw_model *new_model(tw_model **result, char *message, size_t message_bytes) {
    tw_model *model = calloc(1, sizeof *model);
    *result = NULL;
    if (message != NULL && message_bytes > 0) {
        message[0] = '\0';
    }
    if (model != NULL) {
        model->message = message;
        model->message_bytes = message_bytes;
    }
    return model;
}

tw_status tw_model_load_memory(const void *data, size_t bytes, tw_model **result, char *message,
                               size_t message_bytes) {
    if (data == NULL || result == NULL) {
        return TW_ERROR_ARGUMENT;
    }
    tw_model *model = new_model(result, message, message_bytes);
    if (model == NULL) {
        return TW_ERROR_MEMORY;
    }
    model->data = data;
    model->data_bytes = bytes;
    /* Numbers of the file are read in place: they need their natural alignment. */
    if ((uintptr_t)data % sizeof(int64_t) != 0) {
        unsigned char *copy = tw_pool_allocate(&model->pool, bytes);
        if (copy == NULL) {
            tw_model_release(model);
            return TW_ERROR_MEMORY;
        }
        memcpy(copy, data, bytes);
        model->data = copy;
    }
    return load_or_release(model, result);
}

static tw_status map_file(tw_model *model, const char *path) {
    struct stat status;
    const int file = open(path, O_RDONLY);
    if (file < 0) {
        return tw_model_fail(model, TW_ERROR_FILE, "%s cannot be opened", path);
    }
    if (fstat(file, &status) != 0 || status.st_size <= 0) {
        close(file);
        return tw_model_fail(model, TW_ERROR_FILE, "%s is empty or cannot be read", path);
    }
    void *mapping = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (mapping == MAP_FAILED) {
        return tw_model_fail(model, TW_ERROR_FILE, "%s cannot be mapped", path);
    }
    model->mapping = mapping;
    model->mapping_bytes = (size_t)status.st_size;
    model->data = mapping;
    model->data_bytes = model->mapping_bytes;
    return TW_OK;
}

tw_status tw_model_load_file(const char *path, tw_model **result, char *message,
                             size_t message_bytes) {
    if (path == NULL || result == NULL) {
        return TW_ERROR_ARGUMENT;
    }
    tw_model *model = new_model(result, message, message_bytes);
    if (model == NULL) {
        return TW_ERROR_MEMORY;
    }
    tw_status status = map_file(model, path);
    if (status != TW_OK) {
        tw_model_release(model);
        return status;
    }
    return load_or_release(model, result);
}

void tw_model_release(tw_model *model) {
    if (model == NULL) {
        return;
    }
    if (model->mapping != NULL) {
        munmap(model->mapping, model->mapping_bytes);
    }
    tw_pool_release(&model->pool);
    free(model);
}

const char *tw_model_name(const tw_model *model) { return model->name; }
const char *tw_model_isa(const tw_model *model) { return tw_isa_name(model->isa); }
size_t tw_model_inputs(const tw_model *model) { return (size_t)model->input_count; }
size_t tw_model_outputs(const tw_model *model) { return (size_t)model->output_count; }
size_t tw_model_tensors(const tw_model *model) { return (size_t)model->tensor_count; }
size_t tw_model_nodes(const tw_model *model) { return (size_t)model->node_count; }

const char *tw_model_node_name(const tw_model *model, size_t index) {
    return index < (size_t)model->node_count ? model->nodes[index].name : "";
}

const char *tw_model_node_operator(const tw_model *model, size_t index) {
    return index < (size_t)model->node_count ? model->nodes[index].layout->name : "";
}

static void describe_tensor(const tw_tensor *tensor, tw_description *description) {
    *description = (tw_description){
        .name = tensor->name,
        .rank = tensor->rank,
        .dtype = tensor->dtype,
        .scale = tensor->scale,
        .zero_point = tensor->zero_point,
        .elements = (size_t)tensor->elements,
        .bytes = tensor->bytes,
    };
    for (int32_t i = 0; i < tensor->rank; ++i) {
        description->shape[i] = description->stored_shape[i] = tensor->shape[i];
        description->permutation[i] = i;
    }
}

static void describe_border(const tw_model *model, const tw_border *border,
                            tw_description *description) {
    describe_tensor(&model->tensors[border->tensor], description);
    description->name = border->name;
    description->picture_channels = border->pixel_channels;
    for (int32_t i = 0; i < border->rank; ++i) {
        description->shape[i] = border->shape[i];
        description->permutation[i] = border->permutation[i];
    }
}

tw_status tw_model_input(const tw_model *model, size_t index, tw_description *description) {
    if (index >= (size_t)model->input_count || description == NULL) {
        return TW_ERROR_ARGUMENT;
    }
    describe_border(model, &model->inputs[index], description);
    return TW_OK;
}

tw_status tw_model_output(const tw_model *model, size_t index, tw_description *description) {
    if (index >= (size_t)model->output_count || description == NULL) {
        return TW_ERROR_ARGUMENT;
    }
    describe_border(model, &model->outputs[index], description);
    return TW_OK;
}

tw_status tw_model_tensor(const tw_model *model, size_t index, tw_description *description) {
    if (index >= (size_t)model->tensor_count || description == NULL) {
        return TW_ERROR_ARGUMENT;
    }
    describe_tensor(&model->tensors[index], description);
    return TW_OK;
}
