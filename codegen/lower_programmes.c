/* lower_programmes: which graphs of the plan run in which order (plan/plan.h). A step with
 * train.accumulate = k is k - 1 runs of micro, which only add to sums, and one of train, which
 * makes the update of all k. */
#include "codegen/lower_private.h"
#include "passes/decode.h"

static PlanRun run_of(const Plan *plan, const Graph *graph) {
  return (PlanRun){.graph = plan_find_graph(plan, graph->name)};
}

static void lower_step(Plan *plan, StepForm form, const Graph *micro, const Graph *train) {
  if (micro) {
    PlanRun run = run_of(plan, micro);
    run.times = (int64_t)setting_number(plan->settings, "train.accumulate") - 1;
    plan_add_formed_run(plan, PROGRAMME_STEP, form, run);
  }
  if (train) plan_add_formed_run(plan, PROGRAMME_STEP, form, run_of(plan, train));
}

void lower_programmes(const Program *program, Plan *plan) {
  lower_step(plan, (StepForm){0}, program->micro, program->train);
  for (int i = 0; i < program->variant_count; i++) {
    const Variant *variant = &program->variants[i];
    lower_step(plan, variant->form, variant->micro, variant->train);
  }
  if (program->eval) {
    PlanRun eval = run_of(plan, program->eval);
    plan_add_run(plan, PROGRAMME_EVALUATE, eval);
    int average = plan_find_role(plan, ROLE_AVERAGE);
    if (average >= 0) {
      eval.reads = plan->states.at[average].place;
      eval.instead_of = PLACE_PARAMS;
      plan_add_run(plan, PROGRAMME_EVALUATE_AVERAGE, eval);
    }
  }
  if (program->prefill) {
    PlanRun prefill = run_of(plan, program->prefill);
    prefill.positions = PREFILL_WIDTH;
    plan_add_run(plan, PROGRAMME_GENERATE, prefill);
  }
  if (program->decode) {
    PlanRun decode = run_of(plan, program->decode);
    decode.positions = 1;
    plan_add_run(plan, PROGRAMME_GENERATE, decode);
  }
}
