/* runtime_small: a model without kernels, for tests of checkpoints: two parameters, a running mean,
 * a moment of the optimiser and the step. */
#ifndef FT_TEST_RUNTIME_SMALL_H
#define FT_TEST_RUNTIME_SMALL_H
#include "runtime/execute/exec.h"

enum { SMALL_PARAM_BYTES = 128, SMALL_STATE_BYTES = 256 };
enum { SMALL_WEIGHT, SMALL_BIAS, SMALL_MEAN, SMALL_MOMENT, SMALL_NAMES };

static inline PlanTensor small_tensor(const char *name, DType dtype, int rank, int64_t a, int64_t b,
                                      int place, int64_t offset) {
  return (PlanTensor){.name = name,
                      .type = {dtype, {rank, {a, b}}},
                      .place = place,
                      .offset = offset,
                      .init = {.text = "normal", .arg = {0, 1}, .arg_count = 2}};
}

/* is_sliced: the moment belongs to the parameters, slice by slice. The plan has an arena of its
 * own. */
static inline Status small_open(const char *const name[SMALL_NAMES], bool is_sliced,
                                Artifact **artifact, Exec **exec) {
  Arena *arena = arena_new();
  Plan *plan = ARENA_NEW(arena, Plan);
  *plan = (Plan){.arena = arena,
                 .model = "Test",
                 .source = "test.ft",
                 .target = "cpu",
                 .target_cpu = "x86-64",
                 .settings = settings_new(arena)};
  VEC_PUSH(arena, plan->params, small_tensor(name[SMALL_WEIGHT], DT_F32, 2, 3, 4, PLACE_PARAMS, 0));
  VEC_PUSH(arena, plan->params, small_tensor(name[SMALL_BIAS], DT_F32, 1, 3, 0, PLACE_PARAMS, 64));
  VEC_PUSH(arena, plan->states, small_tensor(name[SMALL_MEAN], DT_F32, 1, 3, 0, PLACE_STATE, 0));
  VEC_PUSH(arena, plan->states,
           small_tensor(name[SMALL_MOMENT], DT_F32, 1, 32, 0, PLACE_STATE, 64));
  for (int i = 0; i < 2; i++) plan->params.at[i].role = ROLE_PARAMS;
  plan->states.at[0].role = ROLE_MODEL;
  plan->states.at[0].is_saved = true;
  plan->states.at[1].role = is_sliced ? ROLE_MOMENT : ROLE_LOSS_SCALE;
  PlanTensor step = small_tensor(OWN_STEP, DT_I64, 0, 0, 0, PLACE_STATE, 192);
  step.init = (Init){.text = "zeros"};
  step.role = ROLE_STEP;
  VEC_PUSH(arena, plan->states, step);
  plan_add_standard_places(plan);
  plan->places.at[PLACE_NARROW].elements = ELEMENTS_NONE;
  plan->places.at[PLACE_PARAMS].bytes = SMALL_PARAM_BYTES;
  plan->places.at[PLACE_STATE].bytes = SMALL_STATE_BYTES;
  if (is_sliced) plan_add_slice(plan, &plan->states.at[1]);
  VEC_PUSH(arena, plan->graphs, (PlanGraph){.name = "train"});
  VEC_PUSH(arena, plan->graphs, (PlanGraph){.name = "eval"});
  plan_add_run(plan, PROGRAMME_STEP, (PlanRun){0});
  plan_add_run(plan, PROGRAMME_EVALUATE, (PlanRun){.graph = 1});
  STATUS_TRY(artifact_from_plan(plan, NULL, artifact));
  return exec_new(*artifact, &(ExecOptions){0}, exec);
}
#endif
