/* bench_model: see bench_model.h. Nothing is measured: the table says so. */
#include "runtime/command/bench_model.h"
#include "plan/plan_calls.h"
#include <stdlib.h>

typedef struct {
  GpuTime time;
  int step;
} Row;

static int model_longest_first(const void *a, const void *b) {
  const Row *x = a, *y = b;
  if (x->time.seconds != y->time.seconds) return x->time.seconds < y->time.seconds ? 1 : -1;
  return x->step - y->step;
}

/* Which tensor cores could do it: those of 16 bits if two operands are of them, or tf32 if a library could. */
static void set_operands(const PlanGraph *graph, int index, GpuWork *work) {
  const PlanStep *step = &graph->steps.at[index];
  int halves = 0;
  for (int i = 0; i < step->input_count; i++) {
    DType dtype = graph->buffers.at[step->args[i]].type.dtype;
    halves += dtype == DT_BF16 || dtype == DT_F16;
  }
  work->is_half = halves >= 2;
  work->is_tf32 = work->wgmma + work->mma > 0;
  for (int i = 0; i < graph->insteads.count; i++) {
    const PlanInstead *instead = &graph->insteads.at[i];
    if (index >= instead->first && index < instead->end)
      work->is_tf32 |= call_int(&instead->call[0], "compute") == COMPUTE_TF32;
  }
}

static double share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

static void model_print_row(const PlanStep *step, const GpuTime *time, double total, FILE *out) {
  static const GpuBound shown[] = {GPU_ISSUE,  GPU_F32,    GPU_INTEGER, GPU_SPECIAL, GPU_TENSOR,
                                   GPU_SHARED, GPU_L2,     GPU_MEMORY,  GPU_PATH};
  fprintf(out, "%9.2f %6.1f%%  %-8s", time->seconds * 1e6, share(time->seconds, total),
          gpu_bound_text(time->bound));
  if (time->floor > 0)
    fprintf(out, " %8.2f %6.2fx", time->floor * 1e6, time->seconds / time->floor);
  else
    fprintf(out, " %8s %7s", "-", "-");
  for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
    fprintf(out, " %6.0f%%", share(time->part[shown[i]], time->seconds));
  fprintf(out, " %4d %7.2f  %-5u %s (%s)\n", time->resident, time->rounds, step->line, step->label,
          step->name);
}

static void model_print(const Exec *exec, const PlanGraph *graph, const Gpu *gpu, Row *rows,
                        FILE *out) {
  int count = graph->steps.count, launches = 0, others = 0;
  double total = 0, floor = 0;
  for (int i = 0; i < count; i++) {
    bool is_kernel = rows[i].time.seconds > 0;
    launches += is_kernel;
    others += !is_kernel;
    total += rows[i].time.seconds;
    floor += rows[i].time.floor;
  }
  qsort(rows, (size_t)count, sizeof *rows, model_longest_first);
  fprintf(out,
          "\nreckoned for %s, not measured (docs/sim.md); units as shares of a kernel's time\n"
          "%9s %7s  %-8s %8s %7s %7s %7s %7s %7s %7s %7s %7s %7s %7s %4s %7s  %-5s %s\n",
          gpu->machine->text, "us", "share", "bound", "floor us", "of it", "issue", "f32", "integer",
          "special", "tensor", "shared", "L2", "memory", "latency", "fit", "rounds", "line", "kernel");
  for (int i = 0; i < launches; i++)
    model_print_row(&graph->steps.at[rows[i].step], &rows[i].time, total, out);
  double batch = setting_number(exec_plan(exec)->settings, "train.batch") * (double)exec_parts(exec);
  fprintf(out, "%9.2f us a step of %d launches, %.2fx its floor of %.2f us: %.0f samples/s\n",
          total * 1e6, launches, floor > 0 ? total / floor : 0, floor * 1e6,
          total > 0 ? batch / total : 0);
  if (others)
    fprintf(out, "without %d steps that are no kernel of the artifact, of which nothing is known\n",
            others);
}

Status bench_model(Exec *exec, const Gpu *gpu, GpuWork *work, FILE *out) {
  const PlanGraph *graph = plan_result(exec_plan(exec), PROGRAMME_STEP);
  Row *rows = calloc((size_t)graph->steps.count + 1, sizeof *rows);
  if (!rows) return status_fail(STATUS_FAULT, "out of memory");
  for (int i = 0; i < graph->steps.count; i++) {
    rows[i].step = i;
    set_operands(graph, i, &work[i]);
    gpu_time(gpu, &work[i], &rows[i].time);
  }
  model_print(exec, graph, gpu, rows, out);
  free(rows);
  return STATUS_OK;
}
