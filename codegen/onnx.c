/* onnx: see onnx.h. */
#include "codegen/onnx.h"
#include "codegen/onnx_private.h"
#include "base/text.h"
#include <string.h>

int onnx_batch_axis(const Onnx *o, const Node *node) {
  const Samples *s = &o->samples[node->id];
  return !o->is_fixed && s->kind == SAMPLES_EACH ? s->axis : -1;
}

const char *onnx_refuse(Onnx *o, const Node *node, const char *why) {
  const Origin *origin = &node->origin;
  bool has_layer = origin->layer && *origin->layer;
  if (!o->why)
    o->why = arena_printf(o->arena, "line %u%s%s%s: %s", origin->loc.line, has_layer ? ", layer '" : "",
                          has_layer ? origin->layer : "", has_layer ? "'" : "", why);
  return NULL;
}

const char *onnx_name(Onnx *o) { return arena_printf(o->arena, "%%%d", o->count++); }

const char *onnx_list(Onnx *o, const int64_t *values, int count) {
  const char *name = onnx_name(o);
  Type type = {DT_I64, shape_of(1, (int64_t[]){count})};
  onnx_tensor(&o->constants, 5, name, &type, values, sizeof *values * (size_t)count);
  return name;
}

const char *onnx_number(Onnx *o, DType dtype, double value) {
  const char *name = onnx_name(o);
  Type type = {dtype, shape_scalar()};
  union {
    float f32;
    double f64;
    int32_t i32;
    uint32_t u32;
    int64_t i64;
    uint8_t u8;
  } bytes = {0};
  switch (dtype) {
  case DT_F32:
    bytes.f32 = (float)value;
    break;
  case DT_F64:
    bytes.f64 = value;
    break;
  case DT_I32:
    bytes.i32 = (int32_t)value;
    break;
  case DT_U32:
    bytes.u32 = (uint32_t)value;
    break;
  case DT_I64:
    bytes.i64 = (int64_t)value;
    break;
  case DT_U8:
  case DT_BOOL:
    bytes.u8 = (uint8_t)value;
    break;
  default: /* of 16 bits: rounded from f32 */
    return onnx_cast(o, onnx_number(o, DT_F32, value), dtype);
  }
  onnx_tensor(&o->constants, 5, name, &type, &bytes, (size_t)dtype_bytes(dtype));
  return name;
}

const char *onnx_node_of(Onnx *o, const char *op, Text *attributes, const char *const *inputs, int count) {
  const char *result = onnx_name(o);
  Text node = {0};
  for (int i = 0; i < count; i++) wire_text(&node, 1, inputs[i]);
  wire_text(&node, 2, result);
  wire_text(&node, 4, op);
  if (attributes && attributes->count) text_append(&node, attributes->at, attributes->count);
  if (attributes) text_free(attributes);
  wire_message(&o->nodes, 1, &node);
  return result;
}

const char *onnx_node(Onnx *o, const char *op, Text *attributes, const char *a, const char *b, const char *c) {
  const char *inputs[] = {a, b, c};
  return onnx_node_of(o, op, attributes, inputs, !b ? 1 : !c ? 2 : 3);
}

const char *onnx_value(const Onnx *o, const Node *node) { return o->value[node->id].name; }

const char *onnx_whole(Onnx *o, const Node *node) { return onnx_whole_along(o, node, ~0u); }

const char *onnx_whole_along(Onnx *o, const Node *node, unsigned axes) {
  OnnxValue *value = &o->value[node->id];
  const Shape *want = &node->type.shape;
  int64_t target[MAX_RANK];
  bool is_whole = true;
  for (int i = 0; i < want->rank; i++) {
    bool grows = value->shape.dim[i] != want->dim[i] && axes >> i & 1;
    target[i] = grows ? want->dim[i] : 1; /* 1 leaves what is there */
    is_whole &= !grows;
    bool is_open = !o->is_fixed && o->samples[node->id].kind == SAMPLES_NONE;
    if (grows && is_open && want->dim[i] % o->batch == 0) o->needs_fixed = true; /* perhaps it is the batch */
  }
  if (is_whole) return value->name;
  value->name = onnx_node(o, "Expand", NULL, value->name, onnx_list(o, target, want->rank), NULL);
  for (int i = 0; i < want->rank; i++)
    if (axes >> i & 1) value->shape.dim[i] = want->dim[i];
  return value->name;
}

/* ── the graph ──────────────────────────────────────────────────────────────────────────────── */
static bool *onnx_find_needed(const Graph *graph, Arena *arena) {
  bool *needed = ARENA_ARRAY(arena, bool, graph->nodes.count);
  for (int i = 0; i < graph->roots.count; i++)
    if (graph->roots.at[i].kind == ROOT_OUTPUT) needed[graph->roots.at[i].node->id] = true;
  graph_mark_inputs(graph, needed);
  return needed;
}

/* A parameter or state by its name, which inputs and outputs of the model keep. */
static const char *onnx_leaf(Onnx *o, const Node *leaf) {
  const char *name = node_str(leaf, ATTR_NAME);
  bool is_taken = graph_find_leaf(o->graph, OP_INPUT, name) || graph_find_root(o->graph, ROOT_OUTPUT, name);
  return leaf->op != OP_INPUT && is_taken ? arena_printf(o->arena, "weights/%s", name) : name;
}

static bool onnx_convert_nodes(Onnx *o, const bool *needed) {
  for (int i = 0; i < o->graph->nodes.count; i++) {
    const Node *node = o->graph->nodes.at[i];
    OnnxValue *value = &o->value[i];
    if (!needed[i]) continue;
    if (!onnx_type(node->type.dtype)) return onnx_refuse(o, node, "ONNX has no such type") != NULL;
    bool is_open = o->samples[i].kind > SAMPLES_EACH;
    if (is_open && !o->is_fixed) o->needs_fixed = true;
    bool is_named = node->op == OP_INPUT || node->op == OP_PARAM || node->op == OP_STATE;
    value->shape = node->type.shape;
    value->name = is_named ? onnx_leaf(o, node) : onnx_convert(o, node, &value->shape);
    if (!value->name || o->needs_fixed) return false;
  }
  return true;
}

static void onnx_write_ends(Onnx *o, const bool *needed, Text *graph) {
  for (int i = 0; i < o->graph->nodes.count; i++) {
    const Node *input = o->graph->nodes.at[i];
    if (input->op == OP_INPUT && needed[i])
      onnx_value_info(graph, 11, node_str(input, ATTR_NAME), &input->type, onnx_batch_axis(o, input));
  }
  for (int i = 0; i < o->graph->roots.count; i++) {
    const Root *root = &o->graph->roots.at[i];
    if (root->kind != ROOT_OUTPUT) continue;
    const char *whole = onnx_whole(o, root->node);
    bool is_taken = graph_find_leaf(o->graph, OP_INPUT, root->name) != NULL;
    const char *name = is_taken ? arena_printf(o->arena, "%s.output", root->name) : root->name;
    Text node = {0};
    wire_text(&node, 1, whole);
    wire_text(&node, 2, name);
    wire_text(&node, 4, "Identity");
    wire_message(&o->nodes, 1, &node);
    onnx_value_info(graph, 12, name, &root->node->type, onnx_batch_axis(o, root->node));
  }
}

static void onnx_write_model(Onnx *o, const Program *program, Text *ends, Text *out) {
  Text graph = {0}, model = {0}, opset = {0};
  text_append(&graph, text_cstr(&o->nodes), o->nodes.count);
  wire_text(&graph, 2, program->model_name);
  text_append(&graph, text_cstr(&o->constants), o->constants.count);
  text_append(&graph, text_cstr(ends), ends->count);
  wire_int(&model, 1, ONNX_IR_VERSION);
  wire_text(&model, 2, "ft");
  wire_message(&model, 7, &graph);
  wire_text(&opset, 1, "");
  wire_int(&opset, 2, ONNX_OPSET);
  wire_message(&model, 8, &opset);
  text_printf(out, "model %lld\n", (long long)model.count);
  text_append(out, model.at, model.count);
  text_free(&model);
}

/* False: with a fixed batch it may be. */
static bool onnx_try(const Program *program, Arena *arena, bool is_fixed, Text *out) {
  const Graph *graph = program->eval;
  Onnx o = {.arena = arena, .graph = graph, .is_fixed = is_fixed, .value = ARENA_ARRAY(arena, OnnxValue, graph->nodes.count)};
  o.samples = samples_find(graph, arena, NULL, &o.batch);
  bool *needed = onnx_find_needed(graph, arena), is_done;
  Text ends = {0};
  is_done = onnx_convert_nodes(&o, needed);
  if (is_done) onnx_write_ends(&o, needed, &ends); /* which expands what is left to expand */
  bool is_over = o.why || !o.needs_fixed;
  if (o.why) {
    text_printf(out, "refused %s\n", o.why);
  } else if (!o.needs_fixed) {
    text_printf(out, "onnx 1\n");
    for (int i = 0; i < graph->nodes.count; i++) {
      const Node *leaf = graph->nodes.at[i];
      if (needed[i] && (leaf->op == OP_PARAM || leaf->op == OP_STATE))
        text_printf(out, "%s %s %s\n", leaf->op == OP_PARAM ? "param" : "state", node_str(leaf, ATTR_NAME), onnx_leaf(&o, leaf));
    }
    onnx_write_model(&o, program, &ends, out);
  }
  text_free(&o.nodes);
  text_free(&o.constants);
  text_free(&ends);
  return is_over;
}

void onnx_describe(const Program *program, Text *out) {
  Arena *arena = arena_new();
  bool has_output = program->eval && graph_find_root(program->eval, ROOT_OUTPUT, NULL);
  if (!has_output)
    text_printf(out, "refused the model has no output\n");
  else if (!onnx_try(program, arena, false, out))
    onnx_try(program, arena, true, out);
  arena_free(arena);
}
