/* quantize_smooth: where few input features are far larger than the others, one scale for all leaves the others few numbers. Each
 * feature j is divided by s_j, by a product at run time or within the weights before it (quantize_fold.c), and the weights that read it are
 * multiplied by it, which changes no result:
 *
 *   s_j = (largest |x_j|)^alpha / (largest |w_j|)^(1 - alpha)
 *
 * (Xiao et al., SmoothQuant, ICML 2023, arXiv 2211.10438, equation 4.) Also what GPTQ needs of a layer's inputs, in rows of what an
 * output sums over. */
#include "runtime/command/quantize_private.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Feature j of weights [rows, C / groups, kh, kw]: of a convolution with groups, no feature is read by all rows. */
static void largest_weights(const QuantLayer *layer, float *out) {
  int64_t inside = layer->rounding.columns / layer->features;
  for (int64_t i = 0; i < layer->rounding.rows * layer->rounding.columns; i++) {
    float *largest = &out[i % layer->rounding.columns / inside];
    *largest = fmaxf(*largest, fabsf(layer->weight[i]));
  }
}

bool quantize_is_smoothed(const Quantizing *q, const QuantLayer *layer) {
  bool is_grouped = layer->is_conv && layer->groups != 1;
  return q->options->smooth >= 0 && !layer->is_matrix && layer->form.input_bits && !is_grouped && layer->features;
}

void quantize_smooth_layers(Quantizing *q, QuantLayer *const *layers, int count) {
  double alpha = q->options->smooth;
  int64_t features = layers[0]->features;
  float *factor = ARENA_ARRAY(q->arena, float, features), *weights = ARENA_ARRAY(q->arena, float, features);
  for (int i = 0; i < count; i++) largest_weights(layers[i], weights);
  for (int64_t j = 0; j < features; j++) {
    double x = 0, w = weights[j];
    for (int i = 0; i < count; i++) x = fmax(x, layers[i]->observer.largest[j]);
    double s = x > 0 && w > 0 ? pow(x, alpha) / pow(w, 1 - alpha) : 1;
    factor[j] = (float)(1 / fmin(fmax(s, 1e-5), 1e5));
  }
  for (int i = 0; i < count; i++) layers[i]->factor = factor;
}

/* What undoes the factors of the input. */
static void undo_factors(QuantLayer *layer) {
  int64_t inside = layer->rounding.columns / layer->features;
  for (int64_t i = 0; i < layer->rounding.rows * layer->rounding.columns; i++)
    layer->weight[i] /= layer->factor[i % layer->rounding.columns / inside];
}

/* All factors are of the weights as they are: what a row takes in changes no number that it is rounded to, where it has a scale of its own. */
void quantize_smooth(Quantizing *q) {
  quantize_fold(q);
  for (int i = 0; i < q->layers.count; i++) {
    QuantLayer *layer = &q->layers.at[i];
    if (!quantize_is_smoothed(q, layer)) continue;
    layer->form.has_factor = !layer->factor;
    if (!layer->factor) quantize_smooth_layers(q, &layer, 1);
  }
  for (int i = 0; i < q->layers.count; i++)
    if (q->layers.at[i].factor) undo_factors(&q->layers.at[i]);
  for (int i = 0; i < q->layers.count; i++) quantize_fold_rows(q, &q->layers.at[i]);
}

/* ── the inputs of GPTQ ─────────────────────────────────────────────────────────────────────── */
typedef struct {
  const float *x; /* of one image, [C, H, W] */
  int64_t channels, height, width, kernel[2], out[2];
} Windows;

/* The values that one output of a convolution sums over, in the order of its weights. */
static void take_window(const QuantLayer *layer, const Windows *w, int64_t row, int64_t column, float *out) {
  for (int64_t c = 0; c < w->channels; c++)
    for (int64_t i = 0; i < w->kernel[0]; i++)
      for (int64_t k = 0; k < w->kernel[1]; k++) {
        int64_t y = row * layer->stride[0] - layer->padding[0] + i * layer->dilation[0];
        int64_t x = column * layer->stride[1] - layer->padding[1] + k * layer->dilation[1];
        bool is_inside = y >= 0 && y < w->height && x >= 0 && x < w->width;
        float factor = layer->factor ? layer->factor[c] : 1;
        *out++ = is_inside ? w->x[(c * w->height + y) * w->width + x] * factor : 0;
      }
}

static Status add_windows(QuantLayer *layer, const float *x, const Type *type) {
  const int64_t *dim = type->shape.dim;
  Windows w = {.channels = dim[1], .height = dim[2], .width = dim[3], .kernel = {layer->shape.dim[2], layer->shape.dim[3]}};
  for (int i = 0; i < 2; i++)
    w.out[i] = (dim[2 + i] + 2 * layer->padding[i] - layer->dilation[i] * (w.kernel[i] - 1) - 1) / layer->stride[i] + 1;
  int64_t columns = layer->rounding.columns;
  float *rows = malloc((size_t)(w.out[1] * columns + 1) * sizeof *rows);
  if (!rows) return status_errno(ENOMEM, "inputs of %s", layer->path);
  bool fine = true;
  for (int64_t n = 0; n < dim[0] && fine; n++)
    for (int64_t y = 0; y < w.out[0] && fine; y++) {
      w.x = x + n * dim[1] * dim[2] * dim[3];
      for (int64_t k = 0; k < w.out[1]; k++) take_window(layer, &w, y, k, rows + k * columns);
      fine = gptq_add(layer->hessian, (int)columns, rows, w.out[1], NULL);
    }
  free(rows);
  return fine ? STATUS_OK : status_errno(ENOMEM, "inputs of %s", layer->path);
}

Status quantize_add_inputs(QuantLayer *layer, const float *x, const Type *type) {
  if (layer->is_conv) return add_windows(layer, x, type);
  int64_t columns = layer->rounding.columns;
  bool fine = gptq_add(layer->hessian, (int)columns, x, shape_elements(&type->shape) / columns, layer->factor);
  return fine ? STATUS_OK : status_errno(ENOMEM, "inputs of %s", layer->path);
}
