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
  const char *path;   /* of a matrix: its name */
  const char *weight_name;
  bool is_conv, is_matrix; /* a matrix outside of layers: frontend/quantize_matrix.c */
  bool is_turned;     /* … [in, out], so that rounding has it and its scales the other way round */
  int applications;
  int64_t stride[2], padding[2], dilation[2], groups; /* of a convolution; -1: not known */
  QuantForm form;
  Shape shape;       /* of its weight in the file */
  Rounding rounding; /* the same as rows of what an output sums over */
  float *weight, *scales; /* as rounding has them */
  int64_t features;  /* of its input */
  Observer observer;
  char *fold;        /* what could take in factors of its input, in ftc's words; NULL: it says nothing */
  float *factor;     /* of each input feature; NULL: none */
  const char *why;   /* its input is multiplied by them, and no weights before it; NULL: these are */
  const float *out;  /* what each of its outputs is multiplied by, for a layer behind it; NULL: nothing */
  float range;       /* the largest input that is not cut off */
  double *hessian;   /* while it is needed */
  double signal, noise; /* of its outputs, f32 and quantised */
} QuantLayer;

/* A weight that takes in the factors of layers behind it, along a dimension. */
typedef struct {
  const char *name;
  int axis;
  const float *factor;
  int64_t features;
} FoldedWeight;

struct Quantizing {
  const QuantizeOptions *options;
  Arena *arena;
  WeightFiles weights;
  TapModel model;
  VEC(QuantLayer) layers;
  VEC(FoldedWeight) folded;
  Text setting;
};

/* Are its inputs rounded by a range that calibration finds? */
static inline bool quantize_has_range(const QuantLayer *layer) { return layer->form.input_bits && !layer->form.is_dynamic; }
/* Of a weight as rounding has it: where it lies in the file. */
int64_t quantize_place(const QuantLayer *layer, int64_t i);
/* Which layers, with which forms, and their weights (quantize_layers.c). */
STATUS_CHECKED Status quantize_find_layers(Quantizing *q);
/* The factors of SmoothQuant, and the weights times what undoes them (quantize_smooth.c). */
void quantize_smooth(Quantizing *q);
/* Of some layers that read the same features: the same ones. */
void quantize_smooth_layers(Quantizing *q, QuantLayer *const *layers, int count);
bool quantize_is_smoothed(const Quantizing *q, const QuantLayer *layer);
/* Chooses which weights take in factors, those of which layers, and computes these factors (quantize_fold.c). */
void quantize_fold(Quantizing *q);
/* Multiplies a layer's own weight by what it takes in. */
void quantize_fold_rows(Quantizing *q, QuantLayer *layer);
/* Multiplies values, the weight of this name in the order of the file, by what it takes in. */
void quantize_fold_into(const Quantizing *q, const char *name, const Shape *shape, float *values);
void quantize_print_folds(const Quantizing *q);
/* The sum of x xT of a layer's input, as the model has just made it. */
STATUS_CHECKED Status quantize_add_inputs(QuantLayer *layer, const float *x, const Type *type);
#endif
