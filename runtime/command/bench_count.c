/* bench_count: the table of a device that counts instead of timing (the simulator): what each
 * kernel of a step executed and moved, against the least that it must move. */
#include "runtime/command/bench_count.h"
#include "runtime/command/bench_model.h"
#include <stdlib.h>
#include <string.h>

enum { SECTOR = 32 };

typedef struct {
  DeviceCounts counts;
  int step;
} Row;

static int most_first(const void *a, const void *b) {
  const Row *x = a, *y = b;
  if (x->counts.instructions != y->counts.instructions)
    return x->counts.instructions < y->counts.instructions ? 1 : -1;
  return x->step - y->step;
}

static double percent(int64_t part, int64_t whole) {
  return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

/* "   1.000x", or a dash where there is nothing to divide by. */
static void count_print_times(int64_t part, double whole, int width, FILE *out) {
  if (whole > 0)
    fprintf(out, "%*.3fx", width - 1, (double)part / whole);
  else
    fprintf(out, "%*s", width, "-");
}

static void count_print_row(const PlanGraph *graph, int index, const DeviceCounts *c, FILE *out) {
  const PlanStep *step = &graph->steps.at[index];
  int64_t sectors = c->load_sectors + c->store_sectors;
  if (!c->is_kernel) {
    fprintf(out, "%12s %10s %8s %10s %9s %9s %7s %7s %6s %9s %6s  %-5u %s (%s)\n", "-", "-", "-", "-",
            "-", "-", "-", "-", "-", "-", "-", step->line, step->label, step->name);
    return;
  }
  fprintf(out, "%12lld %10lld ", (long long)c->instructions, (long long)sectors);
  count_print_times(sectors, (double)step->bytes / SECTOR, 8, out);
  fprintf(out, " %10lld %8.1f%% %8.1f%% %6d%s %7lld %5.0f%% ", (long long)c->store_sectors,
          percent(c->bank_conflicts, c->shared_accesses),
          percent(c->divergent_branches, c->branches), c->registers,
          c->registers_are_exact ? " " : "~", (long long)c->shared_bytes, 100 * c->occupancy);
  count_print_times(c->store_sectors, plan_result_bytes(graph, step) / SECTOR, 9, out);
  if (c->wide_loads + c->narrow_loads)
    fprintf(out, " %5.0f%%", percent(c->wide_loads, c->wide_loads + c->narrow_loads));
  else
    fprintf(out, " %6s", "-");
  fprintf(out, "  %-5u %s (%s)\n", step->line, step->label, step->name);
}

static void print_rows(const PlanGraph *graph, Row *rows, FILE *out) {
  int count = graph->steps.count;
  int64_t instructions = 0, sectors = 0, least = 0;
  bool is_exact = true;
  for (int i = 0; i < count; i++) {
    const DeviceCounts *c = &rows[i].counts;
    instructions += c->instructions;
    sectors += c->load_sectors + c->store_sectors;
    least += c->is_kernel ? graph->steps.at[i].bytes : 0;
    is_exact &= !c->is_kernel || c->registers_are_exact;
  }
  qsort(rows, (size_t)count, sizeof *rows, most_first);
  fprintf(out, "\n%12s %10s %8s %10s %9s %9s %7s %7s %6s %9s %6s  %-5s %s\n", "instructions",
          "sectors", "of least", "stored", "conflicts", "divergent", "regs", "shared", "occup",
          "of result", "wide", "line", "kernel or call");
  for (int i = 0; i < count; i++)
    count_print_row(graph, rows[i].step, &rows[i].counts, out);
  fprintf(out, "%12lld %10lld %7.3fx  warp instructions and 32-byte sectors of a step\n",
          (long long)instructions, (long long)sectors,
          least > 0 ? (double)sectors * SECTOR / (double)least : 0);
  if (!is_exact) fprintf(out, "~ registers estimated from the PTX: there is no ptxas in PATH\n");
}

bool bench_are_alike(const PlanStep *a, const PlanStep *b) {
  return a->kind == STEP_LAUNCH && b->kind == STEP_LAUNCH && !strcmp(a->name, b->name) &&
         !memcmp(a->grid, b->grid, sizeof a->grid) && a->shared == b->shared &&
         a->bytes == b->bytes && a->flops == b->flops;
}

static Status count_rows(Exec *exec, ExecGraph step, const void *batch, const DeviceCounting *how, Row *rows) {
  const PlanGraph *graph = exec_graph_plan(exec, step);
  for (int i = 0; i < graph->steps.count; i++) {
    int like = 0;
    while (like < i && !(how->sample && bench_are_alike(&graph->steps.at[like], &graph->steps.at[i])))
      like++;
    rows[i].step = i;
    rows[i].counts = rows[like].counts;
    if (like == i) STATUS_TRY(exec_count_step(exec, step, batch, i, how, &rows[i].counts));
  }
  return STATUS_OK;
}

Status bench_count(Exec *exec, const char *programme, const void *batch, const DeviceCounting *how, FILE *out) {
  ExecGraph step = exec_result_graph(exec, programme);
  const PlanGraph *graph = exec_graph_plan(exec, step);
  Row *rows = calloc((size_t)graph->steps.count + 1, sizeof *rows);
  if (!rows) return status_fail(STATUS_FAULT, "out of memory");
  if (how->sample)
    fprintf(out, "of each launch at most %lld blocks were simulated, with memory that was not computed\n",
            (long long)how->sample);
  Status status = count_rows(exec, step, batch, how, rows);
  GpuWork *work = calloc((size_t)graph->steps.count + 1, sizeof *work);
  if (status == STATUS_OK && !work) status = status_fail(STATUS_FAULT, "out of memory");
  for (int i = 0; i < graph->steps.count && work; i++) work[i] = rows[i].counts.work;
  if (status == STATUS_OK) print_rows(graph, rows, out); /* sorts them */
  if (status == STATUS_OK && how->gpu) status = bench_model(exec, programme, how->gpu, work, out);
  free(work);
  free(rows);
  return status;
}
