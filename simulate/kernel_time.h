/* kernel_time: how long a step of a plan takes on a rank of a cluster: the larger of its operations
 * over the peak for their type and its bytes over the memory's, each peak times the share that good
 * kernels reach (Williams, Waterman and Patterson: Roofline, 2009), plus what a launch costs; or what
 * was measured. A step that begins or ends a collective takes none of it. */
#ifndef FT_SIMULATE_KERNEL_TIME_H
#define FT_SIMULATE_KERNEL_TIME_H
#include "plan/plan.h"
#include "simulate/cluster.h"

/* What `ftrun bench --json` measured: seconds by step of the graph that the programme STEP ends
 * with; less than 0: no time of its own. */
typedef struct {
  const char *graph;
  const double *seconds;
  int count;
} MeasuredTimes;

/* Operations a second for what reads buffers of these types: tensor cores from two operands of 16
 * bits, or where the plan's precision is tf32. */
double kernel_peak(const Plan *plan, const PlanGraph *graph, const PlanStep *step,
                   const Machine *machine);
double kernel_seconds(const Plan *plan, const PlanGraph *graph, int step, const Cluster *cluster,
                      const MeasuredTimes *measured);
/* NULL, or the sentence that says why these times are not of this plan. */
const char *measured_check(Arena *arena, const Plan *plan, const MeasuredTimes *measured,
                           const char *const *names);
#endif
