/* plan_check: see plan_check.h. A plan whose checksum fits may still have been changed: a line
 * taken out or a type exchanged must not become other numbers without a word. */
#include "plan/plan_check.h"
#include "plan/plan_order.h"
#include "plan/plan_prepare.h"
#include "plan/plan_programme.h"
#include "plan/plan_text.h"
#include "plan/plan_writes.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *check_outputs(Arena *arena, const PlanGraph *graph) {
  for (int i = 0; i < graph->outputs.count; i++) {
    const PlanOutput *output = &graph->outputs.at[i];
    char type[TYPE_TEXT];
    if (!shape_elements(&output->type.shape)) continue; /* there is nothing to write */
    if (!plan_is_written(graph, output->place, output->offset, &output->type))
      return arena_printf(arena, "no step of graph \"%s\" writes its %s \"%s\" as %s", graph->name,
                          output_kind_text(output->kind), output->name,
                          type_text(&output->type, type));
  }
  return NULL;
}

static const char *check_loss(Arena *arena, const PlanGraph *graph) {
  int count[OUTPUT_KINDS] = {0};
  for (int i = 0; i < graph->outputs.count; i++) {
    const PlanOutput *output = &graph->outputs.at[i];
    count[output->kind]++;
    if (output->kind == OUTPUT_LOSS && !dtype_is_float(output->type.dtype))
      return arena_printf(arena, "the loss of graph \"%s\" is not one number", graph->name);
  }
  int metrics = count[OUTPUT_METRIC] + count[OUTPUT_AUC];
  for (int kind = OUTPUT_PASSES; kind < OUTPUT_KINDS; metrics += count[kind++])
    if (count[kind] > 1)
      return arena_printf(arena, "graph \"%s\" has %d outputs %s", graph->name, count[kind],
                          output_kind_text((OutputKind)kind));
  if (metrics > PLAN_MOST_METRICS)
    return arena_printf(arena, "graph \"%s\" has %d metrics; at most %d are read", graph->name,
                        metrics, PLAN_MOST_METRICS);
  return count[OUTPUT_LOSS] == 1
             ? NULL
             : arena_printf(arena, "graph \"%s\" has %d losses; it must have one", graph->name,
                            count[OUTPUT_LOSS]);
}

static const char *check_order(Arena *arena, const Plan *plan, const PlanGraph *graph) {
  const char *why = plan_order_check(arena, graph);
  if (!why) why = plan_order_check_reads(arena, plan, graph);
  return why ? arena_printf(arena, "graph \"%s\": %s", graph->name, why) : NULL;
}

/* Every graph that trains or evaluates has a loss. */
static const char *check_losses(Arena *arena, const Plan *plan) {
  const char *why = NULL;
  for (int i = 0; i < plan->programmes.count; i++) {
    const PlanProgramme *programme = &plan->programmes.at[i];
    if (!plan_has_loss(programme)) continue;
    for (int k = 0; k < programme->runs.count && !why; k++)
      why = check_loss(arena, &plan->graphs.at[programme->runs.at[k].graph]);
  }
  return why;
}

const char *plan_check(Arena *arena, const Plan *plan) {
  if (plan_find_role(plan, ROLE_STEP) < 0) /* the schedule, dropout and checkpoints go by it */
    return arena_printf(arena, "no state has the role step");
  const char *why = plan_check_programmes(arena, plan);
  if (!why) why = check_losses(arena, plan);
  for (int g = 0; g < plan->graphs.count && !why; g++)
    why = check_outputs(arena, &plan->graphs.at[g]);
  for (int g = 0; g < plan->graphs.count && !why; g++)
    why = check_order(arena, plan, &plan->graphs.at[g]);
  return why ? why : plan_check_prepare(arena, plan);
}

size_t plan_check_envelope(Words *words, const char *text, size_t length) {
  static const char start[] = "ft-plan ", last[] = "checksum ";
  enum { LAST_LINE = sizeof last - 1 + 16 + 1 };
  if (length < sizeof start || memcmp(text, start, sizeof start - 1) != 0)
    return words_fail(words, "this is not a plan of ft");
  char *end;
  char version[16] = "";
  memcpy(version, text + sizeof start - 1, length - sizeof start < 15 ? length - sizeof start : 15);
  long found = strtol(version, &end, 10);
  if (*end != '\n' || end == version) return words_fail(words, "the version is damaged");
  if (found != PLAN_VERSION)
    return words_fail(
        words,
        "the plan has version %ld, this program reads version %d; compile the model again "
        "or use the matching ftrun",
        found, PLAN_VERSION);
  if (length < LAST_LINE || text[length - 1] != '\n' ||
      memcmp(text + length - LAST_LINE, last, sizeof last - 1) != 0)
    return words_fail(words, "the plan is cut off: its last line is no checksum");
  size_t body = length - LAST_LINE;
  char expected[17];
  snprintf(expected, sizeof expected, "%016" PRIx64, plan_checksum(text, body));
  if (memcmp(expected, text + length - 17, 16) != 0)
    return words_fail(words, "the plan is damaged: its checksum does not fit");
  if (memchr(text, 0, body)) return words_fail(words, "the plan is damaged: it holds a NUL");
  return body;
}
