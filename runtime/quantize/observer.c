/* observer: see observer.h. */
#include "runtime/quantize/observer.h"
#include <math.h>

enum { PARTS = 100 };

void observer_new(Observer *observer, int64_t features, float *largest) {
  *observer = (Observer){.features = features, .largest = largest, .least = INFINITY, .is_finite = true};
}

void observer_see(Observer *observer, const float *x, int64_t outer, int64_t inner, float momentum) {
  float now = 0;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t f = 0; f < observer->features; f++) {
      float most = 0, least = INFINITY;
      bool is_finite = true;
      for (int64_t i = 0; i < inner; i++) {
        float value = *x++;
        is_finite &= isfinite(value) != 0;
        most = fmaxf(most, fabsf(value));
        least = fminf(least, value);
      }
      observer->is_finite &= is_finite;
      observer->least = fminf(observer->least, least);
      observer->largest[f] = fmaxf(observer->largest[f], most);
      now = fmaxf(now, most);
    }
  bool has_seen = observer->average > 0;
  observer->average = has_seen ? observer->average + momentum * (now - observer->average) : now;
  observer->batches++;
}

void observer_count(Observer *observer, const float *x, int64_t outer, int64_t inner, const float *factor) {
  float bins = observer->top > 0 ? (float)OBSERVER_BINS / observer->top : 0;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t f = 0; f < observer->features; f++)
      for (int64_t i = 0; i < inner; i++) {
        int64_t bin = (int64_t)(fabsf(factor ? *x * factor[f] : *x) * bins);
        x++;
        observer->bin[bin < OBSERVER_BINS ? bin : OBSERVER_BINS - 1]++;
        observer->count++;
      }
}

float observer_largest(const Observer *observer, const float *factor) {
  float largest = 0;
  for (int64_t f = 0; f < observer->features; f++)
    largest = fmaxf(largest, factor ? fabsf(observer->largest[f] * factor[f]) : observer->largest[f]);
  return largest;
}

/* Where the bin ends behind which there is less than the rest of `percent`. */
static float percentile(const Observer *observer, double percent) {
  double within = percent / 100 * (double)observer->count;
  int64_t seen = 0;
  for (int i = 0; i < OBSERVER_BINS; i++) {
    seen += observer->bin[i];
    if ((double)seen >= within) return observer->top * (float)(i + 1) / OBSERVER_BINS;
  }
  return observer->top;
}

/* Values count as the middle of their bin. */
static double binned_error(const Observer *observer, double range, int high) {
  double step = range / high, sum = 0;
  for (int i = 0; i < OBSERVER_BINS; i++) {
    if (!observer->bin[i]) continue;
    double x = (double)observer->top * (i + 0.5) / OBSERVER_BINS;
    double n = nearbyint(x / step), error = x - step * (n > high ? high : n);
    sum += error * error * (double)observer->bin[i];
  }
  return sum;
}

static float least_error(const Observer *observer, int high) {
  float best = observer->top;
  double least = INFINITY;
  for (int part = PARTS; part > 0 && observer->top > 0; part--) {
    float range = observer->top * (float)part / PARTS;
    double error = binned_error(observer, range, high);
    if (error < least) {
      least = error;
      best = range;
    }
  }
  return best;
}

float observer_range(const Observer *observer, RangeRule rule, const float *factor, double percent, int bits, bool is_unsigned) {
  int high = is_unsigned ? (1 << bits) - 1 : (1 << (bits - 1)) - 1;
  switch (rule) {
  case RANGE_AVERAGE:
    return observer->average;
  case RANGE_PERCENTILE:
    return percentile(observer, percent);
  case RANGE_MSE:
    return least_error(observer, high);
  case RANGE_MINMAX:
    break;
  }
  return observer_largest(observer, factor);
}
