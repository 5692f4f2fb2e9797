/* bench_model: see bench_model.h. Nothing is measured: the table says so. */
#include "runtime/command/bench_model.h"
#include "runtime/command/bench.h"
#include "runtime/command/bench_count.h"
#include "plan/plan_calls.h"
#include "plan/plan_order.h"
#include <stdlib.h>
#include <string.h>

/* Launches that are alike, and take the same time. */
typedef struct {
  GpuTime time;
  int step, count; /* the first; how many, */
  bool is_early;   /* each begun early */
} Row;

static int model_longest_first(const void *a, const void *b) {
  const Row *x = a, *y = b;
  double s = x->time.seconds * x->count, t = y->time.seconds * y->count;
  return s != t ? (s < t ? 1 : -1) : x->step - y->step;
}

int bench_operand_bits(const PlanGraph *graph, const PlanStep *step) {
  int halves = 0, bytes = 0;
  for (int i = 0; i < step->input_count; i++) {
    DType dtype = graph->buffers.at[step->args[i]].type.dtype;
    halves += dtype_is_narrow(dtype);
    bytes += dtype_is_float8(dtype);
  }
  return bytes >= 2 ? 8 : halves >= 2 ? 16 : 0;
}

/* Which tensor cores could do it: those of its operands, or of tf32 if a library could. */
static void set_operands(const PlanGraph *graph, int index, GpuWork *work) {
  int bits = bench_operand_bits(graph, &graph->steps.at[index]);
  work->is_half = bits > 0;
  work->is_float8 = bits == 8;
  work->is_tf32 = work->wgmma + work->mma > 0;
  for (int i = 0; i < graph->insteads.count; i++) {
    const PlanInstead *instead = &graph->insteads.at[i];
    if (index >= instead->first && index < instead->end)
      work->is_tf32 |= call_int(&instead->call[0], "compute") == COMPUTE_TF32;
  }
}

/* The second launch of a kernel in two parts: what the plan says of work and bytes is that of both. */
static bool is_second(const PlanGraph *graph, int index) {
  if (!index) return false;
  const PlanStep *step = &graph->steps.at[index], *before = step - 1;
  return before->arg_count == step->arg_count &&
         !memcmp(before->args, step->args, sizeof *step->args * (size_t)step->arg_count);
}

static bool is_early(const PlanGraph *graph, const PlanStep *step) {
  return plan_begins_early(step, step->after_count == 1 ? &graph->steps.at[step->after[0]] : NULL);
}

static double share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

static void model_print_row(const PlanStep *step, const Row *row, double total, FILE *out) {
  const GpuTime *time = &row->time;
  static const GpuBound shown[] = {GPU_ISSUE,  GPU_F32,    GPU_INTEGER, GPU_SPECIAL, GPU_TENSOR,
                                   GPU_SHARED, GPU_L2,     GPU_MEMORY,  GPU_PATH};
  fprintf(out, "%9.2f %5d %6.1f%%  %-8s", time->seconds * 1e6, row->count,
          share(time->seconds * row->count, total), gpu_bound_text(time->bound));
  if (time->floor > 1e-8)
    fprintf(out, " %8.2f %6.2fx", time->floor * 1e6, time->seconds / time->floor);
  else
    fprintf(out, " %8s %7s", "-", "-");
  for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
    fprintf(out, " %6.0f%%", share(time->part[shown[i]], time->seconds));
  fprintf(out, " %4d %7.2f  %-5u %s (%s)\n", time->resident, time->rounds, step->line, step->label,
          step->name);
}

static void model_print(const PlanGraph *graph, double samples, const Gpu *gpu, Row *rows, int count, FILE *out) {
  int launches = 0, early = 0;
  double total = 0, floor = 0;
  for (int i = 0; i < count; i++) {
    launches += rows[i].count;
    early += rows[i].is_early ? rows[i].count : 0;
    total += rows[i].time.seconds * rows[i].count;
    floor += rows[i].time.floor * rows[i].count;
  }
  qsort(rows, (size_t)count, sizeof *rows, model_longest_first);
  fprintf(out,
          "\nreckoned for %s, not measured (docs/sim.md); units as shares of a kernel's time\n"
          "%9s %5s %7s  %-8s %8s %7s %7s %7s %7s %7s %7s %7s %7s %7s %7s %4s %7s  %-5s %s\n",
          gpu->machine->text, "us each", "times", "share", "bound", "floor us", "of it", "issue", "f32", "integer",
          "special", "tensor", "shared", "L2", "memory", "latency", "fit", "rounds", "line", "kernel");
  for (int i = 0; i < count; i++)
    model_print_row(&graph->steps.at[rows[i].step], &rows[i], total, out);
  fprintf(out, "%9.2f us a step of %d launches, %d of them early, %.2fx its floor of %.2f us: %.0f samples/s\n",
          total * 1e6, launches, early, floor > 0 ? total / floor : 0, floor * 1e6,
          total > 0 ? samples / total : 0);
  if (launches < graph->steps.count)
    fprintf(out, "without %d steps that are no kernel of the artifact, of which nothing is known\n",
            graph->steps.count - launches);
}

/* The row of a launch that takes as long as one before, or a new one. */
static Row *model_row(const PlanGraph *graph, Row *rows, int *count, int step, const GpuTime *time,
                      bool is_early) {
  for (int i = 0; i < *count; i++)
    if (bench_are_alike(&graph->steps.at[rows[i].step], &graph->steps.at[step]) &&
        rows[i].is_early == is_early && rows[i].time.seconds == time->seconds &&
        rows[i].time.floor == time->floor)
      return &rows[i];
  rows[*count] = (Row){*time, step, 0, is_early};
  return &rows[(*count)++];
}

Status bench_model(Exec *exec, const char *programme, const Gpu *gpu, GpuWork *work, FILE *out) {
  const PlanGraph *graph = plan_result(exec_plan(exec), programme);
  Row *rows = calloc((size_t)graph->steps.count + 1, sizeof *rows);
  if (!rows) return status_fail(STATUS_FAULT, "out of memory");
  int count = 0;
  for (int i = 0; i < graph->steps.count; i++) {
    GpuTime time;
    set_operands(graph, i, &work[i]);
    work[i].is_early = is_early(graph, &graph->steps.at[i]);
    if (is_second(graph, i)) work[i].flops = work[i].bytes = 0;
    gpu_time(gpu, &work[i], &time);
    if (time.seconds > 0) model_row(graph, rows, &count, i, &time, work[i].is_early)->count++;
  }
  model_print(graph, bench_samples(exec, programme), gpu, rows, count, out);
  free(rows);
  return STATUS_OK;
}
