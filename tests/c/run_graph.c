/* Loads a graph file from disk, describes it, runs it with float inputs of zero. */

#include <stdio.h>
#include <stdlib.h>

#include "tilewright.h"

static int fail(const char *message) {
    fprintf(stderr, "run_graph: %s\n", message);
    return 1;
}

static void print(const char *kind, const tw_description *border) {
    printf("%s %s", kind, border->name);
    for (int32_t i = 0; i < border->rank; ++i) {
        printf(" %lld", (long long)border->shape[i]);
    }
    printf("\n");
}

int main(int count, char **arguments) {
    char message[256];
    tw_model *model;
    tw_context *context;
    const tw_options options = {.threads = 2};
    if (count != 2) {
        return fail("usage: run_graph FILE");
    }
    if (tw_model_load_file(arguments[1], &model, message, sizeof message) != TW_OK) {
        return fail(message);
    }
    tw_status status = tw_context_create(model, &options, &context);
    if (status != TW_OK) {
        tw_model_release(model);
        return fail(tw_status_text(status));
    }
    for (size_t i = 0; i < tw_model_inputs(model); ++i) {
        tw_description input;
        tw_model_input(model, i, &input);
        print("input", &input);
        float *values = calloc(input.elements, sizeof *values);
        if (tw_context_set_float(context, i, values, input.elements + 1) != TW_ERROR_ARGUMENT ||
            tw_context_error(context)[0] == '\0' ||
            tw_context_set_float(context, i, values, input.elements) != TW_OK) {
            return fail("an input cannot be set");
        }
        free(values);
    }
    tw_context_run(context);
    for (size_t i = 0; i < tw_model_outputs(model); ++i) {
        tw_description output;
        tw_model_output(model, i, &output);
        print("output", &output);
        float *values = calloc(output.elements, sizeof *values);
        tw_context_get_float(context, i, values, output.elements);
        double sum = 0;
        for (size_t j = 0; j < output.elements; ++j) {
            sum += values[j];
        }
        printf("sum %.6f\n", sum);
        free(values);
    }
    tw_context_release(context);
    tw_model_release(model);
    return 0;
}
