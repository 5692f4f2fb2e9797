/* quantize_private: what the files of quantize.h share. */
#ifndef FT_RUNTIME_QUANTIZE_PRIVATE_H
#define FT_RUNTIME_QUANTIZE_PRIVATE_H
#include "base/arena.h"
#include "plan/quant_form.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/command/quantize.h"
#include "runtime/command/quantize_run.h"
#include "runtime/quantize/rounding.h"

typedef struct {
  const char *path;
  bool is_conv;
  int applications;
  int64_t stride[2], padding[2], dilation[2], groups; /* of a convolution; -1: not known */
  QuantForm form;
  Shape shape;       /* of its weight */
  Rounding rounding; /* the same as rows of what an output sums over */
  float *weight, *scales;
  int64_t features;  /* of its input */
  Observer observer;
  float *factor;     /* of each input feature; NULL: none */
  float range;       /* the largest input that is not cut off */
  double *hessian;   /* while it is needed */
  double signal, noise; /* of its outputs, f32 and quantised */
} QuantLayer;

struct Quantizing {
  const QuantizeOptions *options;
  Arena *arena;
  WeightFiles weights;
  TapModel model;
  VEC(QuantLayer) layers;
  Text setting;
};

/* Which layers, with which forms, and their weights (quantize_layers.c). */
STATUS_CHECKED Status quantize_find_layers(Quantizing *q);
/* The factors of SmoothQuant, and the weights times what undoes them (quantize_smooth.c). */
void quantize_smooth(Quantizing *q, QuantLayer *layer);
/* The sum of x xT of a layer's input, as the model has just made it. */
STATUS_CHECKED Status quantize_add_inputs(QuantLayer *layer, const float *x, const Type *type);
#endif
