/* bench_sums: see bench_sums.h. A step counts for the layer of its main operation only, so that the
 * sums add up to the time of all. */
#include "runtime/command/bench_sums.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef enum { SUM_FORWARD, SUM_BACKWARD, SUM_BOTH, SUM_OTHER, SUMS } SumColumn;

typedef struct {
  char *name;
  int64_t time[SUMS], total;
  int steps, layers; /* layers: of those that are told as one */
} Sum;

typedef struct {
  Sum *at;
  int count;
  int64_t total;
} SumTable;

static SumColumn column_of(StepPhase phase) {
  switch (phase) {
  case PHASE_FORWARD:
    return SUM_FORWARD;
  case PHASE_BACKWARD:
  case PHASE_RECOMPUTED:
    return SUM_BACKWARD;
  case PHASE_BOTH:
    return SUM_BOTH;
  default:
    return SUM_OTHER;
  }
}

static Sum *find_sum(SumTable *table, const char *name) {
  for (int i = 0; i < table->count; i++)
    if (!strcmp(table->at[i].name, name)) return &table->at[i];
  Sum *sum = &table->at[table->count];
  sum->name = strdup(name);
  if (!sum->name) return NULL;
  table->count++;
  return sum;
}

/* "h.*.mlp.c_fc" of "h.3.mlp.c_fc": numbers between dots. `folded` has room for the name. */
static void fold_name(const char *name, char *folded) {
  bool is_start = true;
  while (*name) {
    size_t digits = 0;
    while (is_start && isdigit((unsigned char)name[digits])) digits++;
    is_start = *name == '.';
    if (digits && (!name[digits] || name[digits] == '.')) {
      *folded++ = '*';
      name += digits;
    } else {
      *folded++ = *name++;
    }
  }
  *folded = 0;
}

static int largest_first(const void *a, const void *b) {
  const Sum *x = a, *y = b;
  if (x->total != y->total) return x->total < y->total ? 1 : -1;
  return strcmp(x->name, y->name);
}

static void sums_free(SumTable *table) {
  for (int i = 0; i < table->count; i++) free(table->at[i].name);
  free(table->at);
}

static void print_sums(SumTable *table, const char *title, FILE *out) {
  qsort(table->at, (size_t)table->count, sizeof *table->at, largest_first);
  fprintf(out, "\n%10s %10s %10s %10s %10s %7s %6s  %s\n", "forward", "backward", "both", "other",
          "us in all", "share", "steps", title);
  for (int i = 0; i < table->count; i++) {
    const Sum *sum = &table->at[i];
    for (int c = 0; c < SUMS; c++)
      if (sum->time[c])
        fprintf(out, "%10.2f ", (double)sum->time[c] * 1e-3);
      else
        fprintf(out, "%10s ", "-");
    fprintf(out, "%10.2f %6.1f%% %6d  %s", (double)sum->total * 1e-3,
            100 * (double)sum->total / ((double)table->total + 1e-9), sum->steps, sum->name);
    if (sum->layers > 1) fprintf(out, " (%d layers)", sum->layers);
    fprintf(out, "\n");
  }
}

typedef enum { BY_LAYER, BY_KIND } SumKey;

static Status sum_steps(const PlanGraph *graph, const int64_t *nanoseconds, SumKey key,
                        SumTable *out) {
  out->at = calloc((size_t)graph->steps.count + 1, sizeof *out->at);
  if (!out->at) return status_errno(ENOMEM, "bench");
  for (int i = 0; i < graph->steps.count; i++) {
    const PlanStep *step = &graph->steps.at[i];
    if (nanoseconds[i] < 0) continue;
    Sum *sum = find_sum(out, key == BY_KIND ? work_text(step->work_kind)
                             : step->layer  ? step->layer
                                            : "(no layer)");
    if (!sum) return status_errno(ENOMEM, "bench");
    sum->time[column_of(step->phase)] += nanoseconds[i];
    sum->total += nanoseconds[i];
    sum->steps++;
    out->total += nanoseconds[i];
  }
  return STATUS_OK;
}

/* Layers whose paths differ in numbers only are one. */
static Status fold_layers(const SumTable *layers, SumTable *out) {
  out->at = calloc((size_t)layers->count + 1, sizeof *out->at);
  out->total = layers->total;
  if (!out->at) return status_errno(ENOMEM, "bench");
  for (int i = 0; i < layers->count; i++) {
    const Sum *layer = &layers->at[i];
    char *name = strdup(layer->name);
    if (name) fold_name(layer->name, name);
    Sum *sum = name ? find_sum(out, name) : NULL;
    free(name);
    if (!sum) return status_errno(ENOMEM, "bench");
    for (int c = 0; c < SUMS; c++) sum->time[c] += layer->time[c];
    sum->total += layer->total;
    sum->steps += layer->steps;
    sum->layers++;
  }
  return STATUS_OK;
}

Status bench_print_sums(const PlanGraph *graph, const int64_t *nanoseconds, FILE *out) {
  SumTable layers = {0}, folded = {0}, kinds = {0};
  Status status = sum_steps(graph, nanoseconds, BY_LAYER, &layers);
  if (status == STATUS_OK) status = sum_steps(graph, nanoseconds, BY_KIND, &kinds);
  if (status == STATUS_OK) status = fold_layers(&layers, &folded);
  if (status == STATUS_OK) {
    print_sums(&layers, "by layer", out);
    if (folded.count * 2 <= layers.count) print_sums(&folded, "by layer, numbers left out", out);
    print_sums(&kinds, "by kind of work", out);
  }
  sums_free(&layers);
  sums_free(&folded);
  sums_free(&kinds);
  return status;
}
