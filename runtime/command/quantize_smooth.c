/* quantize_smooth: where few input features are far larger than the others, one scale for all leaves the others few numbers. Each
 * feature j is divided by s_j, and the weights that read it are multiplied by it, which changes no result:
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

void quantize_smooth(Quantizing *q, QuantLayer *layer) {
  bool is_grouped = layer->is_conv && layer->groups != 1;
  if (q->options->smooth < 0 || !layer->form.input_bits || is_grouped || !layer->features) return;
  double alpha = q->options->smooth;
  layer->factor = ARENA_ARRAY(q->arena, float, layer->features);
  float *largest = ARENA_ARRAY(q->arena, float, layer->features);
  largest_weights(layer, largest);
  for (int64_t j = 0; j < layer->features; j++) {
    double x = layer->observer.largest[j], w = largest[j];
    double s = x > 0 && w > 0 ? pow(x, alpha) / pow(w, 1 - alpha) : 1;
    layer->factor[j] = (float)(1 / fmin(fmax(s, 1e-5), 1e5));
  }
  int64_t inside = layer->rounding.columns / layer->features;
  for (int64_t i = 0; i < layer->rounding.rows * layer->rounding.columns; i++)
    layer->weight[i] /= layer->factor[i % layer->rounding.columns / inside];
  layer->form.has_factor = true;
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
