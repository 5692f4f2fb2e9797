/* quantize_write: the quantised model's weights, and what it computes beside the model it was made of. */
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/weight_packed.h"
#include "runtime/command/evaluate.h"
#include "runtime/command/quantize_private.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ── the file ───────────────────────────────────────────────────────────────────────────────── */
typedef VEC(SafeTensor) TensorList;

static void add_floats(Quantizing *q, TensorList *list, const char *name, const Shape *shape, const float *values) {
  SafeTensor tensor = {.name = name, .element = ELEMENT_F32, .shape = *shape, .data = (const uint8_t *)values};
  tensor.bytes = (size_t)shape_elements(shape) * sizeof(float);
  VEC_PUSH(q->arena, *list, tensor);
}

/* In the order of the file. */
static void add_weight_floats(Quantizing *q, TensorList *list, const QuantLayer *layer) {
  int64_t count = layer->rounding.rows * layer->rounding.columns;
  float *values = ARENA_ARRAY(q->arena, float, count + 1);
  for (int64_t i = 0; i < count; i++) values[quantize_place(layer, i)] = layer->weight[i];
  add_floats(q, list, layer->weight_name, &layer->shape, values);
}

static const int8_t *weight_numbers(Quantizing *q, const QuantLayer *layer) {
  const Rounding *r = &layer->rounding;
  int64_t columns_of_scale = r->per_tensor ? r->rows * r->columns : r->group ? r->group : r->columns, count = r->rows * r->columns;
  int8_t *numbers = ARENA_ARRAY(q->arena, int8_t, count + 1);
  for (int64_t i = 0; i < count; i++)
    numbers[quantize_place(layer, i)] = (int8_t)nearbyintf(layer->weight[i] * (1.0f / layer->scales[i / columns_of_scale]));
  return numbers;
}

/* Whole numbers, of 8 bits or of 4; more bits than that as f32. */
static void add_rounded_weight(Quantizing *q, TensorList *list, QuantLayer *layer) {
  const char *name = layer->weight_name;
  int64_t rows = layer->shape.dim[0], count = layer->rounding.rows * layer->rounding.columns, columns = rows ? count / rows : 0;
  if (layer->form.bits > 8) {
    add_weight_floats(q, list, layer);
  } else if (layer->form.bits > 4) {
    VEC_PUSH(q->arena, *list, ((SafeTensor){name, ELEMENT_I8, layer->shape, (const uint8_t *)weight_numbers(q, layer), (size_t)count}));
  } else {
    Shape packed = {.rank = 2, .dim = {rows, weight_packed_columns(columns)}}, rank = {.rank = 1, .dim = {layer->shape.rank}};
    size_t bytes = (size_t)shape_elements(&packed) * sizeof(uint32_t);
    uint32_t *words = ARENA_ARRAY(q->arena, uint32_t, shape_elements(&packed) + 1);
    weight_pack_halves(weight_numbers(q, layer), rows, columns, words);
    const char *of = arena_printf(q->arena, "%s_packed", name), *shape = arena_printf(q->arena, "%s_shape", name);
    VEC_PUSH(q->arena, *list, ((SafeTensor){of, ELEMENT_I32, packed, (const uint8_t *)words, bytes}));
    VEC_PUSH(q->arena, *list,
             ((SafeTensor){shape, ELEMENT_I64, rank, (const uint8_t *)layer->shape.dim, (size_t)layer->shape.rank * sizeof(int64_t)}));
  }
}

/* Of [out, in]: [out] or [out, groups]; of [in, out]: [groups, out]. */
static void add_scales(Quantizing *q, TensorList *list, const QuantLayer *layer) {
  int64_t out = layer->rounding.rows, groups = layer->form.group ? layer->rounding.columns / layer->form.group : 1;
  Shape shape = {.rank = 1, .dim = {layer->form.per_tensor ? 1 : out}};
  float *scales = layer->scales;
  if (layer->is_turned && !layer->form.per_tensor) {
    shape = (Shape){.rank = 2, .dim = {groups, out}};
    scales = ARENA_ARRAY(q->arena, float, out * groups + 1);
    for (int64_t i = 0; i < out * groups; i++) scales[i % groups * out + i / groups] = layer->scales[i];
  } else if (layer->form.group) {
    shape = (Shape){.rank = 2, .dim = {out, groups}};
  }
  add_floats(q, list, arena_printf(q->arena, "%s_scale", layer->weight_name), &shape, scales);
}

static void add_layer(Quantizing *q, TensorList *list, QuantLayer *layer) {
  Shape one = {.rank = 1, .dim = {1}}, features = {.rank = 1, .dim = {layer->features}};
  add_rounded_weight(q, list, layer);
  add_scales(q, list, layer);
  if (layer->form.has_factor) add_floats(q, list, arena_printf(q->arena, "%s.input_factor", layer->path), &features, layer->factor);
  if (quantize_has_range(layer)) add_floats(q, list, arena_printf(q->arena, "%s.input.max_abs", layer->path), &one, &layer->range);
}

static bool is_rounded(const Quantizing *q, const char *name) {
  for (int i = 0; i < q->layers.count; i++)
    if (strcmp(q->layers.at[i].weight_name, name) == 0) return true;
  return false;
}

/* As it is in the file, times the factors that it takes in. */
static Status add_other(Quantizing *q, TensorList *list, const SafeTensor *tensor) {
  bool is_folded = false;
  for (int i = 0; i < q->folded.count; i++) is_folded |= !strcmp(q->folded.at[i].name, tensor->name);
  if (!is_folded) {
    VEC_PUSH(q->arena, *list, *tensor);
    return STATUS_OK;
  }
  int64_t count = shape_elements(&tensor->shape);
  float *values = ARENA_ARRAY(q->arena, float, count + 1);
  if (element_convert(tensor->data, tensor->element, false, count, DT_F32, values) != count)
    return status_fail(STATUS_USER, "%s: '%s' holds %s, which are no f32 weights", q->weights.named, tensor->name, element_text(tensor->element));
  quantize_fold_into(q, tensor->name, &tensor->shape, values);
  add_floats(q, list, tensor->name, &tensor->shape, values);
  return STATUS_OK;
}

/* What the program has and nothing rounds. */
static Status add_others(Quantizing *q, TensorList *list) {
  const Plan *plan = q->model.artifact->plan;
  for (int i = 0; i < plan->params.count + plan->states.count; i++) {
    bool is_param = i < plan->params.count;
    const PlanTensor *of = is_param ? &plan->params.at[i] : &plan->states.at[i - plan->params.count];
    if ((!is_param && (of->role != ROLE_MODEL || !of->is_saved)) || is_rounded(q, of->name)) continue;
    const SafeTensor *tensor = safetensors_find(&q->weights.all, of->name);
    if (!tensor) return status_fail(STATUS_USER, "%s has no tensor '%s'", q->weights.named, of->name);
    STATUS_TRY(add_other(q, list, tensor));
  }
  return STATUS_OK;
}

Status quantize_write(Quantizing *q, const char *path) {
  static const SafeText format = {"format", "pt"};
  TensorList list = {0};
  STATUS_TRY(add_others(q, &list));
  for (int i = 0; i < q->layers.count; i++) add_layer(q, &list, &q->layers.at[i]);
  return safetensors_write(path, list.at, list.count, &format, 1, false);
}

/* ── beside each other ──────────────────────────────────────────────────────────────────────── */
static Status compare_layer(Quantizing *q, TapModel *rounded, QuantLayer *layer) {
  const float *x, *y;
  const Type *type;
  for (int k = 0; k < layer->applications; k++) {
    STATUS_TRY(tap_read(&q->model, layer->path, k, "out", &x, &type));
    STATUS_TRY(tap_read(rounded, layer->path, k, "out", &y, &type));
    int64_t inside = layer->is_conv ? type->shape.dim[2] * type->shape.dim[3] : 1;
    for (int64_t i = 0; i < shape_elements(&type->shape); i++) {
      double wanted = (double)x[i] * (layer->out ? (double)layer->out[i / inside % layer->rounding.rows] : 1);
      double difference = wanted - (double)y[i];
      layer->signal += wanted * wanted;
      layer->noise += difference * difference;
    }
  }
  return STATUS_OK;
}

static void print_layer(const QuantLayer *layer, int width) {
  Text form = {0}, range = {0}, ratio = {0};
  quant_form_append(&layer->form, &form);
  if (layer->form.is_dynamic) text_printf(&range, "by row");
  if (quantize_has_range(layer)) text_printf(&range, "%s%.4g", layer->form.is_unsigned ? "0 .. " : "+-", (double)layer->range);
  if (!layer->applications)
    text_printf(&ratio, "-"); /* rows are looked up in it, and no product reads it */
  else if (layer->noise > 0)
    text_printf(&ratio, "%.1f dB", 10 * log10(layer->signal / layer->noise));
  else
    text_printf(&ratio, "no noise");
  printf("%-*s  %-8s  %-12s  %10s\n", width, layer->path, text_cstr(&form), text_cstr(&range), text_cstr(&ratio));
  text_free(&form);
  text_free(&range);
  text_free(&ratio);
}

static void print_layers(const Quantizing *q) {
  int width = 5;
  int64_t f32 = 0, bits = 0;
  for (int i = 0; i < q->layers.count; i++) {
    const QuantLayer *layer = &q->layers.at[i];
    int64_t count = layer->rounding.rows * layer->rounding.columns;
    if ((int)strlen(layer->path) > width) width = (int)strlen(layer->path);
    f32 += count * 4;
    bits += count * layer->form.bits + 32 * rounding_scales(&layer->rounding);
  }
  printf("%-*s  %-8s  %-12s  %10s\n", width, "layer", "form", "inputs", "signal to noise of its outputs");
  for (int i = 0; i < q->layers.count; i++) print_layer(&q->layers.at[i], width);
  quantize_print_folds(q);
  char before[32], after[32];
  printf("weights of these layers: %s in f32, %s as whole numbers with their scales\n", text_bytes(f32, before),
         text_bytes((bits + 7) / 8, after));
}

static void print_both_results(const LogStep *before, const LogStep *after, const char *split) {
  printf("%-12s  %12s  %12s\n", split, "f32", "quantised");
  printf("%-12s  %12.6g  %12.6g\n", "loss", before->loss, after->loss);
  for (int i = 0; i < before->metric_count; i++)
    if (!before->metric[i].table) printf("%-12s  %12.6g  %12.6g\n", before->metric[i].name, before->metric[i].value, after->metric[i].value);
}

static Status compare_models(Quantizing *q, TapModel *rounded, const RunOptions *run) {
  for (int64_t batch = 0; batch < q->model.batches; batch++) {
    STATUS_TRY(tap_run(&q->model, batch));
    STATUS_TRY(tap_run(rounded, batch));
    for (int i = 0; i < q->layers.count; i++) STATUS_TRY(compare_layer(q, rounded, &q->layers.at[i]));
  }
  print_layers(q);
  const char *split = "valid";
  if (!source_find_split(q->model.artifact->plan, split)) return STATUS_OK;
  LogStep before = {0}, after = {0};
  STATUS_TRY(tap_evaluate(&q->model, run, split, &before));
  STATUS_TRY(tap_evaluate(rounded, run, split, &after));
  print_both_results(&before, &after, split);
  return STATUS_OK;
}

Status quantize_compare(Quantizing *q, const char *artifact, const char *weights) {
  TapModel rounded;
  RunOptions run = q->options->run;
  run.artifact = artifact;
  Status status = tap_open(&run, weights, q->options->split, q->options->samples, &rounded);
  if (status == STATUS_OK) status = compare_models(q, &rounded, &run);
  tap_close(&rounded);
  return status;
}
