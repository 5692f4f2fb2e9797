/* quantize_layers: which layers `ftrun quantize` rounds, and how: the applications that ftc has listed, the rules of the command line,
 * the weights of the file. */
#include "base/say.h"
#include "runtime/command/quantize_private.h"
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ── what ftc has listed ────────────────────────────────────────────────────────────────────── */
static QuantLayer *find_layer(Quantizing *q, const char *path) {
  for (int i = 0; i < q->layers.count; i++)
    if (strcmp(q->layers.at[i].path, path) == 0) return &q->layers.at[i];
  return NULL;
}

static void read_tap(Quantizing *q, char *words) {
  char *path = strtok_r(NULL, " ", &words), *block = strtok_r(NULL, " ", &words), *word = strtok_r(NULL, " ", &words);
  if (!path || !block || !word) return;
  QuantLayer *known = find_layer(q, path);
  if (known) {
    known->applications++;
    return;
  }
  QuantLayer layer = {.path = path, .is_conv = strstr(block, "Conv2d") != NULL, .applications = 1};
  int64_t *const numbers[] = {&layer.stride[0],  &layer.stride[1],   &layer.padding[0], &layer.padding[1],
                              &layer.dilation[0], &layer.dilation[1], &layer.groups};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    word = strtok_r(NULL, " ", &words);
    *numbers[i] = word ? strtoll(word, NULL, 10) : -1;
  }
  layer.weight_name = arena_printf(q->arena, "%s.weight", path);
  if (strncmp(block, "Quant", 5) != 0) VEC_PUSH(q->arena, q->layers, layer);
}

static void read_fold_line(Quantizing *q, char *words) {
  char *path = strtok_r(NULL, " ", &words);
  QuantLayer *layer = path ? find_layer(q, path) : NULL;
  if (layer) layer->fold = words;
}

static void read_matrix(Quantizing *q, char *words) {
  char *path = strtok_r(NULL, " ", &words), *axis = strtok_r(NULL, " ", &words), *products = strtok_r(NULL, " ", &words);
  if (!path || !axis || !products) return;
  QuantLayer matrix = {.path = path, .weight_name = path, .is_matrix = true, .is_turned = *axis == '0', .groups = 1};
  matrix.applications = (int)strtol(products, NULL, 10);
  VEC_PUSH(q->arena, q->layers, matrix);
}

static Status read_taps(Quantizing *q) {
  char *rest = NULL, *text = arena_strdup(q->arena, q->options->taps);
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    char *words = NULL, *kind = strtok_r(line, " ", &words);
    if (kind && strcmp(kind, "tap") == 0) read_tap(q, words);
    if (kind && strcmp(kind, "fold") == 0) read_fold_line(q, words);
    if (kind && strcmp(kind, "matrix") == 0) read_matrix(q, words);
  }
  if (q->layers.count) return STATUS_OK;
  return status_fail(STATUS_USER, "%s is quantised already: the layers that are meant have bits of their own", q->options->source);
}

/* ── the rules of the command line ──────────────────────────────────────────────────────────── */
static bool rule_means(const char *rule, const QuantLayer *layer) {
  char pattern[1024];
  const char *equals = strchr(rule, '=');
  size_t length = equals ? (size_t)(equals - rule) : strlen(rule);
  if (length >= sizeof pattern) return false;
  memcpy(pattern, rule, length);
  pattern[length] = 0;
  return layer->is_matrix ? quant_form_names(pattern, layer->path) : fnmatch(pattern, layer->path, 0) == 0;
}

static Status choose_form(Quantizing *q, QuantLayer *layer, bool *is_meant) {
  const QuantizeOptions *o = q->options;
  const char *rule = NULL;
  *is_meant = false;
  for (int i = 0; i < o->layer_count; i++)
    if (rule_means(o->layers[i], layer)) rule = o->layers[i];
  for (int i = 0; i < o->stay_count; i++)
    if (rule_means(o->stay[i], layer)) rule = NULL;
  if (!rule) return STATUS_OK;
  const char *wrong = quant_form_read(strchr(rule, '=') + 1, &layer->form);
  if (wrong) return status_fail(STATUS_USER, "--layers %s: %s", rule, wrong);
  if (layer->form.group && layer->is_conv)
    return status_fail(STATUS_USER, "--layers %s: groups are for Linear, and '%s' is a Conv2d: give it a form without g%lld", rule,
                       layer->path, (long long)layer->form.group);
  if (layer->form.is_dynamic && layer->is_conv)
    return status_fail(STATUS_USER, "--layers %s: d, inputs by the largest of each row, is for Linear and matrices, and '%s' is a Conv2d: give it a%d", rule,
                       layer->path, layer->form.input_bits);
  if (layer->is_matrix && ((layer->form.input_bits && !layer->form.is_dynamic) || layer->form.has_factor))
    return status_fail(STATUS_USER, "--layers %s: '%s' is a matrix outside of Linear and Conv2d, which observe nothing: give it a form without a and f, w%d, or w%da8d", rule,
                       layer->path, layer->form.bits, layer->form.bits);
  *is_meant = true;
  return STATUS_OK;
}

/* ── the weights ────────────────────────────────────────────────────────────────────────────── */
/* Of a value in rows of what an output sums over: where it lies in the file. */
int64_t quantize_place(const QuantLayer *layer, int64_t i) {
  const Rounding *r = &layer->rounding;
  return layer->is_turned ? i % r->columns * r->rows + i / r->columns : i;
}

static Status turn_weight(QuantLayer *layer) {
  int64_t count = layer->rounding.rows * layer->rounding.columns;
  float *turned = malloc((size_t)(count + 1) * sizeof *turned);
  if (!turned) return status_errno(ENOMEM, "%s", layer->weight_name);
  for (int64_t i = 0; i < count; i++) turned[i] = layer->weight[quantize_place(layer, i)];
  free(layer->weight);
  layer->weight = turned;
  return STATUS_OK;
}

static Status check_weights(const Quantizing *q, const QuantLayer *layer) {
  for (int64_t i = 0; i < layer->rounding.rows * layer->rounding.columns; i++)
    if (!isfinite(layer->weight[i]))
      return status_fail(STATUS_USER, "%s: '%s' holds a number that is not finite, at element %lld: these weights cannot be rounded",
                         q->weights.named, layer->weight_name, (long long)quantize_place(layer, i));
  return STATUS_OK;
}

static Status read_layer_weight(Quantizing *q, QuantLayer *layer) {
  const char *name = layer->weight_name;
  const SafeTensor *tensor = safetensors_find(&q->weights.all, name);
  if (!tensor) return status_fail(STATUS_USER, "%s has no tensor '%s'", q->weights.named, name);
  layer->shape = tensor->shape;
  int64_t count = shape_elements(&tensor->shape);
  layer->weight = malloc((size_t)(count + 1) * sizeof(float));
  if (!layer->weight) return status_errno(ENOMEM, "%s", name);
  if (tensor->shape.rank < 2 || !element_converts(tensor->element, DT_F32) ||
      element_convert(tensor->data, tensor->element, false, count, DT_F32, layer->weight) != count)
    return status_fail(STATUS_USER, "%s: '%s' holds %s, which are no f32 weights", q->weights.named, name, element_text(tensor->element));
  int64_t rows = tensor->shape.dim[layer->is_turned ? 1 : 0], columns = rows ? count / rows : 0;
  layer->rounding = (Rounding){rows, columns, layer->form.group, layer->form.per_tensor, layer->form.bits};
  if (layer->form.group && columns % layer->form.group)
    return status_fail(STATUS_USER, "groups of %lld do not divide the %lld input features of '%s': choose another group, or --stay %s",
                       (long long)layer->form.group, (long long)columns, layer->path, layer->path);
  layer->scales = malloc((size_t)(rounding_scales(&layer->rounding) + 1) * sizeof(float));
  layer->features = layer->is_conv ? tensor->shape.dim[1] * (layer->groups > 1 ? layer->groups : 1) : columns;
  if (!layer->scales) return status_errno(ENOMEM, "%s", name);
  if (layer->is_turned) STATUS_TRY(turn_weight(layer));
  return check_weights(q, layer);
}

/* The training step has one observer for each layer. */
static void keep_shared_inputs(QuantLayer *layer) {
  if (layer->applications < 2 || !layer->form.input_bits || layer->form.is_dynamic) return;
  say_note("'%s' is applied %d times, so its inputs stay f32, and its weights alone are rounded", layer->path, layer->applications);
  layer->form.input_bits = 0;
}

Status quantize_find_layers(Quantizing *q) {
  int count = 0;
  STATUS_TRY(read_taps(q));
  for (int i = 0; i < q->layers.count; i++) {
    bool is_meant;
    QuantLayer layer = q->layers.at[i];
    STATUS_TRY(choose_form(q, &layer, &is_meant));
    if (!is_meant) continue;
    keep_shared_inputs(&layer);
    q->layers.at[count++] = layer;
  }
  q->layers.count = count;
  if (!count) return status_fail(STATUS_USER, "all layers stay as they are: --stay leaves none to quantise");
  for (int i = 0; i < count; i++) STATUS_TRY(read_layer_weight(q, &q->layers.at[i]));
  return STATUS_OK;
}
