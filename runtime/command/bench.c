/* bench: how long a step takes, and where. The whole step is timed as training runs it; the table
 * of kernels times each alone, which adds a fork, a join and a clock to each: shares are of their
 * sum, not of the step. */
#include "runtime/command/bench.h"
#include "base/clock.h"
#include "plan/plan_calls.h"
#include "runtime/command/bench_count.h"
#include "runtime/command/bench_json.h"
#include "runtime/command/bench_model.h"
#include "runtime/command/bench_sums.h"
#include "runtime/execute/programme.h"
#include <stdlib.h>
#include <string.h>

enum { FEWEST_STEPS = 20, MOST_STEPS = 20000, TABLE_STEPS = 30, WARM_STEPS = 5, COUNTED_STEPS = 3 };
static const int64_t warm_enough = 1500000000, long_group = 150000000, measured_time = 2000000000;

static int compare_times(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

void bench_fill_batch(const Plan *plan, void *batch, uint64_t seed) {
  uint64_t state = seed * 6364136223846793005u + 1442695040888963407u;
  for (int i = 0; i < plan->inputs.count; i++) {
    const PlanTensor *input = &plan->inputs.at[i];
    char *at = (char *)batch + input->offset;
    int64_t count = shape_elements(&input->type.shape);
    memset(at, 0, (size_t)type_bytes(&input->type));
    for (int64_t j = 0; j < count; j++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      double unit = (double)(state >> 40) * 0x1p-24;
      int64_t bound = dtype_is_float(input->type.dtype) ? 0 : source_bound(input, j);
      int64_t integer = (int64_t)(unit * (double)bound);
      if (input->type.dtype == DT_F32) ((float *)at)[j] = (float)unit;
      if (input->type.dtype == DT_F64) ((double *)at)[j] = unit;
      if (input->type.dtype == DT_U8) ((uint8_t *)at)[j] = (uint8_t)(bound ? (double)integer : unit * 256);
      if (input->type.dtype == DT_I32 || input->type.dtype == DT_U32) ((int32_t *)at)[j] = (int32_t)integer;
      if (input->type.dtype == DT_I64) ((int64_t *)at)[j] = integer;
    }
  }
}

double bench_samples(const Exec *exec, const char *programme) {
  const Plan *plan = exec_plan(exec);
  return setting_number(plan->settings, "train.batch") * (double)plan_batches(plan_find_programme(plan, programme));
}

/* ── the step ─────────────────────────────────────────────────────────────────────────────── */
/* Steps timed together. A device that runs ahead is waited for only at the end of a group. */
static int64_t group_size(const Exec *exec, const BenchOptions *options) {
  ExecGraph step = exec_result_graph(exec, options->programme);
  int64_t group = exec_runs_ahead(exec) ? 4 * (int64_t)exec_most_steps(exec, step) + 16 : 1;
  return options->steps > 0 && options->steps < group ? options->steps : group;
}

static Status run_made_up(Exec *exec, const char *programme, const void *batch) {
  Programme step;
  STATUS_TRY(programme_start(exec, programme, &step));
  do STATUS_TRY(exec_run(exec, programme_graph(&step), batch));
  while (!programme_advance(&step, 1));
  return STATUS_OK;
}

/* Runs `group` steps; *time: nanoseconds of one of them. */
static Status time_group(Exec *exec, const BenchOptions *options, const void *made_up,
                         int64_t group, int64_t *time) {
  int64_t start = clock_nanoseconds();
  for (int64_t done = 0, steps = 1; done < group; done += steps) {
    if (options->feed)
      STATUS_TRY(feed_run(options->feed, group - done, &steps));
    else
      STATUS_TRY(run_made_up(exec, options->programme, made_up));
  }
  STATUS_TRY(exec_sync(exec));
  *time = (clock_nanoseconds() - start) / group;
  return STATUS_OK;
}

/* What one step has to do and to move. */
static void sum_work(const Plan *plan, const char *programme, double *flops, double *bytes) {
  const PlanProgramme *step = plan_find_programme(plan, programme);
  *flops = *bytes = 0;
  for (int r = 0; r < step->runs.count; r++) {
    const PlanGraph *graph = &plan->graphs.at[step->runs.at[r].graph];
    double times = (double)step->runs.at[r].times;
    for (int i = 0; i < graph->steps.count; i++) {
      *flops += times * (double)graph->steps.at[i].flops;
      *bytes += times * (double)graph->steps.at[i].bytes;
    }
  }
}

static void bench_print_step(const Exec *exec, const char *programme, const int64_t *sorted, int64_t count, int64_t group,
                             FILE *out) {
  const Plan *plan = exec_plan(exec);
  double median = (double)sorted[count / 2] * 1e-9, flops, bytes;
  double batch = bench_samples(exec, programme);
  sum_work(plan, programme, &flops, &bytes);
  fprintf(out, "%s, batch %.0f, %s, %lld steps", plan->model, batch, exec_device_text(exec),
          (long long)(count * group));
  if (group > 1) fprintf(out, " timed %lld at a time", (long long)group);
  fprintf(out, "\n");
  fprintf(out, "%-8s median %.4f ms   p10 %.4f ms   p90 %.4f ms   %.0f samples/s\n",
          programme, median * 1e3, (double)sorted[count / 10] * 1e-6, (double)sorted[count * 9 / 10] * 1e-6,
          batch / median);
  fprintf(out, "work     %.3f MFLOP, %.3f MB   %.1f GFLOP/s, %.1f GB/s\n", flops * 1e-6,
          bytes * 1e-6, flops / median * 1e-9, bytes / median * 1e-9);
}

static Status time_steps(Exec *exec, const BenchOptions *options, const void *made_up,
                         double *median, FILE *out) {
  int64_t time = 0, group = group_size(exec, options), start = clock_nanoseconds();
  /* a device that counts does the same in every step */
  int warm = exec_counts(exec) ? 1 : WARM_STEPS;
  for (int i = 0; i < warm && clock_nanoseconds() - start < warm_enough; i++) {
    STATUS_TRY(time_group(exec, options, made_up, group, &time));
    while (group > 1 && group * time > long_group) group = (group + 1) / 2;
  }
  int64_t fitting = measured_time / (time + 1) / group;
  int64_t count = options->steps > 0       ? (options->steps + group - 1) / group
                  : exec_counts(exec)      ? COUNTED_STEPS
                  : fitting < FEWEST_STEPS ? FEWEST_STEPS
                  : fitting > MOST_STEPS   ? MOST_STEPS
                                           : fitting;
  int64_t *times = calloc((size_t)count, sizeof *times);
  if (!times) return status_fail(STATUS_FAULT, "out of memory");
  Status status = STATUS_OK;
  for (int64_t i = 0; i < count && status == STATUS_OK; i++)
    status = time_group(exec, options, made_up, group, &times[i]);
  if (status == STATUS_OK) {
    qsort(times, (size_t)count, sizeof *times, compare_times);
    bench_print_step(exec, options->programme, times, count, group, out);
    *median = (double)times[count / 2] * 1e-6;
  }
  free(times);
  return status;
}

/* ── the table ────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  int64_t time;
  int step;
  const char *by; /* what does it, if no kernel of the artifact does */
} Row;

static int slowest_first(const void *a, const void *b) {
  const Row *x = a, *y = b;
  if (x->time != y->time) return x->time < y->time ? 1 : -1;
  return x->step - y->step;
}

/* "  87.3%", or nothing where the ceiling is not known. */
static void print_share(double part, double whole, FILE *out) {
  if (whole > 0) fprintf(out, " %6.1f%%", 100 * part / whole);
}

/* The peak that a step is held against: that of tensor cores where its operands are of 16 or 8 bits, or
 * a library could do it in tf32. */
static double peak_of(const PlanGraph *graph, int index, const DeviceSpeed *speed) {
  for (int i = 0; i < graph->insteads.count; i++) {
    const PlanInstead *instead = &graph->insteads.at[i];
    if (index >= instead->first && index < instead->end && speed->tf32_flops > 0 &&
        call_int(&instead->call[0], "compute") == COMPUTE_TF32)
      return speed->tf32_flops;
  }
  int bits = bench_operand_bits(graph, &graph->steps.at[index]);
  if (!bits || speed->half_flops <= 0) return speed->flops;
  return bits == 8 ? 2 * speed->half_flops : speed->half_flops; /* twice the rate */
}

static void bench_print_row(const PlanStep *step, const Row *row, double total, double so_far,
                            const DeviceSpeed *speed, double peak, FILE *out) {
  double time = (double)row->time + 1e-9;
  fprintf(out, "%10.2f %6.1f%% %6.1f%% %9.1f", time * 1e-3, 100 * time / total,
          100 * so_far / total, (double)step->flops / time);
  print_share((double)step->flops / time * 1e9, peak, out);
  fprintf(out, " %9.1f", (double)step->bytes / time);
  print_share((double)step->bytes / time * 1e9, speed->copy_bytes, out);
  fprintf(out, "  %-5u %s (%s%s%s)\n", step->line, step->label, step->name, row->by ? ", by " : "",
          row->by ? row->by : "");
}

static void print_table(const PlanGraph *graph, Row *rows, const DeviceSpeed *speed, FILE *out) {
  int count = graph->steps.count;
  double total = 0, so_far = 0;
  for (int i = 0; i < count; i++)
    if (rows[i].time > 0) total += (double)rows[i].time;
  qsort(rows, (size_t)count, sizeof *rows, slowest_first);
  if (speed->copy_bytes > 0 || speed->flops > 0)
    fprintf(out, "\ncopy %.1f GB/s, f32 peak %.1f TFLOP/s, tf32 %.1f, bf16 and f16 %.1f (%s)",
            speed->copy_bytes * 1e-9, speed->flops * 1e-12, speed->tf32_flops * 1e-12,
            speed->half_flops * 1e-12, speed->basis);
  fprintf(out, "\n%10s %7s %7s %9s%s %9s%s  %-5s %s\n", "us", "share", "sum", "GFLOP/s",
          speed->flops > 0 ? " of peak" : "", "GB/s", speed->copy_bytes > 0 ? " of copy" : "",
          "line", "launch or call");
  for (int i = 0; i < count; i++) {
    if (rows[i].time < 0) continue; /* done by the call of a row before */
    so_far += (double)rows[i].time;
    bench_print_row(&graph->steps.at[rows[i].step], &rows[i], total, so_far, speed,
                    peak_of(graph, rows[i].step, speed), out);
  }
  fprintf(out, "%10.2f us when each is timed alone\n", total * 1e-3);
}

/* The median of each step's own time, where only the host has a clock. */
static Status time_rows_here(Exec *exec, ExecGraph graph, const void *batch, Row *rows) {
  int count = exec_graph_plan(exec, graph)->steps.count;
  int64_t *times = calloc((size_t)count * TABLE_STEPS + 1, sizeof *times);
  int64_t *column = calloc(TABLE_STEPS, sizeof *column);
  Status status = times && column ? STATUS_OK : status_fail(STATUS_FAULT, "out of memory");
  for (int i = 0; i < TABLE_STEPS && status == STATUS_OK; i++)
    status = exec_run_timed(exec, graph, batch, times + (ptrdiff_t)i * count);
  for (int i = 0; i < count && status == STATUS_OK; i++) {
    for (int j = 0; j < TABLE_STEPS; j++) column[j] = times[(ptrdiff_t)j * count + i];
    qsort(column, TABLE_STEPS, sizeof *column, compare_times);
    rows[i] = (Row){column[TABLE_STEPS / 2], i, NULL};
  }
  free(times);
  free(column);
  return status;
}

/* By the device's clock, on what a step has left in memory. */
static Status time_rows_there(Exec *exec, ExecGraph graph, const void *batch, Row *rows) {
  int count = exec_graph_plan(exec, graph)->steps.count;
  int64_t *times = calloc((size_t)count + 1, sizeof *times);
  if (!times) return status_fail(STATUS_FAULT, "out of memory");
  Status status = exec_run_timed(exec, graph, batch, times);
  free(times);
  for (int i = 0; i < count && status == STATUS_OK; i++) {
    rows[i].step = i;
    status = exec_time_step(exec, graph, i, &rows[i].time, &rows[i].by);
  }
  return status;
}


static Status time_kernels(Exec *exec, const BenchOptions *options, const void *batch,
                           double median, FILE *out) {
  ExecGraph number = exec_result_graph(exec, options->programme);
  const PlanGraph *graph = exec_graph_plan(exec, number);
  DeviceSpeed speed;
  STATUS_TRY(exec_speed(exec, &speed));
  Row *rows = calloc((size_t)graph->steps.count + 1, sizeof *rows);
  if (!rows) return status_fail(STATUS_FAULT, "out of memory");
  int64_t *times = calloc((size_t)graph->steps.count + 1, sizeof *times);
  Status status = !times                   ? status_fail(STATUS_FAULT, "out of memory")
                  : exec_times_steps(exec) ? time_rows_there(exec, number, batch, rows)
                                           : time_rows_here(exec, number, batch, rows);
  for (int i = 0; i < graph->steps.count && status == STATUS_OK; i++) times[i] = rows[i].time;
  if (status == STATUS_OK && options->json)
    status = bench_write_json(options->json, exec, graph, &(BenchTimes){median, times});
  if (status == STATUS_OK) print_table(graph, rows, &speed, out); /* sorts the rows */
  if (status == STATUS_OK) status = bench_print_sums(graph, times, out);
  free(times);
  free(rows);
  return status;
}

Status bench_run(Exec *exec, const BenchOptions *options, FILE *out) {
  void *batch;
  double median = 0;
  if (options->json && exec_counts(exec))
    return status_fail(STATUS_USER, "--json is for times, and the simulator counts instead");
  if (options->gpu && !exec_counts(exec))
    return status_fail(STATUS_USER, "--gpu-model is for --device sim, which counts what to reckon with");
  Programme programme; /* is there one? */
  STATUS_TRY(programme_start(exec, options->programme, &programme));
  STATUS_TRY(exec_batch_new(exec, &batch));
  bench_fill_batch(exec_plan(exec), batch, 1);
  Status status =
      options->sample ? STATUS_OK : time_steps(exec, options, batch, &median, out);
  if (status == STATUS_OK && options->per_kernel)
    status = exec_counts(exec) ? bench_count(exec, options->programme, batch,
                                             &(DeviceCounting){options->gpu, options->sample}, out)
                               : time_kernels(exec, options, batch, median, out);
  exec_batch_free(exec, batch);
  return status;
}
