/* space: see space.h. The text forms are space_text.c. */
#include "runtime/tune/space.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void space_free(Space *space) {
  for (int i = 0; i < space->count; i++) free(space->dim[i].choice);
  free(space->where);
  *space = (Space){0};
}

int space_find(const Space *space, const char *name, size_t length) {
  for (int i = 0; i < space->count; i++)
    if (strlen(space->dim[i].name) == length && !memcmp(space->dim[i].name, name, length)) return i;
  return -1;
}

bool space_is_active(const Space *space, int dim, const double *point) {
  const Dim *d = &space->dim[dim];
  if (d->parent < 0) return true;
  double value = point[d->parent]; /* NAN where that one is not there either */
  return value >= 0 && d->parent_choices >> (int)value & 1;
}

int64_t dim_values(const Dim *dim) {
  if (dim->kind == DIM_CHOICE) return dim->choice_count;
  if (dim->step == 0) return dim->low == dim->high ? 1 : 0;
  return (int64_t)floor((dim->high - dim->low) / dim->step + 1e-9) + 1;
}

/* Where the interval begins and ends that [0, 1] stands for: half a step beyond the values that there are. */
static void unit_ends(const Dim *dim, double *low, double *high) {
  double half = dim->step / 2;
  double last = dim->step > 0 ? dim->low + dim->step * (double)(dim_values(dim) - 1) : dim->high;
  *low = dim->low - half;
  *high = last + half;
  if (dim->is_log) {
    *low = log(*low);
    *high = log(*high);
  }
}

/* 0.3, and not 3 * 0.1 in binary, which is more than 0.3; and of -0.3 + 3 * 0.1 0: places are those of the larger end. */
double dim_nth(const Dim *dim, double nth) {
  char text[400];
  double exact = dim->low + nth * dim->step;
  int places = 14 - (int)floor(log10(fmax(fmax(fabs(dim->low), fabs(dim->high)), 1e-300)));
  snprintf(text, sizeof text, "%.*f", places > 0 ? places : 0, exact);
  double shorter = strtod(text, NULL) + 0.0; /* 0, and not -0 */
  return fmin(fabs(shorter - exact) < 1e-6 * dim->step ? shorter : exact, dim->high);
}

double dim_nearest(const Dim *dim, double value) {
  return dim_nth(dim, fmin(fmax(round((value - dim->low) / dim->step), 0), (double)dim_values(dim) - 1));
}

double dim_from_unit(const Dim *dim, double unit) {
  int64_t count = dim_values(dim);
  unit = fmin(fmax(unit, 0), 1);
  if (count == 1) return dim->kind == DIM_CHOICE ? 0 : dim->low;
  if (dim->kind == DIM_CHOICE) return fmin(floor(unit * (double)count), (double)count - 1);
  double low, high;
  unit_ends(dim, &low, &high);
  double value = low + unit * (high - low);
  if (dim->is_log) value = exp(value);
  if (dim->step > 0) return dim_nearest(dim, value);
  return fmin(fmax(value, dim->low), dim->high);
}

double dim_to_unit(const Dim *dim, double value) {
  int64_t count = dim_values(dim);
  if (count == 1) return 0.5;
  if (dim->kind == DIM_CHOICE) return (value + 0.5) / (double)count;
  double low, high;
  unit_ends(dim, &low, &high);
  double at = dim->is_log ? log(value) : value;
  return fmin(fmax((at - low) / (high - low), 0), 1);
}

void space_from_unit(const Space *space, const double *unit, double *point) {
  for (int i = 0; i < space->count; i++) {
    point[i] = NAN;
    if (space_is_active(space, i, point)) point[i] = dim_from_unit(&space->dim[i], unit[i]);
  }
}

bool space_is_same(const Space *space, const double *a, const double *b) {
  for (int i = 0; i < space->count; i++)
    if (!(a[i] == b[i] || (isnan(a[i]) && isnan(b[i])))) return false;
  return true;
}
