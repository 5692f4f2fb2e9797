/* space_where: conditions of a space; see space.h. */
#include "plan/plan.h"
#include "runtime/tune/space.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_only_numbers(const Dim *dim) {
  for (int i = 0; i < dim->choice_count; i++) {
    char *end;
    double number = strtod(dim->choice[i], &end);
    if (end == dim->choice[i] || *end || !isfinite(number)) return false;
  }
  return true;
}

static void whole_name(const char *name, char out[160]) {
  char key[160];
  snprintf(out, 160, "%s", setting_find_short(name, key, sizeof key) >= 0 ? key : name);
}

/* By its name as it is written, or as the setting that both are short for; `hyper.NAME` is the hyper, as in a tune block. */
static int where_find(const void *context, const char *name, size_t length) {
  const Space *space = context;
  char one[160], other[160], copy[SPACE_NAME];
  int found = space_find(space, name, length);
  if (found < 0 && length > 6 && !memcmp(name, "hyper.", 6))
    return space_find(space, name + 6, length - 6);
  if (found >= 0 || length >= sizeof copy) return found;
  snprintf(copy, sizeof copy, "%.*s", (int)length, name);
  whole_name(copy, one);
  for (int i = 0; i < space->count; i++) {
    whole_name(space->dim[i].name, other);
    if (!strcmp(one, other)) return i;
  }
  return -1;
}

static const char *where_words(const void *context, int dim, char *out, size_t capacity) {
  const Dim *d = &((const Space *)context)->dim[dim];
  size_t at = 0;
  if (d->kind != DIM_CHOICE || has_only_numbers(d)) return NULL;
  *out = 0;
  for (int i = 0; i < d->choice_count && at < capacity; i++)
    at += (size_t)snprintf(out + at, capacity - at, "%s%s", i ? ", " : "", d->choice[i]);
  return out;
}

static int where_word(const void *context, int dim, const char *word, size_t length) {
  const Dim *d = &((const Space *)context)->dim[dim];
  for (int i = 0; i < d->choice_count; i++)
    if (strlen(d->choice[i]) == length && !memcmp(d->choice[i], word, length)) return i;
  return -1;
}

static void where_hint(const void *context, const char *name, char *out, size_t capacity) {
  const Space *space = context;
  const char *names[SPACE_MOST];
  for (int i = 0; i < space->count; i++) names[i] = space->dim[i].name;
  const char *nearest = text_nearest(name, names, space->count);
  *out = 0;
  if (nearest) snprintf(out, capacity, "; did you mean '%s'?", nearest);
}

Status space_add_where(Space *space, const char *text) {
  WhereNames names = {space, where_find, where_words, where_word, where_hint};
  WhereError error;
  if (space->where_count == SPACE_MOST_WHERE)
    return status_fail(STATUS_USER, "--where: at most %d conditions", SPACE_MOST_WHERE);
  if (!space->where) space->where = calloc(SPACE_MOST_WHERE, sizeof *space->where);
  if (!space->where) return status_fail(STATUS_FAULT, "out of memory");
  if (!where_read(text, &names, &space->where[space->where_count], &error))
    return status_fail(STATUS_USER, "--where %s: letter %d: %s", text, error.at + 1, error.why);
  space->where_count++;
  return STATUS_OK;
}

bool space_allows(const Space *space, const double *point) {
  double value[SPACE_MOST];
  if (!space->where_count) return true;
  for (int i = 0; i < space->count; i++) {
    const Dim *dim = &space->dim[i];
    value[i] = point[i];
    if (dim->kind == DIM_CHOICE && !isnan(point[i]) && has_only_numbers(dim))
      value[i] = strtod(dim->choice[(int)point[i]], NULL);
  }
  for (int i = 0; i < space->where_count; i++)
    if (where_holds(&space->where[i], value) == 0) return false;
  return true;
}
