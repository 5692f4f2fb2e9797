/* quantize: see quantize.h. The calibration samples are run once for the ranges of inputs, once more where a rule counts values or
 * factors change them, and once more for each GiB of GPTQ's matrices. */
#include "base/say.h"
#include "runtime/command/quantize_private.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_MATRICES ((int64_t)1 << 30) /* bytes, at a time */
enum { MOST_GPTQ_COLUMNS = 20000 };

/* ── batches ────────────────────────────────────────────────────────────────────────────────── */
typedef Status SeeInputs(Quantizing *q, QuantLayer *layer, const float *x, const Type *type);

/* Of each layer from `first` up to `end`, what each application has read of each batch. */
static Status see_inputs(Quantizing *q, int first, int end, SeeInputs *see) {
  const float *x;
  const Type *type;
  for (int64_t batch = 0; batch < q->model.batches; batch++) {
    STATUS_TRY(tap_run(&q->model, batch));
    for (int i = first; i < end; i++) {
      QuantLayer *layer = &q->layers.at[i];
      for (int k = 0; k < layer->applications; k++) {
        STATUS_TRY(tap_read(&q->model, layer->path, k, "in", &x, &type));
        STATUS_TRY(see(q, layer, x, type));
      }
    }
  }
  return STATUS_OK;
}

/* How often the features are there, and how many values each has then. */
static void strides_of(const QuantLayer *layer, const Type *type, int64_t *outer, int64_t *inner) {
  *inner = layer->is_conv ? type->shape.dim[2] * type->shape.dim[3] : 1;
  int64_t once = layer->features * *inner;
  *outer = once > 0 ? shape_elements(&type->shape) / once : 0;
}

static Status see_ranges(Quantizing *q, QuantLayer *layer, const float *x, const Type *type) {
  int64_t outer, inner;
  strides_of(layer, type, &outer, &inner);
  observer_see(&layer->observer, x, outer, inner, (float)q->options->momentum);
  if (layer->observer.is_finite) return STATUS_OK;
  return status_fail(STATUS_USER,
                     "layer '%s' reads a number that is not finite on the calibration samples; ftrun eval shows whether the model works "
                     "with these weights, ftrun --check nan where the number is from",
                     layer->path);
}

static Status see_counts(Quantizing *q, QuantLayer *layer, const float *x, const Type *type) {
  int64_t outer, inner;
  (void)q;
  strides_of(layer, type, &outer, &inner);
  if (layer->observer.bin) observer_count(&layer->observer, x, outer, inner, layer->factor);
  return STATUS_OK;
}

static Status see_matrices(Quantizing *q, QuantLayer *layer, const float *x, const Type *type) {
  (void)q;
  return layer->hessian ? quantize_add_inputs(layer, x, type) : STATUS_OK;
}

/* ── ranges ─────────────────────────────────────────────────────────────────────────────────── */
static Status find_ranges(Quantizing *q) {
  const QuantizeOptions *o = q->options;
  bool counts = o->range == RANGE_PERCENTILE || o->range == RANGE_MSE;
  for (int i = 0; i < q->layers.count; i++) {
    QuantLayer *layer = &q->layers.at[i];
    observer_new(&layer->observer, layer->features, ARENA_ARRAY(q->arena, float, layer->features));
  }
  STATUS_TRY(see_inputs(q, 0, q->layers.count, see_ranges));
  quantize_smooth(q);
  for (int i = 0; i < q->layers.count; i++) {
    QuantLayer *layer = &q->layers.at[i];
    layer->form.is_unsigned = layer->form.input_bits && !layer->form.is_dynamic && layer->observer.least >= 0;
    layer->observer.top = observer_largest(&layer->observer, layer->factor);
    if (counts && quantize_has_range(layer)) layer->observer.bin = ARENA_ARRAY(q->arena, int64_t, OBSERVER_BINS);
  }
  if (counts) STATUS_TRY(see_inputs(q, 0, q->layers.count, see_counts));
  for (int i = 0; i < q->layers.count; i++) {
    QuantLayer *layer = &q->layers.at[i];
    if (!quantize_has_range(layer)) continue;
    layer->range = observer_range(&layer->observer, o->range, layer->factor, o->percent, layer->form.input_bits, layer->form.is_unsigned);
  }
  return STATUS_OK;
}

/* ── weights ────────────────────────────────────────────────────────────────────────────────── */
/* Why GPTQ does not round this layer; NULL: it does. */
static const char *why_no_gptq(const QuantLayer *layer) {
  bool has_geometry = !layer->is_conv || (layer->groups == 1 && layer->stride[0] > 0 && layer->stride[1] > 0 && layer->padding[0] >= 0 &&
                                          layer->padding[1] >= 0 && layer->dilation[0] > 0 && layer->dilation[1] > 0);
  if (!has_geometry) return "GPTQ is for convolutions without groups, with padding in numbers";
  if (layer->rounding.columns > MOST_GPTQ_COLUMNS) return "GPTQ takes up to 20000 weights of an output";
  if (!layer->applications) return "GPTQ is for matrices that are the second operand of a product";
  return NULL;
}

static bool takes_gptq(const Quantizing *q, const QuantLayer *layer) {
  if (!q->options->is_gptq || !layer->rounding.columns) return false;
  const char *why = why_no_gptq(layer);
  if (why) say_note("%s is rounded to nearest: %s", layer->path, why);
  return !why;
}

static void round_nearest_layer(const Quantizing *q, QuantLayer *layer) {
  rounding_find_scales(&layer->rounding, layer->weight, q->options->scale, layer->scales);
  rounding_nearest(&layer->rounding, layer->scales, layer->weight);
}

static Status round_by_gptq(Quantizing *q, int first, int end) {
  STATUS_TRY(see_inputs(q, first, end, see_matrices));
  for (int i = first; i < end; i++) {
    QuantLayer *layer = &q->layers.at[i];
    if (!layer->hessian) continue;
    bool fine = gptq_round(&layer->rounding, &q->options->gptq, layer->hessian, layer->weight, layer->scales);
    free(layer->hessian);
    layer->hessian = NULL;
    if (!fine) return status_errno(ENOMEM, "GPTQ of %s", layer->path);
  }
  return STATUS_OK;
}

static Status find_weights(Quantizing *q) {
  int64_t bytes = 0;
  int first = 0;
  for (int i = 0; i < q->layers.count; i++) {
    QuantLayer *layer = &q->layers.at[i];
    if (!takes_gptq(q, layer)) {
      round_nearest_layer(q, layer);
      continue;
    }
    int64_t size = layer->rounding.columns * layer->rounding.columns * (int64_t)sizeof(double);
    if (bytes && bytes + size > MOST_MATRICES) {
      STATUS_TRY(round_by_gptq(q, first, i));
      first = i;
      bytes = 0;
    }
    layer->hessian = calloc((size_t)size, 1);
    if (!layer->hessian) return status_errno(ENOMEM, "GPTQ of %s", layer->path);
    bytes += size;
  }
  return bytes ? round_by_gptq(q, first, q->layers.count) : STATUS_OK;
}

/* ── all of it ──────────────────────────────────────────────────────────────────────────────── */
static void append_forms(Quantizing *q) {
  const char *before = setting_text(q->model.artifact->plan->settings, "train.quantize");
  if (before) text_append(&q->setting, before, strlen(before));
  for (int i = 0; i < q->layers.count; i++) {
    text_printf(&q->setting, "%s%s=", q->setting.count ? " " : "", q->layers.at[i].path);
    quant_form_append(&q->layers.at[i].form, &q->setting);
  }
}

static Status calibrate(Quantizing *q) {
  const QuantizeOptions *o = q->options;
  STATUS_TRY(weight_files_open(&o->weights, 1, NULL, 0, &q->weights));
  STATUS_TRY(quantize_find_layers(q));
  STATUS_TRY(tap_open(&o->run, o->weights, o->split, o->samples, &q->model));
  STATUS_TRY(find_ranges(q));
  STATUS_TRY(find_weights(q));
  append_forms(q);
  return STATUS_OK;
}

Status quantize_new(const QuantizeOptions *options, Quantizing **out) {
  Arena *arena = arena_new();
  Quantizing *q = *out = ARENA_NEW(arena, Quantizing);
  q->arena = arena;
  q->options = options;
  return calibrate(q);
}

void quantize_free(Quantizing *q) {
  if (!q) return;
  for (int i = 0; i < q->layers.count; i++) {
    free(q->layers.at[i].weight);
    free(q->layers.at[i].scales);
    free(q->layers.at[i].hessian);
  }
  tap_close(&q->model);
  weight_files_close(&q->weights);
  text_free(&q->setting);
  arena_free(q->arena);
}

const char *quantize_setting(const Quantizing *q) { return text_cstr(&q->setting); }
