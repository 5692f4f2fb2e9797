/* sim_plan: what a plan says of a launch, as the simulator takes it. */
#ifndef FT_RUNTIME_SIM_PLAN_H
#define FT_RUNTIME_SIM_PLAN_H
#include "plan/plan.h"
#include "runtime/device/sim/sim.h"

/* Writes the launch's tensor maps behind the addresses of its arguments, which stand in params.
 * Maps never are of what lies in the batch, so these addresses are the last word. */
void sim_plan_maps(const PlanStep *step, uint64_t *params);
#endif
