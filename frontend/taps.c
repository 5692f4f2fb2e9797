/* taps: what layers read and give, as outputs of the evaluation: "in.N.PATH" and "out.N.PATH" of application N, from 0, which no
 * output of a program is called. Of layers that can be quantised, or are already; `ftrun quantize` compiles a program so to look at
 * them. */
#include "frontend/builder.h"
#include <fnmatch.h>
#include <string.h>

static bool tap_is_meant(const Builder *b, const char *path) {
  for (int i = 0; i < b->tap_count; i++)
    if (fnmatch(b->taps[i], path, 0) == 0) return true;
  return false;
}

/* An argument of a convolution that is a number, or one for each side. */
static void tap_pair(const Instance *instance, const char *name, int64_t out[2]) {
  for (int i = 0; i < instance->config.count; i++) {
    const Value *v = &instance->config.at[i].value;
    if (strcmp(instance->config.at[i].name, name) != 0) continue;
    bool is_list = (v->kind == VALUE_TUPLE || v->kind == VALUE_LIST) && v->count == 2;
    for (int k = 0; k < 2; k++) {
      const Value *one = is_list ? &v->items[k] : v;
      if (one->kind == VALUE_INT) out[k] = one->i;
    }
  }
}

void tap_layer(Builder *b, const Instance *instance, const Value *input, const Value *result) {
  bool is_plain = quantize_may(b, instance->block), is_done = quantize_is_done(b, instance->block);
  if (!b->tap_count || b->training || b->frozen.file || (!is_plain && !is_done)) return;
  const char *path = block_path(b, instance);
  if (!*path && is_plain && !b->is_again && tap_is_meant(b, path))
    diag_warning(b->diag, instance->loc, "this %s has no name, by which it could be meant, and stays as it is: %s(..., name=\"...\")",
                 instance->block->name, instance->block->name);
  if (!*path || input->kind != VALUE_TENSOR || result->kind != VALUE_TENSOR || !tap_is_meant(b, path)) return;
  int number = instance->applications - 1;
  graph_add_root(b->graph, ROOT_OUTPUT, arena_printf(b->arena, "in.%d.%s", number, path), input->node);
  graph_add_root(b->graph, ROOT_OUTPUT, arena_printf(b->arena, "out.%d.%s", number, path), result->node);
  LayerTap tap = {.path = path, .block = instance->block->name, .number = number, .stride = {-1, -1}, .padding = {-1, -1}, .dilation = {-1, -1}, .groups = {-1, -1}};
  tap_pair(instance, "stride", tap.stride);
  tap_pair(instance, "padding", tap.padding);
  tap_pair(instance, "dilation", tap.dilation);
  tap_pair(instance, "groups", tap.groups);
  if (!b->is_again) VEC_PUSH(b->arena, b->program->taps, tap);
}

/* Why a pattern means no layer that was tapped. */
static bool taps_refuse(Builder *b, const char *pattern) {
  VEC(const char *) names = {0};
  const Layer *other = NULL;
  for (int i = 0; i < b->program->layers.count; i++) {
    const Layer *layer = &b->program->layers.at[i];
    if (!strcmp(layer->block, "Linear") || !strcmp(layer->block, "Conv2d")) VEC_PUSH(b->arena, names, layer->path);
    if (!other && *layer->path && fnmatch(pattern, layer->path, 0) == 0) other = layer;
  }
  if (!names.count && !strcmp(pattern, "*"))
    return builder_fail(b, (Loc){0}, "the model has no Linear and no Conv2d, whose weights could be quantised; matrices of its own blocks are meant by their names, "
                        "--layers \"h.*.weight=w8\"");
  if (other)
    return builder_fail(b, other->loc,
                        "'%s', %s, is no layer that is quantised: Linear and Conv2d are, and those within a block by a pattern, '%s.*'",
                        other->path, other->block, other->path);
  for (int i = 0; i < b->declared.count; i++) {
    const Declared *of = &b->declared.at[i];
    if (quant_form_names(pattern, of->name)) return quantize_refuse_parameter(b, of);
    if (of->node->op == OP_PARAM && of->node->type.shape.rank == 2) VEC_PUSH(b->arena, names, of->name);
  }
  return builder_fail(b, (Loc){0}, "there is no layer '%s'%s", pattern, builder_hint(b, pattern, names.at, names.count));
}

bool taps_check(Builder *b) {
  for (int i = 0; i < b->tap_count; i++) {
    bool is_used = false;
    for (int k = 0; k < b->program->matrix_taps.count; k++) is_used |= quant_form_names(b->taps[i], b->program->matrix_taps.at[k].path);
    for (int k = 0; k < b->program->taps.count; k++) is_used |= fnmatch(b->taps[i], b->program->taps.at[k].path, 0) == 0;
    if (!is_used) return taps_refuse(b, b->taps[i]);
  }
  return true;
}
