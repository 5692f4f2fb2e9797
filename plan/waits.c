/* waits: see waits.h. */
#include "plan/waits.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool waits_polls(const char *text, int *polls) {
  char *end = NULL;
  long number = text ? strtol(text, &end, 10) : WAITS_POLLS;
  bool is_good = !text || (*text && !*end && number > 0 && number <= INT32_MAX);
  if (is_good) *polls = (int)number;
  return is_good;
}

uint32_t waits_kernel(const char *name) {
  uint32_t hash = 2166136261u;
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
  return hash;
}

static const PlanStep *waits_find_kernel(const Plan *plan, uint32_t kernel) {
  for (int g = 0; g < plan->graphs.count; g++)
    for (int i = 0; i < plan->graphs.at[g].steps.count; i++) {
      const PlanStep *step = &plan->graphs.at[g].steps.at[i];
      if (step->kind == STEP_LAUNCH && waits_kernel(step->name) == kernel) return step;
    }
  return NULL;
}

bool waits_tell(const void *words, const Plan *plan, const char *when, char *out, size_t size) {
  static const char *const barriers[WAITS_BARRIERS] = {"full", "empty", "turn"};
  WaitsRecord record[WAITS_RECORDS + 1];
  const WaitsRecord *found = NULL;
  memcpy(record, words, sizeof record);
  for (int i = WAITS_RECORDS; i > 0; i--)
    if (record[i].is_whole) found = &record[i];
  if (!found) return false;
  const PlanStep *step = waits_find_kernel(plan, found->kernel);
  char more[48] = "";
  if (record[0].is_whole > 1)
    snprintf(more, sizeof more, "; so do %u more waits", record[0].is_whole - 1);
  snprintf(out, size,
           "kernel %s (%s) waits at barrier \"%s\" of stage %u, block (%u,%u,%u), thread %u%s%s, "
           "for the end of a phase of parity %u, which does not come: it polled as often as ftc "
           "--debug-waits allows%s",
           step ? step->name : "?", step ? step->label : "not of this plan",
           found->barrier < WAITS_BARRIERS ? barriers[found->barrier] : "?", found->stage,
           found->block[0], found->block[1], found->block[2], found->thread, when ? ", " : "",
           when ? when : "", found->parity, more);
  return true;
}
