/* Reads a graph file into a tw_model.  Nothing in the file is trusted: every position, count and
 * size is compared with what there is before it is used. */

#include <math.h>
#include <string.h>

#include "checksum.h"
#include "model.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "graph files are little-endian and are used in place"
#endif

#define TRY(expression)                                                                            \
    do {                                                                                           \
        tw_status try_ = (expression);                                                             \
        if (try_ != TW_OK) {                                                                       \
            return try_;                                                                           \
        }                                                                                          \
    } while (0)

typedef struct tw_span {
    const unsigned char *data;
    uint64_t bytes;
} tw_span;

typedef struct tw_reader {
    tw_model *model;
    tw_span sections[TW_SECTIONS];
    const int64_t *integers;
    uint64_t integer_count;
    tw_graph_record graph;
} tw_reader;

static tw_status damaged(tw_reader *reader, const char *what) {
    return tw_model_fail(reader->model, TW_ERROR_FORMAT, "the graph file is damaged: %s", what);
}

static tw_status read_header(tw_reader *reader) {
    static const unsigned char magic[] = TW_FILE_MAGIC;
    const tw_model *model = reader->model;
    tw_file_header header;
    if (model->data_bytes < sizeof header || memcmp(model->data, magic, sizeof magic) != 0) {
        return tw_model_fail(reader->model, TW_ERROR_FORMAT, "this is not a graph file");
    }
    memcpy(&header, model->data, sizeof header);
    if (header.version != TW_FILE_VERSION) {
        return tw_model_fail(reader->model, TW_ERROR_VERSION,
                             "the graph file has version %u, this runtime reads version %d",
                             (unsigned)header.version, TW_FILE_VERSION);
    }
    if (header.schema != TW_FILE_SCHEMA) {
        return tw_model_fail(reader->model, TW_ERROR_VERSION,
                             "the graph file was written by a version whose operators differ");
    }
    if (header.bytes != model->data_bytes) {
        return damaged(reader, "its size is not what its header says");
    }
    if (tw_crc32(model->data + sizeof header, model->data_bytes - sizeof header) !=
        header.checksum) {
        return damaged(reader, "its checksum does not match");
    }
    if (header.sections != TW_SECTIONS) {
        return damaged(reader, "its sections are not those of this version");
    }
    return TW_OK;
}

static tw_status read_sections(tw_reader *reader) {
    const tw_model *model = reader->model;
    const size_t table = sizeof(tw_file_header);
    if (model->data_bytes < table + TW_SECTIONS * sizeof(tw_section_record)) {
        return damaged(reader, "its section table is cut short");
    }
    for (uint32_t i = 0; i < TW_SECTIONS; ++i) {
        tw_section_record record;
        memcpy(&record, model->data + table + i * sizeof record, sizeof record);
        if (record.section != i || record.reserved != 0 || record.offset % TW_ALIGNMENT != 0 ||
            record.offset > model->data_bytes || record.bytes > model->data_bytes - record.offset) {
            return damaged(reader, "a section leaves the file");
        }
        reader->sections[i].data = model->data + record.offset;
        reader->sections[i].bytes = record.bytes;
    }
    if (reader->sections[TW_SECTION_INTEGERS].bytes % sizeof(int64_t) != 0 ||
        reader->sections[TW_SECTION_GRAPH].bytes != sizeof(tw_graph_record) ||
        reader->sections[TW_SECTION_TENSORS].bytes % sizeof(tw_tensor_record) != 0 ||
        reader->sections[TW_SECTION_NODES].bytes % sizeof(tw_node_record) != 0 ||
        reader->sections[TW_SECTION_CONSTANTS].bytes % sizeof(tw_constant_record) != 0 ||
        reader->sections[TW_SECTION_BORDERS].bytes % sizeof(tw_border_record) != 0) {
        return damaged(reader, "a section is cut short");
    }
    reader->integers = (const int64_t *)(const void *)reader->sections[TW_SECTION_INTEGERS].data;
    reader->integer_count = reader->sections[TW_SECTION_INTEGERS].bytes / sizeof(int64_t);
    memcpy(&reader->graph, reader->sections[TW_SECTION_GRAPH].data, sizeof reader->graph);
    return TW_OK;
}

static tw_status read_text(tw_reader *reader, uint32_t at, uint32_t bytes, const char **text) {
    const tw_span *strings = &reader->sections[TW_SECTION_STRINGS];
    if ((uint64_t)at + bytes > strings->bytes) {
        return damaged(reader, "a name leaves its section");
    }
    char *copy = tw_pool_allocate(&reader->model->pool, (size_t)bytes + 1);
    if (copy == NULL) {
        return TW_ERROR_MEMORY;
    }
    memcpy(copy, strings->data + at, bytes);
    *text = copy;
    return TW_OK;
}

static tw_status read_integers(tw_reader *reader, uint32_t at, uint64_t count,
                               const int64_t **values) {
    if ((uint64_t)at + count > reader->integer_count) {
        return damaged(reader, "a list leaves its section");
    }
    *values = reader->integers + at;
    return TW_OK;
}

/* Extents are positive; the number of elements, times 8 bytes, fits 48 bits. */
static tw_status read_shape(tw_reader *reader, uint32_t at, uint32_t rank, int64_t *shape,
                            int64_t *elements) {
    const int64_t limit = INT64_C(1) << 45;
    const int64_t *values = NULL;
    if (rank > TW_MAX_RANK) {
        return damaged(reader, "a shape has too many axes");
    }
    TRY(read_integers(reader, at, rank, &values));
    *elements = 1;
    for (uint32_t i = 0; i < rank; ++i) {
        if (values[i] < 1 || values[i] > INT32_MAX || *elements > limit / values[i]) {
            return damaged(reader, "a shape is impossible");
        }
        shape[i] = values[i];
        *elements *= values[i];
    }
    return TW_OK;
}

static tw_status read_tensor(tw_reader *reader, const tw_tensor_record *record, tw_tensor *tensor) {
    static const int64_t lowest[TW_DTYPES] = {0, -128, 0, INT32_MIN, INT32_MIN};
    static const int64_t highest[TW_DTYPES] = {255, 127, 0, INT32_MAX, INT32_MAX};
    TRY(read_text(reader, record->name_at, record->name_bytes, &tensor->name));
    TRY(read_shape(reader, record->shape_at, record->rank, tensor->shape, &tensor->elements));
    if (record->dtype >= TW_DTYPES || record->reserved != 0) {
        return damaged(reader, "a tensor has an unknown type");
    }
    if (record->zero_point < lowest[record->dtype] || record->zero_point > highest[record->dtype]) {
        return damaged(reader, "a zero point is outside its type");
    }
    if (!(record->scale > 0) || !isfinite(record->scale)) {
        return damaged(reader, "a scale is not a positive number");
    }
    tensor->dtype = record->dtype;
    tensor->rank = record->rank;
    tensor->bytes = (size_t)tensor->elements * tw_dtype_bytes(tensor->dtype);
    tensor->scale = record->scale;
    tensor->zero_point = record->zero_point;
    tensor->offset = (size_t)record->offset;
    if (record->offset % TW_ALIGNMENT != 0 || record->offset > reader->graph.arena_bytes ||
        tw_aligned(tensor->bytes) > reader->graph.arena_bytes - record->offset) {
        return damaged(reader, "a tensor leaves the arena");
    }
    return TW_OK;
}

static tw_status read_tensors(tw_reader *reader) {
    tw_model *model = reader->model;
    const tw_span *section = &reader->sections[TW_SECTION_TENSORS];
    const uint64_t count = section->bytes / sizeof(tw_tensor_record);
    if (count > INT32_MAX || reader->graph.arena_bytes > (UINT64_C(1) << 46)) {
        return damaged(reader, "it is too large");
    }
    model->arena_bytes = (size_t)reader->graph.arena_bytes;
    model->tensors = tw_pool_allocate(&model->pool, (size_t)count * sizeof(tw_tensor));
    if (model->tensors == NULL) {
        return TW_ERROR_MEMORY;
    }
    for (uint64_t i = 0; i < count; ++i) {
        tw_tensor_record record;
        memcpy(&record, section->data + i * sizeof record, sizeof record);
        TRY(read_tensor(reader, &record, &model->tensors[i]));
    }
    model->tensor_count = (int32_t)count;
    return TW_OK;
}

static tw_status read_operands(tw_reader *reader, uint32_t at, uint32_t count,
                               const int32_t **operands) {
    const int64_t *values = NULL;
    TRY(read_integers(reader, at, count, &values));
    int32_t *indices = tw_pool_allocate(&reader->model->pool, count * sizeof(int32_t));
    if (indices == NULL) {
        return TW_ERROR_MEMORY;
    }
    for (uint32_t i = 0; i < count; ++i) {
        if (values[i] < 0 || values[i] >= reader->model->tensor_count) {
            return damaged(reader, "a node names a tensor that does not exist");
        }
        indices[i] = (int32_t)values[i];
    }
    *operands = indices;
    return TW_OK;
}

static tw_status read_attributes(tw_reader *reader, const tw_node_record *record,
                                 const tw_operator_layout *layout, unsigned char *fields) {
    const int64_t *words = NULL;
    uint64_t left = record->attributes;
    TRY(read_integers(reader, record->attributes_at, left, &words));
    for (uint32_t i = 0; i < layout->attributes; ++i) {
        const tw_attribute_layout *attribute = &layout->attribute[i];
        uint64_t count = attribute->count == 0 ? 1 : (uint64_t)attribute->count;
        if (attribute->count < 0) {
            if (left < 1 || words[0] < 0) {
                return damaged(reader, "attributes are cut short");
            }
            count = (uint64_t)words[0];
            ++words;
            --left;
        }
        if (count > left) {
            return damaged(reader, "attributes are cut short");
        }
        if (attribute->count < 0) {
            tw_list list = {words, (int64_t)count};
            memcpy(fields + attribute->offset, &list, sizeof list);
        } else {
            memcpy(fields + attribute->offset, words, (size_t)count * sizeof(int64_t));
        }
        words += count;
        left -= count;
    }
    return left == 0 ? TW_OK : damaged(reader, "attributes are left over");
}

static size_t kind_bytes(int32_t kind) {
    switch (kind) {
    case TW_KIND_CHANNEL:
        return sizeof(tw_channel_record);
    case TW_KIND_COUNT:
        return sizeof(tw_count_record);
    case TW_KIND_TAP:
        return sizeof(tw_tap_record);
    case TW_KIND_AFFINE:
        return sizeof(tw_affine_record);
    default:
        return kind < TW_DTYPES ? tw_dtype_bytes(kind) : 0;
    }
}

static tw_status read_constant(tw_reader *reader, const tw_constant_record *record,
                               tw_constant *constant) {
    const tw_span *image = &reader->sections[TW_SECTION_IMAGE];
    const size_t size = kind_bytes(record->kind);
    if (size == 0 || record->reserved != 0) {
        return damaged(reader, "a constant has an unknown type");
    }
    TRY(read_shape(reader, record->shape_at, record->rank, constant->shape, &constant->elements));
    if (record->bytes != (uint64_t)constant->elements * size ||
        record->offset % TW_ALIGNMENT != 0 || record->offset > image->bytes ||
        record->bytes > image->bytes - record->offset) {
        return damaged(reader, "a constant leaves its section");
    }
    constant->data = image->data + record->offset;
    constant->rank = record->rank;
    constant->kind = record->kind;
    return TW_OK;
}

static tw_status read_constants(tw_reader *reader, const tw_node_record *record,
                                const tw_operator_layout *layout, unsigned char *fields) {
    const tw_span *section = &reader->sections[TW_SECTION_CONSTANTS];
    uint32_t next = 0;
    if ((uint64_t)record->constants_at + record->constants >
        section->bytes / sizeof(tw_constant_record)) {
        return damaged(reader, "a node's constants leave their section");
    }
    for (uint32_t i = 0; i < record->constants; ++i) {
        tw_constant_record entry;
        tw_constant constant = {0};
        memcpy(&entry, section->data + ((size_t)record->constants_at + i) * sizeof entry,
               sizeof entry);
        if (entry.field < next || entry.field >= layout->constants) {
            return damaged(reader, "a node's constants are out of order");
        }
        for (; next < entry.field; ++next) {
            if (!layout->constant[next].optional) {
                return damaged(reader, "a node lacks a constant");
            }
        }
        TRY(read_constant(reader, &entry, &constant));
        if (layout->constant[next].rank >= 0 && layout->constant[next].rank != constant.rank) {
            return damaged(reader, "a constant has the wrong number of axes");
        }
        memcpy(fields + layout->constant[next].offset, &constant, sizeof constant);
        ++next;
    }
    for (; next < layout->constants; ++next) {
        if (!layout->constant[next].optional) {
            return damaged(reader, "a node lacks a constant");
        }
    }
    return TW_OK;
}

static tw_status read_node(tw_reader *reader, const tw_node_record *record, tw_node *node) {
    TRY(read_text(reader, record->name_at, record->name_bytes, &node->name));
    for (uint32_t i = 0; i < TW_OPERATORS; ++i) {
        if (tw_operator_layouts[i].code == record->code) {
            node->layout = &tw_operator_layouts[i];
        }
    }
    if (node->layout == NULL) {
        return tw_model_fail(reader->model, TW_ERROR_UNSUPPORTED, "%s is operator %u, unknown here",
                             node->name, (unsigned)record->code);
    }
    if (record->inputs > INT32_MAX || record->outputs > INT32_MAX) {
        return damaged(reader, "a node has too many operands");
    }
    TRY(read_operands(reader, record->inputs_at, record->inputs, &node->inputs));
    TRY(read_operands(reader, record->outputs_at, record->outputs, &node->outputs));
    node->input_count = (int32_t)record->inputs;
    node->output_count = (int32_t)record->outputs;
    unsigned char *fields = tw_pool_allocate(&reader->model->pool, node->layout->size);
    if (fields == NULL) {
        return TW_ERROR_MEMORY;
    }
    node->fields = fields;
    TRY(read_attributes(reader, record, node->layout, fields));
    return read_constants(reader, record, node->layout, fields);
}

static tw_status read_nodes(tw_reader *reader) {
    tw_model *model = reader->model;
    const tw_span *section = &reader->sections[TW_SECTION_NODES];
    const uint64_t count = section->bytes / sizeof(tw_node_record);
    if (count > INT32_MAX) {
        return damaged(reader, "it is too large");
    }
    model->nodes = tw_pool_allocate(&model->pool, (size_t)count * sizeof(tw_node));
    if (model->nodes == NULL) {
        return TW_ERROR_MEMORY;
    }
    for (uint64_t i = 0; i < count; ++i) {
        tw_node_record record;
        memcpy(&record, section->data + i * sizeof record, sizeof record);
        TRY(read_node(reader, &record, &model->nodes[i]));
    }
    model->node_count = (int32_t)count;
    return TW_OK;
}

/* The permutation maps every ONNX axis once and explains the stored shape. */
static bool fits_stored(const tw_border *border, const tw_tensor *stored) {
    bool seen[TW_MAX_RANK] = {false};
    if (border->rank != stored->rank) {
        return false;
    }
    for (int32_t i = 0; i < border->rank; ++i) {
        const int64_t axis = border->permutation[i];
        if (axis < 0 || axis >= border->rank || seen[axis] ||
            border->shape[axis] != stored->shape[i]) {
            return false;
        }
        seen[axis] = true;
    }
    return true;
}

static tw_status read_pixels(tw_reader *reader, const tw_border_record *record,
                             const tw_tensor *stored, tw_border *border) {
    static const int64_t picture[4] = {0, 2, 3, 1};
    const tw_span *image = &reader->sections[TW_SECTION_IMAGE];
    if (record->pixel_channels == 0) {
        return record->pixel_table == UINT64_MAX ? TW_OK
                                                 : damaged(reader, "a pixel table is empty");
    }
    if (record->direction != TW_INPUT || border->rank != 4 || record->pixel_channels > INT32_MAX ||
        memcmp(border->permutation, picture, sizeof picture) != 0) {
        return damaged(reader, "a pixel table belongs to no picture");
    }
    const uint64_t channels = (uint64_t)stored->shape[3];
    TRY(read_integers(reader, record->pixel_channels_at, channels, &border->pixel_sources));
    for (uint64_t c = 0; c < channels; ++c) {
        if (border->pixel_sources[c] < 0 || border->pixel_sources[c] >= record->pixel_channels) {
            return damaged(reader, "a pixel table names a channel that does not exist");
        }
    }
    const uint64_t bytes = 256 * channels * tw_dtype_bytes(stored->dtype);
    if (record->pixel_table % TW_ALIGNMENT != 0 || record->pixel_table > image->bytes ||
        bytes > image->bytes - record->pixel_table) {
        return damaged(reader, "a pixel table leaves its section");
    }
    border->pixel_table = image->data + record->pixel_table;
    border->pixel_channels = (int32_t)record->pixel_channels;
    return TW_OK;
}

static tw_status read_border(tw_reader *reader, const tw_border_record *record, int direction,
                             tw_border *border) {
    const int64_t *permutation = NULL;
    int64_t elements;
    TRY(read_text(reader, record->name_at, record->name_bytes, &border->name));
    TRY(read_shape(reader, record->shape_at, record->rank, border->shape, &elements));
    if (record->direction != direction || record->reserved != 0 || record->padding != 0 ||
        record->tensor >= (uint32_t)reader->model->tensor_count ||
        record->shape_at > UINT32_MAX - TW_MAX_RANK) {
        return damaged(reader, "a border is described wrongly");
    }
    TRY(read_integers(reader, record->shape_at + record->rank, record->rank, &permutation));
    for (int32_t i = 0; i < record->rank; ++i) {
        border->permutation[i] = permutation[i];
    }
    border->tensor = (int32_t)record->tensor;
    border->rank = record->rank;
    const tw_tensor *stored = &reader->model->tensors[border->tensor];
    if (!fits_stored(border, stored)) {
        return damaged(reader, "a border and its tensor differ in shape");
    }
    return read_pixels(reader, record, stored, border);
}

static tw_status read_borders(tw_reader *reader) {
    tw_model *model = reader->model;
    const tw_span *section = &reader->sections[TW_SECTION_BORDERS];
    const uint64_t count = section->bytes / sizeof(tw_border_record);
    const uint64_t inputs = reader->graph.inputs;
    if (inputs + reader->graph.outputs != count || count > INT32_MAX) {
        return damaged(reader, "the number of borders is wrong");
    }
    tw_border *borders = tw_pool_allocate(&model->pool, (size_t)count * sizeof(tw_border));
    if (borders == NULL) {
        return TW_ERROR_MEMORY;
    }
    for (uint64_t i = 0; i < count; ++i) {
        tw_border_record record;
        memcpy(&record, section->data + i * sizeof record, sizeof record);
        TRY(read_border(reader, &record, i < inputs ? TW_INPUT : TW_OUTPUT, &borders[i]));
    }
    model->inputs = borders;
    model->outputs = borders + inputs;
    model->input_count = (int32_t)inputs;
    model->output_count = (int32_t)(count - inputs);
    return TW_OK;
}

/* Every tensor is written once and before it is read, and no node writes over what it reads.  A
 * Reshape may give its input another name in place. */
static tw_status check_order(tw_reader *reader) {
    const tw_model *model = reader->model;
    bool *written = tw_pool_allocate(&reader->model->pool, (size_t)model->tensor_count);
    if (written == NULL) {
        return TW_ERROR_MEMORY;
    }
    for (int32_t i = 0; i < model->input_count; ++i) {
        written[model->inputs[i].tensor] = true;
    }
    for (int32_t i = 0; i < model->node_count; ++i) {
        const tw_node *node = &model->nodes[i];
        for (int32_t j = 0; j < node->input_count; ++j) {
            if (!written[node->inputs[j]]) {
                return damaged(reader, "a tensor is read before it is written");
            }
        }
        for (int32_t j = 0; j < node->output_count; ++j) {
            const tw_tensor *out = &model->tensors[node->outputs[j]];
            if (written[node->outputs[j]]) {
                return damaged(reader, "a tensor is written twice");
            }
            written[node->outputs[j]] = true;
            for (int32_t k = 0; k < node->input_count; ++k) {
                const tw_tensor *in = &model->tensors[node->inputs[k]];
                const bool apart =
                    in->offset + in->bytes <= out->offset || out->offset + out->bytes <= in->offset;
                const bool alias = node->layout->code == TW_OP_RESHAPE && in->offset == out->offset;
                if (!apart && !alias) {
                    return damaged(reader, "a node writes over its own input");
                }
            }
        }
    }
    for (int32_t i = 0; i < model->output_count; ++i) {
        if (!written[model->outputs[i].tensor]) {
            return damaged(reader, "an output is never written");
        }
    }
    return TW_OK;
}

tw_status tw_model_read(tw_model *model) {
    tw_reader reader = {.model = model};
    TRY(read_header(&reader));
    TRY(read_sections(&reader));
    TRY(read_text(&reader, reader.graph.name_at, reader.graph.name_bytes, &model->name));
    TRY(read_tensors(&reader));
    TRY(read_nodes(&reader));
    TRY(read_borders(&reader));
    return check_order(&reader);
}
