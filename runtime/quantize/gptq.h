/* gptq: rounds weights one column after the other, and makes up for each column's error in those that are still to come, so that the
 * layer's outputs on the calibration data change as little as may be (Frantar et al., GPTQ, ICLR 2023, arXiv 2210.17323). */
#ifndef FT_RUNTIME_QUANTIZE_GPTQ_H
#define FT_RUNTIME_QUANTIZE_GPTQ_H
#include "runtime/quantize/rounding.h"

/* The sum of x xT over the rows of x (count by columns), added to the lower triangle of hessian (columns by columns). factor: what x's
 * columns are multiplied by; NULL: nothing. False: out of memory. */
bool gptq_add(double *hessian, int columns, const float *x, int64_t count, const float *factor);
typedef struct {
  double damping;  /* of the mean of the diagonal, added to it: 0.01 */
  bool is_ordered; /* columns of the largest inputs first; groups have their scales beforehand then */
  ScaleRule rule;
} GptqOptions;
/* Rounds w (rows by columns) in place; scales are written. The hessian is spent. False: out of memory. */
bool gptq_round(const Rounding *form, const GptqOptions *options, double *hessian, float *w, float *scales);
#endif
