/* source_values: what an input of integers may hold (declared in source.h). */
#include "runtime/data/source.h"
#include <stdio.h>

static int64_t integer_at(const void *values, DType dtype, int64_t i) {
  switch (dtype) {
  case DT_I64:
    return ((const int64_t *)values)[i];
  case DT_I32:
    return ((const int32_t *)values)[i];
  case DT_U32:
    return ((const uint32_t *)values)[i];
  default: /* u8, bool */
    return ((const uint8_t *)values)[i];
  }
}

static bool is_in_part(const PlanTensor *input, const PlanPart *part, int64_t i) {
  int64_t stride[MAX_RANK], rest = i;
  shape_strides(&input->type.shape, stride);
  for (int k = 0; k < input->type.shape.rank; k++) {
    int64_t at = rest / stride[k] - part->start[k];
    rest %= stride[k];
    if (at < 0 || at % part->step[k] || at / part->step[k] >= part->count[k]) return false;
  }
  return true;
}

/* Some lookup of element i may ignore this value: then all may. */
static bool is_ignored(const PlanTensor *input, int64_t i, int64_t value) {
  if (input->has_ignore && value == input->ignore) return true;
  for (int p = 0; p < input->part_count; p++) {
    const PlanPart *part = &input->parts[p];
    if (part->has_ignore && part->ignore == value && is_in_part(input, part, i)) return true;
  }
  return false;
}

int64_t source_bound(const PlanTensor *input, int64_t i) {
  int64_t bound = input->below;
  for (int p = 0; p < input->part_count; p++) {
    int64_t below = input->parts[p].below;
    if ((!bound || below < bound) && is_in_part(input, &input->parts[p], i)) bound = below;
  }
  return bound;
}

/* The first element of a box that is not below its bound, or -1. */
static int64_t outside_part(const PlanTensor *input, const PlanPart *part, const void *values) {
  int rank = input->type.shape.rank;
  int64_t stride[MAX_RANK], at[MAX_RANK] = {0};
  shape_strides(&input->type.shape, stride);
  for (;;) {
    int64_t i = 0;
    for (int k = 0; k < rank; k++) i += (part->start[k] + at[k] * part->step[k]) * stride[k];
    int64_t value = integer_at(values, input->type.dtype, i);
    if ((uint64_t)value >= (uint64_t)part->below && !is_ignored(input, i, value)) return i;
    int k = rank - 1;
    while (k >= 0 && ++at[k] == part->count[k]) at[k--] = 0;
    if (k < 0) return -1;
  }
}

static int64_t outside_whole(const PlanTensor *input, const void *values, int64_t count) {
  for (int64_t i = 0; input->below && i < count; i++) {
    int64_t value = integer_at(values, input->type.dtype, i);
    if ((uint64_t)value >= (uint64_t)input->below && !is_ignored(input, i, value)) return i;
  }
  return -1;
}

/* cat[:, 0:26:2]; the batch is not told apart. */
static void append_part(const PlanTensor *input, const PlanPart *part, Text *out) {
  for (int k = 0; part && k < input->type.shape.rank; k++) {
    int64_t first = part->start[k], end = first + part->step[k] * (part->count[k] - 1) + 1;
    bool is_all = part->step[k] == 1 && part->count[k] == input->type.shape.dim[k];
    text_printf(out, "%s", k ? ", " : "[");
    if (is_all || k == 0)
      text_printf(out, ":");
    else if (part->count[k] == 1)
      text_printf(out, "%lld", (long long)first);
    else
      text_printf(out, "%lld:%lld", (long long)first, (long long)end);
    if (part->step[k] > 1 && k) text_printf(out, ":%lld", (long long)part->step[k]);
  }
  if (part) text_printf(out, "]");
}

int64_t source_find_outside(const PlanTensor *input, const void *values, int64_t count,
                            char text[SOURCE_RANGE]) {
  const PlanPart *part = NULL;
  int64_t i = outside_whole(input, values, count);
  for (int p = 0; i < 0 && p < input->part_count; p++) {
    part = &input->parts[p];
    i = outside_part(input, part, values);
  }
  if (i < 0) return -1;
  Text name = {0};
  text_printf(&name, "%s", input->name);
  append_part(input, part, &name);
  int length = snprintf(text, SOURCE_RANGE, "%lld, but input %.200s takes 0 to %lld",
                        (long long)integer_at(values, input->type.dtype, i), text_cstr(&name),
                        (long long)(part ? part->below : input->below) - 1);
  if (part ? part->has_ignore : input->has_ignore)
    snprintf(text + length, SOURCE_RANGE - (size_t)length, ", or %lld to be ignored",
             (long long)(part ? part->ignore : input->ignore));
  text_free(&name);
  return i;
}
