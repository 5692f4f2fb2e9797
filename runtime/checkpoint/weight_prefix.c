/* weight_prefix: see weight_prefix.h. */
#include "runtime/checkpoint/weight_prefix.h"
#include "base/text.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Names in order, to be found by. */
typedef struct {
  const char **at;
  int count;
} NameSet;

static bool name_is_in(const NameSet *set, const char *name) {
  return bsearch(&name, set->at, (size_t)set->count, sizeof *set->at, text_compare) != NULL;
}

/* The longest first: fewer names end with it. */
static int by_length(const void *left, const void *right) {
  size_t a = strlen(*(const char *const *)left), b = strlen(*(const char *const *)right);
  return a < b ? 1 : a > b ? -1 : text_compare(left, right);
}

/* How many of the names are behind the prefix. */
static int count_behind(const NameSet *has, const NameSet *missing, const char *prefix, size_t length, Text *name) {
  int count = 0;
  for (int i = 0; i < missing->count; i++) {
    name->count = 0;
    text_append(name, prefix, length);
    text_printf(name, "%s", missing->at[i]);
    count += name_is_in(has, text_cstr(name));
  }
  return count;
}

/* Of all that stands in front of one name: what stands in front of most names, and of how many. */
static int best_of_name(const NameSet *has, const NameSet *missing, const char *name, WeightPrefix *out) {
  Text scratch = {0};
  size_t tail = strlen(name);
  int most = 0;
  for (int i = 0; i < has->count; i++) {
    const char *whole = has->at[i];
    size_t all = strlen(whole);
    if (all <= tail + 1 || whole[all - tail - 1] != '.' || strcmp(whole + all - tail, name)) continue;
    int count = count_behind(has, missing, whole, all - tail, &scratch);
    if (count > most)
      *out = (WeightPrefix){whole, all - tail, NULL, 0};
    else if (count == most)
      out->rival = whole, out->rival_length = all - tail;
    most = count > most ? count : most;
  }
  text_free(&scratch);
  return most;
}

Status weight_prefix(const Safetensors *file, const char *const *names, int count, WeightPrefix *out) {
  const char **room = malloc(((size_t)file->tensor_count + 2 * (size_t)count + 1) * sizeof *room);
  if (!room) return status_errno(ENOMEM, "names of weights");
  NameSet has = {room, file->tensor_count}, wanted = {room + has.count, count}, missing = {room + has.count + count, 0};
  *out = (WeightPrefix){.text = ""};
  for (int i = 0; i < has.count; i++) has.at[i] = file->tensor[i].name;
  for (int i = 0; i < count; i++) wanted.at[i] = names[i];
  qsort(has.at, (size_t)has.count, sizeof *has.at, text_compare);
  qsort(wanted.at, (size_t)count, sizeof *wanted.at, text_compare);
  int plain = 0, behind = 0; /* names that the file has as they are, or behind the prefix */
  for (int i = 0; i < count; i++) {
    if (i > 0 && !strcmp(wanted.at[i], wanted.at[i - 1])) continue;
    if (name_is_in(&has, wanted.at[i]))
      plain++;
    else
      missing.at[missing.count++] = wanted.at[i];
  }
  qsort(missing.at, (size_t)missing.count, sizeof *missing.at, by_length);
  for (int i = 0; i < missing.count && !behind; i++) behind = best_of_name(&has, &missing, missing.at[i], out);
  bool is_unclear = out->rival && behind < missing.count; /* neither has all: no prefix at all */
  if (behind <= plain || is_unclear) *out = (WeightPrefix){.text = ""};
  free(room);
  return STATUS_OK;
}
