/* Median time of a call of a deployed model with one image, in microseconds; the result to `logits`. */
#include MODEL
#include <stdlib.h>
#include <time.h>

static _Alignas(64) char workspace[BYTES];

static double clock_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static int by_time(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double median_us(int calls, const void *image, float *logits) { /* below 0: it failed */
  const void *inputs[2] = {image};
  void *outputs[1] = {logits};
  double *time = malloc((size_t)calls * sizeof *time), median;
  for (int i = 0; i < calls; i++) {
    double start = clock_us();
    if (RUN(inputs, outputs, 1, workspace, sizeof workspace)) return -1;
    time[i] = clock_us() - start;
  }
  qsort(time, (size_t)calls, sizeof *time, by_time);
  median = time[calls / 2];
  free(time);
  return median;
}
