/* kernel_time: see kernel_time.h. */
#include "simulate/kernel_time.h"
#include <string.h>

double kernel_peak(const Plan *plan, const PlanGraph *graph, const PlanStep *step,
                   const Machine *machine) {
  int halves = 0, bytes = 0; /* operands of 16 bits, and of 8: twice the rate */
  bool is_tf32 = !strcmp(setting_text(plan->settings, "train.precision"), "tf32");
  for (int i = 0; i < step->input_count; i++) {
    DType dtype = graph->buffers.at[step->args[i]].type.dtype;
    halves += dtype == DT_BF16 || dtype == DT_F16;
    bytes += dtype_is_float8(dtype);
  }
  if (bytes >= 2 && machine->half > 0) return 2 * machine->half;
  if (halves >= 2 && machine->half > 0) return machine->half;
  return is_tf32 && machine->tf32 > 0 ? machine->tf32 : machine->f32;
}

double kernel_seconds(const Plan *plan, const PlanGraph *graph, int index, const Cluster *cluster,
                      const MeasuredTimes *measured) {
  const PlanStep *step = &graph->steps.at[index];
  if (step->kind == STEP_BEGIN || step->kind == STEP_END) return 0;
  double slowness = cluster_slowness(cluster);
  if (measured && !strcmp(measured->graph, graph->name))
    return measured->seconds[index] > 0 ? measured->seconds[index] * slowness : 0;
  double flops =
      (double)step->flops / (kernel_peak(plan, graph, step, cluster->machine) * cluster->products);
  double bytes = (double)step->bytes / (cluster->memory_rate * cluster->copies);
  return ((flops > bytes ? flops : bytes) + cluster->launch) * slowness;
}

const char *measured_check(Arena *arena, const Plan *plan, const MeasuredTimes *measured,
                           const char *const *names) {
  int index = plan_find_graph(plan, measured->graph);
  if (index < 0)
    return arena_printf(arena, "they are of a graph '%s', which this model has not",
                        measured->graph);
  const PlanGraph *graph = &plan->graphs.at[index];
  if (graph->steps.count != measured->count)
    return arena_printf(arena,
                        "they are of %d steps, and this model has %d: measure the artifact "
                        "that the same options make",
                        measured->count, graph->steps.count);
  for (int i = 0; i < measured->count; i++)
    if (strcmp(names[i], graph->steps.at[i].name))
      return arena_printf(arena,
                          "their step %d is %s, and this model's is %s: measure the artifact "
                          "that the same options make",
                          i, names[i], graph->steps.at[i].name);
  return NULL;
}
