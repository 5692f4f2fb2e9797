/* rounding: weights as scales times whole numbers, as frontend/std/quant.ft computes with them: n = round(w * (1 / scale)), half to
 * even, held within [-2^(bits-1), 2^(bits-1) - 1]. A matrix of `rows` (outputs) by `columns` (what an output sums over), row-major. */
#ifndef FT_RUNTIME_QUANTIZE_ROUNDING_H
#define FT_RUNTIME_QUANTIZE_ROUNDING_H
#include <stdbool.h>
#include <stdint.h>

typedef enum {
  SCALE_LARGEST, /* the largest |w| is the largest number */
  SCALE_MSE,     /* of 100 parts of that the one with the smallest sum of squared errors */
} ScaleRule;

typedef struct {
  int64_t rows, columns, group; /* columns that share a scale; 0: all of a row */
  bool per_tensor;              /* one scale for all */
  int bits;
} Rounding;

int64_t rounding_scales(const Rounding *form); /* how many: row by row */
/* The scale at which `largest` is the number `high`; above 0, and so is its inverse (quant_step of quant.ft). */
float rounding_step(float largest, int high);
float rounding_value(float w, float scale, int bits); /* scale * n */
/* Of `count` weights that share one. */
float rounding_scale_of(const float *w, int64_t count, int bits, ScaleRule rule);
void rounding_find_scales(const Rounding *form, const float *w, ScaleRule rule, float *scales);
/* To nearest, in place. */
void rounding_nearest(const Rounding *form, const float *scales, float *w);
#endif
