/* matrix: see matrix.h. */
#include "runtime/tune/matrix.h"
#include <math.h>
#include <string.h>

typedef double Lanes __attribute__((vector_size(32), aligned(8), may_alias));

double matrix_dot(const double *a, const double *b, int count) {
  Lanes sum[4] = {{0}};
  int i = 0;
  for (; i + 16 <= count; i += 16)
    for (int j = 0; j < 4; j++)
      sum[j] += *(const Lanes *)(a + i + 4 * j) * *(const Lanes *)(b + i + 4 * j);
  Lanes all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  double rest = 0;
  for (; i < count; i++) rest += a[i] * b[i];
  return (all[0] + all[1]) + (all[2] + all[3]) + rest;
}

bool matrix_factor(double *a, int n, int pitch, int first) {
  for (int i = first; i < n; i++) {
    double *row = a + (long)i * pitch;
    for (int j = 0; j < i; j++) {
      const double *other = a + (long)j * pitch;
      row[j] = (row[j] - matrix_dot(row, other, j)) / other[j];
    }
    double rest = row[i] - matrix_dot(row, row, i);
    if (!(rest > 0)) return false;
    row[i] = sqrt(rest);
  }
  return true;
}

static void add_scaled(double *restrict to, const double *restrict from, double factor, int count) {
  for (int i = 0; i < count; i++) to[i] += factor * from[i];
}

void matrix_invert_lower(const double *l, double *inverse, int n, int pitch, int first) {
  for (int i = first; i < n; i++) {
    const double *row = l + (long)i * pitch;
    double *out = inverse + (long)i * pitch;
    memset(out, 0, (size_t)i * sizeof *out);
    for (int k = 0; k < i; k++)
      if (row[k] != 0) add_scaled(out, inverse + (long)k * pitch, row[k], k + 1);
    for (int j = 0; j < i; j++) out[j] /= -row[i];
    out[i] = 1 / row[i];
  }
}

void matrix_gram(const double *m, double *out, int n, int pitch) {
  for (int i = 0; i < n; i++) memset(out + (long)i * pitch, 0, (size_t)(i + 1) * sizeof *out);
  for (int k = 0; k < n; k++) {
    const double *row = m + (long)k * pitch;
    for (int i = 0; i <= k; i++) add_scaled(out + (long)i * pitch, row, row[i], i + 1);
  }
}

void matrix_times(const double *m, const double *x, double *out, int n, int pitch) {
  for (int i = 0; i < n; i++) out[i] = matrix_dot(m + (long)i * pitch, x, i + 1);
}

void matrix_transposed_times(const double *m, const double *x, double *out, int n, int pitch) {
  memset(out, 0, (size_t)n * sizeof *out);
  for (int i = 0; i < n; i++) add_scaled(out, m + (long)i * pitch, x[i], i + 1);
}
