/* lr_curve: the numbers of a learning-rate range test (Smith 2017, "Cyclical Learning Rates"; the
 * smoothing and the end as fastai and Lightning have them; the suggestion is theirs up to the lowest smoothed loss), and
 * their pictures. */
#ifndef FT_RUNTIME_LR_CURVE_H
#define FT_RUNTIME_LR_CURVE_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
  double lr, loss,
      smoothed; /* smoothed: mean of the losses so far, weights falling by 0.98 a step */
} LrPoint;
typedef struct {
  LrPoint *at; /* room for all steps of the test; the caller's */
  int64_t count;
  double sum;        /* of the smoothing */
  int64_t lowest;    /* of the smoothed losses */
  bool has_diverged; /* the loss is not finite, or its smoothed value four times the lowest one */
} LrCurve;

/* The rate of step i (from 0) of `count`: from low to high, each by the same factor more. */
double lr_curve_rate(double low, double high, int64_t i, int64_t count);
/* A loss that is not finite is no point. */
void lr_curve_add(LrCurve *curve, double lr, double loss);
/* Where the smoothed loss falls fastest by step on the way to its lowest point, but for the first ten steps and the last;
 * -1: nowhere. */
int64_t lr_curve_suggest(const LrCurve *curve);
/* The smoothed loss over the rate, 64 x 16 characters. */
void lr_curve_print(const LrCurve *curve, FILE *out);
/* Losses and smoothed losses, a self-contained page. */
void lr_curve_svg(const LrCurve *curve, FILE *out);
#endif
