/* plan_beside: see plan_beside.h. */
#include "plan/plan_beside.h"
#include "plan/plan_order.h"
#include <limits.h>
#include <string.h>

typedef enum { SAME, APART, PART, WHOLE, NONE } Relation;

static const struct Beside {
  const char *name;
  int input_count, output_count;
  Relation relation;
  const char *attributes;
} table[] = {
#define BESIDE(name, inputs, outputs, relation, attributes)                                        \
  {name, inputs, outputs, relation, attributes},
#include "plan/beside.def"
#undef BESIDE
};

static const struct Beside *find(const char *name) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(table[i].name, name)) return &table[i];
  return NULL;
}

const char *beside_attributes(const char *name) {
  const struct Beside *found = find(name);
  return found ? found->attributes : NULL;
}

static bool is_related(Relation relation, const Type *in, const Type *out) {
  int64_t from = shape_elements(&in->shape), to = shape_elements(&out->shape);
  if (in->dtype != out->dtype || dtype_is_float8(in->dtype)) return false;
  return relation == PART    ? to > 0 && from % to == 0
         : relation == WHOLE ? from > 0 && to % from == 0
                             : from == to;
}

bool beside_check(Arena *arena, const PlanStep *step, const PlanBuffer *buffers, const char **why) {
  const struct Beside *at = find(step->name);
  for (int i = 0; i < step->int_count; i++) {
    int64_t most = strcmp(step->ints[i].key, "op") ? INT_MAX : BESIDE_OPS - 1;
    if (step->ints[i].value < 0 || step->ints[i].value > most) {
      *why = arena_printf(arena, "%s: %s=%lld is out of range", step->name, step->ints[i].key,
                          (long long)step->ints[i].value);
      return false;
    }
  }
  if (step->queue == QUEUE_COMPUTE) {
    *why = arena_printf(arena, "%s: what a step begins is in a queue beside compute", step->name);
    return false;
  }
  if (step->input_count != at->input_count ||
      step->arg_count != at->input_count + at->output_count) {
    *why = arena_printf(arena, "%s needs %d input(s) and %d output(s)", at->name, at->input_count,
                        at->output_count);
    return false;
  }
  if (at->relation == NONE) return true;
  const PlanBuffer *in = &buffers[step->args[0]], *out = &buffers[step->args[1]];
  bool is_same = at->relation == SAME && in->place == out->place && in->offset == out->offset;
  if (is_related(at->relation, &in->type, &out->type) &&
      (is_same || !plan_buffers_overlap(in, out)))
    return true;
  *why = arena_printf(arena, "%s: its two buffers do not go together", step->name);
  return false;
}
