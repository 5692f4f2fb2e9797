/* observer: the range of a layer's inputs, from batches of them: the largest |x| that is not cut off. A batch is seen first as a whole
 * (least, largest of each feature), and, where the rule counts values, once more by the histogram.
 *
 *   RANGE_MINMAX      the largest of all
 *   RANGE_AVERAGE     a running average over batches of each batch's largest, as FakeQuant of quant.ft and PyTorch's
 *                     MovingAverageMinMaxObserver: a + momentum (now - a)
 *   RANGE_PERCENTILE  so many percent of all |x| lie within
 *   RANGE_MSE         of 100 parts of the largest the one with the smallest sum of squared errors, by the histogram
 */
#ifndef FT_RUNTIME_QUANTIZE_OBSERVER_H
#define FT_RUNTIME_QUANTIZE_OBSERVER_H
#include <stdbool.h>
#include <stdint.h>

typedef enum { RANGE_MINMAX, RANGE_AVERAGE, RANGE_PERCENTILE, RANGE_MSE } RangeRule;
enum { OBSERVER_BINS = 8192 };

typedef struct {
  int64_t features; /* along which `largest` is kept: those of a Linear, channels of an image */
  float *largest;   /* |x| of each, over all batches; the caller's memory, zeros first */
  float least;      /* x */
  float average;
  int64_t batches;
  bool is_finite;
  int64_t count, *bin; /* of |x| from 0 to `top`; the caller's memory, OBSERVER_BINS zeros, or NULL */
  float top;
} Observer;

void observer_new(Observer *observer, int64_t features, float *largest);
/* x: `outer` times the features times `inner` values; factor, of each feature: what x is multiplied by; NULL: nothing. */
void observer_see(Observer *observer, const float *x, int64_t outer, int64_t inner, float momentum);
void observer_count(Observer *observer, const float *x, int64_t outer, int64_t inner, const float *factor);
float observer_largest(const Observer *observer, const float *factor);
/* bits (2 to 16) and is_unsigned: what it will be rounded to. percent: of RANGE_PERCENTILE. */
float observer_range(const Observer *observer, RangeRule rule, const float *factor, double percent, int bits, bool is_unsigned);
#endif
