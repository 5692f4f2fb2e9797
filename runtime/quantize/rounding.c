/* rounding: see rounding.h. */
#include "runtime/quantize/rounding.h"
#include <math.h>

enum { PARTS = 100, LEAST_PART = 20 };

static int64_t group_columns(const Rounding *form) { return form->group ? form->group : form->columns; }

int64_t rounding_scales(const Rounding *form) {
  return form->per_tensor ? 1 : form->columns ? form->rows * (form->columns / group_columns(form)) : form->rows;
}

float rounding_step(float largest, int high) { return fmaxf(largest, 1.1754944e-38f * (float)high) / (float)high; }

float rounding_value(float w, float scale, int bits) {
  float high = (float)((1 << (bits - 1)) - 1), n = nearbyintf(w * (1.0f / scale));
  n = n > high ? high : n < -high - 1 ? -high - 1 : n;
  return n * scale;
}

static float largest_of(const float *w, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; i++) largest = fmaxf(largest, fabsf(w[i]));
  return largest;
}

static double squared_error(const float *w, int64_t count, float scale, int bits) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) {
    double error = (double)w[i] - rounding_value(w[i], scale, bits);
    sum += error * error;
  }
  return sum;
}

float rounding_scale_of(const float *w, int64_t count, int bits, ScaleRule rule) {
  int high = (1 << (bits - 1)) - 1;
  float largest = largest_of(w, count), best = rounding_step(largest, high);
  double least = rule == SCALE_MSE ? squared_error(w, count, best, bits) : 0;
  for (int part = PARTS - 1; rule == SCALE_MSE && part >= LEAST_PART && least > 0; part--) {
    float scale = rounding_step(largest * (float)part / PARTS, high);
    double error = squared_error(w, count, scale, bits);
    if (error < least) {
      least = error;
      best = scale;
    }
  }
  return best;
}

void rounding_find_scales(const Rounding *form, const float *w, ScaleRule rule, float *scales) {
  int64_t count = rounding_scales(form), columns = form->per_tensor ? form->rows * form->columns : group_columns(form);
  for (int64_t i = 0; i < count; i++) scales[i] = rounding_scale_of(w + i * columns, columns, form->bits, rule);
}

void rounding_nearest(const Rounding *form, const float *scales, float *w) {
  int64_t columns = form->per_tensor ? form->rows * form->columns : group_columns(form);
  for (int64_t i = 0; i < form->rows * form->columns; i++) w[i] = rounding_value(w[i], scales[i / columns], form->bits);
}
