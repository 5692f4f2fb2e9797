/* plan_stages: see plan_stages.h. */
#define _GNU_SOURCE /* memmem */
#include "plan/plan_stages.h"
#include "base/lookup.h"
#include "plan/plan_text.h"
#include <string.h>

/* Bytes to the end of the first plan: behind its checksum line. */
static size_t length_of_first(const char *text, size_t length) {
  static const char last[] = "\nchecksum ";
  const char *found = memmem(text, length, last, sizeof last - 1);
  if (!found) return length;
  const char *end = memchr(found + 1, '\n', length - (size_t)(found + 1 - text));
  return end ? (size_t)(end + 1 - text) : length;
}

static bool is_same_setting(const SettingValue *a, const SettingValue *b, int index) {
  if (a[index].is_set != b[index].is_set) return false;
  if (setting_info[index].kind == SET_STR) return !strcmp(a[index].text, b[index].text);
  return a[index].number == b[index].number;
}

/* NULL, or what of the head differs. */
static const char *find_difference(const Plan *a, const Plan *b) {
  if (strcmp(a->model, b->model)) return "the model";
  if (strcmp(a->source, b->source)) return "the source";
  if (strcmp(a->target, b->target) || strcmp(a->target_cpu, b->target_cpu)) return "the target";
  for (int i = 0; i < setting_count; i++)
    if (!is_same_setting(a->settings, b->settings, i)) return setting_info[i].key;
  return NULL;
}

static bool is_same_init(const Init *a, const Init *b) {
  return !strcmp(a->text ? a->text : "", b->text ? b->text : "") && a->arg_count == b->arg_count &&
         a->arg[0] == b->arg[0] && a->arg[1] == b->arg[1];
}

/* What is the model's has one meaning: its ranks begin with the same values, and files have them
 * once. */
static bool is_same_tensor(const PlanTensor *a, const PlanTensor *b) {
  Type x = plan_whole(a), y = plan_whole(b);
  return type_equal(&x, &y) && is_same_init(&a->init, &b->init) &&
         (a->role != ROLE_PARAMS || a->stream == b->stream);
}

/* Each stage has its own of these: they lie like its parameters, or no file has them. */
static bool is_of_stage(const PlanTensor *tensor) {
  return role_has(tensor->role, ROLE_SLICED) || role_has(tensor->role, ROLE_SCRATCH);
}

static const char *check_tensors(Arena *arena, const PlanStages *all, bool is_states) {
  Lookup names = {.arena = arena};
  VEC(const PlanTensor *) known = {0};
  for (int s = 0; s < all->count; s++) {
    const Plan *plan = all->at[s];
    int count = is_states ? plan->states.count : plan->params.count;
    for (int i = 0; i < count; i++) {
      const PlanTensor *tensor = is_states ? &plan->states.at[i] : &plan->params.at[i];
      if (is_of_stage(tensor)) continue;
      int before = known.count, index = (int)lookup_add_text(&names, tensor->name, before);
      if (index == before)
        VEC_PUSH(arena, known, tensor);
      else if (!is_same_tensor(known.at[index], tensor))
        return arena_printf(arena, "\"%s\" is not the same in all stages that have it",
                            tensor->name);
    }
  }
  return NULL;
}

static bool stages_fail(const char **why, const char *text) {
  *why = text;
  return false;
}

static bool add_plan(Arena *arena, PlanStages *out, Plan *plan, const char **why) {
  int stages = (int)setting_pipeline(plan->settings);
  if (!out->count) out->at = ARENA_ARRAY(arena, Plan *, stages);
  const char *differs = out->count ? find_difference(out->at[0], plan) : NULL;
  if (differs)
    return stages_fail(why, arena_printf(arena, "stage %d: %s is not that of stage 0", out->count,
                                         differs));
  if (plan->stage != out->count)
    return stages_fail(why, arena_printf(arena, "stage %d stands in the place of stage %d",
                                         plan->stage, out->count));
  if (out->count) plan->settings = out->at[0]->settings;
  out->at[out->count++] = plan;
  return true;
}

bool plan_parse_stages(Arena *arena, const char *text, size_t length, PlanStages *out,
                       const char **why) {
  *out = (PlanStages){0};
  *why = NULL;
  do {
    size_t one = length_of_first(text, length);
    Plan *plan = plan_parse(arena, text, one, why);
    if (!plan && out->count) *why = arena_printf(arena, "stage %d: %s", out->count, *why);
    if (!plan || !add_plan(arena, out, plan, why)) return false;
    text += one;
    length -= one;
  } while (out->count < setting_pipeline(out->at[0]->settings));
  if (length) return stages_fail(why, "there is something behind the last plan");
  *why = check_tensors(arena, out, false);
  if (!*why) *why = check_tensors(arena, out, true);
  return !*why;
}
