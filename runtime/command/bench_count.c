/* bench_count: the table of a device that counts instead of timing (the simulator): what each
 * kernel of a step executed and moved, against the least that it must move. */
#include "runtime/command/bench_count.h"
#include <stdlib.h>

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

static void count_print_row(const PlanStep *step, const DeviceCounts *c, FILE *out) {
  int64_t sectors = c->load_sectors + c->store_sectors;
  double least = (double)step->bytes / SECTOR;
  if (!c->is_kernel) {
    fprintf(out, "%12s %10s %8s %10s %9s %9s %7s %7s %6s  %-5u %s (%s)\n", "-", "-", "-", "-", "-",
            "-", "-", "-", "-", step->line, step->label, step->name);
    return;
  }
  fprintf(out, "%12lld %10lld ", (long long)c->instructions, (long long)sectors);
  if (least > 0)
    fprintf(out, "%7.3fx", (double)sectors / least);
  else
    fprintf(out, "%8s", "-");
  fprintf(out, " %10lld %8.1f%% %8.1f%% %6d%s %7lld %5.0f%%  %-5u %s (%s)\n",
          (long long)c->store_sectors, percent(c->bank_conflicts, c->shared_accesses),
          percent(c->divergent_branches, c->branches), c->registers,
          c->registers_are_exact ? " " : "~", (long long)c->shared_bytes, 100 * c->occupancy,
          step->line, step->label, step->name);
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
  fprintf(out, "\n%12s %10s %8s %10s %9s %9s %7s %7s %6s  %-5s %s\n", "instructions", "sectors",
          "of least", "stored", "conflicts", "divergent", "regs", "shared", "occup", "line",
          "kernel or call");
  for (int i = 0; i < count; i++)
    count_print_row(&graph->steps.at[rows[i].step], &rows[i].counts, out);
  fprintf(out, "%12lld %10lld %7.3fx  warp instructions and 32-byte sectors of a step\n",
          (long long)instructions, (long long)sectors,
          least > 0 ? (double)sectors * SECTOR / (double)least : 0);
  if (!is_exact) fprintf(out, "~ registers estimated from the PTX: there is no ptxas in PATH\n");
}

Status bench_count(Exec *exec, const void *batch, FILE *out) {
  ExecGraph step = exec_result_graph(exec, PROGRAMME_STEP);
  const PlanGraph *graph = exec_graph_plan(exec, step);
  Row *rows = calloc((size_t)graph->steps.count + 1, sizeof *rows);
  if (!rows) return status_fail(STATUS_FAULT, "out of memory");
  Status status = STATUS_OK;
  for (int i = 0; i < graph->steps.count && status == STATUS_OK; i++) {
    rows[i].step = i;
    status = exec_count_step(exec, step, batch, i, &rows[i].counts);
  }
  if (status == STATUS_OK) print_rows(graph, rows, out);
  free(rows);
  return status;
}
